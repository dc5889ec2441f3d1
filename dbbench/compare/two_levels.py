"""Arms whose trials are on two levels, so that no trial was near their mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.compare.remarks import Remark, RemarkKind, remark

LEAST_ON_LEVEL: Final = 2  # trials on each level
APART: Final = math.log(1.10)  # smallest difference of the levels
# Smallest difference as a multiple of the scatter within the levels. By chance 1 in 2000 cells with
# one level exceeds this if the trials have a CV of 3 %, and 1 in 100 with 5 %.
CLEAR: Final = 8.0


def two_levels(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """Return the values of the trials as (lower, higher) if they are on two levels with nothing
    between, else None.
    """
    positive = sorted(value for value in values if value > 0)
    logs = [math.log(value) for value in positive]
    splits = range(LEAST_ON_LEVEL, len(logs) - LEAST_ON_LEVEL + 1)
    if not splits:
        return None

    # The levels are on both sides of the widest gap.
    cut = max(splits, key=lambda split: logs[split] - logs[split - 1])
    lower = logs[:cut]
    higher = logs[cut:]
    low = statistics.fmean(lower)
    high = statistics.fmean(higher)
    squares = [(value - low) ** 2 for value in lower] + [(value - high) ** 2 for value in higher]
    within = math.sqrt(math.fsum(squares) / max(1, len(logs) - 2))
    if high - low < max(APART, CLEAR * within):
        return None
    return positive[:cut], positive[cut:]


def two_levels_remark(values: Sequence[float]) -> Iterator[Remark]:
    """Yield the remark about an arm with two levels; geometric means with three digits."""
    if sides := two_levels(values):
        lower, higher = sides
        yield remark(
            RemarkKind.TWO_LEVELS,
            lower=len(lower),
            low=_level(lower),
            higher=len(higher),
            high=_level(higher),
        )


def _level(values: Sequence[float]) -> float:
    return float(f"{statistics.geometric_mean(values):.3g}")
