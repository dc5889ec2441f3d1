"""`dbbench explain ID`: what an error or a warning means."""

from __future__ import annotations

import inspect

import click

from dbbench.commands.options import Options, command_line
from dbbench.commands.text import put, put_json
from dbbench.errors import WARNINGS, DbbenchError, UnknownName, all_errors


@command_line()
@click.argument("id", metavar="ID")
def command(options: Options, id: str) -> None:
    """What the error E… or the warning W… means, and why it matters.

    Example: dbbench explain W012
    """
    wanted = id.upper()
    found = _error(wanted) or _warning(wanted)
    if found is None:
        known = [*all_errors(), *WARNINGS]
        near = ", ".join(name for name in known if name[:2] == wanted[:2]) or ", ".join(known)
        raise UnknownName(f"no error or warning has the ID {id!r}; known: {near}")
    if options.json:
        put_json(found)
        return
    put(f"{found['id']}: {found['title']}")
    if found["text"]:
        put(str(found["text"]))
    if found["exit_code"] is not None:
        put(f"Exit code {found['exit_code']}.")


def _error(wanted: str) -> dict[str, object] | None:
    kind = all_errors().get(wanted)
    if kind is None:
        return None
    own = inspect.cleandoc(kind.__doc__ or "") if kind.__doc__ != DbbenchError.__doc__ else ""
    return {"id": wanted, "title": kind.title, "text": own, "exit_code": kind.exit_code}


def _warning(wanted: str) -> dict[str, object] | None:
    if wanted not in WARNINGS:
        return None
    title, text = WARNINGS[wanted]
    return {"id": wanted, "title": title, "text": text, "exit_code": None}
