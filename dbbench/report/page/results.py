"""Section "Results": a row per arm, a column per metric; `report/verdict_table.py` has other
columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.remarks import RemarkKind, texts
from dbbench.engines import profile_of
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.metrics.table import INSERT_INDEXES, METRICS, Metric
from dbbench.model import Figures, Json
from dbbench.report.page.groups import ArmLabel, Group
from dbbench.report.verdict_table import COLUMNS, Column
from dbbench.units import GROUP, number

GIB: Final = "Cost of a scanned GiB"
COSTS: Final = {
    "cpu_ms": "CPU ms",
    "read_kb": "kB read",
    "write_kb": "kB written",
    "flushes": "flushes",
    "io_operations": "I/Os",
    "context_switches": "switches",
}
# Heading of the section -> metric -> heading of its column, "" for the metric's own label. The
# primary metric of the workload is the first column.
SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Speed": {
        "tps": "tx/s",
        "sustained_tps": "sustained tx/s",
        "tps_per_price": "tx/s per price",
        "ceiling_pct": "% of ceiling",
        "mb_per_s": "MB/s",
        "kb_per_s": "kB/s",
        "duration_s": "seconds",
    },
    "Steps of the insert benchmark": {
        "load_rows_per_s": "loaded rows/s",
        **{f"index_{name}_s": f"index on {name}, s" for name in INSERT_INDEXES},
        "insert_rows_per_s": "inserted rows/s",
    },
    "Latency, stalls": {
        "p95_ms": "p95 ms",
        "p99_ms": "p99 ms",
        "p999_ms": "p99.9 ms",
        "stall_s": "stalled s",
        "stalls_per_h": "stalls/h",
    },
    "Cost of a transaction": {
        **{
            f"{name}_per_tx": COSTS[name]
            for name in ("cpu_ms", "write_kb", "flushes", "io_operations", "context_switches")
        },
        "write_amplification": "write ampl.",
    },
    GIB: {
        f"{name}_per_gib": COSTS[name]
        for name in ("cpu_ms", "read_kb", "write_kb", "io_operations", "context_switches")
    },
    "Space": {
        "disk_bytes": "on disk",
        "compression_ratio": "compr.",
    },
    "Files": dict.fromkeys(
        (
            "read_mb_per_s",
            "write_mb_per_s",
            "copy_s",
            "copy_mb_per_s",
            "copy_synced_mb_per_s",
            "char_write_mb_per_s",
            "block_write_mb_per_s",
            "rewrite_mb_per_s",
            "char_read_mb_per_s",
            "block_read_mb_per_s",
            "seeks_per_s",
            "creates_per_s",
            "stats_per_s",
            "reads_per_s",
            "deletes_per_s",
        ),
        "",
    ),
}
LABELS: Final = {"queries_per_s": "queries/s"} | {
    k: v for section in SECTIONS.values() for k, v in section.items()
}
# Metrics of a single workload each, or of plans with prices, which are not missed elsewhere;
# without compression there is no ratio.
OF_ONE_WORKLOAD: Final = (
    "compression_ratio",
    "tps_per_price",
    *SECTIONS["Files"],
    *SECTIONS["Steps of the insert benchmark"],
    *SECTIONS[GIB],
)
STALLS: Final = ("stall_s", "stalls_per_h")


class Heading(NamedTuple):
    """The column of one metric."""

    metric: Metric
    label: str
    section: str


class MetricCell(NamedTuple):
    """A metric of an arm. `below` is a smaller line under the text."""

    heading: Heading
    value: float | None
    text: str
    below: str


class ArmResult(NamedTuple):
    """A row of the table. `excluded` has a reason for each trial that does not count; `missing` is
    how many trials have not run.
    """

    row: Row
    arm: ArmLabel
    cells: tuple[MetricCell, ...]
    used: int
    excluded: tuple[str, ...]
    missing: int


class ResultTable(NamedTuple):
    """The table of a group. `sections` are (title, number of columns). `notes` are (arm, remarks);
    the arm is "" for what all rows share. `absent` are the labels of columns that no trial has.
    """

    metric: Metric
    headings: tuple[Heading, ...]
    sections: list[tuple[str, int]]
    rows: list[ArmResult]
    notes: list[tuple[str, tuple[str, ...]]]
    absent: list[str]
    verdict_columns: list[Column]


def document(table: ResultTable) -> Json:
    """Return the table of a group for the download."""
    # The verdict's columns, then the metrics, then how many trials there were.
    metrics = [heading.metric.name for heading in table.headings]
    columns = [column for column in COLUMNS if column.key and column.page]
    keys = [column.key for column in columns]
    rows = []
    for result in table.rows:
        verdict = [column.value(result.row, table.metric) for column in columns]
        values = [cell.value for cell in result.cells]
        rows.append([*verdict, *values, result.used, len(result.excluded)])
    return {
        "columns": [*keys, *metrics, "trials_used", "trials_excluded"],
        "rows": rows,
    }


def result_table(group: Group) -> ResultTable:
    """Return the table of a group, in the order of the terminal: the baseline, the others from best
    to worst, arms of another durability class last. Columns that no trial has are omitted.
    """
    absent = []
    columns: dict[Heading, Figures] = {}
    # A column appears if any arm has a value, or if it is the one compared.
    for heading in _headings(group):
        metric = heading.metric
        values = {row.fs_setup: row.value for row in group.rows_of(metric.name)}
        if metric is group.metric or any(value is not None for value in values.values()):
            columns[heading] = values
        elif _expects(metric, group):
            absent.append(metric.label)

    rows = [_arm_result(group, row, columns) for row in group.ordered_rows]
    sections = Counter(heading.section for heading in columns)
    return ResultTable(
        metric=group.metric,
        headings=tuple(columns),
        sections=list(sections.items()),
        rows=rows,
        notes=_notes(rows),
        absent=absent,
        verdict_columns=[column for column in COLUMNS if column.page == "cell"],
    )


def _arm_result(
    group: Group,
    row: Row,
    columns: dict[Heading, Figures],
) -> ArmResult:
    arm = row.fs_setup
    # Means over the trials that count, and below them what they hide.
    longest_s = group.value(arm, "longest_stall_s")
    longest = f"longest {number(longest_s)}{GROUP}s" if longest_s else ""
    cells = []
    # The longest stall stands below the number of stalls.
    for heading, values in columns.items():
        value = values.get(arm)
        below = longest if heading.metric.name in STALLS else ""
        cells.append(
            MetricCell(
                heading,
                value,
                heading.metric.text(value),
                below,
            )
        )
    return ArmResult(
        row,
        group.arm(row),
        tuple(cells),
        used=len(group.used_of(arm)),
        excluded=tuple(
            f"block {trial.block}.{trial.attempt}: {why}" for trial, why in group.exclusions(arm)
        ),
        missing=sum(group.loaded.run.cell(spec.cell).arm == arm for spec in group.missing()),
    )


def _notes(rows: Sequence[ArmResult]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (arm, remarks in words): first what all rows share ("" for the arm), then the rest of
    each row.
    """
    notes_of = {
        result.arm.name: [
            note
            for note in result.row.notes
            if result.arm.apart or note.kind is not RemarkKind.OTHER_CLASS
        ]
        for result in rows
    }

    # What all rows share is written once.
    first = next(iter(notes_of.values()), [])
    shared = [note for note in first if all(note in notes for notes in notes_of.values())]
    lines = [("", texts(shared))]
    for arm, notes in notes_of.items():
        lines.append((arm, texts(note for note in notes if note not in shared)))
    return lines


def _headings(group: Group) -> list[Heading]:
    primary = group.metric
    window = group.cells[0].window
    scans = group.cells[0].workload.driver == "scan"
    queries = primary.name == "queries_per_s"

    # Both describe the same seconds.
    omitted = {"stalls_per_h" if window.measure_s < SHORT_WINDOW_S else "stall_s"}
    if queries:  # each query is a transaction, so its rate is the same as tps
        omitted |= {"tps", "sustained_tps", "ceiling_pct"}
    if scans:  # it would be of the little that a scan writes
        omitted.add("write_amplification")

    # Such a workload runs queries or programs, not transactions.
    noun = "transaction"
    if window.kind == "to-completion" or queries:
        noun = "query" if profile_of(group.engine).has_server else "run"

    headings = []

    # The primary metric first, then each section.
    columns = [(section, name) for section, metrics in SECTIONS.items() for name in metrics]
    for section, name in [("Speed", primary.name), *columns]:
        if name in omitted:
            continue
        omitted.add(name)
        label = LABELS.get(name) or METRICS[name].label
        if scans and name == "duration_s":
            label = "s per pass"
        headings.append(Heading(METRICS[name], label, section.replace("transaction", noun)))
    return headings


def _expects(metric: Metric, group: Group) -> bool:
    """Whether to mention that a metric is absent: transactions belong to fixed windows, durations
    to the others.
    """
    if metric.name in OF_ONE_WORKLOAD:
        return False
    if metric.name == "ceiling_pct" and group.loaded.exceeded:
        return False  # a condition says why
    # Without a server there are no counters of an engine, and no page size.
    counted = metric.name in ("write_amplification", "ceiling_pct")
    if counted and not profile_of(group.engine).has_server:
        return False
    if group.cells[0].window.kind == "fixed":
        return metric.name not in ("mb_per_s", "kb_per_s", "duration_s")
    return metric.name == "disk_bytes"


def headings_of(tables: Sequence[ResultTable]) -> tuple[Heading, ...]:
    """Return the columns of all tables, each metric once."""
    headings = {}
    for table in tables:
        for heading in table.headings:
            headings[heading.metric.name] = heading
    return tuple(headings.values())
