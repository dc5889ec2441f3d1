"""`dbbench explain`: the meaning of errors, warnings and durability classes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Final

import click

from dbbench.commands.options import Options, command_line, completing
from dbbench.errors import Kind, UnknownName, durability_kinds, error_kinds, warning_kinds
from dbbench.errors.similar_names import near
from dbbench.report.text import WIDTH, columns

_MOST: Final = 4  # similar entries that are listed
_ID: Final = re.compile(r"([EW]?)-?0*(\d{1,3})")


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
    entries = [_entry(name, existing, options.paths) for name in names]
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


def _entry(
    name: str,
    existing: dict[str, Kind],
    paths: list[str],
) -> dict[str, object]:
    # A durability class, by its name.
    durability = durability_kinds().get(name.lower())
    if durability is not None:
        return {
            "id": name.lower(),
            "title": durability.title,
            "text": durability.mechanism,
            "counts": durability.counts,
            "repeat": durability.repeat,
        }
    # An error or warning, by its ID.
    ident = _ident(name, existing)
    if ident is None:
        elsewhere = _in_catalogues(name, paths) or "All of them:  dbbench explain --all"
        meant = near(name, list(durability_kinds()))
        raise UnknownName(
            f"no error, warning or durability class has the ID {name!r}{meant}",
            remedy=" ".join([*_similar(name, existing), elsewhere]),
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


def _ident(name: str, existing: dict[str, Kind]) -> str | None:
    """Return the ID that a person means: "w12", "W-012" or "12" is W012."""
    match = _ID.fullmatch(name.upper())
    if match is None:
        return None
    idents = [f"{letter}{int(match[2]):03}" for letter in match[1] or "EW"]
    matching = [ident for ident in idents if ident in existing]
    if len(matching) == 1:
        return matching[0]
    return None


def _similar(name: str, existing: dict[str, Kind]) -> list[str]:
    """Return a sentence with the IDs that have this number or begin alike, or whose title or text
    has the word.
    """
    word = name.upper()
    match = _ID.fullmatch(word)
    digits = match[2].zfill(3) if match else ""
    # The same number first, then similar ones, then words in the text.
    ranked = []
    for ident, kind in existing.items():
        places = (
            ident[1:] == digits,
            match is not None and word[0] in ident[0] + digits and ident[1:3] == digits[:2],
            match is not None and ident[:2] == f"{word[0]}{digits[0]}",
            match is None and word in kind.title.upper(),
            match is None and re.search(rf"\b{re.escape(word)}", kind.meaning.upper()) is not None,
        )
        if any(places):
            ranked.append((places.index(True), f"{ident} ({kind.title})"))
    near = [text for _, text in sorted(ranked)[:_MOST]]
    return [f"Similar: {', '.join(near)}."] if near else []


def _in_catalogues(name: str, paths: list[str]) -> str:
    """Return a sentence if this is, or begins, the name of a setup, workload, study or metric."""
    from dbbench.metrics.table import METRICS
    from dbbench.plan import studies
    from dbbench.plan.catalog import catalog

    available = catalog(paths)
    catalogues: dict[str, tuple[str, Iterable[str]]] = {
        "fs": ("an fs setup", available.setups),
        "workload": ("a workload", available.workloads),
        "study": ("a study", studies.names()),
    }
    word = name.lower()
    for command, (what, names) in catalogues.items():
        hits = [hit for hit in names if hit.startswith(word)]
        if hits:
            hit = min(hits, key=len)
            return f"{hit} is {what}:  dbbench {command} {hit}"
    if word in METRICS:
        return f"{word} is a metric:  dbbench compare RUN --metric {word}"
    return ""


def _text(entry: dict[str, object]) -> str:
    parts = [str(entry["text"])]
    if "counts" in entry:
        parts.append(f"Counted: {entry['counts']}")
        parts += [f"Repeat: {line}" for line in str(entry["repeat"]).splitlines()]
    if "remedy" in entry:
        parts.append(f"Remedy: {entry['remedy']}")
    if entry.get("exit_code") is not None:
        parts.append(f"Exit status {entry['exit_code']}.")
    if entry.get("suspect"):
        parts.append(
            "The trial is marked suspect. Its block is repeated once, if `repeat_suspect` of the "
            "plan, its budget and the limit of half of the trials allow it."
        )
    # Each part is a paragraph below the title.
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
