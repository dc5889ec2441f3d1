"""Export formats: verdicts of runs, or a night, as text for other programs. A module for each, and a
row of FORMATS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dbbench.report.exports.entries import Report, report_of
from dbbench.report.exports.junit import junit
from dbbench.report.exports.markdown import markdown
from dbbench.report.exports.openmetrics import openmetrics
from dbbench.report.text import json_text
from dbbench.report.verdict_table import as_csv, as_document, as_markdown
from dbbench.report.verdicts import Verdicts

FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "junit": junit,
    "markdown": markdown,
    "openmetrics": openmetrics,
}


def export(form: str, verdicts: Verdicts) -> str:
    """Return the verdicts as "json", "csv", "markdown", or in another one of FORMATS."""
    match form:
        case "json":
            return json_text(as_document(verdicts))
        case "csv":
            return as_csv(verdicts)
        case "markdown":  # a table for each workload; the one of FORMATS is of a night
            return as_markdown(verdicts)
    return FORMATS[form](report_of(verdicts))
