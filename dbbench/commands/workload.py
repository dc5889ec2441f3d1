"""`dbbench workload list` and `dbbench workload show NAME`: the catalogue of workloads."""

from __future__ import annotations

import json
from typing import Any

import click

from dbbench.catalog import catalog, parameters
from dbbench.commands.options import Options, command_line, global_options
from dbbench.commands.statements import from_statements
from dbbench.commands.text import put, put_json, put_table
from dbbench.model import Workload, plain


@click.group()
@global_options
def command() -> None:
    """The catalogue of workloads: what drives the engines, and which parameters a plan may set."""


@command_line(name="list")
def list_(options: Options) -> None:
    """All workloads, and why one does not work on this machine."""
    known = catalog(options.paths)
    found = [known.workload(name) for name in known.workloads]
    if options.json:
        put_json([_row(workload) for workload in found])
        return
    rows = []
    for workload in found:
        row = _row(workload)
        state = ", ".join(row["works_on"]) if row["works"] else row["reason"]
        rows.append((workload.name, workload.driver, ", ".join(workload.engines), state, workload.title))
    put_table(("name", "driver", "engines", "works here on", "what it does"), rows)


@command_line(name="show")
@click.argument("name")
def show(options: Options, name: str) -> None:
    """One workload: its file, and what a plan may set."""
    known = catalog(options.paths)
    workload = known.workload(name)
    if options.json:
        put_json({**_row(workload), "file": str(known.workloads[name]), "workload": plain(workload),
                  "parameters": plain(parameters(workload))})  # fmt: skip
        return
    put(f"# {known.workloads[name]}")
    put(known.workloads[name].read_text(encoding="utf-8").rstrip())
    put("\n# in a plan")
    put(f'[[workload]]\nname = "{name}"')
    for key, parameter in parameters(workload).items():
        if parameter.default is not None:
            put(f"{key} = {json.dumps(parameter.default)}   # {parameter.help}".rstrip(" #"))


@command_line(name="schema")
def schema(_options: Options) -> None:
    """The JSON Schema of a workload's file, for editors and other programs."""
    from pydantic import TypeAdapter

    put_json(TypeAdapter(Workload).json_schema())


def _row(workload: Workload) -> dict[str, Any]:
    """A workload works where one of its engines is installed and its driver's programs are."""
    from dbbench import process
    from dbbench.drivers import DRIVERS
    from dbbench.engines import ENGINES

    on = [name for name in workload.engines if ENGINES[name].installed() is not None]
    absent = [name for name in DRIVERS[workload.driver].programs() if process.find(name) is None]
    if workload.driver == "pgbench" and on:
        absent = []  # it lies with the server's programs, not in PATH
    reason = None
    if not on:
        reason = f"none of its engines is installed: {', '.join(workload.engines)}"
    elif absent:
        reason = f"not installed: {', '.join(absent)}"
    return {
        "name": workload.name,
        "driver": workload.driver,
        "engines": list(workload.engines),
        "works": reason is None,
        "reason": reason,
        "works_on": on if reason is None else [],
    }


command.add_command(list_)
command.add_command(show)
command.add_command(schema)
command.add_command(from_statements)
