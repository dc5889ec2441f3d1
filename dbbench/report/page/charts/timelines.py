"""The timelines: their charts, the columns of each, and their captions (a chart is one entry); and the data of a group
for the script: packed seconds and the trials with stalls and checkpoints. `figures.py` draws them."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from dbbench.report.page.charts.telemetry import Telemetry, Values, pad_rows
from dbbench.report.page.groups import Group
from dbbench.units import GROUP, count, join_words, number

# Values of a panel (trials × seconds) that the page keeps for each second. With more, the small multiples are packed
# as means of several seconds, so that 60 trials of an hour fit on a page. Throughput and p95 always keep all seconds.
MOST_VALUES: Final = 40_000
NO_DATA: Final = 65535  # in packed seconds: n from 0 to 65534 means lo + n × step

Sum = tuple[str, ...]  # columns that are added up
Packed = tuple[float, float, str]  # (lo, step, base64)


class PanelSpec(NamedTuple):
    """One measure. The first of `sources` that any trial has is drawn: the sum of its columns, times the factor."""

    key: str
    title: str
    unit: str
    sources: tuple[Sum, ...]
    factor: float = 1.0
    digits: int = 1
    note: str = ""  # shown if the last of several sources is used
    requests: str = ""  # column with the number of requests of each second, of which the values are means


class ChartSpec(NamedTuple):
    """`headline`: large lines with the strip of stalls; `stack`: areas, one plot per arm; `grid`: small multiples."""

    ident: str
    title: str
    kind: Literal["headline", "stack", "grid"]
    panels: tuple[PanelSpec, ...]
    says: str
    recorder: str  # what is missing if there is nothing to draw


CHARTS: Final = (
    ChartSpec("tps", "Throughput, tx/s", "headline", (PanelSpec("tps", "", "tx/s", (("tps",),), digits=0),),
          "Higher is better.", "this workload reports no transactions per second"),
    ChartSpec("p95", "p95 latency, ms", "headline", (PanelSpec("p95", "", "ms", (("p95_ms",),)),),
          "Lower is better. Per second; the percentiles in the table are those of whole trials.",
          "this workload reports no latencies per second"),
    ChartSpec("cpu", "CPU, % of all cores", "stack", (
        PanelSpec("user", "user", "%", (("cpu_user_pct", "cpu_nice_pct", "cpu_guest_pct"),)),
        PanelSpec("system", "system", "%", (("cpu_system_pct", "cpu_irq_pct", "cpu_softirq_pct"),)),
        PanelSpec("iowait", "iowait", "%", (("cpu_iowait_pct",),)),
        PanelSpec("steal", "steal", "%", (("cpu_steal_pct",),)),
    ), "Of the whole machine, mean of the trials; blank is idle.", "no trial has data from sar"),
    ChartSpec("disk", "Device reads and writes, MB/s", "grid", (
        PanelSpec("written", "Written", "MB/s", (("disk_write_kb_per_s",), ("w_kb_per_s",), ("total_write_kb_per_s",)),
              0.001, note="of all disks"),
        PanelSpec("read", "Read", "MB/s", (("disk_read_kb_per_s",), ("r_kb_per_s",), ("total_read_kb_per_s",)),
              0.001, note="of all disks"),
    ), "The device under test.", "no trial has data from sar or iostat"),
    ChartSpec("await", "Await by kind, ms", "grid", (
        PanelSpec("r_await", "Read", "ms", (("r_await_ms",),), digits=2, requests="r_per_s"),
        PanelSpec("w_await", "Write", "ms", (("w_await_ms",),), digits=2, requests="w_per_s"),
        PanelSpec("f_await", "Flush", "ms", (("f_await_ms",),), digits=2, requests="f_per_s"),
    ), "Mean time of a request. Seconds without requests are gaps.", "no trial has data from iostat"),
    ChartSpec("pressure", "Queue, pressure, dirty pages", "grid", (
        PanelSpec("queue", "Queue", "requests", (("aqu_sz",), ("disk_queue",))),
        PanelSpec("psi_io", "I/O pressure", "% some", (("psi_io_some_pct",),)),
        PanelSpec("dirty", "Dirty pages", "MB", (("mem_dirty_bytes",),), 1e-6),
    ), "Mean queue length of the device; share of time in which a task waits for I/O; dirty page cache.",
          "no trial has data from sar"),
    ChartSpec("engine", "Engine", "grid", (
        PanelSpec("applied", "Log applied", "MB/s", (("apply_kb_per_s",),), 0.001),
        PanelSpec("inserted", "Rows inserted", "rows/s", (("insert_rows_per_s",),), digits=0),
        PanelSpec("log", "Log written", "MB/s", (("wal_bytes_per_s",), ("innodb_log_written_bytes_per_s",),
                                             ("innodb_redo_written_bytes_per_s",)), 1e-6),
        PanelSpec("pages", "Pages written", "pages/s",
              (("buffers_checkpoint_per_s", "buffers_clean_per_s", "buffers_backend_per_s"),
               ("innodb_pages_written_per_s",)), digits=0),
        PanelSpec("dirty_pool", "Dirty in the buffer pool", "MB", (("innodb_dirty_bytes",),), 1e-6),
        PanelSpec("redo_age", "Redo since the checkpoint", "MB", (("innodb_redo_age_bytes",),), 1e-6),
    ), "The server's own counters.", "no trial has counters of the server"),
    ChartSpec("files", "Read and written by the load, MB/s", "grid", (
        PanelSpec("file_write", "Written", "MB/s", (("file_write_mb_per_s",),)),
        PanelSpec("file_read", "Read", "MB/s", (("file_read_mb_per_s",),)),
    ), "Counted by the load itself; written data may still be in the page cache.", "this load reports no rates"),
)  # fmt: skip

PANELS: Final = {panel.key: panel for chart in CHARTS for panel in chart.panels}
ALWAYS: Final = CHARTS[:5]  # without data, these stay on the page with the reason


class Panel(NamedTuple):
    """A panel that has data; `source` are the columns that exist."""

    spec: PanelSpec
    source: Sum

    @property
    def note(self) -> str:
        last = len(self.spec.sources) > 1 and self.source == self.spec.sources[-1]
        return self.spec.note if last else ""

    def column(self, seconds: Telemetry, trial_id: str) -> Values:
        """Return the values of a trial in the panel's unit. The first column decides where there are gaps."""
        first, *more = (seconds.values(trial_id, name) for name in self.source)
        return self.spec.factor * (first + sum(np.nan_to_num(other) for other in more))

    def mean(self, arm: str, seconds: Telemetry) -> float | None:
        """Return the mean over the windows of the arm's used trials; of a wait, over all their requests."""
        total = weights = 0.0
        for trial in seconds.trials_of(arm):
            values, requests = self.column(seconds, trial.id), self.spec.requests
            weight = seconds.values(trial.id, requests) if seconds.has(requests) else np.ones_like(values)
            counted = seconds.windows[trial.id] & np.isfinite(values) & np.isfinite(weight)
            total += float((values * weight)[counted].sum())
            weights += float(weight[counted].sum())
        return total / weights if weights else None

    def median_second(self, arm: str, seconds: Telemetry) -> float | None:
        parts = [seconds.window_values(trial.id, self.column(seconds, trial.id)) for trial in seconds.trials_of(arm)]
        values = np.concatenate(parts) if parts else np.empty(0)
        return float(np.median(values)) if values.size else None


class TimelineChart(NamedTuple):
    """A chart of one group: its panels and its caption. Without panels, the caption gives the reason."""

    spec: ChartSpec
    panels: tuple[Panel, ...]
    caption: str


class Timelines(NamedTuple):
    """`charts` in the order of the page; `data` is what the script reads, other than the figures; `warnings` are (ID,
    second, arm)."""

    charts: tuple[TimelineChart, ...]
    warnings: list[tuple[str, int, int]]
    data: dict[str, Any]


def timelines(group: Group, seconds: Telemetry) -> Timelines:
    """Return the charts of a group and their data."""
    charts = _charts(group, seconds)
    trials = seconds.trials
    series = {}
    for chart in charts:
        fine = chart.spec.kind == "headline" or len(trials) * seconds.seconds <= MOST_VALUES
        every = 1 if fine else math.ceil(len(trials) * seconds.seconds / MOST_VALUES)
        length = math.ceil(seconds.seconds / every)
        for panel in chart.panels:
            rows = [coarse(panel.column(seconds, trial.id), every) for trial in trials]
            series[panel.spec.key] = [every, length, *pack(rows, length)]
    place = {arm: index for index, arm in enumerate(group.arms)}
    warnings = sorted(
        {
            (w.id, w.second, place[t.fs_setup])
            for t in trials
            for w in t.warnings
            if w.second is not None and 0 <= w.second < seconds.seconds
        },
        key=lambda warning: warning[1:],
    )
    return Timelines(charts, warnings, {
        "id": group.ident,
        "title": group.title,
        "arms": [group.marks[arm].index for arm in group.arms],
        "baseline": place.get(group.baseline, 0),
        "relative": f"Relative to {group.baseline}",
        "seconds": seconds.seconds,
        "warmup": seconds.warmup,
        "trials": [
            {"arm": place[t.fs_setup], "block": t.block, "used": t.id in group.counted_ids,
             "stalls": seconds.stalls(t), "checkpoints": seconds.checkpoints(t)}
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


def pack(rows: Sequence[Values], length: int) -> Packed:
    """Return the rows one after the other as scaled 16-bit integers, little-endian, in base64, each padded with gaps
    (NaN) to `length`. The error is at most 1/131068 of the range; the smallest value (often zero) is exact."""
    table = pad_rows(rows, length)
    finite = np.isfinite(table)
    low = float(table[finite].min()) if finite.any() else 0.0
    high = float(table[finite].max()) if finite.any() else 0.0
    step = float(f"{(high - low) / (NO_DATA - 1) * 1.000001:.6g}")  # a short number that is never below the exact step
    cells = np.full(table.shape, NO_DATA, "<u2")
    cells[finite] = np.minimum(NO_DATA - 1, np.rint((table[finite] - low) / step)) if step else 0
    return low, step, base64.b64encode(cells.tobytes()).decode("ascii")


def _charts(group: Group, seconds: Telemetry) -> tuple[TimelineChart, ...]:
    charts = []
    for spec in CHARTS:
        panels = tuple(panel for each in spec.panels if (panel := _panel(each, seconds)))
        if panels:
            charts.append(TimelineChart(spec, panels, _caption(spec, panels, group, seconds)))
        elif spec in ALWAYS:
            why = spec.recorder if seconds.series else "no trial left a series"
            charts.append(TimelineChart(spec, (), f"Not drawn: {why}."))
    return tuple(charts)


def _panel(spec: PanelSpec, seconds: Telemetry) -> Panel | None:
    return next((Panel(spec, source) for source in spec.sources if seconds.has(source[0])), None)


def mean_of_panel(key: str, arm: str, seconds: Telemetry) -> float | None:
    """Return the mean of the panel with that key; None if no trial has its columns."""
    panel = _panel(PANELS[key], seconds)
    return panel.mean(arm, seconds) if panel is not None else None


def _caption(spec: ChartSpec, panels: Sequence[Panel], group: Group, seconds: Telemetry) -> str:
    facts = [_shares(panels, group, seconds)] if spec.kind == "stack" else [
        _typical(panel, group, seconds) for panel in panels
    ]  # fmt: skip
    if spec.ident == "tps":
        facts.append(_stall_text(group, seconds))
    absent = [each.title.lower() for each in spec.panels if each not in [panel.spec for panel in panels]]
    if absent and spec in ALWAYS:
        facts.append(f"Not recorded: {join_words(absent)}.")
    return " ".join(fact for fact in (spec.says, *facts) if fact)


def _typical(panel: Panel, group: Group, seconds: Telemetry) -> str:
    if panel.spec.title:
        what = f"{panel.spec.title}, mean of {'all requests' if panel.spec.requests else 'the window'}"
        values = {arm: panel.mean(arm, seconds) for arm in group.arms}
    else:
        what, values = "Median second of the window", {arm: panel.median_second(arm, seconds) for arm in group.arms}
    parts = [f"{arm} {number(value)}" for arm, value in values.items() if value is not None]
    if not parts:
        return ""
    without = [arm for arm, value in values.items() if value is None and seconds.trials_of(arm)]
    rest = f"; {join_words(without)}: none" if without else ""
    note = f" ({panel.note})" if panel.note else ""
    return f"{what}{note}: {', '.join(parts)}{GROUP}{panel.spec.unit}{rest}."


def _shares(panels: Sequence[Panel], group: Group, seconds: Telemetry) -> str:
    parts = []
    for arm in group.arms:
        means = [panel.mean(arm, seconds) for panel in panels]
        if any(value is not None for value in means):
            parts.append(f"{arm} {' + '.join(map(number, means))}")
    titles = " + ".join(panel.spec.title for panel in panels)
    return f"Mean of the window, {titles}: {'; '.join(parts)}{GROUP}%." if parts else ""


def _stall_text(group: Group, seconds: Telemetry) -> str:
    stalls_of = [(arm, sum(len(seconds.stalls(trial)) for trial in seconds.trials_of(arm))) for arm in group.arms]
    parts = [f"{arm} {count(n, 'second')}" for arm, n in stalls_of if n]
    text = f"Stalled (below a tenth of the median, or no transaction), in all trials together: {', '.join(parts)}."
    return text if parts else "No stalled seconds."
