"""`dbbench show [RUN [TRIAL]]`: the runs of the results folder, a run with its trials, or one
trial.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dbbench import __version__, results
from dbbench.commands.finding import REPORT, folder_of, results_of, run_argument
from dbbench.commands.options import Options, command_line, results_option
from dbbench.errors import ResultDamaged, RunMissing, UnknownName
from dbbench.model import Status, plain
from dbbench.plan import writes
from dbbench.plan.tomlfile import did_you_mean
from dbbench.report.text import put, put_json, put_paragraph, put_table
from dbbench.report.trial_text import trial_cells, trial_text
from dbbench.results import LoadedRun, all_of, load_whole


@command_line("dbbench show", "dbbench show RUN TRIAL", statuses=(0, 1, 2))
@run_argument(required=False)
@click.argument("trial", metavar="[TRIAL]", required=False)
@results_option
def command(options: Options, run: str | None, trial: str | None) -> None:
    """List the runs of the results folder, or show a run with its trials, or one trial with
    everything measured.

    The list does not verify checksums.
    """
    folder = options.results_folder
    if run is None:
        _put_runs(options, results_of(options))
    elif trial is None:
        _put_run(options, load_whole(folder_of(folder, run)))
    else:
        _put_trial(options, load_whole(folder_of(folder, run)), trial)


def _put_runs(options: Options, folder: Path) -> None:
    rows: list[dict[str, Any]] = []
    if folder.is_dir():
        rows = results.index_rows(
            folder,
            results.runs(folder),
            _run_row,
            __version__,
        )
    if options.json:
        put_json({"runs": rows})
    elif not rows:
        put(
            f"There are no runs in {folder}. Write a plan with dbbench init, then run it with "
            "dbbench run plan.toml."
        )
    else:
        header = ("run", "created", "state", "trials", "ok", "suspect", "failed", "filesystems")
        cells = [_cells(row) for row in rows]
        put_table(header, cells, right=("trials", "ok", "suspect", "failed"))


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    if row["error"]:
        return (row["name"], None, "damaged", None, None, None, None, row["error"])
    return (
        row["name"],
        row["created"][:16].replace("T", " "),
        row["state"],
        f"{row['done']}/{row['trials']}",
        row["ok"],
        row["suspect"],
        row["failed"],
        " ".join(row["fs_setups"]),
    )


def _run_row(path: Path) -> dict[str, Any]:
    """Return what `show --json` prints of a run. If it is damaged, only name, path, state and error
    are known.
    """
    # All keys exist for every run, so that programs need no cases.
    row: dict[str, Any] = {
        "name": path.name,
        "path": str(path),
        "state": "damaged",
    }
    row |= dict.fromkeys(
        (
            "created",
            "plan",
            "trials",
            "done",
            *(status.value for status in Status),
            "fs_setups",
            "engines",
            "workloads",
            "error",
        )
    )
    try:
        run = results.load_run(path, verify=False)
    except (ResultDamaged, RunMissing) as error:
        return row | {"error": f"{error.id}: {error.evidence}"}
    # What the run is, and how far it came.
    cells = run.run.cells
    plan = run.run.plan
    return row | {
        "state": "unfinished" if run.remaining else "finished",
        "created": run.run.created,
        "plan": plan.name,
        "trials": len(run.run.order),
        "done": len(run.trials),
        **{status.value: sum(trial.status is status for trial in run.trials) for status in Status},
        "fs_setups": [arm.label for arm in plan.fs_setups],
        "engines": list(dict.fromkeys(cell.engine.name for cell in cells)),
        "workloads": list(dict.fromkeys(cell.workload.name for cell in cells)),
    }


def _put_run(options: Options, run: LoadedRun) -> None:
    if run.damaged:
        options.passed_over.append(all_of(run))
    damaged = {name: error.id for name, error in run.damaged.items()}
    if options.json:
        put_json(
            {
                "run": plain(run.run),
                "trials": [plain(trial) for trial in run.trials],
                "damaged": damaged,
            }
        )
        return
    # The run in one line, then a row for each trial.
    spec = run.run
    left = f", {len(run.remaining)} to do" if run.remaining else ""
    put(
        f"{spec.name}: {len(run.trials)} of {len(spec.order)} trials{left}; "
        f"seed {spec.plan.seed}, created {spec.created}"
    )
    page = run.path / REPORT
    put(f"folder {run.path}" + (f", page {page}" if page.exists() else ""))
    deviation = writes.deviation(run.trials)
    if deviation:
        put(deviation)
    rows = [trial_cells(trial, run) for trial in run.trials]
    rows += [(name, "damaged", None, None, error) for name, error in damaged.items()]
    header = ("trial", "status", "value", "seconds", "warnings")
    put_table(header, rows, right=("value", "seconds"))


def _put_trial(options: Options, run: LoadedRun, name: str) -> None:
    if name in run.damaged:
        raise all_of(replace(run, damaged={name: run.damaged[name]}))
    trial = next((trial for trial in run.trials if trial.id == name), None)
    if trial is None:
        hint = did_you_mean(name, [trial.id for trial in run.trials])
        raise UnknownName(f'run {run.path.name} has no finished trial "{name}"{hint}')
    if options.json:
        put_json(plain(trial))
        return
    for text in trial_text(trial, run):  # only the text reads the histogram, which may be damaged
        for line in text.splitlines():  # the evidence of an error may have several
            put_paragraph(line, sys.maxsize)
