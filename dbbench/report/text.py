"""How commands print: tables for people, one JSON document for programs."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import click

from dbbench.model.base import SCHEMA
from dbbench.units import GROUP, finite, grouped, inert, on_terminal

WIDTH: Final = 110  # columns of wrapped lines where there is no terminal
_NARROWEST: Final = 40
_NUMBER_GAP: Final = re.compile(r"(?<=\d) (?=%|\d)")  # a line must not end here


def columns(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal of `stream`, stdout by default; None if it is not one."""
    try:
        return max(
            _NARROWEST, os.get_terminal_size((stream or sys.stdout).fileno()).columns or WIDTH
        )
    except (OSError, ValueError):
        return None


def put(text: str = "") -> None:
    """Print a line of the result on stdout."""
    click.echo(on_terminal(text))


def put_paragraph(text: str, without_terminal: int = WIDTH) -> None:
    """Print a long line of the result as several; those after the first are indented. A number
    keeps its %. `without_terminal`: the columns if stdout is not a terminal.
    """
    for line in wrapped(text, columns() or without_terminal):
        put(line)


def wrapped(text: str, width: int) -> list[str]:
    """Return a long line as several. A command, which follows a colon and two spaces, stays whole
    in its own line.
    """
    text, _, command = text.partition(":  ")
    indent = " " * (len(text) - len(text.lstrip(" !")))
    whole = f"{text}:  {command}" if command else text
    if len(whole) <= width:
        return [whole]
    further = f"{indent}  " if text.startswith(" ") else indent
    text = _NUMBER_GAP.sub(GROUP, f"{text}:" if command else text)
    lines = textwrap.wrap(
        text, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
    return [*lines, *([f"{indent}    {command}"] if command else [])]


def put_json(content: dict[str, Any], err: bool = False) -> None:
    """Print one JSON document with its schema version on stdout, or on stderr."""
    click.echo(inert(json_text({"schema": SCHEMA, **content})), err=err)


def json_text(content: Any) -> str:
    """Return one JSON document: UTF-8, null for what is not measured, never NaN."""
    return json.dumps(finite(content), ensure_ascii=False, indent=1, allow_nan=False)


def put_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """Print columns of equal width, those of `right` aligned to the right. Cells wrap if the
    terminal is too narrow.
    """
    lines = [
        list(header),
        *([_NUMBER_GAP.sub(GROUP, _cell(value)) for value in row] for row in rows),
    ]
    widths = _fitting(lines)
    for line in lines:
        cells = [
            textwrap.wrap(text, width, break_on_hyphens=False) if len(text) > width else [text]
            for text, width in zip(line, widths, strict=True)
        ]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            row = zip(header, parts, widths, strict=True)
            words = (
                text.rjust(width) if title in right else text.ljust(width)
                for title, text, width in row
            )
            put("  ".join(words).rstrip())


def put_reasons(rows: Iterable[dict[str, Any]]) -> None:
    """Print below a catalogue each `reason` why entries do not work here, once, with the names of
    these entries.
    """
    by_reason = grouped((row for row in rows if row["reason"]), lambda row: row["reason"])
    if by_reason:
        put("\nnot on this machine")
    for reason, of in by_reason.items():
        put_paragraph(f"  {', '.join(row['name'] for row in of)}: {reason}")


def _fitting(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns' widths. On a narrow terminal cells of several words wrap, then long
    names; numbers never.
    """
    cells = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in cells]
    words = [
        max(len(word) for cell in column for word in re.split("[ \n]", cell)) for column in cells
    ]
    names = [not any(cell[:1] in "+−0123456789" for cell in column if cell) for column in cells]
    for most in (sys.maxsize, 16, 12, 8):
        least = [min(word, most) if name else word for word, name in zip(words, names, strict=True)]
        while sum(widths) + 2 * (len(widths) - 1) > (columns() or sys.maxsize) and widths != least:
            wide = [at for at, width in enumerate(widths) if width > least[at]]
            widths[max(wide, key=lambda at: widths[at])] -= 1
    return widths


def table_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the same as a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += [
        "| "
        + " | ".join(_cell(value).replace("|", "\\|").replace("<", "&lt;") for value in row)
        + " |"
        for row in rows
    ]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
