"""The verdict table: its columns, and from them the table for the terminal and as Markdown, CSV and
JSON.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Final, Literal, NamedTuple

from dbbench.compare import Row, groups
from dbbench.compare.remarks import RemarkKind, has, texts
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import SCHEMA, Json, plain, title_of
from dbbench.report import sentences, time_layers
from dbbench.report.answer import SHORT, answer
from dbbench.report.text import put, put_paragraph, put_table, table_text
from dbbench.report.trial_counts import trial_counts
from dbbench.report.verdicts import Verdicts, VerdictTable
from dbbench.units import GROUP, change, count, interval, join_words

# Remarks that the answer and the columns make.
_STATED: Final = frozenset(
    (RemarkKind.OTHER_CLASS, RemarkKind.TOO_FEW_BLOCKS, RemarkKind.DEVICE_LIMITED)
)
_ALL: Final = ["each setup"]


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
    return Column(
        key,
        title,
        lambda row, _metric: getattr(row, key),
        text,
        right,
        page,
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


def row_document(row: Row, metric: Metric) -> Json:
    """Return the row for programs: each value under its key."""
    return {column.key: column.value(row, metric) for column in COLUMNS if column.key}


def as_document(verdicts: Verdicts) -> Json:
    """Return the JSON of `compare --json`. `metric` is "primary" if the tables have several."""
    words = answer(verdicts.tables, verdicts.runs)
    rows = []
    for table in verdicts.tables:
        rows += [row_document(row, table.metric) for row in table.rows]
    # The same words as on the terminal, without marks.
    metrics = list(dict.fromkeys(table.metric.name for table in verdicts.tables))
    document = {
        "schema": SCHEMA,
        "baseline": verdicts.baseline,
        "recommendation": sentences.plain_text(words.recommendation),
        "answer": [sentences.plain_text(text) for text in words.sentences],
        "caveats": [
            {
                "kind": kind,
                "text": sentences.plain_text(text),
            }
            for kind, text in words.caveats
        ],
        "metric": "primary" if len(metrics) > 1 else next(iter(metrics), None),
        "rows": rows,
        "findings": verdicts.findings,
        "trials": plain(trial_counts(verdicts.runs)),
    }
    if verdicts.hosts:
        document["hosts"] = plain(verdicts.hosts)
    # Only plans with factors have interactions.
    if verdicts.interactions:
        document["interactions"] = plain(verdicts.interactions)
    return document


def as_csv(verdicts: Verdicts) -> str:
    """Return the rows as CSV with a header."""
    header = [column.key for column in COLUMNS if column.key]
    return csv_text(header, [row.values() for row in as_document(verdicts)["rows"]])


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a header and rows as CSV; values of a list are joined by "; "."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(map(_csv_cell, row))
    return text.getvalue().rstrip("\n")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        value = "; ".join(value)
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"  # else a spreadsheet would take it for a formula
    return value


def as_markdown(verdicts: Verdicts) -> str:
    """Return the answer, and a heading and a table for each engine and workload, in Markdown."""
    columns = [column for column in COLUMNS if column.title]
    titles = [column.title for column in columns]
    words = answer(verdicts.tables, verdicts.runs)
    parts = [f"**{sentences.plain_text(words.recommendation)}**\n"] if words.recommendation else []
    parts.append(sentences.plain_text(" ".join(words.sentences)) + "\n")
    parts += [f"- Caveat: {sentences.plain_text(text)}" for _, text in words.caveats]
    for table in verdicts.tables:
        cells = [[column.words(row, table.metric) for column in columns] for row in table.rows]
        parts.append(f"\n### {_title(table)}\n\n{table_text(titles, cells)}\n")
        parts += [f"- {line}" for line in _host_lines(verdicts, table)]
    parts += [f"- {text}" for text in _factor_lines(verdicts)]
    parts += [f"- {text}" for text in verdicts.findings]
    if verdicts.runs:
        parts.append(f"- {_trials_text(verdicts)}")
    return "\n".join(parts).rstrip() + "\n"


def put_tables(verdicts: Verdicts, details: bool = False) -> None:
    """Print the answer, the tables for people, sentences about several tables below them, and how
    many trials count.
    """
    if verdicts.tables:
        _put_results(verdicts, details)
    else:
        put("These runs have no results to compare.")
    if any(run.trials for run in verdicts.runs):
        put()
        put_paragraph(_trials_text(verdicts))


def _trials_text(verdicts: Verdicts) -> str:
    """Return how many trials count: those of all tests, of which a metric may have hidden some."""
    text = f"{trial_counts(verdicts.runs).text}."
    tests = groups([trial for run in verdicts.runs for trial in run.trials])
    if verdicts.tables and len({table.group for table in verdicts.tables}) < len(tests):
        return f"In all {len(tests)} tests, {text}"
    return text


def _put_results(verdicts: Verdicts, details: bool) -> None:
    words = answer(verdicts.tables, verdicts.runs)
    of_runs = (text for _, text in words.caveats)
    texts_above = (words.recommendation, " ".join(words.sentences), *of_runs)
    for sentence in filter(None, texts_above):
        put_paragraph(sentence.replace("**", ""))

    # A remark that a caveat or a column makes is left out.
    implied = {
        SHORT: RemarkKind.BURST,
        sentences.SUSPECT: RemarkKind.SUSPECT,
    }
    stated = _STATED | {implied[kind] for kind, _ in words.caveats if kind in implied}
    remarks_of = [_remarks(table, stated) for table in verdicts.tables]
    common = [
        text
        for text, names in remarks_of[0].items()
        if names == _ALL and all(remarks.get(text) == names for remarks in remarks_of)
    ]

    for table, remarks in zip(verdicts.tables, remarks_of, strict=True):
        _put_table(table, details)
        for text, names in remarks.items():
            if text not in common:
                each = " each" if len(names) > 1 else ""
                put_paragraph(f"  {join_words(names)}{each}: {text}")
        for line in (*_host_lines(verdicts, table), *_time_lines(verdicts, table)):
            put_paragraph(f"  {line}")

    # Below the tables is what holds for several of them.
    below = [f"all results: {text}" for text in common]
    below += _factor_lines(verdicts)
    below += [f"! {text}" for text in verdicts.findings]
    if below:
        put()
    for line in below:
        put_paragraph(line)


def _time_lines(verdicts: Verdicts, table: VerdictTable) -> Iterator[str]:
    """Yield what the differences of throughput consist of, in the trials of a single run."""
    if len(verdicts.runs) != 1 or table.metric.name != "tps":
        return
    trials = groups(verdicts.runs[0].trials)[table.group]
    for row in table.rows[1:]:
        yield from time_layers.difference_sentences(trials, table.rows[0], row)


def _put_table(table: VerdictTable, details: bool) -> None:
    # Notes are not among the columns, because a column of them would be wider than a terminal.
    title = _title(table)
    hidden = ["notes"]
    # A column that is the same in all rows is said once, in the title.
    blocks = {count(row.n, "block") for row in table.rows}
    if len(blocks) == 1:
        title += f", {blocks.pop()}"
        hidden.append("blocks")
    if {row.durability_class for row in table.rows} == {"full"}:
        hidden.append("durability")
    put()
    put_paragraph(title)
    columns = [column for column in COLUMNS if column.title and column.title not in hidden]
    cells = [[column.words(row, table.metric) for column in columns] for row in table.rows]
    right = [column.title for column in columns if column.right]
    put_table([column.title for column in columns], cells, right)
    # How the interval was made, for readers who want to check it.
    if details:
        for row in table.rows:
            if row.level is not None:
                level = f"level {100 * row.level:.3g}{GROUP}%"
                put_paragraph(f"  {row.fs_setup}: {level}, {sentences.freedom(row)}")


def _remarks(table: VerdictTable, stated: Set[RemarkKind]) -> dict[str, list[str]]:
    """Return each remark about rows of the table, without the stated kinds, with the setups that
    have it.
    """
    names_of: dict[str, list[str]] = {}
    for row in table.rows:
        for text in texts(note for note in row.notes if note.kind not in stated):
            names_of.setdefault(text, []).append(row.fs_setup)
    for text, names in names_of.items():
        if 1 < len(table.rows) == len(names):
            names_of[text] = _ALL
    return names_of


def _factor_lines(verdicts: Verdicts) -> Iterator[str]:
    several = len({factor.metric for factor in verdicts.interactions}) > 1
    for factor in verdicts.interactions:
        lead = f"{METRICS[factor.metric].label}: " if several else ""
        yield lead + sentences.plain_text(sentences.interaction(factor))


def _host_lines(verdicts: Verdicts, table: VerdictTable) -> Iterator[str]:
    for arm in verdicts.hosts:
        group = (arm.engine, arm.workload, arm.variant)
        if group == table.group and arm.metric == table.metric.name:
            yield sentences.by_host(arm)


def _title(table: VerdictTable) -> str:
    unit = f", {table.metric.unit}" if table.metric.unit else ""
    work = title_of(table.workload, table.variant)
    if table.plain_name:
        work += f" ({table.plain_name})"
    return f"{table.engine} {work}: {table.metric.label}{unit} ({table.metric.better} is better)"
