"""Section "Latency distribution": the percentiles of all arms of a group in one chart, and in a
table. The horizontal axis is logarithmic in the share of slower transactions, the vertical one
in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.compare import means
from dbbench.metrics.histogram import LEAST_ABOVE, PERCENTILES, Histogram, merge, percentile_ms
from dbbench.model import Figures, Json, TypeLatency
from dbbench.report.page.charts.kit import PHONE, Chart, Frame, Line, PixelAxis, Ticks
from dbbench.report.page.groups import ArmLabel, Group
from dbbench.units import number

FRAME: Final = Frame(PHONE, 232, 46.0, 350.0, 10.0, 194.0)
FIRST = 50.0
LAST = 99.99
STEPS: Final = 80  # number of points of a line
NOT_ON_THE_AXIS: Final = ("p75", "p95")  # there is no room for their labels
DIGITS: Final = (1, 2, 5)
HEADINGS: Final = (*PERCENTILES, "max")


class LatencyRow(NamedTuple):
    """An arm: the means of its trials' percentiles in ms by name, and its longest transaction."""

    arm: ArmLabel
    transactions: int
    percentiles: Figures
    longest_ms: float | None


class TypeRow(NamedTuple):
    """An arm and a type of transaction: means of its trials' percentiles, the longest of all."""

    arm: ArmLabel
    type: str
    transactions: int
    percentiles: Figures


class Distribution(NamedTuple):
    """The latencies of a group."""

    group: Group
    chart: Chart
    rows: list[LatencyRow]
    types: list[TypeRow]


def document(table: Distribution) -> Json:
    """Return a distribution for the download."""
    rows = []
    for row in table.rows:
        entry = {
            "fs_setup": row.arm.name,
            "transactions": row.transactions,
            "max_ms": row.longest_ms,
        }
        for name, value in row.percentiles.items():
            entry[f"{name.replace('.', '')}_ms"] = value
        rows.append(entry)
    return {
        "run": table.group.loaded.run.name,
        "engine": table.group.engine,
        "workload": table.group.workload,
        "rows": rows,
        "types": [
            {
                "fs_setup": row.arm.name,
                "type": row.type,
                "transactions": row.transactions,
                **{f"{name}_ms": value for name, value in row.percentiles.items()},
            }
            for row in table.types
        ],
    }


def latencies(groups: Sequence[Group]) -> tuple[Distribution, ...]:
    """Return a distribution for each group that recorded latencies. Raises ResultDamaged."""
    distributions = []
    for group in groups:
        # The histograms of each arm: one for each trial, and all together.
        of_trials = {}
        whole_of = {}
        for row in group.ordered_rows:
            arm = row.fs_setup
            histograms = [group.loaded.histogram(trial) for trial in group.used_of(arm)]
            of_trials[arm] = [histogram for histogram in histograms if histogram]
            whole = merge(histograms)
            if percentile_ms(whole, FIRST) is not None:
                whole_of[arm] = whole

        # Percentiles are means over the trials.
        means_of = {}
        for name, share in PERCENTILES.items():
            values = {
                arm: [histogram.percentile_ms(share) for histogram in histograms]
                for arm, histograms in of_trials.items()
            }
            means_of[name] = means(values)

        # A row for each arm that has latencies.
        rows = []
        for row in group.ordered_rows:
            arm = row.fs_setup
            if arm not in whole_of:
                continue
            percentiles = {}
            for name, share in PERCENTILES.items():
                # All trials together must have enough transactions above it.
                enough = percentile_ms(whole_of[arm], share) is not None
                percentiles[name] = means_of[name][arm] if enough else None
            longest = [trial.summary.get("max_ms") for trial in group.used_of(arm)]
            longest_ms = max((ms for ms in longest if ms is not None), default=None)
            total = whole_of[arm].total
            rows.append(
                LatencyRow(
                    group.arm(row),
                    total,
                    percentiles,
                    longest_ms,
                )
            )
        if rows:
            chart = _chart(group, whole_of)
            distributions.append(Distribution(group, chart, rows, list(_types(group))))
    return tuple(distributions)


def _types(group: Group) -> Iterator[TypeRow]:
    for row in group.ordered_rows:
        of_type: dict[str, list[TypeLatency]] = {}
        for trial in group.used_of(row.fs_setup):
            for latencies in trial.types:
                of_type.setdefault(latencies.type, []).append(latencies)
        for name, each in of_type.items():
            merged: Figures = {}
            for key in each[0].percentiles:
                values = [latencies.percentiles[key] for latencies in each]
                measured = [ms for ms in values if ms is not None]
                if key == "max":
                    merged[key] = max(measured, default=None)
                else:
                    merged[key] = means({"": values})[""]
            total = sum(trial.transactions for trial in each)
            yield TypeRow(group.arm(row), name, total, merged)


def _chart(group: Group, histograms: dict[str, Histogram]) -> Chart:
    curves = {group.marks[arm]: _points(whole) for arm, whole in histograms.items()}
    points = [point for curve in curves.values() for point in curve]

    # The axis is at least half a decade.
    values = [math.log10(value) for _, value in points]
    low = min(values)
    high = max(values)
    pad = max(0.05 * (high - low), (0.5 - (high - low)) / 2)
    y = FRAME.up(low - pad, high + pad)

    # The axis reaches p99 even if no arm has enough transactions for it.
    last = max([_nines(99.0), *(nines for nines, _ in points)])
    x = FRAME.along(_nines(FIRST), last)
    along = []
    for name, share in PERCENTILES.items():
        nines = _nines(share)
        if name not in NOT_ON_THE_AXIS and nines <= last + 0.01:
            along.append((x(nines), name))

    # A curve for each arm, through the percentiles that it can show.
    lines = []
    for mark, curve in curves.items():
        corners = [f"{x(nines)} {y(math.log10(value))}" for nines, value in curve]
        lines.append(Line(mark, "M" + "L".join(corners)))
    return Chart(
        ident=f"l-{group.ident}",
        caption=group.title,
        frame=FRAME,
        up=_ticks(y),
        along=along,
        lines=tuple(lines),
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


def _ticks(y: PixelAxis) -> Ticks:
    digits = DIGITS if y.high - y.low < 2.2 else (1,)
    ticks = []
    for power in range(math.floor(y.low) - 1, math.ceil(y.high) + 1):
        for digit in digits:
            tick = digit * 10.0**power
            if y.low <= math.log10(tick) <= y.high:
                ticks.append((y(math.log10(tick)), number(tick)))
    return ticks
