"""Export formats: one module for each, with `text(report)`, and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dbbench.report.exports import bencher, junit, markdown, openmetrics
from dbbench.report.exports.exported import ArmFigures, Report

FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "bencher": bencher.text,
    "junit": junit.text,
    "markdown": markdown.text,
    "openmetrics": openmetrics.text,
}

__all__ = ["FORMATS", "ArmFigures", "Report"]
