"""`dbbench workload [NAME]`: the catalogue of workloads."""

from __future__ import annotations

import json
from typing import Any

from dbbench.commands.from_statements import from_statements
from dbbench.commands.options import Options, catalogue
from dbbench.model import Workload, plain
from dbbench.plan.catalog import catalog, parameters
from dbbench.report.text import put, put_json, put_table


@catalogue(lambda: catalog([]).workloads, from_statements)
def command(options: Options, name: str | None) -> None:
    """List the workloads, with the reason where one does not work on this machine, or show one.

    With NAME: its file, and the parameters that a plan may set.
    """
    if name is None:
        _put_all(options)
    else:
        _put_workload(options, name)


def _put_all(options: Options) -> None:
    entries = catalog(options.paths)
    workloads = [entries.workload(name) for name in entries.workloads]
    if options.json:
        put_json([_row(workload) for workload in workloads])
        return
    rows = []
    for workload in workloads:
        row = _row(workload)
        state = ", ".join(row["works_on"]) if row["works"] else row["reason"]
        rows.append((workload.name, workload.driver, ", ".join(workload.engines), state, workload.title))
    put_table(("name", "driver", "engines", "works here with", "description"), rows)


def _put_workload(options: Options, name: str) -> None:
    entries = catalog(options.paths)
    workload = entries.workload(name)
    if options.json:
        put_json({**_row(workload), "file": str(entries.workloads[name]), "workload": plain(workload),
                  "parameters": plain(parameters(workload))})  # fmt: skip
        return
    put(f"# {entries.workloads[name]}")
    put(entries.workloads[name].read_text(encoding="utf-8").rstrip())
    put("\n# in a plan")
    put(f'[[workload]]\nname = "{name}"')
    for key, parameter in parameters(workload).items():
        if parameter.default is not None:
            put(f"{key} = {json.dumps(parameter.default)}   # {parameter.help}".rstrip(" #"))


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
        reason = f"requires {' or '.join(workload.engines)}"
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
