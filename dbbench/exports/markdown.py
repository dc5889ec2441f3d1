"""GitHub Markdown: an alert where there is something to do, then the table."""

from __future__ import annotations

import re
from typing import Final

from dbbench.exports.port import Entry, Report
from dbbench.metrics import METRICS

ALERTS: Final = {"regression": "CAUTION", "failed": "CAUTION", "inconclusive": "WARNING", "improvement": "TIP"}
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def text(report: Report) -> str:
    """A heading, the alert, one row an arm."""
    lines = [f"### {_plain(report.title)}", ""]
    if report.state in ALERTS:
        lines += [f"> [!{ALERTS[report.state]}]", f"> {report.state}"]
        lines += [f"> {_plain(problem)}" for problem in report.problems] + [""]
    lines += ["| workload | filesystem | metric | value | change | interval | verdict | blocks | notes |",
              "| --- | --- | --- | ---: | ---: | --- | --- | ---: | --- |"]  # fmt: skip
    lines += [_row(entry) for entry in report.entries]
    return "\n".join(lines) + "\n"


def _row(entry: Entry) -> str:
    metric = METRICS.get(entry.metric)
    value = "–" if entry.value is None else f"{entry.value:.5g} {metric.unit if metric else ''}".strip()
    change = "–" if entry.ratio is None else f"{entry.ratio - 1:+.1%}"
    interval = "–" if entry.lo is None or entry.hi is None else f"{entry.lo - 1:+.1%}..{entry.hi - 1:+.1%}"
    state = f"**{entry.state}**" if entry.state in ("regression", "slower", "worse") else entry.state
    label = metric.label if metric else entry.metric
    cells = (_plain(f"{entry.engine} {entry.workload}"), _plain(entry.fs_setup), label, value,
             change, interval, state, str(entry.n), _plain("; ".join(entry.notes)))  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _plain(words: str) -> str:
    """The words as words: no mark-up of a label or note takes effect."""
    return _SPECIAL.sub(r"\\\1", words.replace("\n", " "))
