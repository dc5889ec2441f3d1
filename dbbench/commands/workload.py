"""`dbbench workload [NAME]`: the catalogue of workloads."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import click

from dbbench.commands.options import Options, catalogue, command_line
from dbbench.engines import SERVERS, profile_of
from dbbench.errors import FileTaken, LiveServerUnreadable, RecordingUnreadable, ResultsUnwritable
from dbbench.introspect.recordings import RecordedStatements, read
from dbbench.introspect.rules import MOST_STATEMENTS as MOST
from dbbench.introspect.rules import LeftOut, ParameterType, Sorted, rule_of, sorted_out, told
from dbbench.introspect.server import reading
from dbbench.introspect.writing import Ruled, written
from dbbench.model import Workload, plain
from dbbench.model.base import NAME
from dbbench.plan.catalog import catalog, parameters
from dbbench.report.text import put, put_json, put_table
from dbbench.units import percent

_TOLD: int = 10  # statements of each kind that are printed


@command_line(name="from-statements")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", default="workloads/recorded.toml", metavar="FILE", show_default=True, type=click.Path(
    path_type=Path), help="Workload to write, DIR/workloads/NAME.toml; its scripts go next to it.")  # fmt: skip
@click.option("--engine", "engine", type=click.Choice(SERVERS),
              help="Engine [default: postgres for an export, mariadb and mysql for a slow log].")  # fmt: skip
@click.option(
    "--data-of",
    metavar="WORKLOAD",
    help="Use the dataset of this workload [default: none; name a `source` in the plan].",
)
@click.option(
    "--most", default=MOST, show_default=True, type=click.IntRange(1, MOST), help="Number of statements to keep."
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="Socket of a PostgreSQL server with these tables, which is queried for parameter types.",
)
@click.option("--user", help="User on --socket.")
@click.option("--database", help="Database on --socket.")
def from_statements(options: Options, file: Path, output: Path, engine: str | None, data_of: str | None, most: int,
                    socket: Path | None, user: str | None, database: str | None) -> None:  # fmt: skip
    """Make a weighted workload from an export of pg_stat_statements (CSV, JSON) or a slow log (MariaDB, MySQL)."""
    recording = read(file)
    engines = _engines(recording, engine)
    if output.suffix != ".toml" or not NAME.fullmatch(output.stem) or output.absolute().parent.name != "workloads":
        raise click.UsageError(f"{output} must be DIR/workloads/NAME.toml, so that --path DIR finds it")
    if socket is not None and recording.dialect != "postgres":
        raise click.UsageError(
            "--socket requires an export of pg_stat_statements; a slow log already has parameter values"
        )
    sorting = sorted_out(recording, most)
    ruled = _ruled(sorting, socket, user, database)
    if not ruled:
        raise RecordingUnreadable(
            f"none of the {len(recording.statements)} statements of {file} can be run again: "
            + "; ".join(dict.fromkeys(each.why for each in sorting.left_out[:3])),
            effect="Nothing was written.",
        )
    dataset = _dataset(options, data_of)
    files = written(output.stem, file.name, sorting, ruled, engines, dataset)
    _write(output.parent, files)
    _tell(options, output, sorting, ruled, files)


def _engines(recording: RecordedStatements, engine: str | None) -> tuple[str, ...]:
    speaking = tuple(name for name in SERVERS if profile_of(name).dialect == recording.dialect)
    if engine is not None and engine not in speaking:
        raise click.UsageError(f"{recording.source} was recorded by {' or '.join(speaking)}, not by {engine}")
    return (engine,) if engine else speaking


def _ruled(found: Sorted, socket: Path | None, user: str | None, database: str | None) -> list[Ruled]:
    """Return the kept statements with rules for their parameters. Statements that the server refuses, or that have a
    parameter without a rule, are left out."""
    ruled: list[Ruled] = []
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(reading(socket, user, database)) if socket else None
        for kept in list(found.kept):
            why, types = "", list[ParameterType]()
            try:
                types = told(live.rows, kept) if live else []
            except LiveServerUnreadable as error:
                why = f"the server refuses it ({error.evidence.split(': ', 1)[-1]})"
            rules = [rule_of(kept, index, types[index] if types else None) for index in range(len(kept.parameters))]
            unknown = [told_.type for told_, rule in zip(types, rules, strict=False) if rule is None]
            whole = tuple(rule for rule in rules if rule is not None)
            if why or unknown:
                found.kept.remove(kept)
                found.left_out.append(LeftOut(kept.text, kept.calls, why or f"a parameter of type {unknown[0]}"))
            else:
                ruled.append((kept, whole))
    return ruled


def _dataset(options: Options, data_of: str | None) -> str:
    if data_of is None:
        return '# Your own data: add to [[workload]] in the plan:  source = "PATH"\ndataset = { kind = "none" }'
    values = catalog(options.paths).workload(data_of).dataset
    return f"dataset = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in values.items())} }}"


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write all files, or none if one of them exists. Raises FileTaken."""
    if taken := [str(folder / name) for name in files if (folder / name).exists()]:
        raise FileTaken(
            f"{', '.join(taken[:3])} exists", effect="Nothing was written.", remedy="Choose another with -o FILE."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ResultsUnwritable(f"{folder} cannot be written: {error.strerror}") from None


def _tell(options: Options, output: Path, found: Sorted, ruled: list[Ruled], files: dict[str, str]) -> None:
    from dbbench.introspect.rules import shown

    guessed = sum(any(rule.guessed for rule in rules) for _, rules in ruled)
    kept = [{"statement": shown(statement.text), "calls": statement.calls} for statement, _ in ruled]
    left: list[dict[str, Any]] = [{"statement": shown(o.text), "calls": o.calls, "why": o.why} for o in found.left_out]
    if options.json:
        put_json({"path": str(output), "files": list(files), "share": found.share, "guessed": guessed,
                  "kept": kept, "left_out": left})  # fmt: skip
        return
    put_table(("calls", "statement"), [(row["calls"], row["statement"]) for row in kept[:_TOLD]], right="r")
    if len(kept) > _TOLD:
        put(f"... and {len(kept) - _TOLD} more")
    if left:
        put("\nleft out")
        rows = sorted(left, key=lambda row: -row["calls"])
        put_table(
            ("calls", "why", "statement"), [(r["calls"], r["why"], r["statement"]) for r in rows[:_TOLD]], right="r"
        )
        if len(left) > _TOLD:
            put(f"... and {len(left) - _TOLD} more; --json has all")
    put(f"\n{output}: {len(kept)} statements with {percent(found.share, 1)} of the calls.")
    if guessed:
        put(f"{guessed} of them have parameters with a guessed range: search for GUESSED in the scripts and edit them.")
    put(
        f'Use it in a plan:  [[workload]] name = "{output.stem}",  then  dbbench --path {output.parent.parent} run PLAN'
    )


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
    """Describe a workload, with the reason if none of its engines or not all programs of its driver are installed."""
    from dbbench import process
    from dbbench.drivers import DRIVERS
    from dbbench.engines import ENGINES

    on = [name for name in workload.engines if ENGINES[name].installed() is not None]
    absent = [name for name in DRIVERS[workload.driver].programs() if process.find(name) is None]
    if workload.driver == "pgbench" and on:
        absent = []  # pgbench is in the directory of the server's programs, not in PATH
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
