"""Evaluate what a trial observed: series, metrics, facts and warnings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dbbench import datasets, durability, model, results
from dbbench.datasets import Restored
from dbbench.engines import profile_of
from dbbench.engines.port import Engine
from dbbench.errors import FilesElsewhere, WorkUnconfirmed
from dbbench.machine import host
from dbbench.machine.kernel_log import Watch
from dbbench.metrics import summary
from dbbench.metrics.outcome import Outcome
from dbbench.run.evaluate import limits, work
from dbbench.run.meter import Meter
from dbbench.run.record import Record
from dbbench.samplers import Samples
from dbbench.storage import filesystems
from dbbench.storage.devices.directory import disks_with_several, physical_disks
from dbbench.units import iso, percent, size_text

DRAIN_SHARE: Final = 0.10  # drain ÷ window: above, much of the throughput was only cached and not yet written
CLOCK_SLIP_S: Final = 0.5  # adjtime(3) and NTP slewing change the clock by less during a trial
COMMIT_RECORD: Final = 32  # smallest number of log bytes that a commit writes, in each engine
_SHOWN_FILES: Final = 5  # of those that an error names
_DECIDING: Final = re.compile(r"sync|flush_(log|method)|doublewrite|full_page_writes|checksum|_commit")
NOT_IN_FORCE: Final = (
    model.SourceChangeKind.CONFIGURATION,
    model.SourceChangeKind.PERSISTED,
    model.SourceChangeKind.DATABASE_SETTINGS,
)  # changes that W101 reports
# Limits of W152: below, the ends of files that do not fill an extent could be the difference.
UNCOMPRESSED_SHARE: Final = 0.25
UNCOMPRESSED_BYTES: Final = 2**20
SHOWN_SHARE: Final = 0.005  # smaller shares are displayed as 0 %
SMALL_DEVICE: Final = 64 * 2**30  # bytes; on smaller devices mkfs chooses a smaller geometry


@dataclass(frozen=True)
class Observed:
    """What the stages of a trial pass on in addition to its facts."""

    outcome: Outcome
    samples: Samples
    meter: Meter
    restored: Restored
    kernel: Watch
    engine: Engine
    tears: bool  # whether a power loss can leave a partly written page on this filesystem
    first_state: dict[str, Any]  # state of host and block layer before the run's first trial


def judge(trial: Record, observed: Observed) -> None:
    """Write series, summary, facts and warnings into the record. Raises WorkUnconfirmed if commits caused no flush."""
    _series(trial, observed)
    _facts(trial, observed)
    if trial.facts.snapshots is not None:
        trial.facts.snapshots = work.with_cost(trial.facts.snapshots, observed.outcome, trial.cell.window)
    _summary(trial, observed)
    trial.warn(*observed.outcome.warnings, *observed.samples.warnings(), *observed.meter.warnings())
    trial.warn(*_dataset_warnings(observed.restored.facts))
    _conditions(trial, observed)
    _canary(trial)
    _window_warnings(trial, observed.meter)
    trial.warn(*work.scan_wrote(trial.cell, observed.meter))
    _machine_warnings(trial, observed)
    failed = (operation for operation in trial.facts.operations if operation.failed)
    trial.warn(*(model.TrialWarning("W030", f"{operation.name}: {operation.text}") for operation in failed))
    if (aged := trial.facts.age_engine) is not None and aged.note:
        trial.warn(model.TrialWarning("W113", aged.note))
    trial.warn(*(model.TrialWarning("W141", text) for text in trial.facts.space.unread))
    trial.warn(*_growth_warnings(trial.facts.growth))
    _device_warnings(trial)
    _work(trial, observed)
    _durability(trial, observed)


def _work(trial: Record, observed: Observed) -> None:
    """Compare the load's counts with those of server and kernel. Raises WorkUnconfirmed, FilesElsewhere."""
    outcome, meter = observed.outcome, observed.meter
    if meter.strays:
        files = ", ".join(meter.strays[:_SHOWN_FILES])
        raise FilesElsewhere(f"files outside of the filesystem under test were in use: {files}", effect=work.FAILED)
    facts = work.compared(outcome.claims, meter, trial.cell)
    log = tuple(work.log(outcome, facts, meter))
    trial.facts.work = (*facts, *log)
    trial.warn(*work.not_compared(facts))
    for fact in (*facts, *log):
        trial.warn(*work.explained(fact, outcome, trial.cell))
        if error := work.fault(fact, outcome, trial.cell):
            raise error


def _dataset_warnings(facts: model.DatasetFacts | None) -> list[model.TrialWarning]:
    if facts is None:
        return []
    warnings = [model.TrialWarning("W101", datasets.sources.text(c)) for c in facts.changes if c.kind in NOT_IN_FORCE]
    if facts.tablespace:
        warnings.append(
            model.TrialWarning("W102", f"only the tablespace {facts.tablespace} is; the log is on another disk")
        )
    return warnings


def _growth_warnings(facts: model.GrowthFacts | None) -> Iterator[model.TrialWarning]:
    """Yield W152 if the filesystem compressed the restored files, but not what grew."""
    if facts is None or facts.compressed_share is None or facts.restored_share is None:
        return
    lost = facts.restored_share - facts.compressed_share
    if lost >= UNCOMPRESSED_SHARE and (facts.data_bytes or 0) >= UNCOMPRESSED_BYTES:
        grown = f"{percent(facts.compressed_share)} of {size_text(facts.data_bytes or 0)} that grew are compressed"
        text = f"{grown}, and {percent(facts.restored_share)} of the restored files"
        allocated = facts.preallocated_share or 0.0
        text += f"; {percent(allocated)} were allocated and not written" if allocated >= SHOWN_SHARE else ""
        yield model.TrialWarning("W152", text)


def settings_changed(
    asked: model.Settings, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[model.TrialWarning]:
    """Yield W128 if a setting of the plan, or one that affects flushes, was changed during the load."""
    keys = [name for name in before if name in asked or _DECIDING.search(name)]
    if changes := host.changed({name: before[name] for name in keys}, {name: after.get(name) for name in keys}):
        yield model.TrialWarning("W128", "; ".join(changes))


def _canary(trial: Record) -> None:
    """Add W040 for a separate disk; a loop file is affected more by other I/O on the disk below than by its history."""
    if not trial.run.plan.device.real:
        return
    folder, write_rate = trial.draft.final.parent, trial.facts.canary.get("write_mb_per_s")
    same = [s.id for s in trial.run.order if (s.block, s.attempt) == (trial.spec.block, trial.spec.attempt)]
    others = [
        results.load_trial(folder / name).canary.get("write_mb_per_s") for name in same if (folder / name).is_dir()
    ]
    trial.warn(*limits.canary(write_rate, [value for value in others if value is not None]))


def _conditions(trial: Record, observed: Observed) -> None:
    facts = trial.facts
    trial.warn(*limits.warnings(trial.cell, facts.memory, facts.cores, observed.meter), *work.warnings(facts.client))
    commits = _commits(observed.outcome, observed.meter.engine_write_bytes)
    tps = facts.summary.get("tps") if commits else None
    facts.ceiling = limits.with_rates(facts.ceiling, trial.series, trial.cell, tps)
    if trial.series is not None:
        trial.warn(*limits.slower(facts.ceiling, trial.series, trial.cell))


def _series(trial: Record, observed: Observed) -> None:
    outcome, window = observed.outcome, trial.cell.window
    series = outcome.series
    series.update(observed.samples.series(outcome.begin_utc, series.seconds))
    warm = round(window.warmup_s) if window.kind == "fixed" else 0
    trial.series, trial.histogram = series, outcome.histogram
    trial.phase_of_second = [model.Phase.WARMUP if s < warm else model.Phase.MEASURE for s in range(series.seconds)]
    # In microseconds, because metrics are recomputed from it.
    trial.facts.anchor_utc = iso(outcome.begin_utc, "microseconds")


def _facts(trial: Record, observed: Observed) -> None:
    meter, facts = observed.meter, trial.facts
    effective, dataset_bytes = facts.effective_settings, facts.space.logical_bytes
    written, to_device = meter.engine_write_bytes, meter.disk.get("write_bytes")
    facts.engine_features = profile_of(trial.cell.engine.name).shown(effective)
    facts.drain = model.DrainFacts(
        meter.debt_bytes, round(trial.phase_s(model.Phase.DRAIN), 3), meter.drain_write_bytes
    )
    facts.memory = limits.memory(trial.cell, meter, effective, dataset_bytes, trial.run.host.get("memory_bytes"))
    facts.cores = limits.with_client_share(trial.cell, meter.cores, meter.client_cpu)
    facts.client = meter.client_facts
    facts.checkpoints = meter.checkpoints
    facts.io = model.IoFacts(
        meter.disk.get("read_bytes"),
        to_device,
        meter.flushes,
        meter.flushes_note,
        written,
        to_device / written if to_device is not None and written and not meter.intruding else None,
        meter.wal,
        meter.disk.get("read_operations"),
        meter.disk.get("write_operations"),
    )


def _summary(trial: Record, observed: Observed) -> None:
    outcome, restored, meter = observed.outcome, observed.restored, observed.meter
    io, drain, switches = trial.facts.io, trial.facts.drain, meter.switches_per_s
    totals = {
        "cpu_ms": meter.cpu_ms(),
        "write_kb": None if io.write_bytes is None else io.write_bytes / 1000,
        "read_kb": None if io.read_bytes is None else io.read_bytes / 1000,
        "flushes": io.flushes,
        "io_operations": io.operations,
        "context_switches": None if switches is None else switches * outcome.window_s,
    }
    stalled = summary.stalled_seconds(trial.cell.window, outcome.series["tps"])
    trial.facts.summary = {
        **summary.throughput(outcome, drain.drain_s),
        **summary.latencies(outcome),
        "stall_s": stalled,
        "stalls_per_h": summary.per_hour(stalled, outcome.window_s),
        **summary.stability(trial.cell.window, outcome.series["tps"], summary.latencies(outcome)),
        **summary.costs(outcome, totals),
        "cpu_pct": meter.cpu_pct(),
        "ceiling_pct": None,  # see `results.ceiling`
        "server_memory_bytes": meter.server_bytes,
        "write_amplification": io.write_amplification,
        **summary.space(trial.facts.space),
        **summary.syncs(trial.facts.filesystem),
        "dataset_bytes": restored.bytes,
        "drain_s": drain.drain_s,
        "restore_mb_per_s": restored.bytes / restored.copy_s / 1e6 if restored.bytes else None,
        "first_query_s": trial.phase_s(model.Phase.START),
        "client_cpu_s": meter.client_cpu.get("client_cpu_s"),
        "dbbench_cpu_s": meter.cpu.get("dbbench_cpu_s"),
        **summary.aged(trial.facts.age_engine),
        **summary.scanned(trial.facts.operations),
        **outcome.figures,
        **summary.completed(outcome, drain.drain_s, io),
    }


def _window_warnings(trial: Record, meter: Meter) -> None:
    window, drain_s = trial.cell.window, trial.phase_s(model.Phase.DRAIN)
    if window.kind != "fixed":
        return
    if window.measure_s < summary.SHORT_WINDOW_S:
        trial.warn(
            model.TrialWarning("W001", f"the window is {window.measure_s:.0f} s"),
            model.TrialWarning("W004", f"a window of {window.measure_s:.0f} s is too short to detect a trend"),
        )
    trial.warn(*limits.warm_up(window, trial.facts.filesystem))
    if trial.series is not None:
        trial.warn(*limits.steady(window, trial.series["tps"]))
    checkpoints = meter.checkpoints
    if not checkpoints.ended and meter.engine_write_bytes:
        trial.warn(model.TrialWarning("W002", checkpoints.note or "no checkpoint ended in the window"))
    if drain_s > DRAIN_SHARE * window.measure_s:
        trial.warn(
            model.TrialWarning("W003", f"the drain took {drain_s:.1f} s after a window of {window.measure_s:.0f} s")
        )


def _machine_warnings(trial: Record, observed: Observed) -> None:
    disks = [disk.name for disk in _disks(trial.facts.device) if disk.name]
    began, ended = trial.facts.host_state, trial.facts.host_state_end
    first_state = {name: value for name, value in observed.first_state.items() if name in began}
    changed = [*host.changed(first_state, {name: began[name] for name in first_state}), *host.changed(began, ended)]
    if changed:
        trial.warn(model.TrialWarning("W018", "; ".join(changed)))
    if second := trial.run.host.get("second_kernel"):
        trial.warn(model.TrialWarning("W099", str(second)))
    if abs(slip := trial.clock.slip_s()) > CLOCK_SLIP_S:
        text = f"the system clock moved by {slip:+.1f} s during the trial"
        trial.warn(model.TrialWarning("W023", text))
    if trial.series is not None:
        trial.warn(*limits.silent(trial.cell.window, trial.series))
    if trouble := observed.kernel.lines_about_machine():
        trial.warn(model.TrialWarning("W125", "; ".join(trouble[:3])))
    if observed.kernel.lost():
        trial.warn(model.TrialWarning("W124", "lines of the kernel's log were lost during the trial"))
    if lines := [line for disk in disks for line in observed.kernel.lines_about(disk) or ()]:
        trial.warn(model.TrialWarning("W020", "; ".join(lines[:3])))


def _device_warnings(trial: Record) -> None:
    device, cache = trial.facts.device, trial.facts.cache
    online = trial.facts.filesystem.discards  # the fs setup enables online discard
    for disk in _disks(device):
        if disk.direct_io is False:
            trial.warn(model.TrialWarning("W011", f"{disk.image} is on a filesystem without direct I/O"))
        before, after = disk.image_blocks_before, disk.image_blocks_after
        if before is not None and after is not None and after < before:
            text = f"the image had {before * 512} bytes allocated before mkfs and {after * 512} after the trial"
            trial.warn(model.TrialWarning("W017", text, suspect=False if online else None))
    if not device.existing and device.size_bytes < SMALL_DEVICE:
        trial.warn(model.TrialWarning("W021", f"the device has {size_text(device.size_bytes)}"))
    if disks := disks_with_several([physical_disks(disk) for disk in _disks(device)]):
        trial.warn(model.TrialWarning("W119", f"{len(_disks(device))} devices share {', '.join(disks)}"))
    if not cache.proved:
        trial.warn(model.TrialWarning("W010", cache.reason))
    if cache.whole_machine:
        trial.warn(model.TrialWarning("W156", cache.method))
    _filesystem_warnings(trial)


def _filesystem_warnings(trial: Record) -> None:
    facts = trial.facts.filesystem
    tunables = facts.tunables
    if groups := facts.geometry.get("uninitialised_groups"):
        trial.warn(
            model.TrialWarning(
                "W028", f"{groups} block groups of the new filesystem were left for the kernel to initialize"
            )
        )
    if others := tunables.get("other_pools"):
        trial.warn(model.TrialWarning("W027", f"other imported pools: {others}"))


def _disks(device: model.DeviceFacts) -> tuple[model.DeviceFacts, ...]:
    """Return each device, including that of the log."""
    return (*(device.members or (device,)), *((device.wal,) if device.wal else ()))


def _commits(outcome: Outcome, written_bytes: int | None) -> int:
    """Return the transactions that had something to flush. A read-only load also writes a little: hint bits,
    statistics."""
    transactions = outcome.transactions if outcome.commits is None else outcome.commits
    return transactions if written_bytes and written_bytes >= COMMIT_RECORD * transactions else 0


def _durability(trial: Record, observed: Observed) -> None:
    """Compare the class of filesystem and server together with the flushes that were counted."""
    facts, meter = trial.facts.filesystem, observed.meter
    of_data = partial(filesystems.reports_of, facts.family, facts.mount_options_effective)
    of_log = filesystems.reports_of(facts.wal.family, facts.wal.mount_options_effective, False) if facts.wal else ()
    by_server, reports = durability.of_server(
        observed.engine.durability, trial.facts.effective_settings, observed.tears, of_data
    )
    flags = durability.combined(facts.durability_flags, by_server)
    promised = model.durability_class(flags)
    trial.facts.filesystem = dataclasses.replace(
        facts, durability_flags=flags, durability_class=promised, reports=tuple(dict.fromkeys((*reports, *of_log)))
    )
    elsewhere = observed.restored.facts is not None and observed.restored.facts.tablespace and facts.wal is None
    # A load that runs to its end counts tables or files and makes no commits.
    counted = observed.outcome.histogram is not None
    commits = _commits(observed.outcome, meter.engine_write_bytes) if counted and not elsewhere else 0
    forced = durability.forced_writes(trial.facts.effective_settings, facts.queue.get("fua") == "1")
    text, disproved = durability.flushes_verdict(meter.flushes, meter.flushes_note, commits, flags, forced)
    trial.facts.io = dataclasses.replace(trial.facts.io, flushes_note=text)
    if disproved:
        raise WorkUnconfirmed(text, effect="The trial is marked failed.")
    logs = 0 if elsewhere or forced else durability.flushed_logs(trial.facts.effective_settings)
    for fact in work.flushes(observed.outcome, meter, trial.cell, flags, logs):
        trial.facts.work = (*trial.facts.work, fact)
        trial.warn(*work.explained(fact, observed.outcome, trial.cell))
        if error := work.fault(fact, observed.outcome, trial.cell):
            raise error
    if meter.flushes is None and commits:
        trial.warn(model.TrialWarning("W024", text))
