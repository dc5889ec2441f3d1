"""`dbbench report RUN..`: the report page; and what commands print when runs have finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from dbbench.commands.finding import REPORT, load_runs, runs_argument
from dbbench.commands.options import Options, command_line, results_option
from dbbench.errors import EXIT_OK, EXIT_TRIAL_FAILED, DbbenchError, ResultDamaged, warning_kinds
from dbbench.model import Status, Trial
from dbbench.nightly import analysis
from dbbench.plan.planned_conditions import PLANNED
from dbbench.report.text import put, put_json, put_paragraph, put_table
from dbbench.report.verdict_table import as_document, put_tables
from dbbench.report.verdicts import verdicts
from dbbench.results import LoadedRun, all_of
from dbbench.results.fileio import write_text
from dbbench.units import inert

MOST_FAILED: Final = 3  # failed trials that are listed; `dbbench show` lists all


@command_line("dbbench report RUN -o report.html", statuses=(0, 1, 2))
@runs_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to FILE [default: report.html in the (first) run's folder].",
)
@click.option(
    "--open",
    "show",
    is_flag=True,
    help="Open the page in the browser.",
)
@click.option(
    "--redact",
    metavar="WORDS",
    default="",
    help="Remove hosts (with serial numbers of disks), paths or params; separate them by commas.",
)
@results_option
def command(
    options: Options,
    runs: tuple[str, ...],
    output: str | None,
    show: bool,
    redact: str,
) -> None:
    """Write the report page: one self-contained HTML file that needs no network."""
    read = load_runs(options, runs)
    path = write_page(
        options,
        read,
        Path(output) if output else None,
        tuple(filter(None, redact.split(","))),
    )
    options.put(
        {
            "path": str(path),
            "bytes": path.stat().st_size,
        },
        str(path),
    )
    if show:
        click.launch(str(path))


def write_page(
    options: Options,
    runs: list[LoadedRun],
    path: Path | None,
    redact: tuple[str, ...],
) -> Path:
    """Write the page without the trials and runs of which a file cannot be read (reported at the
    end of the output); return its path. Raises ResultDamaged if nothing is left.
    """
    # A damaged trial or run leaves the page, and the rest is tried again.
    while True:
        try:
            return write(
                runs,
                path or runs[0].path / REPORT,
                redact,
                options.passed_over,
            )
        except ResultDamaged as error:
            # The error names its run; other errors concern the whole page.
            bad = next((run for run in runs if str(run.path) == error.run), None)
            if bad is None:
                raise
            # If single trials are damaged the run stays without them, else it leaves as a whole.
            place = runs.index(bad)
            left = [*runs[:place], *runs[place + 1 :]]
            rest = bad.readable()
            if len(rest.damaged) > len(bad.damaged):
                error = all_of(rest, since=bad)
                if rest.trials:
                    left.insert(place, rest)
            if not left:
                raise error from None
            options.passed_over.append(error)
            runs = left


def write(
    runs: list[LoadedRun],
    path: Path,
    redact: tuple[str, ...] = (),
    damaged: list[DbbenchError] | None = None,
) -> Path:
    """Write the page of `runs` atomically, without what `redact` names; of nights, with all nights
    of their plan. Raises UnknownName, NotWritable, ResultDamaged; errors of nights are added to
    `damaged` if it is given.
    """
    from dbbench.report.page.html import render

    root = runs[0].path.parent
    nights = analysis.courses_of(root, [run.path.name for run in runs], damaged)
    write_text(path, inert(render(runs, redact, nights=nights)))
    return path


def put_verdict(
    options: Options, runs: list[LoadedRun], page: Path, names: dict[str, Any], **more: Any
) -> int:
    """Print the verdict of finished runs, the number of trials, and a table of the warnings; for
    programs with `names` and `more`. Return 1 if a trial failed, else 0.
    """
    tables = verdicts(runs)
    trials = [trial for run in runs for trial in run.trials]
    counts = {status.value: sum(trial.status is status for trial in trials) for status in Status}
    if options.json:
        put_json({**names, "report": str(page), **counts, **more, "compare": as_document(tables)})
    else:
        put_tables(tables, options.verbose)
        put_paragraph(f"Page: {page}")
        # Some of the failures, with what failed.
        failed = [trial for trial in trials if trial.error is not None]
        for trial in failed[:MOST_FAILED]:
            error = trial.error
            assert error is not None
            put_paragraph(f"  {trial.id} failed in {error.phase or '?'}: {error.id} {error.text}")
        if len(failed) > MOST_FAILED:
            put(f"  and {len(failed) - MOST_FAILED} more:  dbbench show {failed[0].run}")
        if rows := _warnings(trials):
            put()
            put_table(("warning", "trials", "what to do"), rows, right=("trials",))
    return EXIT_TRIAL_FAILED if counts["failed"] else EXIT_OK


def _warnings(trials: Sequence[Trial]) -> list[tuple[str, int, str]]:
    """Return (ID, trials, what it is and what to do), most trials first, without what the plan said
    before the run.
    """
    # A warning counts once for each trial, however often the trial has it.
    counts = Counter(
        ident
        for trial in trials
        for ident in {warning.id for warning in trial.warnings} - set(PLANNED)
    )
    kinds = warning_kinds()
    texts = {
        ident: f"{kinds[ident].title}. {kinds[ident].remedy}" for ident in counts if ident in kinds
    }
    return sorted(
        ((ident, n, texts.get(ident, "")) for ident, n in counts.items()),
        key=lambda row: (-row[1], row[0]),
    )
