"""The charts of the machine in the articles of published studies, drawn from the run of a study."""

from __future__ import annotations

import math
from types import SimpleNamespace as View
from typing import Final

import numpy as np

from dbbench.report.page.charts.kit import Axis, polyline, step_above
from dbbench.report.page.charts.telemetry import Telemetry, Values, pad_rows
from dbbench.report.page.charts.timelines import Panel, PanelSpec
from dbbench.units import number

WIDTH, HEIGHT = 360, 120  # size of a chart in SVG units
CHARTS: Final = {spec.key: Panel(spec, spec.sources[0]) for spec in (
    PanelSpec("cpu", "CPU", "% of all cores", (("cpu_user_pct", "cpu_nice_pct", "cpu_system_pct", "cpu_irq_pct",
                                                "cpu_softirq_pct"),)),
    PanelSpec("disk", "Block transfer", "MB/s read and written",
              (("disk_read_kb_per_s", "disk_write_kb_per_s"),), 0.001),
    PanelSpec("iowait", "iowait", "% of all cores", (("cpu_iowait_pct",),)),
)}  # fmt: skip


def study_chart(name: str, seconds: Telemetry) -> View:
    """Return the chart with the mean of each arm's trials per second. `top` is the highest value of the scale, `why`
    the reason if the chart is not drawn."""
    panel = CHARTS[name]
    title = f"{panel.spec.title}, {panel.spec.unit}"
    means = {arm: _mean(seconds, arm, panel) for arm in seconds.group.arms if seconds.trials_of(arm)}
    measured = {arm: values for arm, values in means.items() if np.isfinite(values).any()}
    if not measured:
        why = f"no trial recorded {panel.source[0]}; a load shorter than two seconds leaves no samples"
        return View(title=title, why=why, curves=(), missing=())
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
    return View(title=title, top=number(top), seconds=length, curves=curves, why="", missing=missing)


def _mean(seconds: Telemetry, arm: str, panel: Panel) -> Values:
    rows = [panel.column(seconds, trial.id) for trial in seconds.trials_of(arm)]
    table = pad_rows(rows, max(map(len, rows)))
    count = np.isfinite(table).sum(axis=0)
    return np.where(count > 0, np.nansum(table, axis=0) / np.maximum(count, 1), np.nan)
