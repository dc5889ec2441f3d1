"""Which trials count, and which of them make a pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbbench.compare.interval import Estimate, estimate
from dbbench.model import Status, Trial
from dbbench.units import group_by

Group = tuple[str, str, str]  # engine, workload, variant
Pairs = list[tuple[float, float]]  # (baseline, candidate), one for each block


def groups(trials: Sequence[Trial]) -> dict[Group, list[Trial]]:
    """Return the trials by (engine, workload, variant), which are never compared with each other."""
    return group_by(trials, lambda trial: (trial.engine, trial.workload, trial.variant))


def chosen(trials: Sequence[Trial]) -> list[Trial]:
    """Return the attempts that count for each arm and block, in run order. Of a repeated block the
    earliest attempt in which all arms are ok; where there is none, each arm's earliest ok trial,
    else its earliest suspect one. Failed trials never count; nothing is dropped for its result.
    """
    counted: set[str] = set()
    for group in groups(trials).values():
        for block in group_by(group, lambda trial: trial.block).values():
            counted.update(_ids_that_count(block))
    kept = [trial for trial in trials if trial.id in counted]
    return sorted(kept, key=lambda trial: trial.position)


def _ids_that_count(block: Sequence[Trial]) -> Iterator[str]:
    arms = {trial.fs_setup for trial in block}  # fewer than in the first blocks, if one is decided
    complete = _complete_attempt(block, arms)

    def preference(trial: Trial) -> tuple[bool, bool, int]:
        return trial.attempt != complete, trial.status is not Status.OK, trial.attempt

    for arm in arms:
        usable = _usable(block, arm)
        if usable:
            yield min(usable, key=preference).id


def _complete_attempt(block: Sequence[Trial], arms: set[str]) -> int | None:
    """Return the earliest attempt in which every arm is ok."""
    attempts = group_by(block, lambda trial: trial.attempt)
    for attempt, trials in sorted(attempts.items()):
        good = {trial.fs_setup for trial in trials if trial.status is Status.OK}
        if good == arms:
            return attempt
    return None


def _usable(trials: Sequence[Trial], arm: str) -> list[Trial]:
    return [
        trial for trial in trials if trial.fs_setup == arm and trial.status is not Status.FAILED
    ]


def pairs_of(
    group: Sequence[Trial],
    baseline: str,
    candidate: str,
) -> list[tuple[Trial, Trial]]:
    """Return the (baseline, candidate) trials of one (engine, workload) group, by block.
    Completeness is per pair: the earliest attempt of the block in which both are ok; without
    one, each arm's earliest ok trial; without that, the earliest attempt in which neither
    failed.
    """
    pairs = []
    for _, block in sorted(group_by(group, lambda trial: trial.block).items()):
        in_order = sorted(block, key=lambda trial: (trial.attempt, trial.position))
        bases = _usable(in_order, baseline)
        others = _usable(in_order, candidate)
        good_bases = [trial for trial in bases if trial.status is Status.OK]
        good_others = [trial for trial in others if trial.status is Status.OK]
        pair = _pair_of_one_attempt(good_bases, good_others)
        if pair is None and good_bases and good_others:
            pair = good_bases[0], good_others[0]
        if pair is None:
            pair = _pair_of_one_attempt(bases, others)
        if pair is not None:
            pairs.append(pair)
    return pairs


def _pair_of_one_attempt(
    bases: Sequence[Trial], others: Sequence[Trial]
) -> tuple[Trial, Trial] | None:
    for base in bases:
        for other in others:
            if base.attempt == other.attempt:
                return base, other
    return None


def values_of(
    group: Sequence[Trial],
    baseline: str,
    candidate: str,
    metric: str,
) -> Pairs:
    """Return the (baseline, candidate) values of the pairs of which both trials have the metric."""
    values = []
    for base, other in pairs_of(group, baseline, candidate):
        before = base.summary.get(metric)
        after = other.summary.get(metric)
        if before is not None and after is not None:
            values.append((before, after))
    return values


def estimate_of(pairs: Pairs) -> Estimate | None:
    """Return the estimate from the pairs of two positive values; None if there are none."""
    positive = [pair for pair in pairs if min(pair) > 0]
    return estimate(positive) if positive else None
