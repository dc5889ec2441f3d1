"""The verdict table: its columns, and from them the table for the terminal and as Markdown, CSV and
JSON.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Set
from typing import Any, Final, Literal, NamedTuple

from dbbench.compare import Row
from dbbench.compare.remarks import RemarkKind, has, texts
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import SCHEMA, plain, title_of
from dbbench.report import sentences
from dbbench.report.answer import SHORT, answer
from dbbench.report.text import put, put_paragraph, put_table, table_text
from dbbench.report.verdicts import Verdicts, VerdictTable
from dbbench.units import GROUP, change, count, interval, join_words


class Column(NamedTuple):
    """A column: programs read `value` under `key`, people read `text` (without one, the value)
    under `title`. Without a key or a title, programs or people do not have it. `page`: "cell" is
    a cell of the page's table, and "download" only a value of its CSV and JSON; "" is neither.
    """

    key: str
    title: str
    value: Callable[[Row, Metric], Any]
    text: Callable[[Row, Metric], object] | None = None
    right: bool = False
    page: Literal["", "cell", "download"] = "cell"

    def words(self, row: Row, metric: Metric) -> object:
        return (self.text or self.value)(row, metric)


def _field(
    key: str,
    title: str = "",
    text: Callable[[Row, Metric], object] | None = None,
    right: bool = False,
    page: Literal["", "cell", "download"] = "",
) -> Column:
    return Column(key, title, lambda row, _metric: getattr(row, key), text, right, page)


# The answer and the columns say these.
_SAID_ABOVE: Final = frozenset(
    (RemarkKind.OTHER_CLASS, RemarkKind.TOO_FEW_BLOCKS, RemarkKind.DEVICE_LIMITED)
)

# A column is added here and nowhere else.
COLUMNS: Final = [
    _field("fs_setup", "setup", page="download"),
    _field("engine"),
    _field("workload"),
    _field(
        "value",
        "value",
        lambda row, metric: (
            "no steady state"
            if has(row.notes, RemarkKind.UNSTEADY)
            else metric.with_unit(row.value)
        ),
        right=True,
    ),
    _field(
        "ratio",
        "change",
        lambda row, _metric: None if row.verdict == "baseline" else change(row.ratio),
        right=True,
        page="download",
    ),
    _field("lo", page="download"),
    _field("hi", page="download"),
    Column("", "interval", lambda row, _metric: interval(row.lo, row.hi), page=""),
    _field(
        "verdict",
        "verdict",
        lambda row, _metric: (
            f"same within {100 * row.margin:.3g}{GROUP}%" if row.verdict == "same" else row.verdict
        ),
        page="download",
    ),
    _field("n", "blocks", right=True, page="download"),
    _field("wins"),
    _field("level", page="download"),
    _field(
        "durability_class",
        "durability",
        lambda row, _metric: row.durability_class + (" (differs)" if row.mixed_durability else ""),
        page="download",
    ),
    _field("mixed_durability"),
    Column(
        "notes",
        "notes",
        lambda row, _metric: list(texts(row.notes)),
        lambda row, _metric: "; ".join(texts(row.notes)),
        page="",
    ),
    _field("variant"),
    _field("df", page="download"),
    _field("df_shared", page="download"),
    _field("trials"),
    Column("metric", "", lambda _row, metric: metric.name, page=""),
]


def row_document(row: Row, metric: Metric) -> dict[str, Any]:
    """Return the row for programs: each value under its key."""
    return {column.key: column.value(row, metric) for column in COLUMNS if column.key}


def as_document(verdicts: Verdicts) -> dict[str, Any]:
    """Return the JSON of `compare --json`. `metric` is "primary" if the tables have several."""
    metrics = {table.metric.name for table in verdicts.tables}
    words = answer(verdicts.tables, verdicts.runs)
    return {
        "schema": SCHEMA,
        "baseline": verdicts.baseline,
        "answer": list(map(sentences.plain_text, words.sentences)),
        "caveats": [
            {"kind": kind, "text": sentences.plain_text(text)} for kind, text in words.caveats
        ],
        "metric": metrics.pop() if len(metrics) == 1 else "primary" if metrics else None,
        "rows": [
            row_document(row, table.metric) for table in verdicts.tables for row in table.rows
        ],
        "findings": verdicts.findings,
        **({"hosts": plain(verdicts.hosts)} if verdicts.hosts else {}),
        **({"interactions": plain(verdicts.interactions)} if verdicts.interactions else {}),
    }


def as_csv(verdicts: Verdicts) -> str:
    """Return the rows as CSV with a header; several notes are joined by "; "."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.key for column in COLUMNS if column.key])
    for row in as_document(verdicts)["rows"]:
        writer.writerow(
            [_no_formula("; ".join(v) if isinstance(v, list) else v) for v in row.values()]
        )
    return text.getvalue().rstrip("\n")


def _no_formula(value: Any) -> Any:
    """Return the value, with an apostrophe before text that a spreadsheet would take for a formula."""
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


def as_markdown(verdicts: Verdicts) -> str:
    """Return the answer, and a heading and a table for each engine and workload, in Markdown."""
    columns = [column for column in COLUMNS if column.title]
    words = answer(verdicts.tables, verdicts.runs)
    parts = [sentences.plain_text(" ".join(words.sentences)) + "\n"]
    parts += [f"- Caveat: {sentences.plain_text(text)}" for _, text in words.caveats]
    for table in verdicts.tables:
        cells = [[column.words(row, table.metric) for column in columns] for row in table.rows]
        parts.append(
            f"\n### {_title(table)}\n\n{table_text([column.title for column in columns], cells)}\n"
        )
        parts += [f"- {line}" for line in _host_lines(verdicts, table)]
    return (
        "\n".join(
            [*parts, *(f"- {text}" for text in (*_factor_lines(verdicts), *verdicts.findings))]
        ).rstrip()
        + "\n"
    )


def put_tables(verdicts: Verdicts, details: bool = False) -> None:
    """Print the answer, the tables for people, and sentences about several tables below them."""
    if not verdicts.tables:
        put("These runs have no results to compare.")
        return
    words = answer(verdicts.tables, verdicts.runs)
    implied = {SHORT: RemarkKind.BURST, sentences.SUSPECT: RemarkKind.SUSPECT}
    known = _SAID_ABOVE | {implied[kind] for kind, _ in words.caveats if kind in implied}
    of_tables = [(table, _remarks(table, known)) for table in verdicts.tables]
    common = [
        text
        for text, names in of_tables[0][1].items()
        if names == ["all setups"] and all(others.get(text) == names for _, others in of_tables)
    ]
    for text in (" ".join(words.sentences), *(caveat for _, caveat in words.caveats)):
        put_paragraph(text.replace("**", ""))
    for table, remarks in of_tables:
        blocks = {count(row.n, "block") for row in table.rows}
        put(f"\n{', '.join([_title(table), *(blocks if len(blocks) == 1 else ())])}")
        _put_table(table, details)
        for text, names in remarks.items():
            if text not in common:
                put_paragraph(f"  {join_words(names)}: {text}")
        for line in _host_lines(verdicts, table):
            put_paragraph(f"  {line}")
    below = [*(f"all results: {text}" for text in common), *_factor_lines(verdicts)]
    for number, line in enumerate([*below, *(f"! {text}" for text in verdicts.findings)]):
        if number == 0:
            put()
        put_paragraph(line)


def _put_table(table: VerdictTable, details: bool) -> None:
    # Notes are not among the columns, because a column of them would be wider than a terminal.
    hidden = ["notes"]
    if {row.durability_class for row in table.rows} == {"full"}:
        hidden.append("durability")
    if len({row.n for row in table.rows}) == 1:
        hidden.append("blocks")
    columns = [column for column in COLUMNS if column.title and column.title not in hidden]
    cells = [[column.words(row, table.metric) for column in columns] for row in table.rows]
    put_table(
        [column.title for column in columns],
        cells,
        [column.title for column in columns if column.right],
    )
    for row in table.rows if details else ():
        if row.level is not None:
            put_paragraph(
                f"  {row.fs_setup}: level {100 * row.level:.3g}{GROUP}%, {sentences.freedom(row)}"
            )


def _remarks(table: VerdictTable, known: Set[RemarkKind]) -> dict[str, list[str]]:
    """Return each remark about rows of the table, without the known kinds, with the setups that
    have it.
    """
    names: dict[str, list[str]] = {}
    for row in table.rows:
        for text in texts(about for about in row.notes if about.kind not in known):
            names.setdefault(text, []).append(row.fs_setup)
    return {
        text: ["all setups"] if 1 < len(table.rows) == len(of) else of for text, of in names.items()
    }


def _factor_lines(verdicts: Verdicts) -> Iterator[str]:
    several = len({factor.metric for factor in verdicts.interactions}) > 1
    for factor in verdicts.interactions:
        yield (f"{METRICS[factor.metric].label}: " if several else "") + sentences.plain_text(
            sentences.interaction(factor)
        )


def _host_lines(verdicts: Verdicts, table: VerdictTable) -> Iterator[str]:
    here = (table.engine, table.workload, table.variant, table.metric.name)
    for arm in verdicts.hosts:
        if (arm.engine, arm.workload, arm.variant, arm.metric) == here:
            yield sentences.by_host(arm)


def _title(table: VerdictTable) -> str:
    unit = f", {table.metric.unit}" if table.metric.unit else ""
    work = title_of(table.workload, table.variant)
    return f"{table.engine} {work}: {table.metric.label}{unit} ({table.metric.better} is better)"
