"""Conditions that must be equal between filesystems: memory, CPUs, a responsive device; and how close a trial came to
what its bare device can do. Facts and warnings."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dbbench.engines import profile_of
from dbbench.machine.limits import parsed_cores as parsed
from dbbench.metrics import steadiness, summary
from dbbench.metrics.series import Column, Series
from dbbench.metrics.summary import measured_seconds
from dbbench.model import CeilingFacts, Cell, CoresFacts, DeviceRate, FilesystemFacts, MemoryFacts, TrialWarning, Window
from dbbench.plan import workloads
from dbbench.run.meter import Meter
from dbbench.storage.filesystems import PERIODS, period_s
from dbbench.units import bytes_of, change, percent, size_text

CLIENT_BOUND: Final = 0.8  # share of its cores: above, the load generator limits the throughput
CANARIES: Final = 3  # smallest number of probes in a block: with two, neither can be called the outlier
CANARY_OFF: Final = 0.10
# Limits of the data files' bytes in the page cache. Every server reads headers and catalogues through it; if a file is
# read and written through it, all pages that the window touched are there.
FALLBACK_SHARE: Final = 0.10
FALLBACK_LEAST: Final = 16 * 2**20
# A flush takes a drive a second or two; the kernel reports a request only after its driver's timeout (SCSI: 30 s).
SILENT_S: Final = 5


def memory(
    cell: Cell, meter: Meter, effective: Mapping[str, str], dataset_bytes: int | None, machine_bytes: int | None
) -> MemoryFacts:
    """Return the size of the dataset compared with the memory that can cache it, and how the server read its files."""
    group, direct = meter.memory, how_read(effective, meter.resident_bytes, dataset_bytes)
    limit = group.limit_bytes if group else None
    could_hold = limit or _own_cache(effective, direct) or machine_bytes
    ratio = dataset_bytes / could_hold if dataset_bytes is not None and could_hold else None
    return MemoryFacts(
        limit_bytes=cell.memory_bytes,
        dataset_bytes=dataset_bytes,
        dataset_ratio=ratio,
        hit_ratio=meter.hit_ratio,
        direct=direct,
        effective_bytes=could_hold,
        label=workloads.label(ratio),
        enforced=f"cgroup v{group.version}" if group else "",
        peak_bytes=group.peak_bytes if group else None,
        resident_bytes=meter.resident_bytes,
        server_bytes=meter.server_bytes,
    )


def how_read(effective: Mapping[str, str], resident: int | None, dataset: int | None) -> str | None:
    """Return whether requested direct I/O was direct: then hardly any page of the files is in the page cache."""
    if not effective.get("innodb_flush_method", "").upper().startswith("O_DIRECT"):
        return "buffered" if effective else None
    if resident is None or dataset is None:
        return None
    return "buffered-fallback" if resident > max(FALLBACK_LEAST, FALLBACK_SHARE * dataset) else "direct"


def client_share(cell: Cell, cores: CoresFacts | None, cpu: Mapping[str, float | None]) -> float | None:
    """Return the CPU time of the load generator divided by what it could use: its CPUs, at most its threads.

    None without a server: the load generator is then what is measured.
    """
    used, seconds = cpu.get("client_cpu_s"), cpu.get("seconds")
    if cores is None or cores.server is None or not used or not seconds or not cores.client:
        return None
    parameters = {**cell.dataset.parameters, **cell.parameters}
    threads = int(parameters.get("threads", parameters.get("clients", 1)))
    return used / (seconds * max(1, min(threads, len(parsed(cores.client)))))


def warnings(cell: Cell, memory: MemoryFacts, cores: CoresFacts | None, meter: Meter) -> Iterator[TrialWarning]:
    """Yield the warnings about memory and CPUs of a trial."""
    if memory.limit_bytes and not memory.enforced:
        text = f"{size_text(memory.limit_bytes)} were requested; {meter.limits.reason}"
        yield TrialWarning("W038", text)
    if memory.direct == "buffered-fallback" and memory.resident_bytes is not None:
        text = f"{size_text(memory.resident_bytes)} of the data files were in the page cache after the window"
        yield TrialWarning("W043", f"direct I/O was requested, but {text}")
    if cores is None:
        return
    if meter.limits.asked and cores.shared:
        yield TrialWarning("W039", f"server on {cores.server}, load generator on {cores.client}")
    if cores.client_share is not None and cores.client_share > CLIENT_BOUND:
        text = f"the load generator used {percent(cores.client_share)} of the cores that it can use ({cores.client})"
        yield TrialWarning("W016", text)


def canary(mine: float | None, others: Sequence[float]) -> Iterator[TrialWarning]:
    """Yield W040 if the write probe differs from those of the block's earlier trials; three probes are needed for a
    median."""
    if mine is None or len(others) + 1 < CANARIES:
        return
    median = statistics.median([mine, *others])
    if abs(mine - median) > CANARY_OFF * median:
        text = f"the write probe reached {mine:.0f} MB/s; the median of its block is {median:.0f} MB/s"
        yield TrialWarning("W040", text)


def warm_up(window: Window, fs: FilesystemFacts) -> Iterator[TrialWarning]:
    """Yield W041 if the warm-up covers fewer than three of the filesystem's write-out periods."""
    every = period_s(fs.family, fs.mount_options_effective, fs.tunables)
    if window.kind == "fixed" and every is not None and window.warmup_s < PERIODS * every:
        text = (
            f"the warm-up is {window.warmup_s:.0f} s, but {fs.family} commits every {every:.0f} s; "
            f"use at least {PERIODS * every:.0f} s"
        )
        yield TrialWarning("W041", text)


def steady(window: Window, tps: Column) -> Iterator[TrialWarning]:
    """Yield W005 if throughput had a trend over the window."""
    measured = summary.measured_seconds(window, tps)
    trend = steadiness.trend(measured)
    if trend is None or not trend.found:
        return
    cut = steadiness.settled_after_s(measured)  # 0: there is a trend, but cutting off the beginning does not remove it
    settled = f"steady after {cut} s" if cut else "not steady at any time"
    text = f"throughput changed by {change(1 + trend.change)} over the window (p = {trend.p:.2g}); {settled}"
    yield TrialWarning("W005", text)


def silent(window: Window, series: Series) -> Iterator[TrialWarning]:
    """Yield W106 if a disk completed no request for SILENT_S seconds in a row while one was pending.

    A filesystem that delays its requests leaves the disk idle, and a slow disk completes some. One warning per disk,
    for its longest interruption.
    """
    for disk, prefix in (("the device", ""), ("the log's device", "log_")):
        names = [f"{prefix}{name}" for name in ("util_pct", "r_per_s", "w_per_s", "f_per_s", "d_per_s")]
        if not all(name in series for name in names[:3]):
            continue
        busy, *ended = [summary.measured_seconds(window, series[name]) for name in names if name in series]
        waiting = [b is not None and b >= BUSY_PCT and not any(rates) and rates[0] is not None
                   for b, rates in zip(busy, zip(*ended, strict=True), strict=True)]  # fmt: skip
        begin, length = _longest(waiting)
        if length >= SILENT_S:
            text = f"{disk} completed no request for {length} s while one was pending"
            yield TrialWarning("W106", text, second=round(window.warmup_s) + begin)


def _longest(flags: Sequence[bool]) -> tuple[int, int]:
    """Return the start and length of the longest sequence of true values; (0, 0) if there is none."""
    longest, begin = (0, 0), 0
    for place, flag in enumerate(flags):
        if not flag:
            begin = place + 1
        elif place + 1 - begin > longest[1]:
            longest = (begin, place + 1 - begin)
    return longest


def _own_cache(effective: Mapping[str, str], direct: str | None) -> int | None:
    """Return the size of the buffer pool if it is the only cache of data."""
    return bytes_of(effective["innodb_buffer_pool_size"]) if direct == "direct" else None


def with_client_share(cell: Cell, cores: CoresFacts | None, cpu: Mapping[str, float | None]) -> CoresFacts | None:
    """Return the CPUs with the share that the load generator used."""
    return None if cores is None else dataclasses.replace(cores, client_share=client_share(cell, cores, cpu))


# A device at a configured limit reaches it in every second: writes capped at 300 per second stayed between 260 and 312,
# and their median within 3 % of the cap; those of a loop file without a cap scattered by 80 % of their median. The
# median is used, because a second in which another process had the CPU says nothing about the device.
FLAT: Final = 0.10  # interquartile range ÷ median; on a busy machine iostat's own interval varies by 10 %
LEAST_SECONDS: Final = 3
BUSY_PCT: Final = 90.0  # part of a second in which a request is pending; above, the device counts as always busy
SLOW: Final = 0.5  # share of the rate before the run
_RATES: Final = (("util_pct",), ("r_per_s", "w_per_s"), ("r_kb_per_s", "w_kb_per_s"))
_KB: Final = 1.024e-3  # converts iostat's kB to 10^6 bytes


def with_rates(ceiling: CeilingFacts, series: Series | None, cell: Cell, tps: float | None) -> CeilingFacts:
    """Return the ceiling with the rates of the device in the trial's window; `tps` are transactions that flush.

    What is a limit is decided when all trials of the run are known (`results.ceiling`).
    """
    rates = [*_rates(series, cell)] if series is not None else []
    if tps and profile_of(cell.engine.name).has_server:
        row = f"write_{profile_of(cell.engine.name).page_bytes // 1024}k_fdatasync"
        rates.append(DeviceRate(row, "IOPS", round(tps, 1), constant=False))
    return dataclasses.replace(ceiling, rates=tuple(rates) if ceiling.rows else ())


def slower(ceiling: CeilingFacts, series: Series, cell: Cell) -> Iterator[TrialWarning]:
    """Yield W136 if the device was busy and yet gave less than half of its slowest rate before the run.

    Both rates, requests and bytes, must be that low for LEAST_SECONDS seconds of the window.
    """
    if not ceiling.rows or any(name not in series for names in _RATES for name in names):
        return  # a load shorter than iostat's first interval has only the first column
    iops, rate = (min(getattr(row, name) for row in ceiling.rows) for name in ("iops", "mb_per_s"))
    slow = [
        (second, requests)
        for second, (busy, requests, kb) in enumerate(
            zip(*(_summed(series, cell, names) for names in _RATES), strict=True)
        )
        if busy is not None and requests is not None and kb is not None
        and busy >= BUSY_PCT and 0 < requests < SLOW * iops and kb * _KB < SLOW * rate
    ]  # fmt: skip
    if len(slow) >= LEAST_SECONDS:
        text = f"always busy, but only {statistics.median(value for _, value in slow):.4g} IOPS in {len(slow)} seconds"
        comparison = f"{text}; before the run its slowest rate was {iops:.4g} IOPS"
        yield TrialWarning("W136", comparison, round(cell.window.warmup_s) + slow[0][0])


def _summed(series: Series, cell: Cell, names: Sequence[str]) -> Column:
    """Return the seconds of the window with the columns added; a gap if one of them has a gap."""
    columns = [measured_seconds(cell.window, series[name]) for name in names if name in series]
    return [sum(row) if None not in row else None for row in zip(*columns, strict=True)]


def _rates(series: Series, cell: Cell) -> Iterator[DeviceRate]:
    units: tuple[tuple[str, float, tuple[str, str]], ...] = (
        ("IOPS", 1.0, ("r_per_s", "w_per_s")), ("MB/s", _KB, ("r_kb_per_s", "w_kb_per_s")))  # fmt: skip
    for unit, factor, (read, write) in units:
        for side, names in ("reads", (read,)), ("writes", (write,)), ("reads and writes", (read, write)):
            if any(name not in series for name in names):
                continue
            values = [value * factor for value in _summed(series, cell, names) if value is not None]
            if values and (median := statistics.median(values)):
                enough = len(values) >= LEAST_SECONDS
                low, _, high = statistics.quantiles(values, n=4, method="inclusive") if enough else (0.0, 0.0, math.inf)
                yield DeviceRate(side, unit, round(median, 1), high - low <= FLAT * median)
