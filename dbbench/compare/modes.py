"""Cells with two levels: their mean is a figure that was never measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.compare.remarks import Kind, Remark, remark

LEAST: Final = 2  # trials on each level
APART: Final = math.log(1.10)  # the levels' difference
CLEAR: Final = 8.0  # × the scatter within: of cells with one level 1 in 2000 at a trial CV of 3 %, 1 in 100 at 5 %


def two_levels(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The trials' figures as (lower, higher) where they lie on two levels with nothing between, else None."""
    known = sorted(value for value in values if value > 0)
    logs = [math.log(value) for value in known]
    splits = range(LEAST, len(logs) - LEAST + 1)
    if not splits:
        return None
    cut = max(splits, key=lambda at: logs[at] - logs[at - 1])
    lower, higher = logs[:cut], logs[cut:]
    shift = _mean(higher) - _mean(lower)
    within = math.sqrt((_squares(lower) + _squares(higher)) / max(1, len(logs) - 2))
    if shift < APART or shift < CLEAR * within:
        return None
    return known[:cut], known[cut:]


def levels(values: Sequence[float]) -> Iterator[Remark]:
    """The remark about a cell with two levels."""
    if (sides := two_levels(values)) is not None:
        lower, higher = sides
        yield remark(Kind.TWO_LEVELS, lower=len(lower), low=_near(lower), higher=len(higher), high=_near(higher))


def _near(values: Sequence[float]) -> float:
    """Their geometric mean to three digits."""
    return float(f"{math.exp(_mean([math.log(value) for value in values])):.3g}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values)
