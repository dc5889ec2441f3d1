"""`dbbench report RUN..`: the report page."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.finding import loaded, report_of
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json
from dbbench.store import LoadedRun


@command_line()
@click.argument("runs", nargs=-1, required=True, metavar="RUN..")
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write; default: report.html in the (first) run's folder."
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@click.option(
    "--redact", metavar="WORDS", default="", help="Take out hosts (and serials of disks), paths, params; comma between."
)
@results_option
def command(options: Options, runs: tuple[str, ...], output: str | None, show: bool, redact: str, results: str) -> None:
    """Write one self-contained HTML file; it opens from disk and needs no network."""
    found = loaded(Path(results), runs)
    without = tuple(filter(None, redact.split(",")))
    path = write(found, Path(output) if output else report_of(found[0].path), without)
    if options.json:
        put_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        put(str(path))
    if show:
        click.launch(str(path))


def write(runs: list[LoadedRun], path: Path, redact: tuple[str, ...] = ()) -> Path:
    """Render the page of `runs` without what `redact` names, with all nights of a plan where they are among them, and
    write it whole. UnknownName, ResultsUnwritable."""
    from dbbench import nightly
    from dbbench.page import render
    from dbbench.store.files import write_text

    root = runs[0].path.parent
    write_text(path, render(runs, redact, nights=nightly.courses_of(root, [run.path.name for run in runs])))
    return path
