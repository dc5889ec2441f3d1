"""Whether throughput was steady over a window: a trend test on means of ten seconds, and MSER-5.

A mean of a series with a trend depends on when one looks. Seconds depend on each other; means of ten seconds do so
much less, and a cycle of checkpoints of half the window is no trend.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_S: Final = 60  # shorter windows have too few means
BATCH_S: Final = 10
P_VALUE: Final = 0.01
LEAST_MEANS: Final = 6  # of a line with an interval
CHANGE: Final = 0.03  # end to end, as a share of the mean: a smaller trend is real and moves no verdict
_MSER_BATCH: Final = 5  # White 1997, "An effective truncation heuristic": batches of five


@dataclass(frozen=True)
class Trend:
    """A fitted line: `change` from one end of the window to the other ÷ mean; `p` of no slope, two-sided."""

    change: float
    p: float

    @property
    def found(self) -> bool:
        """Whether this is no steady state."""
        return self.p < P_VALUE and abs(self.change) > CHANGE


def trend(tps: Sequence[float | None]) -> Trend | None:
    """Of the measured seconds; None below 60 s or without progress."""
    if len(tps) < LEAST_S:
        return None
    means = [statistics.fmean(known) for known in _batches(tps, BATCH_S) if known]
    n, mean = len(means), statistics.fmean(means) if means else 0.0
    if n < 4 or mean <= 0:
        return None
    line = statistics.linear_regression(range(n), means)
    residual = math.fsum((y - line.intercept - line.slope * x) ** 2 for x, y in enumerate(means))
    spread = math.fsum((x - (n - 1) / 2) ** 2 for x in range(n))
    change = line.slope * (n - 1) / mean
    if residual <= 0:
        return Trend(change, 0.0 if line.slope else 1.0)
    from scipy.special import stdtr

    t = abs(line.slope) / math.sqrt(residual / (n - 2) / spread)
    return Trend(change, float(2 * stdtr(n - 2, -t)))


@dataclass(frozen=True)
class Slope:
    """By how much a rate changes a minute, with its 95 % interval."""

    per_min: float
    low: float
    high: float


def slope(rates: Sequence[float | None]) -> Slope | None:
    """Of the seconds' rates, by a line through means of equal length: ten seconds each, or a sixth of the time where
    that is shorter, because seconds depend on each other. None below 12 s."""
    size = min(BATCH_S, len(rates) // LEAST_MEANS)
    if size < 2:
        return None
    means = [statistics.fmean(known) for known in _batches(rates, size) if known]
    n = len(means)
    if n < LEAST_MEANS:
        return None
    found = line(range(n), means)
    scale = 60 / size
    return None if found is None else Slope(found.slope * scale, found.low * scale, found.high * scale)


@dataclass(frozen=True)
class Line:
    """The slope of a fitted line, with its 95 % interval."""

    slope: float
    low: float
    high: float


def line(xs: Sequence[float], ys: Sequence[float]) -> Line | None:
    """By least squares; the interval is Student's, of independent errors. None below three points, or at one x."""
    n = len(xs)
    if n < 3 or len(set(xs)) < 2:
        return None
    fitted, middle = statistics.linear_regression(xs, ys), statistics.fmean(xs)
    residual = math.fsum((y - fitted.intercept - fitted.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = math.fsum((x - middle) ** 2 for x in xs)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 2, 0.975)) * math.sqrt(residual / (n - 2) / spread)
    return Line(fitted.slope, fitted.slope - half, fitted.slope + half)


def settled_after_s(tps: Sequence[float | None]) -> int | None:
    """Seconds to cut off the begin so that the mean of the rest is known best (MSER-5); None: it never settles.

    A cut beyond half of the window is no answer of the method (White's own rule).
    """
    means = [statistics.fmean(known) for known in _batches(tps, _MSER_BATCH) if known]
    half = len(means) // 2
    if half < 2:
        return None
    scores = [_score(means[cut:]) for cut in range(half + 1)]
    best = min(range(len(scores)), key=scores.__getitem__)
    return best * _MSER_BATCH if best < half else None


def _score(rest: Sequence[float]) -> float:
    mean = statistics.fmean(rest)
    return math.fsum((value - mean) ** 2 for value in rest) / len(rest) ** 2


def _batches(values: Sequence[float | None], size: int) -> list[list[float]]:
    """Whole batches, gaps left out."""
    whole = len(values) // size * size
    return [[v for v in values[begin : begin + size] if v is not None] for begin in range(0, whole, size)]
