"""`dbbench explain`: the meaning of errors, warnings and durability classes."""

from __future__ import annotations

import textwrap
from typing import Final

import click

from dbbench.commands.options import Options, command_line, completing
from dbbench.errors import Kind, UnknownName, durability_kinds, error_kinds, warning_kinds
from dbbench.report.text import WIDTH, columns

_MOST: Final = 6  # similar entries that are listed


@command_line("dbbench explain W012")
@click.argument(
    "ids",
    metavar="[ID]...",
    nargs=-1,
    shell_complete=completing(lambda: [*error_kinds(), *warning_kinds(), *durability_kinds()]),
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Explain all errors, warnings and classes.",
)
def command(options: Options, ids: tuple[str, ...], every: bool) -> None:
    """Explain what an error (E...) or a warning (W...) means and what to do about it, or what a
    durability class such as full rests on.
    """
    existing = error_kinds() | warning_kinds()
    names = [*existing, *durability_kinds()] if every else _split(ids)
    if not names:
        raise click.UsageError("Missing argument 'ID'. Use --all to explain everything.")
    entries = [_entry(name, existing) for name in names]
    options.put({"entries": entries}, "\n\n".join(map(_text, entries)))


def _split(ids: tuple[str, ...]) -> list[str]:
    """Return the names, also those of a class as it is printed: "async-commit + torn-prevented
    (unit 16384, aligned)".
    """
    names = []
    for text in ids:
        for part in text.split("+"):
            names.append(part.partition("(")[0].strip())
    return list(filter(None, names))


def _entry(name: str, existing: dict[str, Kind]) -> dict[str, object]:
    # A durability class, by its name.
    durability = durability_kinds().get(name.lower())
    if durability is not None:
        return {
            "id": name.lower(),
            "title": durability.title,
            "text": durability.mechanism,
            "counts": durability.counts,
        }
    # An error or warning, by its ID.
    ident = name.upper()
    if ident not in existing:
        near = []
        for other, kind in existing.items():
            if ident in kind.title.upper() or other[:2] == ident[:2]:
                near.append(f"{other} ({kind.title})")
        listed = f"These are similar: {', '.join(near[:_MOST])}. " if near else ""
        raise UnknownName(
            f"no error, warning or durability class has the ID {name!r}",
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
    parts = [str(entry["text"])]
    if "counts" in entry:
        parts.append(f"Counted: {entry['counts']}")
    if "remedy" in entry:
        parts.append(f"Remedy: {entry['remedy']}")
    if entry.get("exit_code") is not None:
        parts.append(f"Exit status {entry['exit_code']}.")
    if entry.get("suspect"):
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
