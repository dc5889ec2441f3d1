"""GitHub Markdown: an alert if something needs attention, then the table."""

from __future__ import annotations

import re
from typing import Final

from dbbench.metrics.table import METRICS
from dbbench.report.exports.exported import ArmFigures, Report
from dbbench.units import change, interval, number

ALERTS: Final = {"regression": "CAUTION", "failed": "CAUTION", "inconclusive": "WARNING", "improvement": "TIP"}
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def text(report: Report) -> str:
    """A heading, the alert, one row for each setup."""
    lines = [f"### {_plain(report.title)}", ""]
    if report.state in ALERTS:
        lines += [f"> [!{ALERTS[report.state]}]", f"> {report.state}"]
        lines += [f"> {_plain(problem)}" for problem in report.problems] + [""]
    lines += ["| workload | setup | metric | value | change | interval | verdict | blocks | notes |",
              "| --- | --- | --- | ---: | ---: | --- | --- | ---: | --- |"]  # fmt: skip
    lines += [_row(entry) for entry in report.entries]
    return "\n".join(lines) + "\n"


def _row(entry: ArmFigures) -> str:
    metric = METRICS.get(entry.metric)
    value = metric.with_unit(entry.value) if metric else number(entry.value)
    state = f"**{entry.state}**" if entry.state in ("regression", "slower", "worse") else entry.state
    label = metric.label if metric else entry.metric
    cells = (_plain(f"{entry.engine} {entry.workload}"), _plain(entry.fs_setup), label, value, change(entry.ratio),
             interval(entry.lo, entry.hi), state, str(entry.n), _plain("; ".join(entry.notes)))  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _plain(words: str) -> str:
    """The words with all mark-up escaped."""
    return _SPECIAL.sub(r"\\\1", words.replace("\n", " "))
