"""How commands print: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from dbbench.units import GROUP, finite, inert, on_terminal

WIDTH: Final = 110  # columns of wrapped lines, the same as in help texts
_NUMBER_GAP: Final = re.compile(r"(?<=\d) (?=%|\d)")  # a line must not end here


def put(text: str = "") -> None:
    """Print a line of the result on stdout."""
    click.echo(on_terminal(text))


def put_paragraph(text: str) -> None:
    """Print a long line of the result as several; those after the first are indented. A number keeps its %."""
    indent = " " * (len(text) - len(text.lstrip())) + "  "
    text = _NUMBER_GAP.sub(GROUP, text)
    for line in textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
        put(line)


def put_json(content: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(inert(json_text(content)))


def json_text(content: Any) -> str:
    """Return one JSON document: UTF-8, null for what is not measured, never NaN."""
    return json.dumps(finite(content), ensure_ascii=False, indent=1, allow_nan=False)


def put_table(header: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print columns of equal width; `right` names those that are aligned to the right."""
    lines = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        columns = zip(header, line, widths, strict=True)
        words = (text.rjust(width) if title in right else text.ljust(width) for title, text, width in columns)
        put("  ".join(words).rstrip())


def table_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the same as a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += [
        "| " + " | ".join(_cell(value).replace("|", "\\|").replace("<", "&lt;") for value in row) + " |" for row in rows
    ]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
