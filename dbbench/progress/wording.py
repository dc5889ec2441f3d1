"""Numbers and times of progress lines as people read them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from dbbench.metrics import METRICS

_BARS: Final = "▁▂▃▄▅▆▇█"


def figure(value: float | None) -> str:
    """ "1 912" of 1911.7, "18.3" of 18.31; "–" of None."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def eta(left: tuple[float, float] | None, wall: float | None = None) -> str:
    """ "ETA 03:12 ±6m" in local time; "" where nothing is known yet."""
    if left is None:
        return ""
    at = time.strftime("%H:%M", time.localtime((time.time() if wall is None else wall) + left[0]))
    margin = f" ±{math.ceil(left[1] / 60)}m" if left[1] >= 30 else ""
    return f"ETA {at}{margin}"


def copied(told: dict[str, Any]) -> str:
    """ "45 % at 310 MB/s, 12 s left" of the last `copied`."""
    share = 100 * told["bytes"] / max(1, told["of"])
    return f"{share:.0f} % at {figure(told['mb_per_s'])} MB/s, {math.ceil(told['left_s'])} s left"


def spark(values: Sequence[float | None]) -> str:
    """One bar a second, scaled to the largest; a gap is a space."""
    top = max((value for value in values if value is not None), default=0.0)
    if top <= 0:
        return "".join(" " if value is None else _BARS[0] for value in values)
    return "".join(" " if v is None else _BARS[min(7, int(8 * v / top))] for v in values)


def mean_and_spread(values: Sequence[float]) -> str:
    """ "2 004 ±0.8 % (2)": mean, standard error in per cent, number of trials."""
    mean = statistics.fmean(values)
    if len(values) < 2 or mean == 0:
        return f"{figure(mean)} ({len(values)})"
    error = statistics.stdev(values) / math.sqrt(len(values)) / abs(mean)
    return f"{figure(mean)} ±{100 * error:.1f} % ({len(values)})"


def trial_name(data: dict[str, Any]) -> str:
    """ "xfs postgres pgbench-tpcb #2", and the attempt where it is not the first."""
    again = f" attempt {data['attempt']}" if (data.get("attempt") or 1) > 1 else ""
    return f"{data.get('arm')} {data.get('engine')} {data.get('workload')} #{data.get('block')}{again}"


def result(data: dict[str, Any]) -> str:
    """ "1 912 tx/s" of a trial_end; the error's text where it failed."""
    if data.get("status") == "failed":
        error = data.get("error") or {}
        return f"failed in {error.get('phase') or '?'}: {error.get('id')} {error.get('text')}" if error else "failed"
    metric = METRICS.get(str(data.get("metric")))
    unit = f" {metric.unit}" if metric else ""
    suspect = "  suspect" if data.get("status") == "suspect" else ""
    return f"{figure(data.get('value'))}{unit}{suspect}"


def opening(run: dict[str, Any]) -> str:
    """ "3 filesystems x 5 blocks, 27 trials, seed 42", and what is done already."""
    arms, done = len(run.get("arms") or ()), run.get("done") or 0
    again = f", {done} of them done before" if done else ""
    return f"{arms} filesystems x {run.get('blocks')} blocks, {run.get('trials')} trials{again}, seed {run.get('seed')}"
