"""`dbbench explain`: the meaning of errors and warnings."""

from __future__ import annotations

import textwrap
from typing import Final

import click

from dbbench.commands.options import Options, command_line, completing
from dbbench.errors import Kind, UnknownName, error_kinds, warning_kinds
from dbbench.report.text import WIDTH, columns

_MOST: Final = 6  # similar entries that are listed


@command_line("dbbench explain W012")
@click.argument(
    "ids",
    metavar="[ID]...",
    nargs=-1,
    shell_complete=completing(lambda: error_kinds() | warning_kinds()),
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Explain all errors and warnings.",
)
def command(options: Options, ids: tuple[str, ...], every: bool) -> None:
    """Explain what an error (E...) or a warning (W...) means and what to do about it."""
    existing = error_kinds() | warning_kinds()
    if not every and not ids:
        raise click.UsageError(
            "Missing argument 'ID'. Use --all to explain all errors and warnings."
        )
    names = list(existing) if every else ids
    entries = [_entry(name, existing) for name in names]
    options.put({"entries": entries}, "\n\n".join(map(_text, entries)))


def _entry(name: str, existing: dict[str, Kind]) -> dict[str, object]:
    ident = name.upper()
    if ident not in existing:
        near = []
        for other, kind in existing.items():
            if ident in kind.title.upper() or other[:2] == ident[:2]:
                near.append(f"{other} ({kind.title})")
        listed = f"These are similar: {', '.join(near[:_MOST])}. " if near else ""
        raise UnknownName(
            f"no error or warning has the ID {name!r}",
            remedy=f"{listed}See also: dbbench explain --all",
        )
    kind = existing[ident]
    return {
        "id": ident,
        "title": kind.title,
        "text": kind.meaning,
        "remedy": kind.remedy,
        "exit_code": kind.exit_code or None,
        "suspect": None if kind.exit_code else kind.suspect,
    }


def _text(entry: dict[str, object]) -> str:
    parts = [str(entry["text"]), f"Remedy: {entry['remedy']}"]
    if entry["exit_code"] is not None:
        parts.append(f"Exit status {entry['exit_code']}.")
    if entry["suspect"]:
        parts.append("The trial is marked suspect and its block is repeated.")
    lines = [f"{entry['id']}: {entry['title']}"]
    for part in parts:
        lines.append(
            textwrap.fill(
                part,
                columns() or WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
            )
        )
    return "\n".join(lines)
