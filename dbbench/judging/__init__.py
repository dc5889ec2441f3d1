"""From what a trial saw to what its result says: series, figures, facts and findings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dbbench import durability, host, store, summary
from dbbench.clock import iso
from dbbench.datasets import Restored
from dbbench.drivers.port import Outcome
from dbbench.engines.features import features
from dbbench.engines.port import Engine
from dbbench.errors import FlushesMissing
from dbbench.judging import ceiling, client, limits, snapshots
from dbbench.kmsg import Watch
from dbbench.meter import Meter
from dbbench.model import (
    CacheFacts,
    CeilingFacts,
    CoresFacts,
    DatasetFacts,
    DeviceFacts,
    DrainFacts,
    EngineAgeFacts,
    FilesystemFacts,
    IoFacts,
    MemoryFacts,
    OperationFacts,
    Phase,
    Settings,
    SnapshotFacts,
    SpaceFacts,
    TrialWarning,
    durability_class,
)
from dbbench.record import Record
from dbbench.samplers import Samples

DRAIN_SHARE: Final = 0.10  # of the window: above, throughput was borrowed
CLOCK_SLIP_S: Final = 0.5  # more than any slewing does to a trial
COMMIT_RECORD: Final = 32  # bytes of log that a commit writes at least, in each engine
_DECIDING: Final = re.compile(r"sync|flush_(log|method)|doublewrite|full_page_writes|checksum|_commit")
SMALL_DEVICE: Final = 64 * 2**30  # bytes: below, mkfs chooses a smaller geometry


@dataclass(frozen=True)
class Seen:
    """What the road hands over at its end."""

    outcome: Outcome
    samples: Samples
    meter: Meter
    restored: Restored
    kernel: Watch
    engine: Engine
    tears: bool  # a page can tear on this filesystem
    first_state: dict[str, Any]  # before the run's first trial


def judge(trial: Record, seen: Seen) -> None:
    """Write series, summary, facts and warnings into the record. FlushesMissing where commits reached no flush."""
    _series(trial, seen)
    _facts(trial, seen)
    if trial.run.plan.snapshots is not None:
        beside = trial.fact("snapshots", SnapshotFacts)
        trial.note(snapshots=snapshots.beside(beside, seen.outcome, trial.cell.window))
    _summary(trial, seen)
    trial.warn(*seen.outcome.warnings, *seen.samples.warnings(), *seen.meter.warnings())
    trial.warn(*_dataset_warnings(seen.restored.facts))
    _conditions(trial, seen)
    _canary(trial)
    _window_warnings(trial, seen.meter)
    _machine_warnings(trial, seen)
    trial.warn(*_failed_operations(trial.fact("operations", tuple)))
    if (aged := _aged(trial)) is not None and aged.note:
        trial.warn(TrialWarning("W113", aged.note))
    _device_warnings(trial)
    _durability(trial, seen)


def _dataset_warnings(facts: DatasetFacts | None) -> list[TrialWarning]:
    if facts is None:
        return []
    found = [TrialWarning("W101", text) for text in facts.told if "taken out" in text or "reset" in text]
    if facts.restore == "reflink":
        found.append(TrialWarning("W100", "the data files share their blocks with a copy beside them"))
    if facts.tablespace:
        found.append(TrialWarning("W102", f"the tablespace {facts.tablespace}; the log is on another disk"))
    return found


def settings_changed(asked: Settings, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[TrialWarning]:
    """W128 where somebody changed what the plan asks for, or what decides about flushes, while the load ran."""
    keys = [name for name in before if name in asked or _DECIDING.search(name)]
    if found := host.changed({name: before[name] for name in keys}, {name: after.get(name) for name in keys}):
        yield TrialWarning("W128", "; ".join(found), suspect=True)


def _canary(trial: Record) -> None:
    """W040 on a disk of its own; a loop file's neighbours on the disk below move it more than its history does."""
    if trial.run.plan.device.kind != "block":
        return
    folder, mine = trial.draft.final.parent, trial.fact("canary", dict).get("write_mb_per_s")
    same = [s.id for s in trial.run.order if (s.block, s.attempt) == (trial.spec.block, trial.spec.attempt)]
    others = [store.load_trial(folder / name).canary.get("write_mb_per_s") for name in same if (folder / name).is_dir()]
    trial.warn(*limits.canary(mine, [value for value in others if value is not None]))


def _conditions(trial: Record, seen: Seen) -> None:
    memory, cores = trial.fact("memory", MemoryFacts), seen.meter.cores and trial.fact("cores", CoresFacts)
    trial.warn(*limits.warnings(trial.cell, memory, cores, seen.meter), *client.warnings(seen.meter.client_facts))
    figures = trial.fact("summary", dict)
    beside = ceiling.beside(trial.fact("ceiling", CeilingFacts), trial.series, trial.cell, figures.get("tps"))
    share = None if beside.tps_share is None else 100 * beside.tps_share
    trial.note(ceiling=beside, summary={**figures, "ceiling_pct": share})
    if beside.limited:
        trial.warn(TrialWarning("W042", beside.limited))


def _series(trial: Record, seen: Seen) -> None:
    outcome, window = seen.outcome, trial.cell.window
    series = outcome.series
    series.update(seen.samples.series(outcome.begin_utc, series.seconds))
    warm = round(window.warmup_s) if window.kind == "fixed" else 0
    trial.series, trial.histogram = series, outcome.histogram
    trial.phase_of_second = [Phase.WARMUP if s < warm else Phase.MEASURE for s in range(series.seconds)]
    trial.note(anchor_utc=iso(outcome.begin_utc, "microseconds"))  # exact: figures are recomputed from it


def _facts(trial: Record, seen: Seen) -> None:
    meter, space, effective = seen.meter, trial.fact("space", SpaceFacts), trial.fact("effective_settings", dict)
    written, to_device = meter.engine_write_bytes, meter.disk.get("write_bytes")
    trial.note(
        engine_features=features(trial.cell.engine.name, effective),
        drain=DrainFacts(meter.debt_bytes, round(trial.phase_s(Phase.DRAIN), 3), meter.drain_write_bytes),
        memory=limits.memory(trial.cell, meter, effective, space.logical_bytes, trial.run.host.get("memory_bytes")),
        cores=limits.with_share(trial.cell, meter.cores, meter.client_cpu),
        client=meter.client_facts,
        checkpoints=meter.checkpoints,
        io=IoFacts(
            meter.disk.get("read_bytes"),
            to_device,
            meter.flushes,
            meter.flushes_note,
            written,
            to_device / written if to_device is not None and written else None,
            meter.wal,
        ),
    )


def _summary(trial: Record, seen: Seen) -> None:
    outcome, restored, count = seen.outcome, seen.restored, seen.outcome.transactions
    io, drain = trial.fact("io", IoFacts), trial.fact("drain", DrainFacts)
    stalled = summary.stalled_seconds(trial.cell.window, outcome.series["tps"])
    figures: dict[str, float | None] = {
        **summary.throughput(outcome, drain.drain_s),
        **summary.latencies(outcome),
        "stall_s": stalled,
        "stalls_per_h": summary.per_hour(stalled, outcome.window_s),
        **summary.stability(trial.cell.window, outcome.series["tps"], summary.latencies(outcome)),
        "cpu_ms_per_tx": seen.meter.cpu_ms_per_tx(count),
        "write_kb_per_tx": summary.per(io.write_bytes, count, 1 / 1000),
        "read_kb_per_tx": summary.per(io.read_bytes, count, 1 / 1000),
        "flushes_per_tx": summary.per(io.flushes, count),
        "write_amplification": io.write_amplification,
        **summary.space(trial.fact("space", SpaceFacts)),
        "dataset_bytes": restored.bytes,
        "drain_s": drain.drain_s,
        "restore_mb_per_s": restored.bytes / restored.copy_s / 1e6 if restored.bytes else None,
        "first_query_s": trial.phase_s(Phase.START),
        "client_cpu_s": seen.meter.client_cpu.get("client_cpu_s"),
        "dbbench_cpu_s": seen.meter.cpu.get("dbbench_cpu_s"),
        **summary.aged(_aged(trial)),
        **outcome.figures,
    }
    trial.note(summary={**figures, **summary.completed(trial.cell.window, figures, io)})


def _window_warnings(trial: Record, meter: Meter) -> None:
    window, drain_s = trial.cell.window, trial.phase_s(Phase.DRAIN)
    if window.kind != "fixed":
        return
    if window.measure_s < summary.SHORT_WINDOW_S:
        trial.warn(
            TrialWarning("W001", f"the window is {window.measure_s:.0f} s"),
            TrialWarning("W004", f"a window of {window.measure_s:.0f} s is too short to judge steadiness"),
        )
    trial.warn(*limits.warm_up(window, trial.fact("filesystem", FilesystemFacts)))
    if trial.series is not None:
        trial.warn(*limits.steady(window, trial.series["tps"]))
    checkpoints = meter.checkpoints
    if not checkpoints.ended and meter.engine_write_bytes:
        trial.warn(TrialWarning("W002", checkpoints.note or "no checkpoint ended in the window"))
    if drain_s > DRAIN_SHARE * window.measure_s:
        trial.warn(TrialWarning("W003", f"drain took {drain_s:.1f} s after {window.measure_s:.0f} s of window"))


def _aged(trial: Record) -> EngineAgeFacts | None:
    found = trial.fact("age_engine", object)
    return found if isinstance(found, EngineAgeFacts) else None


def _failed_operations(operations: tuple[OperationFacts, ...]) -> list[TrialWarning]:
    return [TrialWarning("W030", f"{one.name}: {one.text}") for one in operations if one.failed]


def _machine_warnings(trial: Record, seen: Seen) -> None:
    disks = [disk.name for disk in _disks(trial.fact("device", DeviceFacts)) if disk.name]
    began, ended = trial.fact("host_state", dict), trial.fact("host_state_end", dict)
    known = {name: value for name, value in seen.first_state.items() if name in began}
    changed = [*host.changed(known, {name: began[name] for name in known}), *host.changed(began, ended)]
    if changed:
        trial.warn(TrialWarning("W018", "; ".join(changed), suspect=True))
    if second := trial.run.host.get("second_kernel"):
        trial.warn(TrialWarning("W099", str(second)))
    if abs(slip := trial.clock.slip_s()) > CLOCK_SLIP_S:
        text = f"the system clock moved by {slip:+.1f} s during the trial"
        trial.warn(TrialWarning("W023", text, suspect=True))
    if trial.series is not None:
        trial.warn(*limits.silent(trial.cell.window, trial.series))
    if trouble := seen.kernel.lines_about_machine():
        trial.warn(TrialWarning("W125", "; ".join(trouble[:3]), suspect=True))
    if seen.kernel.lost():
        trial.warn(TrialWarning("W124", "lines of the kernel's log were lost during the trial", suspect=True))
    if lines := [line for disk in disks for line in seen.kernel.lines_about(disk) or ()]:
        trial.warn(TrialWarning("W020", "; ".join(lines[:3]), suspect=True))


def _device_warnings(trial: Record) -> None:
    device, cache = trial.fact("device", DeviceFacts), trial.fact("cache", CacheFacts)
    taken = trial.fact("filesystem", FilesystemFacts).mount_options_effective
    online = any(option.split("=")[0] == "discard" for option in taken)  # what that variant does; nobody's fault
    for disk in _disks(device):
        if disk.direct_io is False:
            trial.warn(TrialWarning("W011", f"{disk.image} lies on a filesystem without direct I/O"))
        before, after = disk.image_blocks_before, disk.image_blocks_after
        if before is not None and after is not None and after < before:
            text = f"the image had {before * 512} bytes allocated before mkfs and {after * 512} after the trial"
            trial.warn(TrialWarning("W017", text, suspect=not online))
    if device.kind != "dir" and device.size_bytes < SMALL_DEVICE:
        trial.warn(TrialWarning("W021", f"small-device geometry: {device.size_bytes / 2**30:.1f} GiB"))
    if not cache.proved:
        trial.warn(TrialWarning("W010", cache.reason, suspect=True))
    _filesystem_warnings(trial)


def _filesystem_warnings(trial: Record) -> None:
    facts = trial.fact("filesystem", FilesystemFacts)
    tunables = facts.tunables
    if groups := facts.geometry.get("uninitialised_groups"):
        trial.warn(TrialWarning("W028", f"{groups} groups of the new filesystem were left to the kernel"))
    if str(driver := tunables.get("driver", "")).startswith("zfs-fuse"):
        trial.warn(TrialWarning("W026", f"the pool was served by {driver}"))
    if others := tunables.get("other_pools"):
        trial.warn(TrialWarning("W027", f"imported beside it: {others}"))


def _disks(device: DeviceFacts) -> tuple[DeviceFacts, ...]:
    """Each device by itself, the log's too."""
    return (*(device.members or (device,)), *((device.wal,) if device.wal else ()))


def _commits(transactions: int, written_bytes: int | None) -> int:
    """Transactions that had something to flush. A load that only reads writes a little too: hint bits, statistics."""
    return transactions if written_bytes and written_bytes >= COMMIT_RECORD * transactions else 0


def _durability(trial: Record, seen: Seen) -> None:
    """The class of filesystem and server together, held against the flushes that were counted."""
    facts, meter = trial.fact("filesystem", FilesystemFacts), seen.meter
    own = seen.engine.durability(trial.fact("effective_settings", dict), seen.tears)
    flags = durability.combined(facts.durability_flags, own)
    trial.note(filesystem=dataclasses.replace(facts, durability_flags=flags, durability_class=durability_class(flags)))
    elsewhere = seen.restored.facts is not None and seen.restored.facts.tablespace and facts.wal is None
    counted = seen.outcome.histogram is not None  # what runs to its end counts tables or files, which commit nothing
    commits = _commits(seen.outcome.transactions, meter.engine_write_bytes) if counted and not elsewhere else 0
    forced = durability.forced_writes(trial.fact("effective_settings", dict), facts.queue.get("fua") == "1")
    text, disproved = durability.flushes_verdict(meter.flushes, meter.flushes_note, commits, flags, forced)
    trial.note(io=dataclasses.replace(trial.fact("io", IoFacts), flushes_note=text))
    if disproved:
        raise FlushesMissing(text, effect="The trial is marked failed.")
    if meter.flushes is None and commits:
        trial.warn(TrialWarning("W024", text))
