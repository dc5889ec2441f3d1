"""Thresholds for `dbbench.compare.changepoints` from series in which nothing happened.

Series of AR(1) noise with several memories, up to the strongest that is still called noise; each night the survivors
are scanned, and the night's threshold is what ALARMS of them exceed. The strongest memory of each night decides. The
noise's size does not matter but for the least shift, which is switched off here, so that the table holds for any.

    python benchmarks/changepoint_null.py > dbbench/compare/null.py
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

import numpy

scanning = importlib.import_module("dbbench.compare.changepoints")  # the package has a function of that name

SERIES: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
ALARMS: Final = 0.0015  # a night: a third of the 0.5 per 100 nights that are promised, for noise of other shapes
MEMORIES: Final = (0.0, 0.2, 0.4)
ROWS: Final = (6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 80, 100)


def nights_of(memory: float, rng: numpy.random.Generator) -> numpy.ndarray:
    """SERIES rows of unit AR(1) noise around zero."""
    fresh = rng.standard_normal((SERIES, scanning.MOST_NIGHTS))
    rows = numpy.empty_like(fresh)
    rows[:, 0] = fresh[:, 0]
    for night in range(1, scanning.MOST_NIGHTS):
        rows[:, night] = memory * rows[:, night - 1] + numpy.sqrt(1 - memory**2) * fresh[:, night]
    return rows


def thresholds(memory: float) -> list[float]:
    """For each number of nights what ALARMS of the series still without an alarm exceed."""
    left = nights_of(memory, numpy.random.default_rng(round(memory * 10) + 1))
    found = []
    for count in range(6, scanning.MOST_NIGHTS + 1):
        exceeds, _ = scanning.scan(left[:, :count])
        limit = float(numpy.quantile(exceeds, 1 - ALARMS))
        found.append(limit)
        left = left[exceeds <= limit]
    return found


def smoothed(found: list[list[float]]) -> list[tuple[int, float]]:
    """The highest of the memories, its scatter smoothed over neighbouring numbers of nights."""
    highest = numpy.max(found, axis=0)
    rows = []
    for count in ROWS:
        near = [n for n in range(6, len(highest) + 6) if abs(n - count) <= count / 8]
        slope, level = (
            numpy.polyfit([1 / n for n in near], [highest[n - 6] for n in near], 1)
            if len(near) > 2
            else (0.0, highest[count - 6])
        )
        rows.append((count, round(float(level + slope / count), 2)))
    return rows


def main() -> None:
    """Print the module."""
    table = smoothed([thresholds(memory) for memory in MEMORIES])
    print('"""(nights of one level, threshold): made by `benchmarks/changepoint_null.py`, not by hand."""')
    print("\nfrom __future__ import annotations\n\nfrom typing import Final\n")
    print("THRESHOLDS: Final = (")
    for count, limit in table:
        print(f"    ({count}, {limit}),")
    print(")")


if __name__ == "__main__":
    scanning.LEAST_SD, scanning.SHIFT = 1e-9, 0.0  # type: ignore[misc]
    main()
