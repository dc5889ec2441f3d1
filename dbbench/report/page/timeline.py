"""The timelines: their charts, the columns of each, and their captions (a chart is one entry); and the data of a group
for the script: packed seconds, and the trials with stalls, checkpoints and missing data. `figures.py` draws them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from dbbench.model import Trial
from dbbench.report.page.groups import Group
from dbbench.report.page.telemetry import Telemetry, Values
from dbbench.units import GROUP, count, listed, number

# Values of a panel (trials × seconds) that the page keeps for each second. With more, the small multiples are packed
# as means of several seconds, so that 60 trials of an hour fit on a page. Throughput and p95 always keep all seconds.
MOST_VALUES: Final = 40_000


@dataclass(frozen=True)
class Events:
    """What the strip above a large chart shows, by trial, and the labels above it. `missing`: the seconds without a
    value by trial and column, as [first, after the last].
    """

    warnings: list[tuple[str, int, int]]  # ID, second, arm
    stalls: dict[str, list[int]]
    checkpoints: dict[str, list[int]]
    missing: dict[str, dict[str, list[list[int]]]]


@dataclass(frozen=True)
class Timeline:
    """`charts` in the order of the page; `data` is what the script reads, other than the figures."""

    charts: tuple[DrawnChart, ...]
    events: Events
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
    events = Events(
        sorted({(w.id, w.second, place[t.fs_setup]) for t in trials for w in t.warnings
                if w.second is not None and 0 <= w.second < seconds.seconds}, key=lambda warning: warning[1:]),
        {t.id: seconds.stalls(t) for t in trials},
        {t.id: seconds.checkpoints(t) for t in trials},
        {t.id: _missing(charts, t, seconds) for t in trials},
    )  # fmt: skip
    return Timeline(charts, events, {
        "id": group.ident,
        "title": group.title,
        "arms": [group.marks[arm].index for arm in group.arms],
        "baseline": place.get(group.baseline, 0),
        "relative": f"Relative to {group.baseline}",
        "seconds": seconds.seconds,
        "warmup": seconds.warmup,
        "trials": [
            {"arm": place[t.fs_setup], "block": t.block, "used": t.id in group.used, "stalls": events.stalls[t.id],
             "checkpoints": events.checkpoints[t.id], "missing": events.missing[t.id]}
            for t in trials
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


def _missing(charts: Sequence[DrawnChart], trial: Trial, seconds: Telemetry) -> dict[str, list[list[int]]]:
    """Return the seconds in which a trial has no throughput, no p95 or no CPU, as [first, after the last]."""
    panels = [panel for drawn in charts for panel in drawn.panels if panel.panel.key in ("tps", "p95", "user")]
    return {panel.panel.key: gaps(column(seconds, trial.id, panel)) for panel in panels}


def gaps(values: Values) -> list[list[int]]:
    """Return the stretches without a value, each as [first, after the last]."""
    edges = np.flatnonzero(np.diff(np.isnan(values).astype(np.int8), prepend=0, append=0))
    stretches: list[list[int]] = edges.reshape(-1, 2).tolist()
    return stretches


# --- columns of numbers as short text: 16-bit scaled integers, little-endian, in base64 -------------

MISSING: Final = 65535  # no data; n from 0 to 65534 means lo + n × step
Packed = tuple[float, float, str]  # (lo, step, base64)


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
    step = float(f"{(high - low) / (MISSING - 1) * 1.000001:.6g}")  # a short number that is never below the exact step
    cells = np.full(table.shape, MISSING, "<u2")
    cells[finite] = np.minimum(MISSING - 1, np.rint((table[finite] - low) / step)) if step else 0
    return low, step, base64.b64encode(cells.tobytes()).decode("ascii")


def unpacked(content: Packed, length: int) -> list[list[float | None]]:
    """Return the rows as the page's script reads them."""
    low, step, text = content
    cells = np.frombuffer(base64.b64decode(text), "<u2")
    flat = [None if cell == MISSING else low + int(cell) * step for cell in cells]
    return [flat[i : i + length] for i in range(0, len(flat), length)] if length else []


Sum = tuple[str, ...]  # columns that are added up


@dataclass(frozen=True)
class Panel:
    """One measure. The first of `sources` that any trial has is drawn: the sum of its columns, times the factor."""

    key: str
    title: str
    unit: str
    sources: tuple[Sum, ...]
    factor: float = 1.0
    digits: int = 1
    note: str = ""  # shown if the last of several sources is used
    requests: str = ""  # column with the number of requests of each second, of which the values are means


@dataclass(frozen=True)
class Chart:
    """`headline`: large lines with the strip of stalls; `stack`: areas, one plot per arm; `grid`: small multiples."""

    ident: str
    title: str
    kind: Literal["headline", "stack", "grid"]
    panels: tuple[Panel, ...]
    says: str
    recorder: str  # what is missing if there is nothing to draw


CHARTS: Final = (
    Chart("tps", "Throughput, tx/s", "headline", (Panel("tps", "", "tx/s", (("tps",),), digits=0),),
          "Higher is better.", "this workload reports no transactions per second"),
    Chart("p95", "p95 latency, ms", "headline", (Panel("p95", "", "ms", (("p95_ms",),)),),
          "Lower is better. Per second; the percentiles in the table are those of whole trials.",
          "this workload reports no latencies per second"),
    Chart("cpu", "CPU, % of all cores", "stack", (
        Panel("user", "user", "%", (("cpu_user_pct", "cpu_nice_pct", "cpu_guest_pct"),)),
        Panel("system", "system", "%", (("cpu_system_pct", "cpu_irq_pct", "cpu_softirq_pct"),)),
        Panel("iowait", "iowait", "%", (("cpu_iowait_pct",),)),
        Panel("steal", "steal", "%", (("cpu_steal_pct",),)),
    ), "Of the whole machine, mean of the trials; blank is idle.", "no trial has data from sar"),
    Chart("disk", "Device reads and writes, MB/s", "grid", (
        Panel("written", "Written", "MB/s", (("disk_write_kb_per_s",), ("w_kb_per_s",), ("total_write_kb_per_s",)),
              0.001, note="of all disks"),
        Panel("read", "Read", "MB/s", (("disk_read_kb_per_s",), ("r_kb_per_s",), ("total_read_kb_per_s",)),
              0.001, note="of all disks"),
    ), "The device under test.", "no trial has data from sar or iostat"),
    Chart("await", "Await by kind, ms", "grid", (
        Panel("r_await", "Read", "ms", (("r_await_ms",),), digits=2, requests="r_per_s"),
        Panel("w_await", "Write", "ms", (("w_await_ms",),), digits=2, requests="w_per_s"),
        Panel("f_await", "Flush", "ms", (("f_await_ms",),), digits=2, requests="f_per_s"),
    ), "Mean time of a request. Seconds without requests are gaps.", "no trial has data from iostat"),
    Chart("pressure", "Queue, pressure, dirty pages", "grid", (
        Panel("queue", "Queue", "requests", (("aqu_sz",), ("disk_queue",))),
        Panel("psi_io", "I/O pressure", "% some", (("psi_io_some_pct",),)),
        Panel("dirty", "Dirty pages", "MB", (("mem_dirty_bytes",),), 1e-6),
    ), "Mean queue length of the device; share of time in which a task waits for I/O; dirty page cache.",
          "no trial has data from sar"),
    Chart("engine", "Engine", "grid", (
        Panel("applied", "Log applied", "MB/s", (("apply_kb_per_s",),), 0.001),
        Panel("inserted", "Rows inserted", "rows/s", (("insert_rows_per_s",),), digits=0),
        Panel("log", "Log written", "MB/s", (("wal_bytes_per_s",), ("innodb_log_written_bytes_per_s",),
                                             ("innodb_redo_written_bytes_per_s",)), 1e-6),
        Panel("pages", "Pages written", "pages/s",
              (("buffers_checkpoint_per_s", "buffers_clean_per_s", "buffers_backend_per_s"),
               ("innodb_pages_written_per_s",)), digits=0),
        Panel("dirty_pool", "Dirty in the buffer pool", "MB", (("innodb_dirty_bytes",),), 1e-6),
        Panel("redo_age", "Redo since the checkpoint", "MB", (("innodb_redo_age_bytes",),), 1e-6),
    ), "The server's own counters.", "no trial has counters of the server"),
    Chart("files", "Read and written by the load, MB/s", "grid", (
        Panel("file_write", "Written", "MB/s", (("file_write_mb_per_s",),)),
        Panel("file_read", "Read", "MB/s", (("file_read_mb_per_s",),)),
    ), "Counted by the load itself; written data may still be in the page cache.", "this load reports no rates"),
)  # fmt: skip


@dataclass(frozen=True)
class DrawnPanel:
    """A panel that has data; `source` are the columns that exist."""

    panel: Panel
    source: Sum

    @property
    def note(self) -> str:
        last = len(self.panel.sources) > 1 and self.source == self.panel.sources[-1]
        return self.panel.note if last else ""


@dataclass(frozen=True)
class DrawnChart:
    """A chart of one group: its panels and its caption. Without panels, the caption gives the reason."""

    chart: Chart
    panels: tuple[DrawnPanel, ...]
    caption: str

    def ident(self, group: Group) -> str:
        return f"{group.ident}-{self.chart.ident}"


def drawn_charts(group: Group, seconds: Telemetry) -> tuple[DrawnChart, ...]:
    """Return every chart with the data of this group. Of the first five, one without data is kept, with the reason."""
    drawn = []
    for chart in CHARTS:
        panels = tuple(DrawnPanel(p, source) for p in chart.panels if (source := _source(p, seconds)))
        if panels:
            drawn.append(DrawnChart(chart, panels, _caption(chart, panels, group, seconds)))
        elif chart in CHARTS[:5]:
            why = chart.recorder if seconds.series else "no trial left a series"
            drawn.append(DrawnChart(chart, (), f"Not drawn: {why}."))
    return tuple(drawn)


def _source(panel: Panel, seconds: Telemetry) -> Sum | None:
    return next((source for source in panel.sources if seconds.has(source[0])), None)


def column(seconds: Telemetry, trial_id: str, drawn: DrawnPanel) -> Values:
    """Return the panel's values of a trial in the panel's unit. The first column decides where there are gaps."""
    first, *more = (seconds.values(trial_id, name) for name in drawn.source)
    return drawn.panel.factor * (first + sum(np.nan_to_num(other) for other in more))


def _caption(chart: Chart, panels: Sequence[DrawnPanel], group: Group, seconds: Telemetry) -> str:
    facts = [_typical(drawn, group, seconds) for drawn in panels]
    if chart.kind == "stack":
        facts = [_shares(panels, group, seconds)]
    if chart.ident == "tps":
        facts.append(_stalled(group, seconds))
    absent = [p.title.lower() for p in chart.panels if p not in [drawn.panel for drawn in panels]]
    if absent and chart in CHARTS[:5]:
        facts.append(f"Not recorded: {listed(absent)}.")
    return " ".join(fact for fact in (chart.says, *facts) if fact)


def window_values(drawn: DrawnPanel, arm: str, seconds: Telemetry) -> Values:
    """Return the panel's values, without gaps, in the windows of the arm's used trials."""
    parts = [seconds.known(trial.id, column(seconds, trial.id, drawn)) for trial in seconds.used(arm)]
    return np.concatenate(parts) if parts else np.empty(0)


def mean_of(drawn: DrawnPanel, arm: str, seconds: Telemetry) -> float | None:
    """Return the mean over the windows of the arm's used trials; of a wait, over all their requests."""
    total = weights = 0.0
    for trial in seconds.used(arm):
        values, requests = column(seconds, trial.id, drawn), drawn.panel.requests
        weight = seconds.values(trial.id, requests) if seconds.has(requests) else np.ones_like(values)
        counted = seconds.inside(trial) & np.isfinite(values) & np.isfinite(weight)
        total += float((values * weight)[counted].sum())
        weights += float(weight[counted].sum())
    return total / weights if weights else None


def mean_of_panel(key: str, arm: str, seconds: Telemetry) -> float | None:
    """Return the mean of the panel with that key; None if no trial has its columns."""
    panel = next(panel for chart in CHARTS for panel in chart.panels if panel.key == key)
    source = _source(panel, seconds)
    return mean_of(DrawnPanel(panel, source), arm, seconds) if source is not None else None


def _typical(drawn: DrawnPanel, group: Group, seconds: Telemetry) -> str:
    """Return the median second of a large chart, whose mean is in the table, and the means of the others."""
    what, values_of = f"{drawn.panel.title}, mean of the window", {}
    if drawn.panel.requests:
        what = f"{drawn.panel.title}, mean of all requests"
    for arm in group.arms:
        values_of[arm] = mean_of(drawn, arm, seconds)
    if not drawn.panel.title:
        what, medians = "Median second of the window", {arm: window_values(drawn, arm, seconds) for arm in group.arms}
        values_of = {arm: float(np.median(values)) if values.size else None for arm, values in medians.items()}
    parts = [f"{arm} {number(value)}" for arm, value in values_of.items() if value is not None]
    if not parts:
        return ""
    without = [arm for arm, value in values_of.items() if value is None and seconds.used(arm)]
    rest = f"; {listed(without)}: none" if without else ""
    note = f" ({drawn.note})" if drawn.note else ""
    return f"{what}{note}: {', '.join(parts)}{GROUP}{drawn.panel.unit}{rest}."


def _shares(panels: Sequence[DrawnPanel], group: Group, seconds: Telemetry) -> str:
    parts = []
    for arm in group.arms:
        means = [mean_of(drawn, arm, seconds) for drawn in panels]
        if any(value is not None for value in means):
            parts.append(f"{arm} {' + '.join(map(number, means))}")
    return (
        f"Mean of the window, {' + '.join(d.panel.title for d in panels)}: {'; '.join(parts)}{GROUP}%." if parts else ""
    )


def _stalled(group: Group, seconds: Telemetry) -> str:
    stalls_of = [(arm, sum(len(seconds.stalls(trial)) for trial in seconds.used(arm))) for arm in group.arms]
    parts = [f"{arm} {count(n, 'second')}" for arm, n in stalls_of if n]
    text = f"Stalled (below a tenth of the median, or no transaction), in all trials together: {', '.join(parts)}."
    return text if parts else "No stalled seconds."
