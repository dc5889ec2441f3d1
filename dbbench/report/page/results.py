"""Section "Results": a row per arm, a column per metric; `report/verdict_table.py` has other
columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace as View
from typing import Any, Final, NamedTuple

from dbbench.compare.remarks import RemarkKind, texts
from dbbench.engines import profile_of
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.metrics.table import INSERT_INDEXES, METRICS, Metric
from dbbench.report.page.groups import Group
from dbbench.report.verdict_table import COLUMNS
from dbbench.units import GROUP, number

GIB: Final = "Cost of a scanned GiB"
COSTS: Final = {
    "cpu_ms": "CPU ms",
    "read_kb": "kB read",
    "write_kb": "kB written",
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
            for name in ("cpu_ms", "write_kb", "io_operations", "context_switches")
        },
        "write_amplification": "write ampl.",
    },
    GIB: {
        f"{name}_per_gib": COSTS[name]
        for name in ("cpu_ms", "read_kb", "write_kb", "io_operations", "context_switches")
    },
    "Space": {"disk_bytes": "on disk", "compression_ratio": "compr."},
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


def document(table: View) -> dict[str, Any]:
    """Return the table of a group for the download."""
    keys = [heading.metric.name for heading in table.headings]
    columns = [column for column in COLUMNS if column.key and column.page]
    rows = [
        [
            *(column.value(r.row, table.metric) for column in columns),
            *(value for _, value, _, _ in r.cells),
            r.used,
            len(r.excluded),
        ]
        for r in table.rows
    ]
    return {
        "columns": [*(c.key for c in columns), *keys, "trials_used", "trials_excluded"],
        "rows": rows,
    }


def result_table(group: Group) -> View:
    """Return the table of a group, best first, arms of another durability class last. Of each row,
    `cells` are (heading, value, text, text below it) and `excluded` has a reason for each trial
    that does not count. Columns that no trial has are omitted, and their labels are in `absent`.
    """
    headings = _headings(group)
    by_metric = {
        h.metric.name: {r.fs_setup: r.value for r in group.rows_of(h.metric.name)} for h in headings
    }
    kept = tuple(
        h
        for h in headings
        if any(v is not None for v in by_metric[h.metric.name].values()) or h.metric is group.metric
    )
    todo = group.missing()
    rows = [
        View(
            row=row,
            arm=group.arm(row),
            cells=[
                (
                    h,
                    value := by_metric[h.metric.name].get(row.fs_setup),
                    h.metric.text(value),
                    _longest(group, row.fs_setup) if h.metric.name in STALLS else "",
                )
                for h in kept
            ],
            used=len(group.used_of(row.fs_setup)),
            excluded=tuple(
                f"block {t.block}.{t.attempt}: {why}" for t, why in group.exclusions(row.fs_setup)
            ),
            missing=sum(group.loaded.run.cell(spec.cell).arm == row.fs_setup for spec in todo),
        )
        for row in group.rows
    ]
    sign = -1 if group.metric.better == "higher" else 1
    rows.sort(key=lambda r: (r.arm.apart, r.row.value is None, sign * (r.row.value or 0.0)))
    sections = Counter(heading.section for heading in kept)
    absent = [h.metric.label for h in headings if h not in kept and _expects(h.metric, group)]
    return View(
        metric=group.metric,
        headings=kept,
        sections=list(sections.items()),
        rows=rows,
        notes=_notes(rows),
        absent=absent,
        verdict_columns=[column for column in COLUMNS if column.page == "cell"],
    )


def _longest(group: Group, arm: str) -> str:
    longest_s = group.value(arm, "longest_stall_s")
    return f"longest {number(longest_s)}{GROUP}s" if longest_s else ""


def _notes(rows: Sequence[View]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (arms, remarks in words): first what all rows share ("" for the arms), then the rest
    of each row.
    """
    all_notes = [
        [n for n in r.row.notes if r.arm.apart or n.kind is not RemarkKind.OTHER_CLASS]
        for r in rows
    ]
    shared = (
        [note for note in all_notes[0] if all(note in notes for notes in all_notes)]
        if all_notes
        else []
    )
    rest = [
        (r.arm.name, [note for note in notes if note not in shared])
        for r, notes in zip(rows, all_notes, strict=True)
    ]
    return [(name, texts(notes)) for name, notes in [("", shared), *rest]]


def _headings(group: Group) -> list[Heading]:
    first = group.metric
    window = group.cells[0].window
    scan = group.cells[0].workload.driver == "scan"
    queries = first.name == "queries_per_s"
    # Both describe the same seconds. Each query is a transaction, so its rate is the same as tps.
    unwanted = {"stalls_per_h" if window.measure_s < SHORT_WINDOW_S else "stall_s"}
    unwanted |= {"tps", "sustained_tps", "ceiling_pct"} if queries else set()
    unwanted |= {"write_amplification"} if scan else set()  # of the little that a scan writes
    names = [
        (section, name)
        for section, metrics in SECTIONS.items()
        for name in metrics
        if name != first.name
    ]
    headings = [
        Heading(METRICS[name], LABELS.get(name) or METRICS[name].label, section)
        for section, name in [("Speed", first.name), *names]
        if name not in unwanted
    ]
    if window.kind == "to-completion" or queries:  # such a workload runs queries, not transactions
        unit = "query" if profile_of(group.engine).has_server else "run"
        headings = [h._replace(section=h.section.replace("transaction", unit)) for h in headings]
    if scan:
        headings = [
            h._replace(label="s per pass") if h.metric.name == "duration_s" else h for h in headings
        ]
    return headings


def _expects(metric: Metric, group: Group) -> bool:
    """Whether to mention that a metric is absent: transactions belong to fixed windows, durations
    to the others.
    """
    if metric.name in OF_ONE_WORKLOAD:
        return False
    if metric.name == "ceiling_pct" and group.loaded.exceeded:
        return False  # a notice says why
    if not profile_of(group.engine).has_server and metric.name in (
        "write_amplification",
        "ceiling_pct",
    ):
        return False  # without a server there are no counters of an engine, and no page size
    fixed = group.cells[0].window.kind == "fixed"
    return (
        (metric.name not in ("mb_per_s", "kb_per_s", "duration_s"))
        if fixed
        else metric.name == "disk_bytes"
    )


def headings_of(tables: Sequence[View]) -> tuple[Heading, ...]:
    """Return the columns of all tables, each metric once."""
    return tuple(
        {heading.metric.name: heading for table in tables for heading in table.headings}.values()
    )
