"""`dbbench report RUN..`: the report page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dbbench.commands.finding import REPORT, load_runs, runs_argument
from dbbench.commands.options import Options, command_line, results_option
from dbbench.errors import EXIT_OK, EXIT_TRIAL_FAILED, DbbenchError, ResultDamaged
from dbbench.model import Status
from dbbench.nightly import analysis
from dbbench.report.run_text import put_runs
from dbbench.report.text import put_json
from dbbench.report.verdict_table import as_document
from dbbench.report.verdicts import verdicts
from dbbench.results import LoadedRun, all_of
from dbbench.results.fileio import write_text


@command_line("dbbench report RUN -o report.html", statuses=(0, 1, 2))
@runs_argument
@click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE [default: report.html in the (first) run's folder]."
)
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@click.option("--redact", metavar="WORDS", default="", help="Remove hosts (with serial numbers of disks), paths or "
              "params; separate them by commas.")  # fmt: skip
@results_option
def command(options: Options, runs: tuple[str, ...], output: str | None, show: bool, redact: str) -> None:
    """Write the report page: one self-contained HTML file that needs no network."""
    read = load_runs(options, runs)
    path = write_page(options, read, Path(output) if output else None, tuple(filter(None, redact.split(","))))
    options.put({"path": str(path), "bytes": path.stat().st_size}, str(path))
    if show:
        click.launch(str(path))


def write_page(options: Options, runs: list[LoadedRun], path: Path | None, redact: tuple[str, ...]) -> Path:
    """Write the page without the trials and runs of which a file cannot be read (reported at the end of the output);
    return its path. Raises ResultDamaged if nothing is left."""
    while True:
        try:
            return write(runs, path or runs[0].path / REPORT, redact, options.passed_over)
        except ResultDamaged as error:
            bad = next((run for run in runs if str(run.path) == error.run), None)
            if bad is None:
                raise
            rest = bad.readable()
            if len(rest.damaged) > len(bad.damaged):
                error = all_of(rest, since=bad)
                left = [rest if run is bad else run for run in runs if run is not bad or rest.trials]
            else:
                left = [run for run in runs if run is not bad]
            if not left:
                raise error from None
            options.passed_over.append(error)
            runs = left


def write(runs: list[LoadedRun], path: Path, redact: tuple[str, ...] = (),
          damaged: list[DbbenchError] | None = None) -> Path:  # fmt: skip
    """Write the page of `runs` atomically, without what `redact` names; of nights, with all nights of their plan.
    Raises UnknownName, NotWritable, ResultDamaged; errors of nights are added to `damaged` if it is given."""
    from dbbench.report.page.html import render

    root = runs[0].path.parent
    nights = analysis.courses_of(root, [run.path.name for run in runs], damaged)
    write_text(path, render(runs, redact, nights=nights))
    return path


def put_verdict(options: Options, runs: list[LoadedRun], page: Path, names: dict[str, Any], **more: Any) -> int:
    """Print the verdict of finished runs, for programs with `names` and `more`; return 1 if a trial failed, else 0."""
    tables = verdicts(runs)
    counts = {status.value: sum(trial.status is status for run in runs for trial in run.trials) for status in Status}
    if options.json:
        put_json({**names, "report": str(page), **counts, **more, "compare": as_document(tables)})
    else:
        put_runs(tables, page, options.verbose)
    return EXIT_TRIAL_FAILED if counts["failed"] else EXIT_OK
