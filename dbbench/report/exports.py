"""Export formats: verdicts of runs, or a night, as text for other programs. Each is a function and
a row of FORMATS.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET  # only to write, so hostile XML is not a concern
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.remarks import texts
from dbbench.metrics.table import Metric
from dbbench.model import Status
from dbbench.model.run import title_of
from dbbench.report.text import json_text
from dbbench.report.verdict_table import as_csv, as_document, as_markdown
from dbbench.report.verdicts import Verdicts, is_expected
from dbbench.units import change, count, epoch, interval

FAILS: Final = ("regression", "slower", "worse")
SKIPPED: Final = ("inconclusive", "suspect", "learning", "device-limited")
ALERTS: Final = {
    "regression": "CAUTION",
    "failed": "CAUTION",
    "inconclusive": "WARNING",
    "improvement": "TIP",
}
# Abbreviated unit in the name of a metric -> its base unit in the plural, and the factor.
_BASE_UNITS: Final = {
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "h": ("hours", 1.0),
    "pct": ("ratio", 0.01),
    "kb": ("bytes", 1e3),
    "mb": ("bytes", 1e6),
    "gib": ("gibibytes", 1.0),
}
_LONG_NAMES: Final = {"mb_per_s": "processed_mb_per_s", "kb_per_s": "applied_kb_per_s"}
_FORBIDDEN_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL_IN_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|!~])")


class ArmFigures(NamedTuple):
    """One metric of a setup with one engine and workload. `state` is a verdict, or the finding of a
    night.
    """

    row: Row
    metric: Metric
    state: str
    notes: tuple[str, ...] = ()

    @property
    def workload(self) -> str:
        return title_of(self.row.workload, self.row.variant)

    @property
    def name(self) -> str:
        """Return "postgres pgbench-tpcb, clients=8: xfs"."""
        return f"{self.row.engine} {self.workload}: {self.row.fs_setup}"


class Report(NamedTuple):
    """A run or a night. `problems` are sentences about the whole of it."""

    title: str
    run: str
    created: str
    entries: tuple[ArmFigures, ...]
    state: str = ""
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    host: str = ""


def export(form: str, verdicts: Verdicts) -> str:
    """Return the verdicts as "json", "csv", "markdown", or in one of FORMATS."""
    whole = {"json": lambda of: json_text(as_document(of)), "csv": as_csv, "markdown": as_markdown}
    return whole[form](verdicts) if form in whole else FORMATS[form](report_of(verdicts))


def report_of(verdicts: Verdicts) -> Report:
    """Return every row of the verdicts; failed trials are the report's problems."""
    runs = verdicts.runs
    entries = tuple(
        ArmFigures(
            row, table.metric, row.verdict + (", as expected" if expected else ""), texts(row.notes)
        )
        for table in verdicts.tables
        for row in table.rows
        for expected in [row.verdict in FAILS and is_expected(row, verdicts)]
    )
    trials = [trial for run in runs for trial in run.trials]
    failed = tuple(
        f"{t.id}: {t.error.id} {t.error.text}"
        for t in trials
        if t.status is Status.FAILED and t.error
    )
    names = ", ".join(run.run.name for run in runs)
    created = max(run.run.created for run in runs)
    seconds = math.fsum(phase.seconds for trial in trials for phase in trial.phases)
    hosts = ", ".join(dict.fromkeys(str(run.run.host.get("hostname", "")) for run in runs))
    return Report(
        names, names, created, entries, "failed" if failed else "", failed, seconds, hosts
    )


def junit(report: Report) -> str:
    """Return JUnit XML: one test case for each setup; a regression is a failure, an undecided setup
    is skipped. Problems of the whole run are a test case of their own, which is an error.
    """
    suite = ET.Element(
        "testsuite",
        name=_clean(report.title),
        timestamp=report.created[:19],
        time=f"{report.seconds:.0f}",
        hostname=_clean(report.host),
    )
    for entry in report.entries:
        _case(suite, entry)
    if report.problems:
        case = ET.SubElement(
            suite, "testcase", classname=_clean(report.title), name="the run as a whole"
        )
        ET.SubElement(case, "error", message=_clean("; ".join(report.problems)))
    for name, tag in (
        ("tests", "testcase"),
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    ET.indent(suite, " ")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
    )


def _case(suite: ET.Element, entry: ArmFigures) -> None:
    names = {
        "classname": _clean(f"{entry.row.engine}.{entry.workload}"),
        "name": _clean(f"{entry.row.fs_setup} {entry.metric.name}"),
    }
    case = ET.SubElement(suite, "testcase", names)
    words = _clean("; ".join([_size(entry.row), *entry.notes]))
    if entry.state in FAILS:
        ET.SubElement(case, "failure", message=f"{entry.state}: {words}", type=entry.state)
    elif entry.state in SKIPPED:
        ET.SubElement(case, "skipped", message=f"{entry.state}: {words}")
    else:
        ET.SubElement(case, "system-out").text = f"{entry.state}: {words}"


def _size(row: Row) -> str:
    if row.ratio is None:
        return "no change is known"
    bounds = "" if row.lo is None else f" ({interval(row.lo, row.hi)})"
    return f"{change(row.ratio)}{bounds}, {count(row.n, 'block')}"


def _clean(words: str) -> str:
    return _FORBIDDEN_IN_XML.sub("�", words)


def markdown(report: Report) -> str:
    """Return GitHub Markdown: a heading, an alert if something needs attention, one row for each
    setup.
    """
    lines = [f"### {_plain(report.title)}", ""]
    if report.state in ALERTS:
        lines += [f"> [!{ALERTS[report.state]}]", f"> {report.state}"]
        lines += [f"> {_plain(problem)}" for problem in report.problems] + [""]
    columns: tuple[tuple[str, str, Callable[[ArmFigures], str]], ...] = (
        ("workload", "---", lambda entry: _plain(f"{entry.row.engine} {entry.workload}")),
        ("setup", "---", lambda entry: _plain(entry.row.fs_setup)),
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
        ("notes", "---", lambda entry: _plain("; ".join(entry.notes))),
    )
    rows = [[title for title, _, _ in columns], [align for _, align, _ in columns]]
    rows += [[cell(entry) for _, _, cell in columns] for entry in report.entries]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _plain(words: str) -> str:
    return _SPECIAL_IN_MARKDOWN.sub(r"\\\1", words.replace("\n", " "))


def openmetrics(report: Report) -> str:
    """Return OpenMetrics text for a textfile collector or a push gateway: gauges for each metric,
    its ratio with both bounds, and whether the state is bad. Names and values are in base units,
    as Prometheus asks for.
    """
    lines: list[str] = []
    whole = {"run": report.run, "host": report.host}
    for metric in dict.fromkeys(entry.metric for entry in report.entries):
        of_metric = [entry for entry in report.entries if entry.metric == metric]
        name, factor = _in_base_units(metric.name)
        families: tuple[tuple[str, str, float, Callable[[ArmFigures], float | None]], ...] = (
            ("", metric.label, factor, lambda entry: entry.row.value),
            (
                "_ratio",
                f"{metric.label}, candidate divided by baseline",
                1.0,
                lambda entry: entry.row.ratio,
            ),
            ("_ratio_lower", "lower bound of the ratio", 1.0, lambda entry: entry.row.lo),
            ("_ratio_upper", "upper bound of the ratio", 1.0, lambda entry: entry.row.hi),
            ("_bad", "1 for a regression, else 0", 1.0, lambda entry: float(entry.state in FAILS)),
        )
        for suffix, about, scale, value in families:
            amounts = [
                (entry, float(f"{amount * scale:.15g}"))
                for entry in of_metric
                if (amount := value(entry)) is not None
            ]
            lines += _family(f"dbbench_{name}{suffix}", about, amounts, whole)
    lines += [
        "# TYPE dbbench_last_run_timestamp_seconds gauge",
        "# HELP dbbench_last_run_timestamp_seconds start of the run; alert on its age",
        f"dbbench_last_run_timestamp_seconds{_labels(whole)} {epoch(report.created)}",
    ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _in_base_units(name: str) -> tuple[str, float]:
    """Return a metric's name without abbreviated units, and the factor of its values."""
    factor = 1.0
    words = list[str]()
    for word in _LONG_NAMES.get(name, name).split("_"):
        unit, scale = _BASE_UNITS.get(word, (word, 1.0))
        divided = words[-1:] == ["per"]
        factor *= 1 / scale if divided else scale
        words.append(unit.removesuffix("s") if divided else unit)
    return "_".join(words), factor


def _family(
    name: str, about: str, amounts: list[tuple[ArmFigures, float]], whole: dict[str, str]
) -> Iterator[str]:
    if amounts:
        yield f"# TYPE {name} gauge"
        yield f"# HELP {name} {_escape(about)}"
    for entry, amount in amounts:
        labels = {
            "engine": entry.row.engine,
            "workload": entry.workload,
            "fs_setup": entry.row.fs_setup,
            **whole,
        }
        yield f"{name}{_labels(labels)} {amount!r}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escape(word)}"' for key, word in labels.items()) + "}"


def _escape(words: str) -> str:
    return words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "junit": junit,
    "markdown": markdown,
    "openmetrics": openmetrics,
}
