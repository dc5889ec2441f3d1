"""Whether throughput was steady over a window (with a trend, its mean depends on the window): a
trend test on means of ten seconds, which are much less correlated than seconds and hide a
checkpoint cycle of half the window; and MSER-5.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

LEAST_S: Final = 60  # shorter windows have too few means
BATCH_S: Final = 10
P_VALUE: Final = 0.01
LEAST_MEANS: Final = 6  # smallest number of means for a line with an interval
# end to end, as a share of the mean: a smaller trend is real and moves no verdict
CHANGE: Final = 0.03
_MSER_BATCH: Final = 5  # White 1997, "An effective truncation heuristic": batches of five


class Trend(NamedTuple):
    """A fitted line: `change` from end to end of the window ÷ mean; `p` of the hypothesis "no
    slope", two-sided.
    """

    change: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether the trend is also large, so that there is no steady state."""
        return self.p < P_VALUE and abs(self.change) > CHANGE


class Slope(NamedTuple):
    """The slope of a fitted line, with its 95 % interval."""

    slope: float
    low: float
    high: float


def trend(tps: Sequence[float | None]) -> Trend | None:
    """Return the trend of the measured seconds, or None for less than 60 s or no progress."""
    if len(tps) < LEAST_S:
        return None
    means = _means(tps, BATCH_S)
    n = len(means)
    mean = statistics.fmean(means) if means else 0.0
    if n < 4 or mean <= 0:
        return None
    slope, error = _fit(range(n), means)
    change = slope * (n - 1) / mean
    if error <= 0:
        return Trend(change, 0.0 if slope else 1.0)
    from scipy.special import stdtr

    t = abs(slope) / error
    return Trend(change, float(2 * stdtr(n - 2, -t)))


def slope_per_min(rates: Sequence[float | None]) -> Slope | None:
    """Return the slope of a rate per second in a minute, or None below 12 s, fitted to means of ten
    seconds, or of a sixth of the time if that is shorter.
    """
    size = min(BATCH_S, len(rates) // LEAST_MEANS)
    means = _means(rates, size) if size >= 2 else []
    if len(means) < LEAST_MEANS:
        return None
    return line([index * size / 60 for index in range(len(means))], means)


def line(xs: Sequence[float], ys: Sequence[float]) -> Slope | None:
    """Fit a line by least squares (Student's t, independent errors); None for fewer than three
    points or a single x.
    """
    if len(xs) < 3 or len(set(xs)) < 2:
        return None
    from scipy.special import stdtrit

    slope, error = _fit(xs, ys)
    half = float(stdtrit(len(xs) - 2, 0.975)) * error
    return Slope(slope, slope - half, slope + half)


def _fit(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return (slope, its standard error) of the line by least squares."""
    fitted = statistics.linear_regression(xs, ys)
    squares = []
    for x, y in zip(xs, ys, strict=True):
        residual = y - fitted.intercept - fitted.slope * x
        squares.append(residual**2)
    variance = math.fsum(squares) / (len(xs) - 2)
    middle = statistics.fmean(xs)
    spread = math.fsum((x - middle) ** 2 for x in xs)
    return fitted.slope, math.sqrt(variance / spread)


def settled_after_s(tps: Sequence[float | None]) -> int | None:
    """Return how many seconds to cut off at the beginning for the most precise mean (MSER-5), or
    None if it never settles: a cut beyond half of the window is not valid (White's rule).
    """
    means = _means(tps, _MSER_BATCH)
    half = len(means) // 2
    if half < 2:
        return None
    # The score of a cut is the squared error of the mean of what remains.
    scores = []
    for cut in range(half + 1):
        rest = means[cut:]
        mean = statistics.fmean(rest)
        squares = math.fsum((value - mean) ** 2 for value in rest)
        scores.append(squares / len(rest) ** 2)
    best = scores.index(min(scores))
    return best * _MSER_BATCH if best < half else None


def _means(values: Sequence[float | None], size: int) -> list[float]:
    means = []
    for end in range(size, len(values) + 1, size):
        batch = [value for value in values[end - size : end] if value is not None]
        if batch:
            means.append(statistics.fmean(batch))
    return means
