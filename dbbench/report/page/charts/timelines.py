"""The timelines: their charts, the columns of each, and their captions (a chart is one entry); and
the data of a group for the script: packed seconds and the trials with stalls and checkpoints.
`figures.py` draws them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from dbbench.report.page.charts.telemetry import Telemetry, Values
from dbbench.report.page.groups import Group
from dbbench.units import GROUP, count, join_words, number

# Values of a panel (trials × seconds) that the page keeps for each second. With more, the small
# multiples are packed as means of several seconds, so that 60 trials of an hour fit on a page.
# Throughput and p95 always keep all seconds.
MOST_VALUES: Final = 40_000
NO_DATA: Final = 65535  # in packed seconds: n from 0 to 65534 means lo + n × step

Sum = tuple[str, ...]  # columns that are added up
Packed = tuple[float, float, str]  # (lo, step, base64)


class Panel(NamedTuple):
    """One measure. The first of `sources` that any trial has is drawn: the sum of its columns,
    times the factor. A panel of a group has only this one.
    """

    key: str
    title: str
    unit: str
    sources: tuple[Sum, ...]
    factor: float = 1.0
    digits: int = 1
    note: str = ""  # shown if the last of several sources is used
    # column with the number of requests of each second, of which the values are means
    requests: str = ""

    def choose_source(self, seconds: Telemetry) -> Panel | None:
        """Return the panel as it is drawn; None if no trial has any of its sources."""
        for source in self.sources:
            if seconds.has(source[0]):
                is_last = len(self.sources) > 1 and source == self.sources[-1]
                return self._replace(sources=(source,), note=self.note if is_last else "")
        return None

    def column(self, seconds: Telemetry, trial_id: str) -> Values:
        """Return the values of a trial in the panel's unit. The first column decides where there
        are gaps.
        """
        first, *more = (seconds.values(trial_id, name) for name in self.sources[0])
        return self.factor * (first + sum(np.nan_to_num(other) for other in more))

    def mean(self, arm: str, seconds: Telemetry) -> float | None:
        """Return the mean over the windows of the arm's used trials; of a wait, over all their
        requests.
        """
        total = weights = 0.0
        for trial in seconds.trials_of(arm):
            values = self.column(seconds, trial.id)
            requests = self.requests
            weight = (
                seconds.values(trial.id, requests)
                if seconds.has(requests)
                else np.ones_like(values)
            )
            counted = seconds.windows[trial.id] & np.isfinite(values) & np.isfinite(weight)
            total += float((values * weight)[counted].sum())
            weights += float(weight[counted].sum())
        return total / weights if weights else None

    def median_second(self, arm: str, seconds: Telemetry) -> float | None:
        parts = [
            seconds.window_values(trial.id, self.column(seconds, trial.id))
            for trial in seconds.trials_of(arm)
        ]
        values = np.concatenate(parts) if parts else np.empty(0)
        if values.size:
            return float(np.median(values))
        return None


class TimelineChart(NamedTuple):
    """`headline`: large lines with the strip of stalls; `stack`: areas, one plot per arm; `grid`:
    small multiples. A chart of a group has the panels with data, and a caption with their
    figures; without panels, it gives the reason.
    """

    ident: str
    title: str
    kind: Literal["headline", "stack", "grid"]
    panels: tuple[Panel, ...]
    caption: str
    recorder: str  # what is missing if there is nothing to draw


CHARTS: Final = (
    TimelineChart(
        "tps",
        "Throughput, tx/s",
        "headline",
        (Panel("tps", "", "tx/s", (("tps",),), digits=0),),
        "Higher is better.",
        "this workload reports no transactions per second",
    ),
    TimelineChart(
        "p95",
        "p95 latency, ms",
        "headline",
        (Panel("p95", "", "ms", (("p95_ms",),)),),
        "Lower is better. Per second; the percentiles in the table are those of whole trials.",
        "this workload reports no latencies per second",
    ),
    TimelineChart(
        "cpu",
        "CPU, % of all cores",
        "stack",
        (
            Panel("user", "user", "%", (("cpu_user_pct", "cpu_nice_pct", "cpu_guest_pct"),)),
            Panel("system", "system", "%", (("cpu_system_pct", "cpu_irq_pct", "cpu_softirq_pct"),)),
            Panel("iowait", "iowait", "%", (("cpu_iowait_pct",),)),
            Panel("steal", "steal", "%", (("cpu_steal_pct",),)),
        ),
        "Of the whole machine, mean of the trials; blank is idle. Its seconds, which sar counts, are "
        "those of the load ± 0.5 s.",
        "no trial has data from sar",
    ),
    TimelineChart(
        "disk",
        "Device reads and writes, MB/s",
        "grid",
        (
            Panel(
                "written",
                "Written",
                "MB/s",
                (("disk_write_kb_per_s",), ("w_kb_per_s",), ("total_write_kb_per_s",)),
                0.001,
                note="of all disks",
            ),
            Panel(
                "read",
                "Read",
                "MB/s",
                (("disk_read_kb_per_s",), ("r_kb_per_s",), ("total_read_kb_per_s",)),
                0.001,
                note="of all disks",
            ),
        ),
        "The device under test.",
        "no trial has data from sar or iostat",
    ),
    TimelineChart(
        "await",
        "Await by kind, ms",
        "grid",
        (
            Panel("r_await", "Read", "ms", (("r_await_ms",),), digits=2, requests="r_per_s"),
            Panel("w_await", "Write", "ms", (("w_await_ms",),), digits=2, requests="w_per_s"),
            Panel("f_await", "Flush", "ms", (("f_await_ms",),), digits=2, requests="f_per_s"),
        ),
        "Mean time of a request. Seconds without requests are gaps.",
        "no trial has data from iostat",
    ),
    TimelineChart(
        "pressure",
        "Queue, pressure, dirty pages",
        "grid",
        (
            Panel("queue", "Queue", "requests", (("aqu_sz",), ("disk_queue",))),
            Panel("psi_io", "I/O pressure", "% some", (("psi_io_some_pct",),)),
            Panel("dirty", "Dirty pages", "MB", (("mem_dirty_bytes",),), 1e-6),
        ),
        "Mean queue length of the device; share of time in which a task waits for I/O; dirty "
        "page cache.",
        "no trial has data from sar",
    ),
    TimelineChart(
        "engine",
        "Engine",
        "grid",
        (
            Panel("applied", "Log applied", "MB/s", (("apply_kb_per_s",),), 0.001),
            Panel("inserted", "Rows inserted", "rows/s", (("insert_rows_per_s",),), digits=0),
            Panel(
                "log",
                "Log written",
                "MB/s",
                (
                    ("wal_bytes_per_s",),
                    ("innodb_log_written_bytes_per_s",),
                    ("innodb_redo_written_bytes_per_s",),
                ),
                1e-6,
            ),
            Panel(
                "pages",
                "Pages written",
                "pages/s",
                (
                    ("buffers_checkpoint_per_s", "buffers_clean_per_s", "buffers_backend_per_s"),
                    ("innodb_pages_written_per_s",),
                ),
                digits=0,
            ),
            Panel("dirty_pool", "Dirty in the buffer pool", "MB", (("innodb_dirty_bytes",),), 1e-6),
            Panel(
                "redo_age",
                "Redo since the checkpoint",
                "MB",
                (("innodb_redo_age_bytes",),),
                1e-6,
            ),
        ),
        "The server's own counters.",
        "no trial has counters of the server",
    ),
    TimelineChart(
        "files",
        "Read and written by the load, MB/s",
        "grid",
        (
            Panel("file_write", "Written", "MB/s", (("file_write_mb_per_s",),)),
            Panel("file_read", "Read", "MB/s", (("file_read_mb_per_s",),)),
        ),
        "Counted by the load itself; written data may still be in the page cache.",
        "this load reports no rates",
    ),
)

PANELS: Final = {panel.key: panel for chart in CHARTS for panel in chart.panels}
ALWAYS: Final = CHARTS[:5]  # without data, these stay on the page with the reason


class Timelines(NamedTuple):
    """`charts` in the order of the page; `data` is what the script reads, other than the figures;
    `warnings` are (ID, second, arm).
    """

    charts: tuple[TimelineChart, ...]
    warnings: list[tuple[str, int, int]]
    data: dict[str, Any]


def timelines(group: Group, seconds: Telemetry) -> Timelines:
    """Return the charts of a group and their data."""
    charts = _charts(group, seconds)
    trials = seconds.trials

    # The seconds of each panel, packed; with many trials as means of several seconds.
    series = {}
    for chart in charts:
        fine = chart.kind == "headline" or len(trials) * seconds.seconds <= MOST_VALUES
        every = 1 if fine else math.ceil(len(trials) * seconds.seconds / MOST_VALUES)
        length = math.ceil(seconds.seconds / every)
        for panel in chart.panels:
            rows = [coarse(panel.column(seconds, trial.id), every) for trial in trials]
            series[panel.key] = [every, length, *pack(rows, length)]
    # Warnings that belong to a second of the window.
    place = {arm: index for index, arm in enumerate(group.arms)}
    warnings = set()
    for trial in trials:
        for warning in trial.warnings:
            if warning.second is not None and 0 <= warning.second < seconds.seconds:
                warnings.add((warning.id, warning.second, place[trial.fs_setup]))
    # The data that the script draws, with the names it shows.
    return Timelines(
        charts,
        sorted(warnings, key=lambda warning: warning[1:]),
        {
            "id": group.ident,
            "title": group.title,
            "arms": [group.marks[arm].index for arm in group.arms],
            "baseline": place.get(group.baseline, 0),
            "relative": f"Relative to {group.baseline}",
            "seconds": seconds.seconds,
            "warmup": seconds.warmup,
            "trials": [
                {
                    "arm": place[t.fs_setup],
                    "block": t.block,
                    "used": t.id in group.counted_ids,
                    "stalls": seconds.stalls(t),
                    "checkpoints": seconds.checkpoints(t),
                }
                for t in trials
            ],
            "series": series,
        },
    )


def coarse(values: Values, every: int) -> Values:
    """Return the means of `every` seconds. Gaps are left out of a mean; a mean of gaps only is a
    gap.
    """
    if every == 1:
        return values
    table = np.full((math.ceil(len(values) / every), every), np.nan)
    table.flat[: len(values)] = values
    finite = np.isfinite(table)
    count = finite.sum(axis=1)
    means = np.where(finite, table, 0.0).sum(axis=1) / np.maximum(count, 1)
    return np.where(count > 0, means, np.nan)


def pack(rows: Sequence[Values], length: int) -> Packed:
    """Return the rows one after the other as scaled 16-bit integers, little-endian, in base64, each
    padded with gaps (NaN) to `length`. The error is at most 1/131068 of the range; the smallest
    value (often zero) is exact.
    """
    table = np.full((len(rows), length), np.nan)
    for index, row in enumerate(rows):
        table[index, : min(length, len(row))] = row[:length]
    finite = np.isfinite(table)
    low = 0.0
    high = 0.0
    if finite.any():
        low = float(table[finite].min())
        high = float(table[finite].max())
    # a short number that is never below the exact step
    exact = (high - low) / (NO_DATA - 1)
    step = float(f"{exact * 1.000001:.6g}")
    cells = np.full(table.shape, NO_DATA, "<u2")
    cells[finite] = 0
    if step:
        steps = np.rint((table[finite] - low) / step)
        cells[finite] = np.minimum(NO_DATA - 1, steps)
    return low, step, base64.b64encode(cells.tobytes()).decode("ascii")


def _charts(group: Group, seconds: Telemetry) -> tuple[TimelineChart, ...]:
    charts = []
    for chart in CHARTS:
        # A chart has the panels that were recorded; some charts say why they have none.
        sources = [panel.choose_source(seconds) for panel in chart.panels]
        panels = tuple(panel for panel in sources if panel is not None)
        if panels:
            charts.append(
                chart._replace(
                    panels=panels,
                    caption=_caption(
                        chart,
                        panels,
                        group,
                        seconds,
                    ),
                )
            )
        elif chart in ALWAYS:
            why = chart.recorder if seconds.series else "no trial left a series"
            charts.append(chart._replace(panels=(), caption=f"Not drawn: {why}."))
    return tuple(charts)


def _caption(
    chart: TimelineChart,
    panels: Sequence[Panel],
    group: Group,
    seconds: Telemetry,
) -> str:
    facts = (
        [_shares(panels, group, seconds)]
        if chart.kind == "stack"
        else [_typical(panel, group, seconds) for panel in panels]
    )
    if chart.ident == "tps":
        facts.append(_stall_text(group, seconds))
    keys = {panel.key for panel in panels}
    absent = [each.title.lower() for each in chart.panels if each.key not in keys]
    if absent and chart in ALWAYS:
        facts.append(f"Not recorded: {join_words(absent)}.")
    return " ".join(fact for fact in (chart.caption, *facts) if fact)


def _typical(panel: Panel, group: Group, seconds: Telemetry) -> str:
    if panel.title:
        what = f"{panel.title}, mean of {'all requests' if panel.requests else 'the window'}"
        values = {arm: panel.mean(arm, seconds) for arm in group.arms}
    else:
        what = "Median second of the window"
        values = {arm: panel.median_second(arm, seconds) for arm in group.arms}
    parts = [f"{arm} {number(value)}" for arm, value in values.items() if value is not None]
    if not parts:
        return ""
    # A setup with seconds but without a value had no such request.
    without = [arm for arm, value in values.items() if value is None and seconds.trials_of(arm)]
    rest = f"; {join_words(without)}: none" if without else ""
    note = f" ({panel.note})" if panel.note else ""
    return f"{what}{note}: {', '.join(parts)}{GROUP}{panel.unit}{rest}."


def _shares(panels: Sequence[Panel], group: Group, seconds: Telemetry) -> str:
    parts = []
    for arm in group.arms:
        means = [panel.mean(arm, seconds) for panel in panels]
        if any(value is not None for value in means):
            parts.append(f"{arm} {' + '.join(map(number, means))}")
    titles = " + ".join(panel.title for panel in panels)
    if parts:
        return f"Mean of the window, {titles}: {'; '.join(parts)}{GROUP}%."
    return ""


def _stall_text(group: Group, seconds: Telemetry) -> str:
    stalls_of = [
        (arm, sum(len(seconds.stalls(trial)) for trial in seconds.trials_of(arm)))
        for arm in group.arms
    ]
    parts = [f"{arm} {count(n, 'second')}" for arm, n in stalls_of if n]
    text = (
        "Stalled (below a tenth of the median, or no transaction), in all trials together: "
        f"{', '.join(parts)}."
    )
    return text if parts else "No stalled seconds."
