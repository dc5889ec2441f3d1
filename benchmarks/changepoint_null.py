"""Thresholds for `dbbench.compare.changepoints`, from series without a change.

The series are AR(1) noise with several correlations, up to the strongest that still counts as
noise. Each night, the series without an alarm so far are scanned, and the threshold of the night
is the value that the share ALARMS of them exceeds. For each night, the highest threshold of all
correlations is used. The size of the noise only matters for the smallest shift, which is
disabled here, so the table is valid for any size.

    python benchmarks/changepoint_null.py
"""

from __future__ import annotations

import sys
from typing import Final

import numpy

from dbbench.compare import nightly_levels

SERIES: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
# per night: a third of the promised 0.5 per 100 nights, as a margin for noise of other shapes
ALARMS: Final = 0.0015
MEMORIES: Final = (0.0, 0.2, 0.4)
ROWS: Final = (6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 80, 100)


def nights_of(memory: float, rng: numpy.random.Generator) -> numpy.ndarray:
    """Return SERIES rows of AR(1) noise with unit variance around zero."""
    fresh = rng.standard_normal((SERIES, nightly_levels.MOST_NIGHTS))
    rows = numpy.empty_like(fresh)
    rows[:, 0] = fresh[:, 0]
    for night in range(1, nightly_levels.MOST_NIGHTS):
        rows[:, night] = memory * rows[:, night - 1] + numpy.sqrt(1 - memory**2) * fresh[:, night]
    return rows


def thresholds(memory: float) -> list[float]:
    """Return, for each number of nights, the value that the share ALARMS of series without an alarm
    so far exceeds.
    """
    left = nights_of(memory, numpy.random.default_rng(round(memory * 10) + 1))
    limits = []
    for count in range(6, nightly_levels.MOST_NIGHTS + 1):
        exceeds, _ = nightly_levels.scan(left[:, :count])
        limit = float(numpy.quantile(exceeds, 1 - ALARMS))
        limits.append(limit)
        left = left[exceeds <= limit]
    return limits


def smooth(limits: list[list[float]]) -> list[tuple[int, float]]:
    """Return the highest threshold of all correlations, smoothed over neighbouring numbers of
    nights.
    """
    highest = numpy.max(limits, axis=0)
    rows = []
    for count in ROWS:
        near = [n for n in range(6, len(highest) + 6) if abs(n - count) <= count / 8]
        slope = 0.0
        level = highest[count - 6]
        if len(near) > 2:
            heights = [highest[n - 6] for n in near]
            slope, level = numpy.polyfit([1 / n for n in near], heights, 1)
        rows.append((count, round(float(level + slope / count), 2)))
    return rows


def main() -> None:
    """Print the table, as it is in the module."""
    table = smooth([thresholds(memory) for memory in MEMORIES])
    print("THRESHOLDS: Final = (")
    for count, limit in table:
        print(f"    ({count}, {limit}),")
    print(")")


if __name__ == "__main__":
    # type: ignore[misc]
    nightly_levels.LEAST_SD = 1e-9
    nightly_levels.SHIFT = 0.0
    main()
