"""JUnit XML, for the test reports of CI servers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # only to write, so hostile XML is not a concern
from typing import Final

from dbbench.compare import Row
from dbbench.report.exports.entries import FAILS, UNDECIDED, ArmFigures, Report
from dbbench.units import change, count, interval

COUNTS: Final = {
    "tests": "testcase",
    "failures": "failure",
    "errors": "error",
    "skipped": "skipped",
}
_FORBIDDEN_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Return JUnit XML: one test case for each setup; a regression is a failure, an undecided setup
    is skipped. Problems of the whole run are a test case of their own, which is an error.
    """
    title = _clean(report.title)
    suite = ET.Element(
        "testsuite",
        name=title,
        timestamp=report.created[:19],
        time=f"{report.seconds:.0f}",
        hostname=_clean(report.host),
    )
    if report.trials:
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="trials", value=report.trials)
    # Every setup is a case; what concerns the whole run is one more.
    for entry in report.entries:
        _add_case(suite, entry)
    if report.problems:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=title,
            name="the run as a whole",
        )
        ET.SubElement(case, "error", message=_clean("; ".join(report.problems)))
    # CI servers read the totals from the suite and do not count themselves.
    for name, tag in COUNTS.items():
        suite.set(name, str(len(list(suite.iter(tag)))))
    ET.indent(suite, " ")
    text = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_case(suite: ET.Element, entry: ArmFigures) -> None:
    names = {
        "classname": _clean(f"{entry.row.engine}.{entry.workload}"),
        "name": _clean(f"{entry.row.fs_setup} {entry.metric.name}"),
    }
    case = ET.SubElement(suite, "testcase", names)
    details = _clean("; ".join([_change_text(entry.row), *entry.notes]))
    text = f"{entry.state}: {details}"
    if entry.state in FAILS:
        ET.SubElement(
            case,
            "failure",
            message=text,
            type=entry.state,
        )
    elif entry.state in UNDECIDED:
        ET.SubElement(case, "skipped", message=text)
    else:
        ET.SubElement(case, "system-out").text = text


def _change_text(row: Row) -> str:
    if row.ratio is None:
        return "no change is known"
    bounds = "" if row.lo is None else f" ({interval(row.lo, row.hi)})"
    return f"{change(row.ratio)}{bounds}, {count(row.n, 'block')}"


def _clean(words: str) -> str:
    return _FORBIDDEN_IN_XML.sub("�", words)
