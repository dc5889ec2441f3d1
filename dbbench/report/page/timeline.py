"""The data of a group's timelines for the script: packed seconds, trials, stalls, warnings with their second."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dbbench.report.page.charts import DrawnChart, column, drawn_charts
from dbbench.report.page.groups import Group
from dbbench.report.page.telemetry import Telemetry, Values

# Values of one panel (trials × seconds) that are kept by the second; above, the small multiples are packed as
# means of some seconds, so that 60 trials of an hour still fit a page. Throughput and p95 always keep all.
MOST_VALUES: Final = 40_000


@dataclass(frozen=True)
class Timeline:
    """`charts` in the order of the page; `data` is what the script reads."""

    charts: tuple[DrawnChart, ...]
    data: dict[str, Any]


def timeline(group: Group, seconds: Telemetry) -> Timeline:
    """Return the charts of a group and their data."""
    charts = drawn_charts(group, seconds)
    trials = seconds.trials
    series = {}
    for drawn in charts:
        fine = drawn.chart.kind == "headline" or len(trials) * seconds.seconds <= MOST_VALUES
        every = 1 if fine else math.ceil(len(trials) * seconds.seconds / MOST_VALUES)
        length = math.ceil(seconds.seconds / every)
        for panel in drawn.panels:
            rows = [coarse(column(seconds, trial.id, panel), every) for trial in trials]
            series[panel.panel.key] = [every, length, *packed(rows, length)]
    place = {arm: index for index, arm in enumerate(group.arms)}
    return Timeline(charts, {
        "id": group.ident,
        "title": group.title,
        "arms": [group.marks[arm].index for arm in group.arms],
        "baseline": place.get(group.baseline, 0),
        "seconds": seconds.seconds,
        "warmup": seconds.warmup,
        "charts": [_chart(drawn) for drawn in charts if drawn.panels],
        "trials": [
            {"arm": place[t.fs_setup], "block": t.block, "attempt": t.attempt, "used": t.id in group.used,
             "length": seconds.series[t.id].seconds, "stalls": seconds.stalls(t),
             "checkpoints": seconds.checkpoints(t)}
            for t in trials
        ],
        "warnings": [
            [w.id, w.second, place[t.fs_setup], t.block]
            for t in trials for w in t.warnings if w.second is not None and 0 <= w.second < seconds.seconds
        ],
        "series": series,
    })  # fmt: skip


def coarse(values: Values, every: int) -> Values:
    """Return the means of `every` seconds. Gaps are left out of a mean; a mean of gaps only is a gap."""
    if every == 1:
        return values
    table = np.full((math.ceil(len(values) / every), every), np.nan)
    table.flat[: len(values)] = values
    finite = np.isfinite(table)
    count = finite.sum(axis=1)
    means = np.where(finite, table, 0.0).sum(axis=1) / np.maximum(count, 1)
    return np.where(count > 0, means, np.nan)


def _chart(drawn: DrawnChart) -> dict[str, Any]:
    return {
        "id": drawn.chart.ident,
        "kind": drawn.chart.kind,
        "title": drawn.chart.title,
        "panels": [
            {"key": p.panel.key, "title": p.panel.title, "unit": p.panel.unit, "digits": p.panel.digits,
             "note": p.note}
            for p in drawn.panels
        ],
    }  # fmt: skip


# --- columns of numbers as short text: 16-bit scaled integers, little-endian, in base64 -------------

MISSING: Final = 65535  # no data; 0 .. 65534 are lo + n × step
Packed = tuple[float, float, str]  # lo, step, base64


def packed(rows: Sequence[Values], length: int) -> Packed:
    """Return the rows one after the other, each padded with gaps (NaN) to `length`. The error is at most half a step,
    which is 1/131068 of the range; the smallest value (often zero) is exact.
    """
    table = np.full((len(rows), length), np.nan)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    finite = np.isfinite(table)
    low = float(table[finite].min()) if finite.any() else 0.0
    high = float(table[finite].max()) if finite.any() else 0.0
    step = float(f"{(high - low) / (MISSING - 1) * 1.000001:.6g}")  # a short number, never below the exact one
    cells = np.full(table.shape, MISSING, "<u2")
    cells[finite] = np.minimum(MISSING - 1, np.rint((table[finite] - low) / step)) if step else 0
    return low, step, base64.b64encode(cells.tobytes()).decode("ascii")


def unpacked(content: Packed, length: int) -> list[list[float | None]]:
    """Return the rows as the page's script reads them."""
    low, step, text = content
    cells = np.frombuffer(base64.b64decode(text), "<u2")
    flat = [None if cell == MISSING else low + int(cell) * step for cell in cells]
    return [flat[i : i + length] for i in range(0, len(flat), length)] if length else []
