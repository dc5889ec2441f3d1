"""Whether throughput was steady over a window: a trend test on means of ten seconds, and MSER-5.

The mean of a series with a trend depends on the choice of the window. Successive seconds are correlated; means of ten
seconds are so much less, and a checkpoint cycle of half the window does not count as a trend.
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
LEAST_MEANS: Final = 6  # smallest number of means for a line with an interval
CHANGE: Final = 0.03  # end to end, as a share of the mean: a smaller trend is real and moves no verdict
_MSER_BATCH: Final = 5  # White 1997, "An effective truncation heuristic": batches of five


@dataclass(frozen=True)
class Trend:
    """A fitted line: `change` from one end of the window to the other ÷ mean; `p` of the hypothesis "no slope",
    two-sided."""

    change: float
    p: float

    @property
    def found(self) -> bool:
        """Whether the trend is large and significant, so that there is no steady state."""
        return self.p < P_VALUE and abs(self.change) > CHANGE


def trend(tps: Sequence[float | None]) -> Trend | None:
    """Return the trend of the measured seconds, or None for less than 60 s or no progress."""
    if len(tps) < LEAST_S:
        return None
    means = [statistics.fmean(batch) for batch in _batches(tps, BATCH_S) if batch]
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
    """Change of a rate per minute, with its 95 % interval."""

    per_min: float
    low: float
    high: float


def slope(rates: Sequence[float | None]) -> Slope | None:
    """Return the slope of a rate per second, fitted to means of equal length, or None below 12 s.

    The means cover ten seconds each, or a sixth of the time if that is shorter, because successive seconds are
    correlated.
    """
    size = min(BATCH_S, len(rates) // LEAST_MEANS)
    if size < 2:
        return None
    means = [statistics.fmean(batch) for batch in _batches(rates, size) if batch]
    n = len(means)
    if n < LEAST_MEANS:
        return None
    fitted = line(range(n), means)
    scale = 60 / size
    return None if fitted is None else Slope(fitted.slope * scale, fitted.low * scale, fitted.high * scale)


@dataclass(frozen=True)
class FittedLine:
    """The slope of a fitted line, with its 95 % interval."""

    slope: float
    low: float
    high: float


def line(xs: Sequence[float], ys: Sequence[float]) -> FittedLine | None:
    """Fit a line by least squares; return None for fewer than three points or a single x.

    The interval uses Student's t and assumes independent errors.
    """
    n = len(xs)
    if n < 3 or len(set(xs)) < 2:
        return None
    fitted, middle = statistics.linear_regression(xs, ys), statistics.fmean(xs)
    residual = math.fsum((y - fitted.intercept - fitted.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = math.fsum((x - middle) ** 2 for x in xs)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 2, 0.975)) * math.sqrt(residual / (n - 2) / spread)
    return FittedLine(fitted.slope, fitted.slope - half, fitted.slope + half)


def settled_after_s(tps: Sequence[float | None]) -> int | None:
    """Return how many seconds to cut off at the beginning for the most precise mean (MSER-5), or None if it never
    settles.

    A cut beyond half of the window is not valid (White's rule).
    """
    means = [statistics.fmean(batch) for batch in _batches(tps, _MSER_BATCH) if batch]
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
    """Split values into complete batches; gaps are omitted."""
    whole = len(values) // size * size
    return [[v for v in values[begin : begin + size] if v is not None] for begin in range(0, whole, size)]
