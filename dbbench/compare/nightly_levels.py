"""Where a nightly series has taken a new level.

With each new night, the nights since the last change are searched for the split whose two sides
differ most, as a t value on logarithms. The split is a change if this value exceeds what AR(1)
noise (each night depends on the night before) reaches by chance;
`benchmarks/changepoint_null.py` computed the thresholds below. Therefore the result for a prefix
of a series is the result that was reported on that night, and a reported change does not vanish
later.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Nights = NDArray[np.float64]

# (nights of one level, threshold): made by `benchmarks/changepoint_null.py`, not by hand.
THRESHOLDS: Final = (
    (6, 19.14),
    (7, 15.2),
    (8, 13.35),
    (9, 11.65),
    (10, 10.67),
    (12, 8.54),
    (14, 7.48),
    (17, 6.58),
    (20, 6.1),
    (25, 5.51),
    (30, 5.11),
    (40, 4.48),
    (50, 4.06),
    (60, 3.79),
    (80, 3.44),
    (100, 3.32),
)
LEAST_NIGHTS: Final = 3  # on either side of a change
# nights of a level that are examined; older nights do not help to find a change of last week
MOST_NIGHTS: Final = 100
SHIFT: Final = 0.03  # a smaller change is not worth an alarm
# no night is more precise; it also keeps the t value of a constant series finite
LEAST_SD: Final = 0.001
# multiple of the median deviation from the median of the neighbours: about 3 standard deviations
OUTLIER: Final = 5.0
# share of a side's nights that must be on its side of the middle; two odd nights are not a level
BEYOND: Final = 0.8
SETTLED: Final = 10  # nights after which a change keeps its place
# correlation of consecutive nights that is assumed at first, and its weight in nights
MEMORY: Final = (0.2, 10)
MOST_MEMORY: Final = 0.8
# degree: it follows half a swing; with a slope alone, four times as many slow swings pass as steps
CURVE: Final = 3


def find(series: Sequence[float | None]) -> list[int]:
    """Return the indices of the first night of each new level, see `compare.changepoints`."""
    indices = []
    values = []
    for index, value in enumerate(series):
        if value is not None and math.isfinite(value) and value > 0:
            indices.append(index)
            values.append(value)
    logs = np.log(np.array(values, dtype=float))
    return [indices[place] for place in _places(logs)]


def _places(logs: Nights) -> list[int]:
    places: list[int] = []
    # As it was seen after each night.
    for end in range(2 * LEAST_NIGHTS, len(logs) + 1):
        # A recent change may still move by a night or two.
        if places and end - places[-1] <= SETTLED:
            places[-1] = _refine(logs, places, end)
        level_begin = places[-1] if places else 0
        begin = max(level_begin, end - MOST_NIGHTS)
        if end - begin < 2 * LEAST_NIGHTS:
            continue
        place = _change(logs[begin:end].tobytes())
        if place is not None:
            places.append(begin + place)
    return places


@functools.lru_cache(maxsize=4096)
def _change(level: bytes) -> int | None:
    """Return the place of a change, or None. Cached, because every night all earlier nights are
    examined again.
    """
    nights = np.frombuffer(level)
    exceeds, place = scan(nights[None, :])
    if exceeds[0] > threshold(len(nights)):
        return int(place[0])
    return None


def _refine(logs: Nights, places: list[int], end: int) -> int:
    """Return the place of the newest change, which may be up to two nights off, with the largest t
    value.
    """
    newest = places[-1]
    begin = max(0, newest - MOST_NIGHTS)
    if len(places) > 1:
        begin = places[-2]
    # Two nights in both directions, as far as both sides keep enough nights.
    first = max(begin + LEAST_NIGHTS, newest - 2)
    last = min(end - LEAST_NIGHTS, newest + 2)
    clean = without_outliers(logs[None, begin:end])
    t_values = _splits(clean).t_values[0]
    first_split = begin + LEAST_NIGHTS
    nearby = t_values[first - first_split : last + 1 - first_split]
    return first + int(nearby.argmax())


def threshold(nights: int) -> float:
    """Return what `scan` of so many nights of one level rarely exceeds by chance; linear between
    the table's rows.
    """
    table = np.array(THRESHOLDS)
    return float(np.interp(nights, table[:, 0], table[:, 1]))


def scan(nights: Nights) -> tuple[Nights, NDArray[Any]]:
    """For each row (logarithms of the nights of a level), return how far its best split exceeds
    noise, and its place. The first is a t value divided by the factor by which the correlation
    of nights increases it. It is 0 if the split is not a step: too small, a drift, or not
    followed by enough nights of a side.
    """
    nights = nights - nights.mean(axis=1, keepdims=True)
    clean = without_outliers(nights)

    # The best split of each row.
    splits = _splits(clean)
    best = splits.t_values.argmax(axis=1)
    rows = np.arange(len(clean))
    place = best + LEAST_NIGHTS
    shift = splits.shifts[rows, best]
    t_value = splits.t_values[rows, best]

    # The two levels around it, and by how much it exceeds the noise that they leave.
    indices = np.arange(clean.shape[1])
    after = indices[None, :] >= place[:, None]
    left = np.where(after, 0, clean).sum(axis=1) / place
    right = left + shift
    levels = np.where(after, right[:, None], left[:, None])
    noise = clean - levels
    exceeds = t_value / _inflation(noise)

    # A drift fits a curve better than two levels, and outliers are not a level.
    is_large = np.abs(shift) >= SHIFT
    is_no_drift = splits.within[rows, best] < _around_a_curve(clean)
    middle = left + shift / 2
    is_level = _taking_part(nights, after, middle, shift)
    is_step = is_large & is_no_drift & is_level
    return np.where(is_step, exceeds, 0.0), place


def without_outliers(nights: Nights) -> Nights:
    """Return the nights with outliers moved towards the median of their neighbours; a step of three
    nights stays.
    """
    median = np.empty_like(nights)
    # The ends have fewer neighbours: the median of the first and the last three nights.
    windows = np.lib.stride_tricks.sliding_window_view(nights, 5, axis=1)
    # Sorting is three times as fast as np.median.
    first = np.sort(nights[:, :3], axis=1)
    last = np.sort(nights[:, -3:], axis=1)
    median[:, :2] = first[:, 1:2]
    median[:, 2:-2] = np.sort(windows, axis=2)[:, :, 2]
    median[:, -2:] = last[:, 1:2]
    off = nights - median
    bound = OUTLIER * np.median(np.abs(off), axis=1, keepdims=True)
    limited: Nights = median + np.clip(off, -bound, bound)
    return limited


class Splits(NamedTuple):
    """All possible splits of each row into two levels, the first after LEAST_NIGHTS nights."""

    t_values: Nights  # |t| of the two means
    shifts: Nights  # the second mean minus the first
    within: Nights  # sum of squares around the two means


def _splits(clean: Nights) -> Splits:
    count = clean.shape[1]
    before = np.arange(LEAST_NIGHTS, count - LEAST_NIGHTS + 1)
    after = count - before
    # Cumulative sums give the means of all splits at once.
    sums = clean.cumsum(axis=1)[:, before - 1]
    total = clean.sum(axis=1, keepdims=True)
    mean_before = sums / before
    mean_after = (total - sums) / after
    shifts = mean_after - mean_before

    # What the two means leave of the sum of squares around one mean.
    weight = before * after / count
    mean = total / count
    around_one = ((clean - mean) ** 2).sum(axis=1, keepdims=True)
    within = around_one - shifts**2 * weight

    # The t value of the difference of the means.
    variance = np.maximum(within, 0.0) / (count - 2)
    sd = np.maximum(np.sqrt(variance), LEAST_SD)
    t_values = np.abs(shifts) * np.sqrt(weight) / sd
    return Splits(t_values, shifts, within)


def _inflation(residual: Nights) -> Nights:
    """Return the factor by which AR(1) noise increases the t value of two long means:
    √((1+φ)/(1−φ)).
    """
    count = residual.shape[1]
    squares = np.maximum((residual**2).sum(axis=1), count * LEAST_SD**2)
    products = residual[:, 1:] * residual[:, :-1]
    lag_one = products.sum(axis=1) / squares
    assumed, weight = MEMORY
    # The two fitted means lower the estimate by about 2/count; + 2 corrects this.
    estimated = (count * lag_one + 2 + weight * assumed) / (count + weight)
    memory = np.clip(estimated, 0.0, MOST_MEMORY)
    factor: Nights = np.sqrt((1 + memory) / (1 - memory))
    return factor


def _around_a_curve(clean: Nights) -> Nights:
    """Return the sum of squares around the best curve. If it fits better than two levels, the
    nights are a drift.
    """
    # What the curve explains is the length of the projection on its polynomials.
    projection = np.einsum("rn,nd->rd", clean, _axes(clean.shape[1]))
    squares: Nights = (clean**2).sum(axis=1) - (projection**2).sum(axis=1)
    return squares


@functools.cache
def _axes(count: int) -> Nights:
    """Return orthonormal polynomials of degree 0 to CURVE over `count` nights."""
    powers = np.vander(np.linspace(-1, 1, count), CURVE + 1)
    basis: Nights = np.linalg.qr(powers)[0]
    return basis


def _taking_part(
    nights: Nights,
    after: NDArray[Any],
    middle: Nights,
    shift: Nights,
) -> NDArray[Any]:
    """Whether on both sides the share BEYOND of the nights is nearer to the level of its side than
    to the other.
    """
    is_above = nights > middle[:, None]
    rises = (shift > 0)[:, None]
    has_moved = is_above == rises
    # Of both sides, so that a few odd nights do not make a step.
    before = ~after
    follow = (has_moved & after).sum(axis=1) >= BEYOND * after.sum(axis=1)
    stay = (~has_moved & before).sum(axis=1) >= BEYOND * before.sum(axis=1)
    taking_part: NDArray[Any] = np.logical_and(follow, stay)
    return taking_part
