"""JUnit XML: one test case for each setup; a regression is a failure, an undecided setup is skipped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # written, never read
from typing import Final

from dbbench.report.exports.exported import ArmFigures, Report
from dbbench.units import change, count, interval

FAILS: Final = ("regression", "slower", "worse")
SKIPPED: Final = ("inconclusive", "suspect", "learning", "device-limited")
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # of XML 1.0


def text(report: Report) -> str:
    """The file with its declaration. Problems of the whole run are a test case of their own, which is an error."""
    suite = ET.Element("testsuite", name=_clean(report.title), timestamp=report.created[:19],
                       time=f"{report.seconds:.0f}", hostname="")  # fmt: skip
    for entry in report.entries:
        _case(suite, entry)
    if report.problems:
        case = ET.SubElement(suite, "testcase", classname=_clean(report.title), name="the run as a whole")
        ET.SubElement(case, "error", message=_clean("; ".join(report.problems)))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    ET.indent(suite, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ET.Element, entry: ArmFigures) -> None:
    names = {
        "classname": _clean(f"{entry.engine}.{entry.workload}"),
        "name": _clean(f"{entry.fs_setup} {entry.metric}"),
    }
    case = ET.SubElement(suite, "testcase", names)
    words = _clean("; ".join([_size(entry), *entry.notes]))
    if entry.state in FAILS:
        ET.SubElement(case, "failure", message=f"{entry.state}: {words}", type=entry.state)
    elif entry.state in SKIPPED:
        ET.SubElement(case, "skipped", message=f"{entry.state}: {words}")
    else:
        ET.SubElement(case, "system-out").text = f"{entry.state}: {words}"


def _size(entry: ArmFigures) -> str:
    if entry.ratio is None:
        return "no change is known"
    bounds = "" if entry.lo is None else f" ({interval(entry.lo, entry.hi)})"
    return f"{change(entry.ratio)}{bounds}, {count(entry.n, 'block')}"


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("�", words)
