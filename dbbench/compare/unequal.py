"""Which conditions differ between two arms."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dbbench.compare.conditions import CONDITIONS
from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.model import WORK_KINDS, Status, Trial

COMPARED_KINDS: Final = ("rows", "updated", "deleted")  # how often pages and rows are read depends on the plans
ROWS_OFF, LEAST_ROWS = 0.1, 0.05  # share, and rows per transaction: the server's own work is below the second
MOST_TOLD: Final = 4  # differences of host and block layer in a row; the section Environment lists all


def unequal(baseline: Sequence[Trial], candidate: Sequence[Trial]) -> tuple[Remark, ...]:
    """Return a remark for each condition that differs between the good trials of two arms of one group."""
    base, other = _good(baseline), _good(candidate)
    if not base or not other:
        return ()
    conditions = (*_host(base, other), *_plain(base, other), *_features(base, other), *_checkpoints(base, other))
    return (*conditions, *_work(base, other))


def device_limits(trials: Sequence[Trial]) -> bool:
    """Return whether the device limited most of these trials (W042), so that they cannot compare filesystems."""
    good = _good(trials)
    return 2 * sum(any(warning.id == "W042" for warning in trial.warnings) for trial in good) > len(good)


def _good(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status is not Status.FAILED]


def _host(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    names = [name for name in one[0].host_state if all(name in t.host_state for t in (*one, *other))]
    differing = []
    for name in names:
        values, other_values = ({t.host_state[name] for t in trials} for trials in (one, other))
        if values != other_values:
            differing.append(_unequal(name, values, other_values))
    yield from differing[:MOST_TOLD]
    if len(differing) > MOST_TOLD:
        yield remark(RemarkKind.MORE_UNEQUAL, settings=len(differing) - MOST_TOLD)


def _plain(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    for condition in CONDITIONS:
        values, other_values = ({condition.value(t) for t in trials} - {None} for trials in (one, other))
        if values and other_values and values != other_values:
            yield _unequal(condition.name, values, other_values)


def _features(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Compare the features of filesystems of one family; options or another version of mkfs may change them."""
    mine, theirs = _family_features(one), _family_features(other)
    for family in sorted({name for name, _ in mine} & {name for name, _ in theirs}):
        sets = {features for name, features in mine | theirs if name == family}
        if len(sets) > 1:
            differing = sorted(frozenset.union(*sets) - frozenset.intersection(*sets))
            yield remark(RemarkKind.OTHER_FEATURES, family=family, features=", ".join(differing))


def _family_features(trials: Sequence[Trial]) -> set[tuple[str, frozenset[str]]]:
    facts = [trial.filesystem for trial in trials if trial.filesystem is not None]
    return {(fs.family, frozenset(str(fs.geometry["features"]).split())) for fs in facts if fs.geometry.get("features")}


def _work(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Compare the rows that a transaction works on: a setup may not get other work than the baseline."""
    mine, theirs = _rows_per_unit(one), _rows_per_unit(other)
    for kind in COMPARED_KINDS:
        if kind in mine and kind in theirs:
            median, other_median = statistics.median(mine[kind]), statistics.median(theirs[kind])
            if abs(median - other_median) > max(LEAST_ROWS, ROWS_OFF * max(median, other_median)):
                what = f"{WORK_KINDS[kind]} per transaction"
                yield remark(RemarkKind.UNEQUAL, what=what, candidate=f"{other_median:.3g}", baseline=f"{median:.3g}")


def _rows_per_unit(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Return, by kind, each trial's counted rows divided by what its load reports."""
    rows: dict[str, list[float]] = {}
    for trial in trials:
        for fact in trial.work:
            if fact.count in COMPARED_KINDS and fact.counted is not None and fact.claimed:
                rows.setdefault(fact.count, []).append(fact.counted / fact.claimed)
    return rows


def _checkpoints(one: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Compare the checkpoints, because each is additional work. The median of an even number may be a half."""
    median, other_median = (_median_checkpoints(trials) for trials in (one, other))
    if median is not None and other_median is not None and abs(median - other_median) >= 1:
        yield remark(RemarkKind.UNEQUAL_CHECKPOINTS, candidate=other_median, baseline=median)


def _median_checkpoints(trials: Sequence[Trial]) -> float | None:
    """InnoDB moves its checkpoint continuously, so only those that a full redo log forced count."""
    facts = [t.checkpoints for t in trials if t.checkpoints is not None and t.checkpoints.ended is not None]
    ended = [
        (checkpoint.ended or 0) if checkpoint.begun is not None else checkpoint.by_cause.get("redo full", 0)
        for checkpoint in facts
    ]
    return statistics.median(ended) if ended else None


def _unequal(what: str, baseline: set[Any], candidate: set[Any]) -> Remark:
    return remark(RemarkKind.UNEQUAL, what=what, candidate=_values(candidate), baseline=_values(baseline))


def _values(values: set[Any]) -> str:
    return " and ".join(sorted("none" if value is None else str(value) for value in values))
