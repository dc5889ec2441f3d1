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
@results_option
def command(options: Options, runs: tuple[str, ...], output: str | None, show: bool, results: str) -> None:
    """Write one self-contained HTML file; it opens from disk and needs no network."""
    found = loaded(Path(results), runs)
    path = write(found, Path(output) if output else report_of(found[0].path))
    if options.json:
        put_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        put(str(path))
    if show:
        click.launch(str(path))


def write(runs: list[LoadedRun], path: Path) -> Path:
    """Render the page of `runs`, with all nights of a plan where they are among them, and write it whole.
    ResultsUnwritable."""
    from dbbench import nightly
    from dbbench.page import render
    from dbbench.store.files import write_text

    root = runs[0].path.parent
    write_text(path, render(runs, nights=nightly.courses_of(root, [run.path.name for run in runs])))
    return path
