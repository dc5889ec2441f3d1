"""One file a format: `text(report)` makes the whole file's content. Registered by one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dbbench.exports import bencher, junit, markdown, openmetrics
from dbbench.exports.port import Entry, Report

FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "bencher": bencher.text,
    "junit": junit.text,
    "markdown": markdown.text,
    "openmetrics": openmetrics.text,
}

__all__ = ["FORMATS", "Entry", "Report"]
