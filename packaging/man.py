"""Write the man pages: dbbench(1) from the help of the commands, dbbench-plan(5) from docs/plan.md.

python packaging/man.py DIRECTORY 2026-11-23
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

import click

from dbbench import __version__
from dbbench.cli import GROUPS, group

ROOT: Final = Path(__file__).resolve().parents[1]
TITLE: Final = "which filesystem should hold my database, by how much, and how sure are we?"
_LINK: Final = re.compile(r"\[((?:`[^`]*`|[^]`])*)\]\([^)]*\)")


def pages(day: date) -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    return {
        "dbbench.1": commands_page(day),
        "dbbench-plan.5": plan_page((ROOT / "docs/plan.md").read_text(encoding="utf-8"), day),
    }


# --- dbbench(1)
#   ------------------------------------------------------------------------------------


def commands_page(day: date) -> str:
    """Return dbbench(1)."""
    context = click.Context(
        group,
        info_name="dbbench",
        **group.context_settings,
    )
    shared = {parameter.name for parameter in group.get_params(context)}
    lines = [
        _head("DBBENCH", 1, day, "User Commands"),
        ".SH NAME",
        f"dbbench \\- {escaped(TITLE)}",
        ".SH SYNOPSIS",
        ".B dbbench",
        ".RI [ OPTION ]...",
        ".I COMMAND",
        ".RI [ ARGUMENT ]...",
        ".SH DESCRIPTION",
        "dbbench makes real filesystems, runs private PostgreSQL, MariaDB or MySQL servers on "
        "them, loads",
        "them, and reports the difference, its confidence interval and a verdict: faster, "
        "slower, same or",
        "inconclusive.",
        ".PP",
        "A plan (see",
        ".BR dbbench\\-plan (5))",
        "is one question to one machine. Most plans need root.",
        ".SH OPTIONS",
        "Every command accepts these options.",
    ]

    # The commands in the order of the help.
    lines += _options(group, context, set())
    lines.append(".SH COMMANDS")
    for heading, entries in GROUPS.items():
        lines.append(f".SS {_quoted(heading)}")
        for name in entries:
            command = group.get_command(context, name)
            assert command is not None
            lines += _command(command, name, context, shared)
    lines += [".SH EXIT STATUS", *_blocks(_section("errors.md", "Exit statuses"))]
    lines += [".SH ENVIRONMENT", *_blocks(_section("plan.md", "Environment variables"))]
    lines += [
        ".SH EXAMPLES",
        ".nf",
        "dbbench init \\-\\-example tiny",
        "dbbench plan plan.toml",
        "sudo dbbench run plan.toml",
        ".fi",
        ".SH SEE ALSO",
        ".BR dbbench\\-plan (5),",
        ".BR pgbench (1),",
        ".BR fio (1)",
    ]
    return "\n".join(lines) + "\n"


def _command(
    command: click.Command, name: str, parent: click.Context, shared: set[str | None]
) -> Iterator[str]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        **command.context_settings,
    )
    words = " ".join(
        piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"
    )
    yield from (".PP", f".B {escaped(context.command_path)} {escaped(words)}".rstrip(), ".RS")
    yield from _help(command.help or "")
    yield from _options(command, context, shared)
    if examples := getattr(command, "examples", ()):
        yield from (".PP", "Examples:", ".nf", *map(escaped, examples), ".fi")
    yield ".RE"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                yield from _command(inner, name, context, shared)


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs; those that click does not wrap (after a line with a backspace) are not
    filled.
    """
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        lines = [line.rstrip() for line in paragraph.splitlines()]
        if number:
            yield ".PP"
        if lines and lines[0].strip() == "\b":
            yield from (".nf", *map(escaped, lines[1:]), ".fi")
        else:
            yield escaped(" ".join(line.strip() for line in lines))


def _options(
    command: click.Command, context: click.Context, without: set[str | None]
) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None and parameter.name not in without:
            yield from (".TP", f".B {escaped(record[0])}", escaped(record[1]) or "\\&")


# --- dbbench-plan(5)
#   -------------------------------------------------------------------------------


def plan_page(markdown: str, day: date) -> str:
    """Return dbbench-plan(5) from the text of docs/plan.md."""
    body = markdown.split("\n", 1)[1]
    lines = [
        _head("DBBENCH\\-PLAN", 5, day, "File Formats"),
        ".SH NAME",
        "dbbench\\-plan \\- the plan of a benchmark run",
        ".SH DESCRIPTION",
        *_blocks(body),
        ".SH SEE ALSO",
        ".BR dbbench (1)",
    ]
    return "\n".join(lines) + "\n"


def _section(document: str, heading: str) -> str:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    match = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if match is None:
        raise SystemExit(f"docs/{document} has no heading {heading!r}")
    return match[1]


def _blocks(markdown: str) -> Iterator[str]:
    """Yield headings, fenced blocks, tables, lists and paragraphs as lines of man(7)."""
    for fence, block in _chunks(markdown):
        if fence:
            yield from (".PP", ".RS 4", ".nf", *map(escaped, block.splitlines()), ".fi", ".RE")
        elif heading := re.match(r"(#+) (.*)", block):
            yield f".{'SH' if len(heading[1]) == 2 else 'SS'} {_quoted(_plain(heading[2]))}"
        elif block.startswith("|"):
            yield from _table(block)
        elif re.match(r"(- |\d+\. )", block):
            for item in re.split(r"^(?=- |\d+\. )", block, flags=re.MULTILINE)[1:]:
                yield from _item(" ".join(item.split()))
        else:
            yield from (".PP", _inline(" ".join(block.split())))


def _chunks(markdown: str) -> Iterator[tuple[bool, str]]:
    """Yield (whether it is a fenced block, text) for each block."""
    for number, part in enumerate(re.split(r"^```\w*\n", markdown, flags=re.MULTILINE)):
        if number % 2:
            yield True, part.rstrip()
        else:
            yield from (
                (False, block.strip("\n")) for block in re.split(r"\n\s*\n", part) if block.strip()
            )


def _item(text: str) -> Iterator[str]:
    if key := re.match(r"- \*\*(.+?)\*\*: (.*)", text):
        yield from (".TP", f".B {escaped(_plain(key[1]))}", _inline(key[2]))
    else:
        marker, words = text.split(" ", 1)
        yield from (".IP • 4" if marker == "-" else f".IP {marker} 4", _inline(words))


def _table(block: str) -> Iterator[str]:
    """Yield the rows of a table as list items: the first cell is the term, the others are its text."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()
    ]
    for cells in rows[2:]:
        yield from (
            ".TP",
            f".B {escaped(_plain(cells[0]))}",
            _inline("; ".join(filter(None, cells[1:]))) or "\\&",
        )


def _plain(text: str) -> str:
    """Return the text without markup; links are reduced to their words."""
    return re.sub(r"[`*]", "", _LINK.sub(r"\1", text))


def _inline(text: str) -> str:
    """Return a paragraph with code and strong words in bold; links are reduced to their words."""
    parts = re.split(r"(`[^`]*`|\*\*[^*]+\*\*)", _LINK.sub(r"\1", text))
    shown = [
        f"\\fB{_words(part.strip('`*'))}\\fR" if number % 2 else _words(part)
        for number, part in enumerate(parts)
    ]
    return _guarded("".join(shown))


def _head(
    name: str,
    number: int,
    day: date,
    title: str,
) -> str:
    return f'.TH {name} {number} "{day}" "dbbench {__version__}" "{title}"'


def _quoted(text: str) -> str:
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


def _words(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def _guarded(line: str) -> str:
    return f"\\&{line}" if line.startswith((".", "'")) else line


def escaped(text: str) -> str:
    """Return a line of text that groff prints as it is."""
    return _guarded(_words(text))


def main(target: Path, day: date) -> None:
    """Write the pages into a directory."""
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages(day).items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), date.fromisoformat(sys.argv[2]))
