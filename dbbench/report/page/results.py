"""Section "Results": the table, with one row per arm, one column per measured metric, and a small curve of the
throughput; and the factors of a plan: the ratio of each setup to the baseline at each level, as lines that may cross.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dbbench.compare import Interaction, Row, interactions
from dbbench.compare.interaction import LevelRatio
from dbbench.compare.remarks import Kind, texts
from dbbench.engines import profile_of
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.metrics.table import INSERT_INDEXES, METRICS, Metric
from dbbench.model import titled
from dbbench.report.page.axes import Frame, Line, LinePlot, padded, polyline
from dbbench.report.page.groups import Group
from dbbench.report.page.telemetry import Telemetry, Values
from dbbench.report.page.theme import Mark
from dbbench.report.sentences import Parts, freedom, interaction
from dbbench.units import GROUP, change, interval, level_text, number, round_change

GIB: Final = "Cost of a scanned GiB"
# (heading, metrics). The primary metric of the workload is the first column.
COLUMNS: Final = (
    ("Speed", ("tps", "sustained_tps", "ceiling_pct", "mb_per_s", "kb_per_s", "duration_s")),
    (
        "Steps of the insert benchmark",
        ("load_rows_per_s", *(f"index_{name}_s" for name in INSERT_INDEXES), "insert_rows_per_s"),
    ),
    ("Latency, stalls", ("p95_ms", "p99_ms", "p999_ms", "stall_s", "stalls_per_h")),
    (
        "Cost of a transaction",
        ("cpu_ms_per_tx", "write_kb_per_tx", "io_operations_per_tx", "context_switches_per_tx", "write_amplification"),
    ),
    (
        GIB,
        ("cpu_ms_per_gib", "read_kb_per_gib", "write_kb_per_gib", "io_operations_per_gib", "context_switches_per_gib"),
    ),
    ("Space", ("disk_bytes", "compression_ratio")),
    (
        "Files",
        ("read_mb_per_s", "write_mb_per_s", "copy_s", "copy_mb_per_s", "copy_synced_mb_per_s", "char_write_mb_per_s",
         "block_write_mb_per_s", "rewrite_mb_per_s", "char_read_mb_per_s", "block_read_mb_per_s", "seeks_per_s",
         "creates_per_s", "stats_per_s", "reads_per_s", "deletes_per_s"),
    ),
)  # fmt: skip
SHORT: Final = {  # headings of columns; other metrics have their label in METRICS
    "tps": "tx/s", "sustained_tps": "sustained tx/s", "ceiling_pct": "% of ceiling", "p95_ms": "p95 ms",
    "p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "stall_s": "stalled s", "stalls_per_h": "stalls/h",
    "compression_ratio": "compr.",
    **{f"{name}_per_{unit}": label for unit in ("tx", "gib") for name, label in (
        ("cpu_ms", "CPU ms"), ("read_kb", "kB read"), ("write_kb", "kB written"), ("io_operations", "I/Os"),
        ("context_switches", "switches"))},
    "write_amplification": "write ampl.",
    "queries_per_s": "queries/s", "load_rows_per_s": "loaded rows/s", "insert_rows_per_s": "inserted rows/s",
    **{f"index_{name}_s": f"index on {name}, s" for name in INSERT_INDEXES},
    "disk_bytes": "on disk", "mb_per_s": "MB/s", "kb_per_s": "kB/s", "duration_s": "seconds",
}  # fmt: skip
STALLS: Final = ("stall_s", "stalls_per_h")
SPARK_WIDTH: Final = 112
SPARK_HEIGHT: Final = 28
SPARK_POINTS: Final = 84  # one point per 1.3 px; more would not be visible


@dataclass(frozen=True)
class Heading:
    """The column of one metric."""

    metric: Metric
    label: str
    section: str


@dataclass(frozen=True)
class Spark:
    """SVG paths of an arm's median throughput from zero and of its stalled seconds, and the start of the window."""

    line: str
    stalls: str
    warmup: float
    label: str


@dataclass(frozen=True)
class ResultRow:
    """An arm's figures. `values` are raw; `excluded` has a reason for each trial that does not count."""

    row: Row
    mark: Mark
    apart: bool
    values: dict[str, float | None]
    longest_stall_s: float | None
    spark: Spark | None
    used: int
    excluded: tuple[str, ...]
    missing: int

    def text(self, heading: Heading) -> str:
        return heading.metric.text(self.values[heading.metric.name])

    @property
    def freedom(self) -> str:
        """Return the degrees of freedom of the interval, in words."""
        return freedom(self.row)

    def aside(self, heading: Heading) -> str:
        """Return the text below a figure, such as the longest of the stalls."""
        if heading.metric.name not in STALLS or not self.longest_stall_s:
            return ""
        return f"longest {number(self.longest_stall_s)}{GROUP}s"


@dataclass(frozen=True)
class ResultTable:
    """The table of one group."""

    headings: tuple[Heading, ...]
    rows: tuple[ResultRow, ...]  # best first; arms of another durability class after all others
    absent: tuple[str, ...]  # labels of metrics that no trial measured

    def notes(self) -> list[tuple[str, list[str]]]:
        """Return (arms, remarks in words): first what all rows share, with "" for the arms, then the rest of each row.
        A durability class that is merely unknown is not mentioned.
        """
        all_notes = [[n for n in r.row.notes if r.apart or n.kind is not Kind.OTHER_CLASS] for r in self.rows]
        shared = [note for note in all_notes[0] if all(note in notes for notes in all_notes)] if all_notes else []
        rest = [[note for note in notes if note not in shared] for notes in all_notes]
        names = ["", *(row.mark.name for row in self.rows)]
        return [(name, list(texts(notes))) for name, notes in zip(names, [shared, *rest], strict=True)]

    def sections(self) -> list[tuple[str, int]]:
        """Return the headings above the columns, each with the number of columns it spans."""
        names = [heading.section for heading in self.headings]
        return [(name, names.count(name)) for name in dict.fromkeys(names)]

    def raw(self) -> dict[str, Any]:
        """Return the table with one number per column, for CSV and JSON."""
        keys = [heading.metric.name for heading in self.headings]
        first = ["fs_setup", "durability_class", "ratio", "lo", "hi", "verdict", "n", "level", "df", "df_shared"]
        rows = [
            [r.row.fs_setup, r.row.durability_class, r.row.ratio, r.row.lo, r.row.hi, r.row.verdict, r.row.n,
             r.row.level, r.row.df, r.row.df_shared, *(r.values[key] for key in keys), r.used, len(r.excluded)]
            for r in self.rows
        ]  # fmt: skip
        return {"columns": [*first, *keys, "trials_used", "trials_excluded"], "rows": rows}


def result_table(group: Group, seconds: Telemetry) -> ResultTable:
    """Return the table of a group; columns that no trial has are omitted and listed."""
    headings = _headings(group)
    by_metric = {h.metric.name: {r.fs_setup: r.value for r in group.rows_of(h.metric.name)} for h in headings}
    kept = tuple(h for h in headings if any(v is not None for v in by_metric[h.metric.name].values())
                 or h.metric is group.metric)  # fmt: skip
    scale = _spark_scale(group, seconds)
    longest = {row.fs_setup: row.value for row in group.rows_of("longest_stall_s")}
    todo = group.missing()
    rows = [
        ResultRow(
            row=row,
            mark=group.marks[row.fs_setup],
            apart=group.apart(row),
            values={h.metric.name: by_metric[h.metric.name].get(row.fs_setup) for h in kept},
            longest_stall_s=longest.get(row.fs_setup),
            spark=spark(seconds, row.fs_setup, scale),
            used=len(group.used_of(row.fs_setup)),
            excluded=tuple(f"block {t.block}.{t.attempt}: {why}" for t, why in group.excluded(row.fs_setup)),
            missing=sum(group.loaded.run.cell(spec.cell).arm == row.fs_setup for spec in todo),
        )
        for row in group.rows
    ]
    sign = -1 if group.metric.better == "higher" else 1
    rows.sort(key=lambda r: (r.apart, r.row.value is None, sign * (r.row.value or 0.0)))
    absent = tuple(h.metric.label for h in headings if h not in kept and _expected(h.metric, group))
    return ResultTable(kept, tuple(rows), absent)


def _headings(group: Group) -> list[Heading]:
    first = group.metric
    headings = [Heading(first, SHORT.get(first.name, first.label), "Speed")]
    for section, names in COLUMNS:
        headings += [Heading(METRICS[n], SHORT.get(n, METRICS[n].label), section) for n in names if n != first.name]
    window, scan = group.cells[0].window, group.cells[0].workload.driver == "scan"
    queries = first.name == "queries_per_s"
    # Both describe the same seconds. Each query is a transaction, so its rate is the same as tps.
    unwanted = {"stalls_per_h" if window.measure_s < SHORT_WINDOW_S else "stall_s"}
    unwanted |= {"tps", "sustained_tps", "ceiling_pct"} if queries else set()
    unwanted |= {"write_amplification"} if scan else set()  # of the little that a scan writes
    headings = sorted(
        (h for h in headings if h.metric.name not in unwanted), key=lambda h: [s for s, _ in COLUMNS].index(h.section)
    )
    if window.kind == "to-completion" or queries:  # such a workload runs queries, not transactions
        unit = "query" if profile_of(group.engine).has_server else "run"
        headings = [replace(h, section=h.section.replace("transaction", unit)) for h in headings]
    if scan:
        headings = [replace(h, label="s per pass") if h.metric.name == "duration_s" else h for h in headings]
    return headings


def _expected(metric: Metric, group: Group) -> bool:
    """Whether to mention that a metric is absent: transactions belong to fixed windows, durations to the others."""
    fixed = group.cells[0].window.kind == "fixed"
    single = [n for section in ("Files", "Steps of the insert benchmark", GIB) for n in dict(COLUMNS)[section]]
    if metric.name in ("compression_ratio", *single):
        return False  # without compression there is no ratio, and each of the others belongs to a single workload
    if metric.name == "ceiling_pct" and group.loaded.exceeded:
        return False  # a notice says why
    if not profile_of(group.engine).has_server and metric.name in ("write_amplification", "ceiling_pct"):
        return False  # without a server there are no counters of an engine, and no page size
    return (metric.name not in ("mb_per_s", "kb_per_s", "duration_s")) if fixed else metric.name == "disk_bytes"


def _spark_scale(group: Group, seconds: Telemetry) -> float:
    """Return the top of the scale of all small curves of the group, so that they can be compared."""
    medians = np.concatenate([[0.0], *(seconds.median(arm, "tps") for arm in group.arms)])
    return float(np.nanmax(medians)) * 1.05


def spark(seconds: Telemetry, arm: str, top: float) -> Spark | None:
    """Return the small curve of an arm; None if there is no throughput per second."""
    column = seconds.median(arm, "tps")
    if not top or not np.isfinite(column).any():
        return None
    step = SPARK_WIDTH / len(column)
    every = max(1, math.ceil(len(column) / SPARK_POINTS))
    points = [(i, _mean(column[i : i + every])) for i in range(0, len(column), every)]
    stalled = sorted({second for trial in seconds.used(arm) for second in seconds.stalls(trial)})
    return Spark(
        line=_path(points, step, every, top),
        stalls="".join(f"M{(second + 0.5) * step:.1f} 4V{SPARK_HEIGHT - 1}" for second in stalled),
        warmup=seconds.warmup * step,
        label=f"median throughput over {len(column)} s, starting at zero"
        + (f"; {len(stalled)} stalled seconds" if stalled else ""),
    )


def _mean(values: Values) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else None


def _path(points: list[tuple[int, float | None]], step: float, every: int, top: float) -> str:
    pieces, pen_down = [], False
    for index, value in points:
        if value is not None:
            x, y = (index + every / 2) * step, (SPARK_HEIGHT - 1) - value / top * (SPARK_HEIGHT - 3)
            pieces.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}" + ("" if pen_down else "h.1"))
        pen_down = value is not None
    return "".join(pieces)


FRAME: Final = Frame(460, 250, 60, 440, 10, 206)
LEAST_SPAN: Final = 0.16  # shortest vertical axis, so that differences below 1 % do not look large


@dataclass(frozen=True)
class FactorPlot:
    """A factor under one engine and workload: its sentence and its chart."""

    parts: Parts
    plot: LinePlot
    about: Interaction


def factor_plots(groups: Sequence[Group]) -> tuple[FactorPlot, ...]:
    """Return a chart for each factor of each run, engine and workload; () without factors."""
    plots: list[FactorPlot] = []
    runs: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        runs.setdefault((str(group.loaded.path), group.metric.name), []).append(group)
    for (_, metric), of_run in runs.items():
        rows = [row for group in of_run for row in group.rows]
        cells = [cell for group in of_run for cell in group.cells if cell.levels]
        levels = {(cell.engine.name, cell.workload.name, cell.variant): cell.levels for cell in cells}
        for about in interactions(rows, levels, METRICS[metric]):
            plots.append(FactorPlot(interaction(about), _plot(f"i-{len(plots)}", about, of_run[0].marks), about))
    return tuple(plots)


def _plot(ident: str, about: Interaction, marks: dict[str, Mark]) -> LinePlot:
    values = [bound for of in about.ratios for bound in (of.ratio, of.lo, of.hi) if bound is not None]
    x = FRAME.along(-0.25, len(about.levels) - 0.75)
    y = FRAME.up(*padded(min([1.0, *values]), max([1.0, *values]), LEAST_SPAN, 0.06))
    changes = FRAME.up(y.low - 1, y.high - 1)  # ticks are round changes (+10 %), not round ratios
    lines = [Line(marks[about.baseline], polyline((x(index), y(1.0)) for index in range(len(about.levels))))]
    for arm in dict.fromkeys(of.fs_setup for of in about.ratios):
        points = [(x(about.levels.index(of.level)), of) for of in about.ratios if of.fs_setup == arm]
        dots = tuple(
            (at, y(of.ratio), f"{arm}, {about.factor}={level_text(of.level)}: {change(of.ratio)}, {_interval(of)}")
            for at, of in points
        )
        bars = "".join(f"M{at} {y(of.lo)}V{y(of.hi)}" for at, of in points if of.lo is not None and of.hi is not None)
        lines.append(Line(marks[arm], polyline((at, height) for at, height, _ in dots), dots, bars))
    return LinePlot(
        ident=ident,
        caption=f"{about.engine} {titled(about.workload, about.variant)}: {about.factor}",
        frame=FRAME,
        up=tuple((changes(tick), round_change(1 + tick) if tick else about.baseline) for tick in changes.ticks(6)),
        along=tuple((x(index), level_text(level)) for index, level in enumerate(about.levels)),
        lines=tuple(lines),
        below=about.factor,
    )


def _interval(of: LevelRatio) -> str:
    return "no interval" if of.lo is None else f"CI {interval(of.lo, of.hi)}"
