"""How commands print: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import click

from dbbench.units import inert


def put(text: str = "") -> None:
    """Print a line of the result on stdout."""
    click.echo(inert(text))


def put_json(content: Any) -> None:
    """Print one JSON document: UTF-8, null for what is not measured, never NaN."""
    click.echo(inert(json.dumps(_finite(content), ensure_ascii=False, indent=1, allow_nan=False)))


def put_table(header: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> None:
    """Print columns of equal width; `right` has an "r" at each column that is aligned to the right ("-r-")."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    for line in [list(header), *cells]:
        words = (
            text.rjust(width) if right[i : i + 1] == "r" else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        put("  ".join(words).rstrip())


def table_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The same as a table of Markdown."""
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


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
