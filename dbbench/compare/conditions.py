"""Conditions that must be equal between two arms: one table, read by verdicts and by the page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dbbench.compare.remarks import Kind, Remark, remark
from dbbench.model import Status, Trial
from dbbench.units import size_text

MOST_TOLD: Final = 4  # differences of the host and the block layer that are named; the environment section has all
Told = Callable[[Trial], str | None]


def unequal(baseline: Sequence[Trial], candidate: Sequence[Trial]) -> tuple[Remark, ...]:
    """Return a remark for each condition that differs between the good trials of two arms of one group."""
    base, other = _good(baseline), _good(candidate)
    if not base or not other:
        return ()
    return (*_host(base, other), *_plain(base, other), *_features(base, other), *_checkpoints(base, other))


def limited(trials: Sequence[Trial]) -> bool:
    """Return whether the device was at its ceiling in most of these trials, so that they cannot compare filesystems."""
    good = _good(trials)
    return bool(good) and 2 * sum(bool(t.ceiling and t.ceiling.limited) for t in good) > len(good)


def _good(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status is not Status.FAILED]


def _host(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Settings of host and block layer, of those that trials of both arms know."""
    names = [name for name in one[0].host_state if all(name in t.host_state for t in (*one, *other))]
    differing = []
    for name in names:
        values, other_values = ({t.host_state[name] for t in trials} for trials in (one, other))
        if values != other_values:
            differing.append(_unequal(name, values, other_values))
    yield from differing[:MOST_TOLD]
    if len(differing) > MOST_TOLD:
        yield remark(Kind.MORE_UNEQUAL, settings=len(differing) - MOST_TOLD)


def _plain(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    for what, value_of in CONDITIONS.items():
        values, other_values = ({value_of(t) for t in trials} - {None} for trials in (one, other))
        if values and other_values and values != other_values:
            yield _unequal(what, values, other_values)


def _features(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Features of filesystems of one family that were made with different ones: by options, or by another mkfs."""
    mine, theirs = _made(one), _made(other)
    for family in sorted({name for name, _ in mine} & {name for name, _ in theirs}):
        sets = {features for name, features in mine | theirs if name == family}
        if len(sets) > 1:
            differing = sorted(frozenset.union(*sets) - frozenset.intersection(*sets))
            yield remark(Kind.OTHER_FEATURES, family=family, features=", ".join(differing))


def _made(trials: Sequence[Trial]) -> set[tuple[str, frozenset[str]]]:
    """Families with the features that were read back from the new filesystem."""
    facts = [trial.filesystem for trial in trials if trial.filesystem is not None]
    return {(fs.family, frozenset(str(fs.geometry["features"]).split())) for fs in facts if fs.geometry.get("features")}


def _checkpoints(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """A checkpoint more in one arm is work that the other was spared; halves are of an even number of trials."""
    median, other_median = (_median_checkpoints(trials) for trials in (one, other))
    if median is not None and other_median is not None and abs(median - other_median) >= 1:
        yield remark(Kind.UNEQUAL_CHECKPOINTS, candidate=other_median, baseline=median)


def _median_checkpoints(trials: Sequence[Trial]) -> float | None:
    """InnoDB's checkpoint moves on all the time: only the cycles that a full redo forced are counted."""
    facts = [t.checkpoints for t in trials if t.checkpoints is not None and t.checkpoints.ended is not None]
    ended = [
        (checkpoint.ended or 0) if checkpoint.begun is not None else checkpoint.by_cause.get("redo full", 0)
        for checkpoint in facts
    ]
    return statistics.median(ended) if ended else None


def _devices(trial: Trial) -> str | None:
    """An arm on more disks has their throughput and their failures."""
    return None if trial.device is None else str(max(1, len(trial.device.members)))


def _memory(trial: Trial) -> str | None:
    memory = trial.memory
    if memory is None or memory.effective_bytes is None:
        return None
    limit = f"limited by {memory.enforced}" if memory.enforced else "not limited by the kernel"
    return f"{size_text(memory.effective_bytes)}, {limit}"


def _cache(trial: Trial) -> str | None:
    return trial.memory.direct if trial.memory else None


def _cores(trial: Trial) -> str | None:
    return f"server {trial.cores.server}, load generator {trial.cores.client}" if trial.cores else None


def _discard(trial: Trial) -> str | None:
    if trial.filesystem is None:
        return None
    return "on" if trial.filesystem.discards else "off"


def _read_ahead(trial: Trial) -> str | None:
    """Of workloads that read to their end: only they live on it."""
    if trial.window is None or trial.window.kind == "fixed" or trial.filesystem is None:
        return None
    kb = trial.filesystem.read_ahead_kb
    return None if kb is None else f"{kb} kB"


def _atomic_writes(trial: Trial) -> str | None:
    """What the disk offers to a server instead of writing pages twice; what a filesystem makes of it is its own."""
    most = trial.filesystem.queue.get("atomic_write_unit_max_bytes") if trial.filesystem else None
    return None if most is None else "none" if most == "0" else f"up to {most} bytes"


def _snapshots(trial: Trial) -> str | None:
    """An arm that cannot have them beside its load was spared what the others paid for."""
    return None if trial.snapshots is None else "taken" if trial.snapshots.how else "none"


def _client(trial: Trial) -> str | None:
    """Where the load came from: a network's round trip is in each of its statements."""
    return "this host" if trial.client is None else "another host, over the network"


def _profile(trial: Trial) -> str | None:
    """What the server's settings are based on; results of versions without profiles are standalone."""
    return trial.profile if trial.profile and trial.effective_settings else None


def _binary_log(trial: Trial) -> str | None:
    """MariaDB's and MySQL's second log: each commit waits for its flush too."""
    settings = trial.effective_settings
    if "log_bin" not in settings:
        return None
    on = settings["log_bin"].upper() in ("ON", "1")
    return f"on, sync_binlog = {settings.get('sync_binlog')}" if on else "off"


def _huge_pages(trial: Trial) -> str | None:
    return trial.effective_settings.get("huge_pages_status")


CONDITIONS: Final[dict[str, Told]] = {
    "number of devices": _devices,
    "settings profile": _profile,
    "binary log": _binary_log,
    "huge pages": _huge_pages,
    "memory": _memory,
    "effective cache": _cache,
    "cores": _cores,
    "place of the load generator": _client,
    "online discard": _discard,
    "read-ahead": _read_ahead,
    "atomic writes of the device": _atomic_writes,
    "snapshots during the load": _snapshots,
}


def _unequal(what: str, baseline: set[Any], candidate: set[Any]) -> Remark:
    return remark(Kind.UNEQUAL, what=what, candidate=_values(candidate), baseline=_values(baseline))


def _values(values: set[Any]) -> str:
    return " and ".join(sorted("none" if value is None else str(value) for value in values))
