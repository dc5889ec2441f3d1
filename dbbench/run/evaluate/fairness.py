"""Conditions that must be equal between filesystems: memory, CPUs, the client's host, and a steady
window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from dbbench.machine.cores import parsed_cores
from dbbench.machine.limits import Confined
from dbbench.metrics import steadiness, summary
from dbbench.metrics.series import Column
from dbbench.model import (
    Cell,
    ClientFacts,
    CoresFacts,
    FilesystemFacts,
    MemoryFacts,
    TrialWarning,
    Window,
)
from dbbench.plan import workloads
from dbbench.run.meter import ProcessFigures, Readings
from dbbench.storage.filesystems.families import PERIODS, family_by_name
from dbbench.units import bytes_of, change, percent, size_text

CLIENT_BOUND: Final = 0.8  # share of its cores: above, the load generator limits the throughput
# Limits of the data files' bytes in the page cache. Every server reads headers and catalogues
# through it; if a file is read and written through it, all pages that the window touched are there.
FALLBACK_SHARE: Final = 0.10
FALLBACK_LEAST: Final = 16 * 2**20
# above it W023 is given; series have one row per second, so this is a tenth of a row
CLOCK_S: Final = 0.1
OTHERS: Final = 0.10  # share of the client host's CPU time that other processes may use


def memory(
    cell: Cell,
    readings: Readings,
    effective: Mapping[str, str],
    dataset_bytes: int | None,
    machine_bytes: int | None,
) -> MemoryFacts:
    """Return the size of the dataset compared with the memory that can cache it, and how the server
    read its files.
    """
    # Who caches the data decides which memory counts.
    group = readings.processes.memory
    resident = readings.engine.resident_bytes
    direct = how_read(effective, resident, dataset_bytes)
    limit = group.limit_bytes if group else None
    # the only cache of data
    own_cache = bytes_of(effective["innodb_buffer_pool_size"]) if direct == "direct" else None
    could_hold = limit or own_cache or machine_bytes
    ratio = dataset_bytes / could_hold if dataset_bytes is not None and could_hold else None
    return MemoryFacts(
        limit_bytes=cell.memory_bytes,
        dataset_bytes=dataset_bytes,
        dataset_ratio=ratio,
        hit_ratio=readings.engine.hit_ratio,
        direct=direct,
        effective_bytes=could_hold,
        label=workloads.label(ratio),
        enforced=f"cgroup v{group.version}" if group else "",
        peak_bytes=group.peak_bytes if group else None,
        resident_bytes=resident,
        server_bytes=readings.processes.server_bytes,
    )


def how_read(
    effective: Mapping[str, str],
    resident: int | None,
    dataset: int | None,
) -> str | None:
    """Return whether requested direct I/O was direct: then hardly any page of the files is in the
    page cache.
    """
    if not effective.get("innodb_flush_method", "").upper().startswith("O_DIRECT"):
        return "buffered" if effective else None
    if resident is None or dataset is None:
        return None
    most = max(FALLBACK_LEAST, FALLBACK_SHARE * dataset)
    return "buffered-fallback" if resident > most else "direct"


def cores(cell: Cell, processes: ProcessFigures) -> CoresFacts | None:
    """Return the CPUs of the trial, with the CPU time of the load generator divided by what it
    could use: its CPUs, at most its threads.
    """
    facts = processes.cores
    used = processes.client_cpu.get("client_cpu_s")
    seconds = processes.client_cpu.get("seconds")
    if facts is None or facts.server is None or not used or not seconds or not facts.client:
        return facts
    parameters = {**cell.dataset.parameters, **cell.parameters}
    threads = int(parameters.get("threads", parameters.get("clients", 1)))
    usable = max(1, min(threads, len(parsed_cores(facts.client))))
    return replace(facts, client_share=used / (seconds * usable))


def warnings(
    memory: MemoryFacts,
    cores: CoresFacts | None,
    limits: Confined,
) -> Iterator[TrialWarning]:
    """Yield the warnings about memory and CPUs of a trial."""
    if memory.limit_bytes and not memory.enforced:
        text = f"{size_text(memory.limit_bytes)} were requested; {limits.reason}"
        yield TrialWarning("W038", text)
    if memory.direct == "buffered-fallback" and memory.resident_bytes is not None:
        text = f"direct I/O was requested, but {size_text(memory.resident_bytes)} of the data files"
        yield TrialWarning("W011", f"{text} were in the page cache after the window")
    if cores is None:
        return
    if limits.asked and cores.shared:
        yield TrialWarning("W039", f"server on {cores.server}, load generator on {cores.client}")
    if cores.client_share is not None and cores.client_share > CLIENT_BOUND:
        text = f"the load generator used {percent(cores.client_share)} of the cores"
        yield TrialWarning("W016", f"{text} that it can use ({cores.client})")


def warm_up(window: Window, fs: FilesystemFacts) -> Iterator[TrialWarning]:
    """Yield W001 if the warm-up covers fewer than two of the filesystem's write-out periods."""
    every = family_by_name(fs.family).writes_out_s(fs.mount_options_effective, fs.tunables)
    if window.kind == "fixed" and every is not None and window.warmup_s < PERIODS * every:
        text = (
            f"the warm-up is {window.warmup_s:.0f} s, but {fs.family} commits every {every:.0f} s"
        )
        yield TrialWarning("W001", f"{text}; use at least {PERIODS * every:.0f} s")


def steady(window: Window, tps: Column) -> Iterator[TrialWarning]:
    """Yield W005 if throughput had a trend over the window."""
    measured = summary.measured_seconds(window, tps)
    trend = steadiness.trend(measured)
    if trend is None or not trend.significant:
        return
    # 0: there is a trend, but cutting off the beginning does not remove it
    cut = steadiness.settled_after_s(measured)
    settled = f"steady after {cut} s" if cut else "not steady at any time"
    text = f"throughput changed by {change(1 + trend.change)} over the window (p = {trend.p:.2g})"
    yield TrialWarning("W005", f"{text}; {settled}")


def of_client(facts: ClientFacts | None) -> Iterator[TrialWarning]:
    """Yield W012, W023 and W104; none for a local load generator."""
    if facts is None:
        return
    # Series of two hosts can be compared only as well as their clocks.
    drift = abs(facts.clock_drift_s or 0.0)
    error = facts.clock_error_s or 0.0
    if drift + error > CLOCK_S:
        text = f"the offset of the clocks changed by {drift:.3f} s during the load"
        yield TrialWarning("W023", f"{text}; it is known to {error:.3f} s")
    if facts.tool_here and _release(facts.tool) != _release(facts.tool_here):
        yield TrialWarning("W104", f"{facts.hostname}: {facts.tool}; here: {facts.tool_here}")
    if facts.others_share is not None and facts.others_share >= OTHERS:
        text = f"other processes used {percent(facts.others_share)} of the {facts.cpus} processors"
        yield TrialWarning("W012", f"{text} of {facts.hostname}")


def _release(version: str) -> str:
    """Return the part of a version that makes a release: "15" of pgbench 15.18, "1.0.20" of
    sysbench.
    """
    words = [word for word in version.split() if word[:1].isdigit()]
    number = words[0] if words else version
    return number if version.startswith("sysbench") else number.partition(".")[0]
