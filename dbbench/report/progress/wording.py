"""Numbers and times of progress lines as people read them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from dbbench.metrics.table import METRICS
from dbbench.units import count, number

_BARS: Final = "▁▂▃▄▅▆▇█"


def eta(left: tuple[float, float] | None, wall: float | None = None) -> str:
    """Return "ETA 03:12 ±6m" in local time; "" if nothing is known yet."""
    if left is None:
        return ""
    clock_time = time.strftime("%H:%M", time.localtime((time.time() if wall is None else wall) + left[0]))
    margin = f" ±{math.ceil(left[1] / 60)}m" if left[1] >= 30 else ""
    return f"ETA {clock_time}{margin}"


def copied(told: dict[str, Any]) -> str:
    """Return "45 % at 310 MB/s, 12 s left" for the last `copied` event."""
    share = 100 * told["bytes"] / max(1, told["of"])
    return f"{share:.0f} % at {number(told['mb_per_s'])} MB/s, {math.ceil(told['left_s'])} s left"


def spark(values: Sequence[float | None]) -> str:
    """Return one bar per second, scaled to the largest; a gap is a space."""
    top = max((value for value in values if value is not None), default=0.0)
    if top <= 0:
        return "".join(" " if value is None else _BARS[0] for value in values)
    return "".join(" " if v is None else _BARS[min(7, int(8 * v / top))] for v in values)


def mean_and_spread(values: Sequence[float]) -> str:
    """Return "2 004 ±0.8 % (2)": mean, standard error in per cent, number of trials."""
    mean = statistics.fmean(values)
    if len(values) < 2 or mean == 0:
        return f"{number(mean)} ({len(values)})"
    error = statistics.stdev(values) / math.sqrt(len(values)) / abs(mean)
    return f"{number(mean)} ±{100 * error:.1f} % ({len(values)})"


def trial_name(data: dict[str, Any]) -> str:
    """Return "xfs postgres pgbench-tpcb #2", with the attempt if it is not the first."""
    again = f" attempt {data['attempt']}" if (data.get("attempt") or 1) > 1 else ""
    return f"{data.get('arm')} {data.get('engine')} {data.get('workload')} #{data.get('block')}{again}"


def result(data: dict[str, Any]) -> str:
    """Return "1 912 tx/s" of a trial_end event, or the error's text if it failed."""
    if data.get("status") == "failed":
        error = data.get("error") or {}
        return f"failed in {error.get('phase') or '?'}: {error.get('id')} {error.get('text')}" if error else "failed"
    metric = METRICS.get(str(data.get("metric")))
    unit = f" {metric.unit}" if metric else ""
    suspect = "  suspect" if data.get("status") == "suspect" else ""
    return f"{number(data.get('value'))}{unit}{suspect}"


def opening(run: dict[str, Any]) -> str:
    """Return "3 setups x 5 blocks, 27 trials, seed 42", and how many trials are already done."""
    size = f"{count(len(run.get('arms') or ()), 'setup')} x {count(run.get('blocks') or 0, 'block')}"
    done = f", {run['done']} already done" if run.get("done") else ""
    return f"{size}, {run.get('trials')} trials{done}, seed {run.get('seed')}"
