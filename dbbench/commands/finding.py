"""Runs by name: a run's name in the results folder, or the path of its folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import click
from click.shell_completion import CompletionItem

from dbbench import results
from dbbench.commands.options import Function, Options, options_of
from dbbench.errors import DbbenchError, ResultDamaged, RunMissing
from dbbench.errors.similar_names import did_you_mean
from dbbench.results import LoadedRun
from dbbench.units import one_line

Item = TypeVar("Item")
REPORT: Final = "report.html"  # the report page in a run's folder


def complete_run(
    ctx: click.Context,
    _param: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Return the runs of the results folder whose names begin like this, else directories."""
    folder = options_of(ctx).results_folder
    names = [path.name for path in results.runs(folder)] if folder.is_dir() else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)] or [
        CompletionItem(incomplete, type="dir")
    ]


def run_argument(required: bool = True) -> Callable[[Function], Function]:
    """Return the argument RUN, which the shell completes from the runs of the results folder."""
    return click.argument(
        "run",
        metavar="RUN" if required else "[RUN]",
        required=required,
        shell_complete=complete_run,
    )


runs_argument = click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN..",
    shell_complete=complete_run,
)


def results_of(options: Options) -> Path:
    """Return the results folder. Raises RunMissing if the command line names one that does not
    exist.
    """
    folder = options.results_folder
    if not folder.is_dir() and folder != Options().results_folder:
        raise RunMissing(
            f"the results folder {folder} does not exist", remedy="Correct --results DIR."
        )
    return folder


def folder_of(results_folder: Path, name: str) -> Path:
    """Return the folder of a run. Raises RunMissing, with the name that may have been meant, and
    OSError if this account cannot see whether there is one.
    """
    if not name.isprintable():
        raise RunMissing(f"{one_line(name)} is not the name of a run: it has control characters")
    # A name in the results folder comes first, then a path.
    if os.path.lexists(results_folder / name / "run.json"):
        return results_folder / name
    if os.path.lexists(Path(name, "run.json")):
        return Path(name).resolve()  # the name may be a symbolic link; below it no link is followed
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (results_folder / name / "run.json").lstat()
    # People also name the page of a run.
    if Path(name).is_file() or name.endswith(".html"):
        folder = Path(name).absolute().parent
        has_run = os.path.lexists(folder / "run.json")
        remedy = f"Name its run:  {folder}" if has_run else "Name a run; `dbbench show` lists them."
        what = "a page" if name.endswith(".html") else "a file"
        raise RunMissing(f"{name} is {what}, not the folder of a run", remedy=remedy)
    if "/" in name and Path(name).is_dir():
        raise RunMissing(f"{name} is a directory without run.json, not the folder of a run")
    if not results_folder.is_dir():
        raise RunMissing(
            f'no run "{name}": the results folder {results_folder.absolute()} does not exist'
        )
    names = [path.name for path in results.runs(results_folder)]
    hint = did_you_mean(name, names) if names else f"; {results_folder.absolute()} contains no run"
    raise RunMissing(f'no run "{name}"{hint}')


def load_runs(options: Options, names: tuple[str, ...]) -> list[LoadedRun]:
    """Return the runs without damaged trials, which are reported at the end. Raises RunMissing,
    ResultDamaged.
    """
    paths = [folder_of(options.results_folder, name) for name in names]
    loaded_runs: list[LoadedRun] = []
    damaged: list[ResultDamaged] = []
    for path in paths:
        try:
            run = results.load_whole(path)
        except ResultDamaged as error:
            damaged.append(error)
            continue
        if run.damaged:
            damaged.append(results.all_of(run))
        if run.trials or not run.damaged:
            loaded_runs.append(run)
    return readable(options, without_copies(loaded_runs), damaged)


def without_copies(runs: Sequence[LoadedRun]) -> list[LoadedRun]:
    """Leave out each run whose trials are all in another one, which would count as more blocks: a
    run that is named twice, or a copy.
    """
    trials = [
        {(trial.host, trial.run, trial.id, trial.anchor_utc) for trial in run.trials}
        for run in runs
    ]
    kept = []
    for place, run in enumerate(runs):
        of_run = trials[place]
        # Of two equal runs the first one stays.
        is_copy = of_run in trials[:place] or any(of_run < others for others in trials)
        if not of_run or not is_copy:
            kept.append(run)
    return kept


def readable(
    options: Options,
    items: list[Item],
    damaged: Sequence[DbbenchError],
) -> list[Item]:
    """Return what could be read; the errors are reported at the end. If nothing is left, raise the
    last error.
    """
    if damaged and not items:
        options.passed_over += damaged[:-1]
        raise damaged[-1]
    options.passed_over += damaged
    return items
