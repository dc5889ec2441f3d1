"""`dbbench workload [NAME]`: the catalogue of workloads."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from dbbench import process
from dbbench.commands.options import OneOf, Options, Whole, catalogue, command_line, write_new
from dbbench.drivers import PROGRAMS
from dbbench.engines import ENGINES, SERVERS, profile_of
from dbbench.errors import ScriptInvalid
from dbbench.model import Json, Workload, plain
from dbbench.model.base import NAME
from dbbench.plan.catalog import catalog, parameters
from dbbench.report.text import put, put_json, put_paragraph, put_table
from dbbench.units import count, one_line, percent

if TYPE_CHECKING:
    from dbbench.introspect.recordings import RecordedStatements

MOST: Final = 100  # statements of a workload
_PRINTED: Final = 10  # statements of each kind that are printed


@command_line(
    "dbbench workload from-statements slow.log",
    "dbbench workload from-statements stats.csv --socket /run/postgresql",
    name="from-statements",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    default="workloads/recorded.toml",
    metavar="FILE",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Workload to write, DIR/workloads/NAME.toml; its scripts go next to it.",
)
@click.option(
    "--engine",
    "engine",
    type=OneOf(SERVERS),
    help="Engine [default: postgres for an export, mariadb and mysql for a slow log].",
)
@click.option(
    "--data-of",
    metavar="WORKLOAD",
    help="Use the dataset of this workload [default: none; name a `source` in the plan].",
)
@click.option(
    "--most",
    default=MOST,
    show_default=True,
    type=Whole(1, MOST),
    help="Number of statements to keep.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="Socket of a server with these tables, which is asked "
    "for types and values of parameters and for the plan of each statement.",
)
@click.option("--user", help="User on --socket.")
@click.option("--database", help="Database on --socket.")
def from_statements(
    options: Options,
    file: Path,
    output: Path,
    engine: str | None,
    data_of: str | None,
    most: int,
    socket: Path | None,
    user: str | None,
    database: str | None,
) -> None:
    """Make a weighted workload from an export of pg_stat_statements (CSV) or a slow log (MariaDB,
    MySQL). PostgreSQL's own log is not read.
    """
    from dbbench.introspect import recordings, writing
    from dbbench.introspect.server import reading

    if (
        output.suffix != ".toml"
        or not NAME.fullmatch(output.stem)
        or output.absolute().parent.name != "workloads"
    ):
        raise click.UsageError(
            f"{output} must be DIR/workloads/NAME.toml, so that --path DIR finds it"
        )

    # A live server shows which statements can be run again, and with which values.
    recording = recordings.read(file)
    engines = _engines(recording, engine)
    with reading(socket, user, database) if socket else contextlib.nullcontext() as live:
        if live and profile_of(live.engine).dialect != recording.dialect:
            raise click.UsageError(
                f"--socket is a server of {live.engine}, but {file} was recorded by another one"
            )
        writing.choose(recording, live, most)
    if not recording.in_workload:
        raise ScriptInvalid(
            f"none of the {len(recording.statements)} statements of {file} can be run again: "
            + "; ".join(list(dict.fromkeys(each.why for each in recording.statements))[:3]),
            effect="Nothing was written.",
        )

    # Everything that can refuse has been checked; now the files.
    files = writing.files_of(
        output.stem,
        recording,
        engines,
        _dataset(options, data_of),
    )
    with contextlib.suppress(OSError):  # reported with the first file
        output.parent.mkdir(parents=True, exist_ok=True)
    write_new({output.parent / name: content for name, content in files.items()})
    _tell(options, output, recording, list(files))


def _engines(recording: RecordedStatements, engine: str | None) -> tuple[str, ...]:
    speaking = tuple(name for name in SERVERS if profile_of(name).dialect == recording.dialect)
    if engine is not None and engine not in speaking:
        raise click.UsageError(
            f"{recording.source} was recorded by {' or '.join(speaking)}, not by {engine}"
        )
    return (engine,) if engine else speaking


def _dataset(options: Options, data_of: str | None) -> str:
    if data_of is None:
        return (
            '# Your own data: add to [[workload]] in the plan:  source = "PATH"\ndataset = { '
            'kind = "none" }'
        )
    values = catalog(options.paths).workload(data_of).dataset
    return (
        f"dataset = {{ "
        f"{', '.join(f'{name} = {json.dumps(value)}' for name, value in values.items())} }}"
    )


class StatementRow(NamedTuple):
    """A statement as it is listed; the fields are its keys in JSON."""

    calls: int
    share: float
    share_of_time: float | None
    statement: str
    why: str


def _tell(
    options: Options,
    output: Path,
    recording: RecordedStatements,
    files: list[str],
) -> None:
    from dbbench.introspect.recordings import APPROXIMATED, GROUPS, LEFT_OUT, REPRODUCED

    rows: dict[str, list[StatementRow]] = {}
    shares: dict[str, tuple[float, float | None]] = {}
    for group in GROUPS:
        statements = [each for each in recording.statements if each.group == group]
        rows[group] = [
            StatementRow(each.calls, *recording.shares([each]), one_line(each.text), each.why)
            for each in statements
        ]
        shares[group] = recording.shares(statements)
    missing = recording.missing_verbs()
    if options.json:
        documents = {group: [row._asdict() for row in rows[group]] for group in GROUPS}
        parts = {}
        for group, (calls, time) in shares.items():
            parts[group.replace(" ", "_")] = {"calls": calls, "time": time}
        put_json(
            {
                "path": str(output),
                "files": files,
                "share": shares[REPRODUCED][0],
                "shares": parts,
                "missing": missing,
                "kept": documents[REPRODUCED] + documents[APPROXIMATED],
                "left_out": documents[LEFT_OUT],
            }
        )
        return

    # What is missing comes first.
    for verb, share in missing.items():
        put(f"the workload has no {verb}: {percent(share, 1)} of the calls are missing\n")
    if rows[LEFT_OUT] and not missing:
        put(f"{_share(*shares[LEFT_OUT])} are missing in the workload\n")

    # A table for each group that has statements, then what the workload is worth.
    for group in GROUPS:
        if rows[group]:
            put(f"{group}: {_share(*shares[group])}")
            _put_statements(rows[group])
    kept = count(len(recording.in_workload), "statement")
    put_paragraph(f"{output}: {kept}. {_share(*shares[REPRODUCED])} are reproduced as recorded.")
    if rows[APPROXIMATED]:
        put_paragraph(f"{_share(*shares[APPROXIMATED])} are approximated: see `why`.")
    put_paragraph(
        f'Use it in a plan:  [[workload]] name = "{output.stem}",  then  dbbench --path '
        f"{output.parent.parent} run PLAN"
    )


def _put_statements(rows: list[StatementRow]) -> None:
    """Print the most frequent statements of a group, and how many more there are."""
    cells = []
    for row in rows[:_PRINTED]:
        of_time = "" if row.share_of_time is None else percent(row.share_of_time, 1)
        cells.append((row.calls, percent(row.share, 1), of_time, row.statement, row.why))
    put_table(
        ("calls", "share", "of the time", "statement", "why"),
        cells,
        right=("calls", "share", "of the time"),
    )
    more = len(rows) - _PRINTED
    put(f"... and {more} more; --json has all\n" if more > 0 else "")


def _share(calls: float, time: float | None) -> str:
    return f"{percent(calls, 1)} of the calls" + (
        "" if time is None else f", {percent(time, 1)} of the time"
    )


def _put_all(options: Options) -> None:
    entries = catalog(options.paths)
    workloads = [entries.workload(name) for name in entries.workloads]
    if options.json:
        put_json({"workloads": [_row(workload) for workload in workloads]})
        return
    rows = []
    for workload in workloads:
        row = _row(workload)
        state = ", ".join(row["works_on"]) if row["works"] else row["reason"]
        rows.append(
            (workload.name, workload.driver, ", ".join(workload.engines), state, workload.title)
        )
    put_table(("name", "driver", "engines", "works here with", "description"), rows)


@catalogue(
    lambda: catalog([]).workloads,
    _put_all,
    from_statements,
    examples=(
        "dbbench workload",
        "dbbench workload pgbench-tpcb",
        "dbbench workload from-statements slow.log",
    ),
)
def command(options: Options, name: str) -> None:
    """List the workloads, with the reason where one does not work on this machine, or show one.

    With NAME: its file, and the parameters that a plan may set.
    """
    entries = catalog(options.paths)
    workload = entries.workload(name)
    file = entries.workloads[name]
    settable = parameters(workload)
    # As lines of a plan, ready to be copied.
    defaults = [
        f"{key} = {json.dumps(parameter.default)}   # {parameter.help}".rstrip(" #")
        for key, parameter in settable.items()
        if parameter.default is not None
    ]
    options.put(
        {
            **_row(workload),
            "file": str(file),
            "workload": plain(workload),
            "parameters": plain(settable),
        },
        f"# {file}",
        file.read_text(encoding="utf-8").rstrip(),
        f'\n# in a plan\n[[workload]]\nname = "{name}"',
        *defaults,
    )


def _row(workload: Workload) -> Json:
    on = [name for name in workload.engines if ENGINES[name].installed_version() is not None]
    program = PROGRAMS.get(workload.driver, "")
    reason = None
    if not on:
        reason = f"requires {' or '.join(workload.engines)}"
    elif program and process.find(program) is None:
        reason = f"not installed: {program}"
    return {
        "name": workload.name,
        "driver": workload.driver,
        "engines": list(workload.engines),
        "works": reason is None,
        "reason": reason,
        "works_on": on if reason is None else [],
    }
