"""GitHub Markdown, for the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dbbench.report.exports.entries import FAILS, ArmFigures, Report
from dbbench.units import change, interval

ALERTS: Final = {
    "regression": "CAUTION",
    "failed": "CAUTION",
    "inconclusive": "WARNING",
    "improvement": "TIP",
}
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def markdown(report: Report) -> str:
    """Return GitHub Markdown: a heading, an alert if something needs attention, one row for each
    setup.
    """
    lines = [f"### {_escape(report.title)}", ""]
    if report.state in ALERTS:
        lines += [f"> [!{ALERTS[report.state]}]", f"> {report.state}"]
        lines += [f"> {_escape(problem)}" for problem in report.problems]
        lines.append("")
    lines.append(_line([title for title, _, _ in COLUMNS]))
    lines.append(_line([align for _, align, _ in COLUMNS]))
    lines += [_line([cell(entry) for _, _, cell in COLUMNS]) for entry in report.entries]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(words: str) -> str:
    return _SPECIAL.sub(r"\\\1", words.replace("\n", " "))


COLUMNS: Final[tuple[tuple[str, str, Callable[[ArmFigures], str]], ...]] = (
    ("workload", "---", lambda entry: _escape(f"{entry.row.engine} {entry.workload}")),
    ("setup", "---", lambda entry: _escape(entry.row.fs_setup)),
    ("metric", "---", lambda entry: entry.metric.label),
    ("value", "---:", lambda entry: entry.metric.with_unit(entry.row.value)),
    ("change", "---:", lambda entry: change(entry.row.ratio)),
    ("interval", "---", lambda entry: interval(entry.row.lo, entry.row.hi)),
    (
        "verdict",
        "---",
        lambda entry: f"**{entry.state}**" if entry.state in FAILS else entry.state,
    ),
    ("blocks", "---:", lambda entry: str(entry.row.n)),
    ("notes", "---", lambda entry: _escape("; ".join(entry.notes))),
)
