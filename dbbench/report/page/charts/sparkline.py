"""The small curve of an arm's throughput in the table of results."""

from __future__ import annotations

import math
from types import SimpleNamespace as View
from typing import Final

import numpy as np

from dbbench.report.page.charts.kit import Axis, polyline
from dbbench.report.page.charts.telemetry import Telemetry
from dbbench.report.page.charts.timelines import coarse

WIDTH, HEIGHT = 112, 28
POINTS: Final = 84  # one point per 1.3 px; more would not be visible


def sparklines(seconds: Telemetry) -> dict[str, View]:
    """Return the small curve of each arm that has throughput per second, all with the same scale: the SVG paths of its
    median from zero and of its stalled seconds, and the start of the window."""
    medians = {arm: seconds.median(arm, "tps") for arm in seconds.group.arms}
    top = max((float(np.nanmax(tps)) for tps in medians.values() if np.isfinite(tps).any()), default=0.0) * 1.05
    if not top:
        return {}
    curves = {}
    for arm, tps in medians.items():
        if np.isfinite(tps).any():
            x, y = Axis(0, len(tps), 0, WIDTH), Axis(0, top, HEIGHT - 1, 2)
            every = max(1, math.ceil(len(tps) / POINTS))
            means = enumerate(coarse(tps, every))
            points = [(x((i + 0.5) * every), y(mean)) if math.isfinite(mean) else None for i, mean in means]
            stalls = sorted({second for trial in seconds.trials_of(arm) for second in seconds.stalls(trial)})
            curves[arm] = View(
                line=polyline(points),
                stalls="".join(f"M{x(second + 0.5)} 4V{HEIGHT - 1}" for second in stalls),
                warmup=x(seconds.warmup),
                label=f"median throughput over {len(tps)} s, starting at zero"
                + (f"; {len(stalls)} stalled seconds" if stalls else ""),
            )
    return curves
