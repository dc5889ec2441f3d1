"""Which trials count, and which of them make a pair."""

from __future__ import annotations

from collections.abc import Sequence

from dbbench.compare.interval import Estimate, estimate
from dbbench.model import Status, Trial
from dbbench.units import grouped

Group = tuple[str, str, str]  # engine, workload, variant
Pairs = list[tuple[float, float]]  # (baseline, candidate), one for each block


def groups(trials: Sequence[Trial]) -> dict[Group, list[Trial]]:
    """Return the trials by (engine, workload, variant), which are never compared with each other."""
    return grouped(trials, lambda trial: (trial.engine, trial.workload, trial.variant))


def chosen(trials: Sequence[Trial]) -> list[Trial]:
    """Return the attempts that count for each arm and block, in run order. Of a repeated block the
    earliest attempt in which all arms are ok; where there is none, each arm's earliest ok trial,
    else its earliest suspect one. Failed trials never count; nothing is dropped for its result.
    """
    keep: set[str] = set()
    for group in groups(trials).values():
        for block in grouped(group, lambda trial: trial.block).values():
            inside = sorted(block, key=lambda trial: trial.attempt)
            # fewer than in the first blocks, if a pair is decided
            arms = {trial.fs_setup for trial in inside}
            good = [t for t in inside if t.status is Status.OK]
            attempts = dict.fromkeys(t.attempt for t in inside)
            whole = next(
                (n for n in attempts if {t.fs_setup for t in good if t.attempt == n} == arms), None
            )
            for arm in arms:
                of_arm = [t for t in inside if t.fs_setup == arm and t.status is not Status.FAILED]
                of_arm.sort(key=lambda t: (t.attempt != whole, t.status is not Status.OK))
                keep.update(t.id for t in of_arm[:1])
    return sorted((trial for trial in trials if trial.id in keep), key=lambda trial: trial.position)


def pairs_of(group: Sequence[Trial], baseline: str, candidate: str) -> list[tuple[Trial, Trial]]:
    """Return the (baseline, candidate) trials of one (engine, workload) group, by block.
    Completeness is per pair: the earliest attempt of the block in which both are ok; without
    one, each arm's earliest ok trial; without that, the earliest attempt in which neither
    failed.
    """
    pairs = []
    for _, block in sorted(grouped(group, lambda trial: trial.block).items()):
        inside = sorted(block, key=lambda trial: (trial.attempt, trial.position))
        pair = _pair([t for t in inside if t.status is Status.OK], baseline, candidate, across=True)
        pair = pair or _pair(
            [t for t in inside if t.status is not Status.FAILED], baseline, candidate, across=False
        )
        if pair is not None:
            pairs.append(pair)
    return pairs


def _pair(
    trials: Sequence[Trial], baseline: str, candidate: str, *, across: bool
) -> tuple[Trial, Trial] | None:
    """Return the first trials of both arms that have the same attempt; `across`: otherwise the
    first of each arm.
    """
    ours = [t for t in trials if t.fs_setup == baseline]
    candidates = [t for t in trials if t.fs_setup == candidate]
    shared = next(
        ((base, other) for base in ours for other in candidates if base.attempt == other.attempt),
        None,
    )
    return shared or ((ours[0], candidates[0]) if across and ours and candidates else None)


def values_of(group: Sequence[Trial], baseline: str, candidate: str, metric: str) -> Pairs:
    """Return the (baseline, candidate) values of the pairs of which both trials have the metric."""
    pairs = pairs_of(group, baseline, candidate)
    values = ((base.summary.get(metric), other.summary.get(metric)) for base, other in pairs)
    return [(b, c) for b, c in values if b is not None and c is not None]


def estimate_of(pairs: Pairs) -> Estimate | None:
    """Return the estimate from the pairs of two positive values; None if there are none."""
    positive = [(b, c) for b, c in pairs if b > 0 and c > 0]
    return estimate(positive) if positive else None
