"""The charts of the machine in the articles of published studies, drawn from the run of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace as View
from typing import Final

import numpy as np

from dbbench.report.page.charts.kit import Axis, polyline, step_above
from dbbench.report.page.charts.telemetry import Telemetry, Values
from dbbench.units import number

WIDTH, HEIGHT = 360, 120  # size of a chart in SVG units
# Per second: (title, unit, columns that are added, factor).
CHARTS: Final[dict[str, tuple[str, str, tuple[str, ...], float]]] = {
    "cpu": ("CPU", "% of all cores", ("cpu_user_pct", "cpu_nice_pct", "cpu_system_pct", "cpu_irq_pct",
                                      "cpu_softirq_pct"), 1.0),
    "disk": ("Block transfer", "MB/s read and written", ("disk_read_kb_per_s", "disk_write_kb_per_s"), 0.001),
    "iowait": ("iowait", "% of all cores", ("cpu_iowait_pct",), 1.0),
}  # fmt: skip


def study_chart(name: str, seconds: Telemetry) -> View:
    """Return the chart with the mean of each arm's trials per second. `top` is the highest value of the scale, `why`
    the reason if the chart is not drawn."""
    title, unit, columns, factor = CHARTS[name]
    means = {arm: factor * _mean(seconds, arm, columns) for arm in seconds.group.arms if seconds.trials_of(arm)}
    measured = {arm: values for arm, values in means.items() if np.isfinite(values).any()}
    if not measured:
        why = f"no trial recorded {columns[0]}; a load shorter than two seconds leaves no samples"
        return View(title=f"{title}, {unit}", why=why, curves=(), missing=())
    length = max(len(values) for values in measured.values())
    most = max(float(np.nanmax(values)) for values in measured.values())
    top = step_above(most) if most > 0 else 1.0
    x, y = Axis(-0.5, length - 0.5, 0.0, WIDTH), Axis(0.0, top, HEIGHT - 1.0, 3.0)
    curves, missing = [], []
    for arm, mark in [(arm, seconds.group.marks[arm]) for arm in seconds.group.arms]:
        if arm in measured:
            points = [(x(n), y(value)) if math.isfinite(value) else None for n, value in enumerate(measured[arm])]
            mean = number(float(np.nanmean(measured[arm])))
            curves.append(View(mark=mark, path=polyline(points), mean=mean))
        else:
            missing.append((mark, "no complete second was recorded" if arm in means else "no trial counts"))
    return View(title=f"{title}, {unit}", top=number(top), seconds=length, curves=curves, why="", missing=missing)


def _mean(seconds: Telemetry, arm: str, columns: Sequence[str]) -> Values:
    rows = [seconds.values(trial.id, columns[0]) + sum(np.nan_to_num(seconds.values(trial.id, name))
                                                       for name in columns[1:])
            for trial in seconds.trials_of(arm)]  # fmt: skip
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    count = np.isfinite(table).sum(axis=0)
    return np.where(count > 0, np.nansum(table, axis=0) / np.maximum(count, 1), np.nan)
