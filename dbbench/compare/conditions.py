"""What was not equal between two arms: found in their trials, said beside their ratio."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dbbench.model import Status, Trial
from dbbench.units import size_text

MOST_TOLD: Final = 4  # differences of host and block layer that are named; the environment has all
Told = Callable[[Trial], str | None]


def unequal(baseline: Sequence[Trial], candidate: Sequence[Trial]) -> tuple[str, ...]:
    """One line for each condition that differs between the good trials of two arms of one group."""
    one, other = _good(baseline), _good(candidate)
    if not one or not other:
        return ()
    return (*_host(one, other), *_plain(one, other), *_checkpoints(one, other))


def limited(trials: Sequence[Trial]) -> bool:
    """Whether the device stood flat at its ceiling in most of these trials: they tell nothing of filesystems."""
    good = _good(trials)
    return bool(good) and 2 * sum(bool(t.ceiling and t.ceiling.limited) for t in good) > len(good)


def _good(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status is not Status.FAILED]


def _host(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[str]:
    """Settings of host and block layer, of those that trials of both arms know."""
    names = [name for name in one[0].host_state if all(name in t.host_state for t in (*one, *other))]
    found = []
    for name in names:
        mine, theirs = ({t.host_state[name] for t in trials} for trials in (one, other))
        if mine != theirs:
            found.append(f"{name} differs: {_values(theirs)} against {_values(mine)}")
    yield from found[:MOST_TOLD]
    if len(found) > MOST_TOLD:
        yield f"{len(found) - MOST_TOLD} more settings of host and block layer differ"


def _plain(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[str]:
    for what, told in _CONDITIONS:
        mine, theirs = ({told(t) for t in trials} - {None} for trials in (one, other))
        if mine and theirs and mine != theirs:
            yield f"{what} differs: {_values(theirs)} against {_values(mine)}"


def _checkpoints(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[str]:
    """A checkpoint more in one arm is work that the other was spared; halves are of an even number of trials."""
    mine, theirs = (_median_checkpoints(trials) for trials in (one, other))
    if mine is not None and theirs is not None and abs(mine - theirs) >= 1:
        yield f"checkpoints in the window differ: {theirs:g} against {mine:g}"


def _median_checkpoints(trials: Sequence[Trial]) -> float | None:
    """InnoDB's checkpoint moves on all the time: only the cycles that a full redo forced are counted."""
    facts = [t.checkpoints for t in trials if t.checkpoints is not None and t.checkpoints.ended is not None]
    ended = [(one.ended or 0) if one.begun is not None else one.by_cause.get("redo full", 0) for one in facts]
    return statistics.median(ended) if ended else None


def _memory(trial: Trial) -> str | None:
    memory = trial.memory
    if memory is None or memory.effective_bytes is None:
        return None
    return f"{size_text(memory.effective_bytes)} {memory.enforced}".strip()


def _cache(trial: Trial) -> str | None:
    return trial.memory.direct if trial.memory else None


def _cores(trial: Trial) -> str | None:
    return f"server {trial.cores.server}, load {trial.cores.client}" if trial.cores else None


def _discard(trial: Trial) -> str | None:
    if trial.filesystem is None:
        return None
    options = [option.partition("=")[0] for option in trial.filesystem.mount_options_effective]
    return "on" if "discard" in options else "off"


def _read_ahead(trial: Trial) -> str | None:
    """Of workloads that read to their end: only they live on it."""
    if trial.window is None or trial.window.kind == "fixed" or trial.filesystem is None:
        return None
    kb = trial.filesystem.read_ahead_kb
    return None if kb is None else f"{kb} kB"


def _snapshots(trial: Trial) -> str | None:
    """An arm that cannot have them beside its load was spared what the others paid for."""
    return None if trial.snapshots is None else "taken" if trial.snapshots.how else "none"


def _client(trial: Trial) -> str | None:
    """Where the load came from: a network's round trip is in each of its statements."""
    return "this machine" if trial.client is None else "another host, over the network"


_CONDITIONS: Final[tuple[tuple[str, Told], ...]] = (
    ("memory", _memory),
    ("effective cache", _cache),
    ("cores", _cores),
    ("place of the load generator", _client),
    ("online discard", _discard),
    ("read-ahead", _read_ahead),
    ("snapshots beside the load", _snapshots),
)


def _values(values: set[object] | set[str | None]) -> str:
    return " and ".join(sorted("not there" if value is None else str(value) for value in values))
