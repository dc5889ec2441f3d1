"""`dbbench doctor`: what this machine has, what it lacks, and the command that installs it."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from dbbench.commands.checks import Probe, Purpose, checks, of_plan
from dbbench.commands.options import Options, command_line, results_option
from dbbench.errors import EXIT_OK, EXIT_USAGE
from dbbench.report.text import put, put_json


@command_line()
@click.option(
    "--plan", "plan_file", metavar="PLAN", help="Check the needs of this plan; exit with 2 if one is not met."
)
@results_option
def command(options: Options, plan_file: str | None, results_folder: str) -> int:
    """Check tools, permissions, disk space and devices, and list what to install for which purpose.

    The list of devices has the identities that `dbbench run --wipe` requires. Nothing is changed.
    """
    folder = Path(results_folder)
    blocking = list(of_plan(plan_file, options.paths, folder)) if plan_file else []
    rows = [*blocking, *checks(folder)]
    if options.json:
        put_json([row._asdict() for row in rows])
    else:
        _put(rows)
    return EXIT_USAGE if blocking else EXIT_OK


def _put(rows: list[Probe]) -> None:
    """A section for each purpose, and below it the command that installs what is missing."""
    width = max(len(row.check) for row in rows if row.purpose != Purpose.PLAN)
    for number, (purpose, group) in enumerate(itertools.groupby(rows, lambda row: row.purpose)):
        section = list(group)
        put(("\n" if number else "") + purpose.capitalize())
        for row in section:
            _put_row(row, width)
        if wanted := dict.fromkeys(name for row in section if not row.optional for name in row.packages):
            put(f"  Install what is missing:  apt-get install --no-install-recommends --no-remove {' '.join(wanted)}")


def _put_row(row: Probe, width: int) -> None:
    state = "ok" if row.ok else "not needed" if row.optional else "change" if row.purpose == Purpose.HOST else "missing"
    text = row.found or ""
    if not row.ok and row.needed:
        text += f"{'; ' if text else ''}{'only for' if row.optional else 'needed:'} {row.needed}"
    put(f"  {state:<10}  {row.check:<{width}}  {text}".rstrip())
    for line in row.fix.splitlines():
        put(f"  {'':<10}  {'':<{width}}  {line}")
