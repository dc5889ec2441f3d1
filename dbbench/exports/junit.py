"""JUnit XML: a test case an arm; a regression fails, what is not decided is skipped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # written, never read
from typing import Final

from dbbench.exports.port import Entry, Report

FAILS: Final = ("regression", "slower", "worse")
SKIPPED: Final = ("inconclusive", "suspect", "learning", "device-limited")
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # of XML 1.0


def text(report: Report) -> str:
    """The file with its declaration. Sentences about the whole are a test case of their own, which is an error."""
    suite = ET.Element("testsuite", name=_clean(report.title), timestamp=report.created[:19],
                       time=f"{report.seconds:.0f}", hostname="")  # fmt: skip
    for entry in report.entries:
        _case(suite, entry)
    if report.problems:
        case = ET.SubElement(suite, "testcase", classname=_clean(report.title), name="the night itself")
        ET.SubElement(case, "error", message=_clean("; ".join(report.problems)))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    ET.indent(suite, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ET.Element, entry: Entry) -> None:
    named = {
        "classname": _clean(f"{entry.engine}.{entry.workload}"),
        "name": _clean(f"{entry.fs_setup} {entry.metric}"),
    }
    case = ET.SubElement(suite, "testcase", named)
    told = _clean("; ".join([_size(entry), *entry.notes]))
    if entry.state in FAILS:
        ET.SubElement(case, "failure", message=f"{entry.state}: {told}", type=entry.state)
    elif entry.state in SKIPPED:
        ET.SubElement(case, "skipped", message=f"{entry.state}: {told}")
    else:
        ET.SubElement(case, "system-out").text = f"{entry.state}: {told}"


def _size(entry: Entry) -> str:
    if entry.ratio is None:
        return "no ratio"
    interval = "" if entry.lo is None or entry.hi is None else f" ({entry.lo:.3f}..{entry.hi:.3f})"
    return f"ratio {entry.ratio:.3f}{interval}, {entry.n} blocks"


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("�", words)
