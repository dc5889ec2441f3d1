"""Section "Latency distribution": the percentiles of all arms of a group in one chart, and in a
table. The horizontal axis is logarithmic in the share of slower transactions, the vertical one
in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace as View
from typing import Any, Final

from dbbench.compare import means
from dbbench.metrics.histogram import LEAST_ABOVE, PERCENTILES, Histogram, merge, percentile_ms
from dbbench.report.page.charts.kit import PHONE, Axis, Chart, Frame, Line, Ticks
from dbbench.report.page.groups import Group
from dbbench.units import number

FRAME: Final = Frame(PHONE, 232, 46.0, 350.0, 10.0, 194.0)
FIRST = 50.0
LAST = 99.99
STEPS: Final = 80  # number of points of a line
NOT_ON_THE_AXIS: Final = ("p75", "p95")  # there is no room for their labels
DIGITS: Final = (1, 2, 5)
HEADINGS: Final = (*PERCENTILES, "max")


def document(table: View) -> dict[str, Any]:
    """Return a distribution for the download."""
    return {
        "run": table.group.loaded.run.name,
        "engine": table.group.engine,
        "workload": table.group.workload,
        "rows": [
            {
                "fs_setup": row.arm.name,
                "transactions": row.transactions,
                "max_ms": row.longest_ms,
                **{f"{name.replace('.', '')}_ms": value for name, value in row.percentiles.items()},
            }
            for row in table.rows
        ],
    }


def latencies(groups: Sequence[Group]) -> tuple[View, ...]:
    """Return a distribution for each group that recorded latencies: its chart, and for each arm the
    means of its trials' percentiles in ms by name, and the longest transaction. Raises
    ResultDamaged.
    """
    distributions = []
    for group in groups:
        each = {
            row.fs_setup: [*map(group.loaded.histogram, group.used_of(row.fs_setup))]
            for row in group.ordered_rows
        }
        histograms = {arm: merge(of_arm) for arm, of_arm in each.items()}
        histograms = {
            arm: whole
            for arm, whole in histograms.items()
            if percentile_ms(whole, FIRST) is not None
        }
        percentiles = {
            name: means(
                {arm: [h.percentile_ms(share) for h in of_arm if h] for arm, of_arm in each.items()}
            )
            for name, share in PERCENTILES.items()
        }
        rows = []
        for row in group.ordered_rows:
            if whole := histograms.get(row.fs_setup):
                enough = {
                    name
                    for name, share in PERCENTILES.items()
                    if percentile_ms(whole, share) is not None
                }
                own = {
                    name: of[row.fs_setup] if name in enough else None
                    for name, of in percentiles.items()
                }
                longest = [trial.summary.get("max_ms") for trial in group.used_of(row.fs_setup)]
                longest_ms = max((ms for ms in longest if ms is not None), default=None)
                rows.append(
                    View(
                        arm=group.arm(row),
                        transactions=whole.total,
                        percentiles=own,
                        longest_ms=longest_ms,
                    )
                )
        if rows:
            distributions.append(View(group=group, chart=_chart(group, histograms), rows=rows))
    return tuple(distributions)


def _chart(group: Group, histograms: dict[str, Histogram]) -> Chart:
    curves = {group.marks[arm]: _points(whole) for arm, whole in histograms.items()}
    values = [math.log10(value) for points in curves.values() for _, value in points]
    low = min(values)
    high = max(values)
    pad = max(0.05 * (high - low), (0.5 - (high - low)) / 2)  # the axis is at least half a decade
    last = max([_nines(99.0), *(nines for points in curves.values() for nines, _ in points)])
    x = FRAME.along(_nines(FIRST), last)
    y = FRAME.up(low - pad, high + pad)
    labels = {
        name: _nines(share) for name, share in PERCENTILES.items() if name not in NOT_ON_THE_AXIS
    }
    return Chart(
        ident=f"l-{group.ident}",
        caption=group.title,
        frame=FRAME,
        up=_ticks(y),
        along=[(x(nines), name) for name, nines in labels.items() if nines <= last + 0.01],
        lines=tuple(
            Line(
                mark,
                "M" + "L".join(f"{x(nines)} {y(math.log10(value))}" for nines, value in points),
            )
            for mark, points in curves.items()
        ),
        below="transactions that are at most this slow",
    )


def _nines(percent: float) -> float:
    """Return the number of nines of a percentile: 0.3 for p50, 1 for p90, 2 for p99."""
    return -math.log10(1 - percent / 100)


def _points(whole: Histogram) -> list[tuple[float, float]]:
    """Return (nines, ms) points, up to the percentile that still has enough transactions above it."""
    first = _nines(FIRST)
    last = min(_nines(LAST), math.log10(whole.total / LEAST_ABOVE))
    steps = [first + (last - first) * step / STEPS for step in range(STEPS + 1)]
    points = [(nines, whole.percentile_ms(100 * (1 - 10**-nines))) for nines in steps]
    return [(nines, ms) for nines, ms in points if ms is not None]


def _ticks(y: Axis) -> Ticks:
    powers = range(math.floor(y.low) - 1, math.ceil(y.high) + 1)
    ticks = [
        digit * 10.0**power
        for power in powers
        for digit in (DIGITS if y.high - y.low < 2.2 else (1,))
    ]
    return [
        (y(math.log10(tick)), number(tick)) for tick in ticks if y.low <= math.log10(tick) <= y.high
    ]
