"""Evaluate what a trial observed: series, metrics, facts and warnings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from dbbench import datasets, durability, model, results
from dbbench.datasets import Restored
from dbbench.engines import profile_of
from dbbench.engines.port import Engine
from dbbench.errors import FilesElsewhere, WorkUnconfirmed
from dbbench.machine.host import tunables
from dbbench.machine.kernel_log import Watch
from dbbench.metrics import summary
from dbbench.metrics.outcome import Outcome
from dbbench.model import Figures, Json, SourceChangeKind, TrialWarning
from dbbench.plan.planned_conditions import SMALL_DEVICE
from dbbench.run.evaluate import device_rates, fairness, time_layers, work
from dbbench.run.meter import Readings
from dbbench.run.record import Record
from dbbench.run.stages import snapshots
from dbbench.samplers import Samples
from dbbench.storage.devices.directory import disks_with_several, physical_disks
from dbbench.storage.filesystems.families import family_by_name
from dbbench.units import iso, percent, size_text

# drain ÷ window: above, much of the throughput was only cached and not yet written
DRAIN_SHARE: Final = 0.10
CLOCK_SLIP_S: Final = 0.5  # adjtime(3) and NTP slewing change the clock by less during a trial
COMMIT_RECORD: Final = 32  # smallest number of log bytes that a commit writes, in each engine
_SHOWN_FILES: Final = 5  # of those that an error names
_DECIDING: Final = re.compile(
    r"sync|flush_(log|method)|doublewrite|full_page_writes|checksum|_commit"
)
# Changes that W101 reports.
NOT_IN_FORCE: Final = (
    SourceChangeKind.CONFIGURATION,
    SourceChangeKind.PERSISTED,
    SourceChangeKind.DATABASE_SETTINGS,
)
# Limits of W152: below, the ends of files that do not fill an extent could be the difference.
UNCOMPRESSED_SHARE: Final = 0.25
UNCOMPRESSED_BYTES: Final = 2**20
SHOWN_SHARE: Final = 0.005  # smaller shares are displayed as 0 %
# Bytes of log above which a scan has written too much. An idle server writes less in the same time:
# a checkpoint, and changes of the catalogue by autovacuum (32 full pages).
SCAN_LOG_BYTES: Final = 256 * 2**10


@dataclass(frozen=True)
class Observed:
    """What the stages of a trial pass on in addition to its facts."""

    outcome: Outcome
    samples: Samples
    readings: Readings
    restored: Restored
    kernel: Watch
    engine: Engine
    tears: model.Durability | None  # see `Mounted.tears_pages_of`
    first_state: Json  # state of host and block layer before the run's first trial


def judge(trial: Record, observed: Observed) -> None:
    """Write series, summary, facts and warnings into the record. Raises WorkUnconfirmed,
    FilesElsewhere.
    """
    of_samples = _series(trial, observed)
    _facts(trial, observed)
    trial.warn(
        *observed.outcome.warnings,
        *of_samples,
        *observed.readings.warnings(),
    )
    for warnings in WARNINGS:
        trial.warn(*warnings(trial, observed))
    _compare_work(trial, observed)
    _combine_durability(trial, observed)
    _confirm_flushes(trial, observed)


def _series(trial: Record, observed: Observed) -> list[TrialWarning]:
    """Set the series and the histogram; return the warnings of the samplers."""
    outcome = observed.outcome
    window = trial.cell.window
    trial.series = outcome.series
    trial.histogram = outcome.histogram
    seconds = trial.series.seconds
    sampled, warnings = observed.samples.read(outcome.begin_utc, seconds)
    trial.series.update(sampled)
    warm = round(window.warmup_s) if window.kind == "fixed" else 0
    trial.phase_of_second = [
        model.Phase.WARMUP if s < warm else model.Phase.MEASURE for s in range(seconds)
    ]
    # In microseconds, because metrics are recomputed from it.
    trial.facts.anchor_utc = iso(outcome.begin_utc, "microseconds")
    return warnings


def _facts(trial: Record, observed: Observed) -> None:
    outcome = observed.outcome
    readings = observed.readings
    facts = trial.facts
    cell = trial.cell
    effective = facts.effective_settings
    io = readings.disks.io
    facts.engine_features = profile_of(cell.engine.name).shown(effective)
    # Writes that the window left for later.
    drain_s = round(trial.phase_s(model.Phase.DRAIN), 3)
    facts.drain = model.DrainFacts(readings.debt_bytes, drain_s, readings.drain_write_bytes)
    # What the trial had: memory, cores, the client's host, checkpoints.
    facts.memory = fairness.memory(
        cell,
        readings,
        effective,
        facts.space.logical_bytes,
        trial.run.host.get("memory_bytes"),
    )
    facts.cores = fairness.cores(cell, readings.processes)
    sampler = observed.samples.parts.get("threads")
    facts.time = time_layers.facts(sampler, outcome, cell, readings)
    client = readings.bench.client
    facts.client = None if client is None else client.facts
    facts.checkpoints = readings.engine.checkpoints
    # Write amplification is unknown if something else wrote to the device.
    amplified = summary.ratio(io.write_bytes, io.engine_write_bytes)
    if readings.foreign_on_device():
        amplified = None
    facts.io = dataclasses.replace(io, write_amplification=amplified)
    if facts.snapshots is not None:
        facts.snapshots = snapshots.with_cost(facts.snapshots, outcome, cell.window)
    facts.summary = _summary(trial, observed)
    facts.types = summary.types(outcome)
    # The rate counts as commits only if the load flushes its commits.
    tps = facts.summary.get("tps") if _commits(outcome, io.engine_write_bytes) else None
    facts.ceiling = device_rates.with_rates(facts.ceiling, outcome.series, cell, tps)


def _summary(trial: Record, observed: Observed) -> Figures:
    outcome = observed.outcome
    restored = observed.restored
    readings = observed.readings
    processes = readings.processes
    window = trial.cell.window
    limit = trial.cell.limit
    tps = outcome.series["tps"]
    io = trial.facts.io
    drain = trial.facts.drain
    switches = processes.switches_per_s
    # Throughput, and what it costs if the limit has a price.
    rates = summary.throughput(outcome, drain.drain_s)
    if rates and limit is not None and isinstance(limit.price, int | float):
        rates["tps_per_price"] = summary.ratio(rates["tps"], limit.price)
    # Divided by transactions, these are the costs of one.
    totals = {
        "cpu_ms": readings.cpu_ms(),
        "write_kb": None if io.write_bytes is None else io.write_bytes / 1000,
        "read_kb": None if io.read_bytes is None else io.read_bytes / 1000,
        "flushes": io.flushes,
        "io_operations": io.operations,
        "context_switches": None if switches is None else switches * outcome.window_s,
    }
    # The table of metrics names these keys; None is what could not be measured.
    stalled = summary.stalled_seconds(window, tps)
    latencies = summary.latencies(outcome)
    return {
        **rates,
        **latencies,
        "stall_s": stalled,
        "stalls_per_h": summary.per_hour(stalled, outcome.window_s),
        **summary.stability(window, tps, latencies),
        **summary.costs(outcome, totals),
        "cpu_pct": readings.cpu_pct(),
        "ceiling_pct": None,  # see `results.at_ceiling`
        "server_memory_bytes": processes.server_bytes,
        "write_amplification": io.write_amplification,
        **summary.space(trial.facts.space),
        **summary.syncs(trial.facts.filesystem),
        "dataset_bytes": restored.bytes,
        "drain_s": drain.drain_s,
        "restore_mb_per_s": restored.bytes / restored.copy_s / 1e6 if restored.bytes else None,
        "first_query_s": trial.phase_s(model.Phase.START),
        "client_cpu_s": processes.client_cpu.get("client_cpu_s"),
        "dbbench_cpu_s": processes.cpu.get("dbbench_cpu_s"),
        **summary.scan_summary(trial.facts.operations),
        **outcome.figures,
        **summary.completion_summary(outcome, drain.drain_s, io),
    }


def compare_settings(
    asked: model.Settings,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> Iterator[TrialWarning]:
    """Yield W128 if a setting of the plan, or one that affects flushes, was changed during the
    load.
    """
    names = [name for name in before if name in asked or _DECIDING.search(name)]
    old = {name: before[name] for name in names}
    new = {name: after.get(name) for name in names}
    changes = tunables.differences(old, new)
    if changes:
        yield TrialWarning("W128", "; ".join(changes))


def _of_dataset(_trial: Record, observed: Observed) -> Iterator[TrialWarning]:
    facts = observed.restored.facts
    if facts is None:
        return
    for change in facts.changes:
        if change.kind in NOT_IN_FORCE:
            yield TrialWarning("W101", datasets.sources.text(change))
    if facts.tablespace:
        text = f"only the tablespace {facts.tablespace} is; the log is on another disk"
        yield TrialWarning("W101", text)


def _of_conditions(trial: Record, observed: Observed) -> Iterator[TrialWarning]:
    facts = trial.facts
    cell = trial.cell
    yield from fairness.warnings(facts.memory, facts.cores, observed.readings.bench.limits)
    yield from fairness.of_client(facts.client)
    warmup_s = cell.window.warmup_s
    yield from device_rates.exceeds_limit(facts.limit, facts.ceiling, facts.device, warmup_s)
    if facts.filesystem is not None:
        for volume in facts.filesystem.volumes.values():
            yield from device_rates.other_delay(volume)
    yield from device_rates.slower(facts.ceiling, observed.outcome.series, cell)
    # a loop file is affected more by other I/O on the disk below than by its history
    if trial.run.plan.device.disks:
        done = results.list_results(trial.folder.path)
        key = (trial.spec.block, trial.spec.attempt)
        others = [
            trial.folder.trial(spec).canary
            for spec in trial.run.order
            if spec.id in done and (spec.block, spec.attempt) == key
        ]
        yield from device_rates.canary(facts.canary, others)


def _of_window(trial: Record, observed: Observed) -> Iterator[TrialWarning]:
    window = trial.cell.window
    if window.kind != "fixed":
        return
    window_text = f"a window of {window.measure_s:.0f} s"
    if window.measure_s < summary.SHORT_WINDOW_S:
        yield TrialWarning("W001", f"{window_text} is too short to detect a trend")
    yield from fairness.warm_up(window, trial.facts.filesystem)
    yield from fairness.steady(window, observed.outcome.series["tps"])
    checkpoints = trial.facts.checkpoints
    if not checkpoints.ended and trial.facts.io.engine_write_bytes:
        yield TrialWarning("W002", checkpoints.note or "no checkpoint finished in the window")
    drain_s = trial.phase_s(model.Phase.DRAIN)
    if drain_s > DRAIN_SHARE * window.measure_s and window.measure_s >= summary.SHORT_WINDOW_S:
        yield TrialWarning("W003", f"the drain took {drain_s:.1f} s after {window_text}")


def _of_scan(trial: Record, observed: Observed) -> Iterator[TrialWarning]:
    if trial.cell.workload.driver != "scan":
        return
    written = observed.readings.work(explicit=False).log_bytes
    if written is not None and written >= SCAN_LOG_BYTES:
        text = f"{written / 1e6:.1f} MB of log were written while the tables were scanned"
        yield TrialWarning("W118", text)


def _of_machine(trial: Record, observed: Observed) -> Iterator[TrialWarning]:
    began = trial.facts.host_state
    ended = trial.facts.host_state_end
    kernel = observed.kernel
    # Changes since the run's first trial, and during this one.
    first = {name: value for name, value in observed.first_state.items() if name in began}
    changes = tunables.differences(first, {name: began[name] for name in first})
    changes += tunables.differences(began, ended)
    if changes:
        yield TrialWarning("W018", "; ".join(changes))
    second = trial.run.host.get("second_kernel")
    if second:
        yield TrialWarning("W099", str(second))
    # The clock and the seconds without a sample.
    slip = trial.clock.slip_s()
    if abs(slip) > CLOCK_SLIP_S:
        yield TrialWarning("W023", f"the system clock moved by {slip:+.1f} s during the trial")
    yield from device_rates.silent(trial.cell.window, observed.outcome.series)
    # What the kernel reported: about the machine, lost lines, and the disks under test.
    about_machine = kernel.lines_about_machine()
    if about_machine:
        yield TrialWarning("W020", "; ".join(about_machine[:3]))
    if kernel.lost():
        yield TrialWarning("W013", "lines of the kernel's log were lost during the trial")
    about_disks = list[str]()
    for disk in _disks(trial.facts.device):
        if disk.name:
            about_disks += kernel.lines_about(disk.name) or ()
    if about_disks:
        yield TrialWarning("W020", "; ".join(about_disks[:3]))


def _of_later_stages(trial: Record, _observed: Observed) -> Iterator[TrialWarning]:
    facts = trial.facts
    for operation in facts.operations:
        if operation.failed:
            yield TrialWarning("W030", f"{operation.name}: {operation.text}")
    for text in facts.space.unread:
        yield TrialWarning("W140", text)


def _of_growth(trial: Record, _observed: Observed) -> Iterator[TrialWarning]:
    facts = trial.facts.growth
    if facts is None or facts.compressed_share is None or facts.restored_share is None:
        return
    grown_bytes = facts.data_bytes or 0
    less = facts.restored_share - facts.compressed_share
    if less < UNCOMPRESSED_SHARE or grown_bytes < UNCOMPRESSED_BYTES:
        return
    text = f"{percent(facts.compressed_share)} of {size_text(grown_bytes)} that grew are compressed"
    text += f", and {percent(facts.restored_share)} of the restored files"
    allocated = facts.preallocated_share or 0.0
    if allocated >= SHOWN_SHARE:
        text += f"; {percent(allocated)} allocated but not yet written"
    yield TrialWarning("W152", text)


def _of_device(trial: Record, _observed: Observed) -> Iterator[TrialWarning]:
    device = trial.facts.device
    cache = trial.facts.cache
    disks = _disks(device)
    # Images: cached twice without direct I/O, and given back by a discard.
    for disk in disks:
        if disk.direct_io is False:
            yield TrialWarning("W011", f"{disk.image} is on a filesystem without direct I/O")
        before = disk.image_blocks_before
        after = disk.image_blocks_after
        if before is not None and after is not None and after < before:
            text = f"the image had {before * 512} bytes allocated before mkfs"
            text += f" and {after * 512} after the trial"
            discards = trial.facts.filesystem.discards  # the fs setup enables online discard
            yield TrialWarning("W017", text, suspect=False if discards else None)
    # A device that is too small, or shared, or a cache that was not empty.
    if not device.existing and device.size_bytes < SMALL_DEVICE:
        yield TrialWarning("W021", f"the device has {size_text(device.size_bytes)}")
    shared = disks_with_several([physical_disks(disk) for disk in disks])
    if shared:
        yield TrialWarning("W119", f"{len(disks)} devices share {', '.join(shared)}")
    if not cache.proved:
        yield TrialWarning("W010", cache.reason)
    if cache.whole_machine:
        yield TrialWarning("W156", cache.method)


def _of_filesystem(trial: Record, _observed: Observed) -> Iterator[TrialWarning]:
    facts = trial.facts.filesystem
    groups = facts.geometry.get("uninitialised_groups")
    if groups:
        text = f"the kernel has yet to initialize {groups} block groups of the new filesystem"
        yield TrialWarning("W028", text)
    pools = facts.tunables.get("other_pools")
    if pools:
        yield TrialWarning("W027", f"other imported pools: {pools}")


WARNINGS: Final[tuple[Callable[[Record, Observed], Iterator[TrialWarning]], ...]] = (
    _of_dataset,
    _of_conditions,
    _of_window,
    _of_scan,
    _of_machine,
    _of_later_stages,
    _of_growth,
    _of_device,
    _of_filesystem,
)


def _compare_work(trial: Record, observed: Observed) -> None:
    """Compare the load generator's counts with those of the server."""
    outcome = observed.outcome
    strays = observed.readings.processes.strays
    if strays:
        files = ", ".join(strays[:_SHOWN_FILES])
        raise FilesElsewhere(f"files outside of the filesystem under test were in use: {files}")
    facts = work.compare(outcome.claims, observed.readings, trial.cell)
    sizes = work.DataSizes(
        observed.restored.bytes if trial.facts.cache.proved else 0,
        trial.facts.space.logical_bytes or 0,
    )
    family = family_by_name(trial.facts.filesystem.family)
    by_device = work.device(outcome, observed.readings, family.by_mkfs, sizes)
    log = work.log(outcome, facts, observed.readings)
    trial.facts.work = (*facts, *log, *by_device)
    trial.warn(*work.list_uncertain(facts))
    for warning in work.check(trial.facts.work, outcome, trial.cell):
        trial.warn(warning)


def _disks(device: model.DeviceFacts) -> tuple[model.DeviceFacts, ...]:
    return tuple(disk for volume in device.volumes.values() for disk in volume.members or (volume,))


def _commits(outcome: Outcome, written_bytes: int | None) -> int:
    """Return the transactions that had something to flush: a read-only load writes a little too
    (hint bits). A load on files counts its own.
    """
    if written_bytes is None:
        return outcome.commits or 0
    transactions = outcome.transactions if outcome.commits is None else outcome.commits
    return transactions if written_bytes and written_bytes >= COMMIT_RECORD * transactions else 0


def _combine_durability(trial: Record, observed: Observed) -> None:
    """Set the flags and the class that filesystem and server have together, and the reports of
    losses.
    """
    facts = trial.facts.filesystem
    effective = trial.facts.effective_settings
    # A page that the disk writes completely or not at all cannot tear, unless the filesystem may
    # have used the page cache.
    atomic_bytes = 0
    if trial.facts.memory.direct == "direct":
        by_disk = int(facts.queue.get("atomic_write_unit_max_bytes") or 0)
        atomic_bytes = min(facts.atomic_write_max_bytes or 0, by_disk)
    storage = durability.Storage(
        observed.tears,
        partial(family_by_name(facts.family).reports, facts.mount_options_effective),
        atomic_bytes,
    )
    by_server, reports = durability.of_server(
        observed.engine.durability,
        effective,
        storage,
        profile_of(trial.cell.engine.name).restores_pages,
    )

    # Reports about any filesystem of the trial, also about that of a separate log.
    for fs in facts.volumes.values():
        reports += family_by_name(fs.family).reports(fs.mount_options_effective, False)
    flags = durability.combine(facts.durability_flags, by_server)
    trial.facts.filesystem = dataclasses.replace(
        facts,
        durability_flags=flags,
        durability_class=model.durability_class(flags, durability.page_bytes(effective)),
        reports=tuple(dict.fromkeys(reports)),
    )


def _confirm_flushes(trial: Record, observed: Observed) -> None:
    """Compare the commits with the flushes of the device under test."""
    facts = trial.facts.filesystem
    outcome = observed.outcome
    effective = trial.facts.effective_settings
    io = observed.readings.disks.io
    flags = facts.durability_flags
    restored = observed.restored.facts
    # Commits flush the log, which may be on a device that is not under test.
    log_elsewhere = restored is not None and bool(restored.tablespace) and len(facts.volumes) == 1
    # A load that runs to its end counts tables or files and makes no commits.
    commits = 0
    if outcome.histogram is not None and not log_elsewhere:
        commits = _commits(outcome, io.engine_write_bytes)
    # Writes that the device is told to complete at once need no flush.
    forced = durability.forced_writes(effective, facts.queue.get("fua") == "1")
    text, disproved = durability.flushes_verdict(
        io.flushes,
        io.flushes_note,
        commits,
        flags,
        forced,
    )
    trial.facts.io = dataclasses.replace(trial.facts.io, flushes_note=text)
    if disproved:
        raise WorkUnconfirmed(text)
    # Further counts: flushes of files, and of logs at each commit.
    logs = 0 if log_elsewhere or forced else durability.flushed_logs(effective)
    needed = tuple(work.flushes(outcome, observed.readings, trial.cell, flags, logs))
    trial.facts.work = (*trial.facts.work, *needed)
    for warning in work.check(needed, outcome, trial.cell):
        trial.warn(warning)
    if io.flushes is None and commits:
        trial.warn(TrialWarning("W150", text))
