"""Section "Latency distribution": the percentiles of all arms of a group in one chart, and in a table.

The horizontal axis is logarithmic in the share of slower transactions, the vertical one in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dbbench.compare import means
from dbbench.metrics.histogram import LEAST_ABOVE, PERCENTILES, Histogram, merged, percentile_ms
from dbbench.report.page.axes import Axis, Frame, Line, LinePlot, polyline
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.units import number

FRAME: Final = Frame(358, 232, 46.0, 350.0, 10.0, 194.0)  # width of a phone (390 px) without margins
FIRST, LAST = 50.0, 99.99
STEPS: Final = 80  # number of points of a line
SHOWN: Final = {name: share for name, share in PERCENTILES.items() if name not in ("p75", "p95")}  # labels of the axis
DIGITS: Final = (1, 2, 5)


@dataclass(frozen=True)
class LatencyRow:
    """One arm: the means of its trials' percentiles in ms by name, and the longest transaction."""

    mark: Mark
    durability: str
    apart: bool
    transactions: int
    percentiles: dict[str, float | None]
    longest_ms: float | None

    def cells(self) -> list[str]:
        return [number(value) for value in (*self.percentiles.values(), self.longest_ms)]


@dataclass(frozen=True)
class Latency:
    """The distribution of one group."""

    group: Group
    plot: LinePlot
    rows: tuple[LatencyRow, ...]

    @property
    def headings(self) -> list[str]:
        return [*PERCENTILES, "max"]

    def raw(self) -> dict[str, Any]:
        """Return the table for the download, in ms."""
        return {
            "run": self.group.loaded.run.name, "engine": self.group.engine, "workload": self.group.workload,
            "rows": [{"fs_setup": row.mark.name, "transactions": row.transactions, "max_ms": row.longest_ms,
                      **{f"{name.replace('.', '')}_ms": value for name, value in row.percentiles.items()}}
                     for row in self.rows],
        }  # fmt: skip


def latencies(groups: Sequence[Group]) -> tuple[Latency, ...]:
    """Return a distribution for each group that recorded latencies. Raises ResultDamaged."""
    distributions = []
    for group in groups:
        rows = sorted(group.rows, key=group.apart)
        each = {row.fs_setup: [*map(group.loaded.histogram, group.used_of(row.fs_setup))] for row in rows}
        histograms = {arm: merged(of_arm) for arm, of_arm in each.items()}
        histograms = {arm: whole for arm, whole in histograms.items() if percentile_ms(whole, FIRST) is not None}
        percentiles = {
            name: means({arm: [h.percentile_ms(share) for h in of_arm if h] for arm, of_arm in each.items()})
            for name, share in PERCENTILES.items()
        }
        if histograms:
            lines = tuple(
                LatencyRow(
                    mark=group.marks[row.fs_setup],
                    durability=row.durability_class,
                    apart=group.apart(row),
                    transactions=histograms[row.fs_setup].total,
                    percentiles={
                        name: None if percentile_ms(histograms[row.fs_setup], share) is None else of_arms[row.fs_setup]
                        for (name, share), of_arms in zip(PERCENTILES.items(), percentiles.values(), strict=True)
                    },
                    longest_ms=_longest(group, row.fs_setup),
                )
                for row in rows
                if row.fs_setup in histograms
            )
            distributions.append(Latency(group, _plot(group, histograms), lines))
    return tuple(distributions)


def _longest(group: Group, arm: str) -> float | None:
    longest = [value for trial in group.used_of(arm) if (value := trial.summary.get("max_ms")) is not None]
    return max(longest, default=None)


def _plot(group: Group, histograms: dict[str, Histogram]) -> LinePlot:
    curves = {group.marks[arm]: _points(whole) for arm, whole in histograms.items()}
    values = [math.log10(value) for points in curves.values() for _, value in points]
    low, high = min(values), max(values)
    pad = max(0.05 * (high - low), (0.5 - (high - low)) / 2)  # the axis is at least half a decade
    last = max([_nines(99.0), *(nines for points in curves.values() for nines, _ in points)])
    x, y = FRAME.along(_nines(FIRST), last), FRAME.up(low - pad, high + pad)
    return LinePlot(
        ident=f"l-{group.ident}",
        caption=group.title,
        frame=FRAME,
        up=_ticks(y),
        along=tuple((x(_nines(share)), name) for name, share in SHOWN.items() if _nines(share) <= last + 0.01),
        lines=tuple(
            Line(mark, polyline((x(nines), y(math.log10(value))) for nines, value in points))
            for mark, points in curves.items()
        ),
        below="transactions that are at most this slow",
    )


def _nines(percent: float) -> float:
    """Return the number of nines of a percentile: 0.3 for p50, 1 for p90, 2 for p99."""
    return -math.log10(1 - percent / 100)


def _points(whole: Histogram) -> list[tuple[float, float]]:
    """Return (nines, ms) points, up to the percentile that still has enough transactions above it."""
    last = min(_nines(LAST), math.log10(whole.total / LEAST_ABOVE))
    first = _nines(FIRST)
    points = []
    for step in range(STEPS + 1):
        nines = first + (last - first) * step / STEPS
        value = whole.percentile_ms(100 * (1 - 10**-nines))
        if value is not None:
            points.append((nines, value))
    return points


def _ticks(y: Axis) -> tuple[tuple[float, str], ...]:
    """Return round values in ms as ticks; on a long axis only powers of ten."""
    powers = range(math.floor(y.low) - 1, math.ceil(y.high) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (DIGITS if y.high - y.low < 2.2 else (1,))]
    return tuple((y(math.log10(tick)), number(tick)) for tick in ticks if y.low <= math.log10(tick) <= y.high)
