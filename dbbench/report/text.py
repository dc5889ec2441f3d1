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

from dbbench.model import Json
from dbbench.model.base import SCHEMA
from dbbench.units import GROUP, MISSING, finite, inert, on_terminal

WIDTH: Final = 110  # columns of wrapped lines where there is no terminal
_NARROWEST: Final = 40
_NUMBER_GAP: Final = re.compile(r"(?<=\d) (?=%|\d)")  # a line must not end here


def columns(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal of `stream`, stdout by default; None if it is not one."""
    try:
        size = os.get_terminal_size((stream or sys.stdout).fileno())
    except (OSError, ValueError):
        return None
    return max(_NARROWEST, size.columns or WIDTH)


def put(text: str = "") -> None:
    """Print a line of the result on stdout."""
    click.echo(on_terminal(text))


def put_paragraph(text: str, without_terminal: int = WIDTH) -> None:
    """Print a long line of the result as several; those after the first are indented. A number
    keeps its %. `without_terminal`: the columns if stdout is not a terminal.
    """
    for line in wrap(text, columns() or without_terminal):
        put(line)


def wrap(text: str, width: int) -> list[str]:
    """Return a long line as several. A command, which follows a colon and two spaces, stays whole
    in its own line.
    """
    text, _, command = text.partition(":  ")
    whole = f"{text}:  {command}" if command else text
    if len(whole) <= width:
        return [whole]

    # Further lines are indented as the first one is, and below a list's entry a little more.
    indent = " " * (len(text) - len(text.lstrip(" !")))
    further = f"{indent}  " if text.startswith(" ") else indent
    before_command = f"{text}:" if command else text
    lines = textwrap.wrap(
        _NUMBER_GAP.sub(GROUP, before_command),
        width,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if command:
        lines.append(f"{indent}    {command}")
    return lines


def put_json(content: Json, err: bool = False) -> None:
    """Print one JSON document with its schema version on stdout, or on stderr."""
    click.echo(inert(json_text({"schema": SCHEMA, **content})), err=err)


def json_text(content: Any) -> str:
    """Return one JSON document: UTF-8, null for what is not measured, never NaN."""
    return json.dumps(
        finite(content),
        ensure_ascii=False,
        indent=1,
        allow_nan=False,
    )


def put_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Sequence[str] = (),
) -> None:
    """Print columns of equal width, those of `right` aligned to the right. Cells wrap if the
    terminal is too narrow; where words do not fit beside each other, each row is a paragraph.
    """
    # A number keeps its unit when its cell is wrapped.
    lines = [list(header)]
    for row in rows:
        lines.append([_NUMBER_GAP.sub(GROUP, _cell(value)) for value in row])
    widths = _fitting(lines)
    if widths is None:
        _put_rows(lines)
        return
    for line in lines:
        cells = []
        for text, width in zip(line, widths, strict=True):
            parts_of_cell = [text]
            if len(text) > width:
                parts_of_cell = textwrap.wrap(text, width, break_on_hyphens=False)
            cells.append(parts_of_cell)
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            words = []
            for title, text, width in zip(header, parts, widths, strict=True):
                words.append(text.rjust(width) if title in right else text.ljust(width))
            put("  ".join(words).rstrip())


def _put_rows(lines: Sequence[Sequence[str]]) -> None:
    """Print the first cell of each row, and below it the others with their titles."""
    titles, *rows = lines
    for name, *cells in rows:
        pairs = zip(titles[1:], cells, strict=True)
        texts = [f"{title} {cell}" for title, cell in pairs if cell not in ("", MISSING)]
        for part in textwrap.wrap(name, columns() or WIDTH):
            put(part)
        put_paragraph(f"  {', '.join(texts)}")


def put_reasons(rows: Iterable[Json]) -> None:
    """Print below a catalogue each `reason` why entries do not work here, once, with the names of
    these entries.
    """
    names_of: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            names_of.setdefault(row["reason"], []).append(row["name"])
    if names_of:
        put("\nnot on this machine")
    for reason, names in names_of.items():
        put_paragraph(f"  {', '.join(names)}: {reason}")


def _fitting(lines: Sequence[Sequence[str]]) -> list[int] | None:
    """Return the columns' widths. On a narrow terminal cells of several words wrap; None if even the
    longest words do not fit.
    """
    space = (columns() or sys.maxsize) - 2 * (len(lines[0]) - 1)
    widths = []
    least = []
    for column in zip(*lines, strict=True):
        widths.append(max(map(len, column)))
        least.append(max(len(word) for cell in column for word in re.split("[ \n]", cell)))
    if sum(least) > space:
        return None

    # Take a character at a time from the widest column that may still shrink.
    while sum(widths) > space:
        wide = [place for place, width in enumerate(widths) if width > least[place]]
        widths[max(wide, key=lambda place: widths[place])] -= 1
    return widths


def table_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the same as a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    for row in rows:
        cells = [_cell(value).replace("|", "\\|").replace("<", "&lt;") for value in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
