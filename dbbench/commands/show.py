"""`dbbench show [RUN [TRIAL]]`: the runs of the results folder, a run with its trials, or one
trial.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from dbbench import __version__, results
from dbbench.commands.finding import REPORT, folder_of, results_of, run_argument
from dbbench.commands.options import Options, command_line, results_option
from dbbench.compare import groups
from dbbench.errors import ResultDamaged, RunMissing, UnknownName
from dbbench.errors.similar_names import did_you_mean
from dbbench.model import TIME_LAYERS, Json, Status, plain, title_of
from dbbench.plan import writes
from dbbench.report import time_layers
from dbbench.report.text import put, put_json, put_paragraph, put_table
from dbbench.report.trial_text import trial_cells, trial_text
from dbbench.report.verdict_table import csv_text
from dbbench.report.verdicts import verdicts
from dbbench.results import LoadedRun, all_of, load_whole
from dbbench.units import number

LEAST_SHARE: Final = 0.005  # a layer with less in each setup is not shown


@command_line(
    "dbbench show", "dbbench show RUN TRIAL", "dbbench show RUN --layers", statuses=(0, 1, 2)
)
@run_argument(required=False)
@click.argument("trial", metavar="[TRIAL]", required=False)
@click.option(
    "--layers",
    is_flag=True,
    help="Show where the time of a transaction goes, for each setup of RUN.",
)
@click.option(
    "--csv",
    is_flag=True,
    help="Print --layers as CSV, a row for each setup and layer.",
)
@results_option
def command(
    options: Options,
    run: str | None,
    trial: str | None,
    layers: bool,
    csv: bool,
) -> None:
    """List the runs of the results folder, or show a run with its trials, or one trial with
    everything measured.

    The list does not verify checksums.
    """
    folder = options.results_folder
    if layers and (run is None or trial is not None):
        raise click.UsageError("--layers needs a RUN, and no TRIAL")
    if csv and (options.json or not layers):
        raise click.UsageError("--csv needs --layers, and no --json")
    if run is None:
        _put_runs(options, results_of(options))
    elif layers:
        _put_layers(options, load_whole(folder_of(folder, run)), csv)
    elif trial is None:
        _put_run(options, load_whole(folder_of(folder, run)))
    else:
        _put_trial(options, load_whole(folder_of(folder, run)), trial)


def _put_runs(options: Options, folder: Path) -> None:
    rows: list[Json] = []
    if folder.is_dir():
        # Hundreds of runs are listed without reading each of them again.
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


def _cells(row: Json) -> tuple[object, ...]:
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


def _run_row(path: Path) -> Json:
    """Return what `show --json` prints of a run. If it is damaged, only name, path, state and error
    are known.
    """
    # All keys exist for every run, so that programs need no cases.
    row: Json = {
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
    trials = f"{len(run.trials)} of {len(spec.order)} trials{left}"
    put(
        f"{spec.name}: {trials if spec.order else 'power-loss lab'}; "
        f"seed {spec.plan.seed}, created {spec.created}"
    )
    page = run.path / REPORT
    put(f"folder {run.path}" + (f", page {page}" if page.exists() else ""))
    if spec.order:
        _put_trials(run, damaged)
    if run.lab is not None:
        # Not above: a list of trials needs no lab.
        from dbbench.commands.powercut import put_lab
        from dbbench.report.harm_table import HarmTable

        put()
        put_lab(HarmTable(run, run.lab), page)


def _put_trials(run: LoadedRun, damaged: dict[str, str]) -> None:
    deviation = writes.deviation(run.trials)
    if deviation:
        put(deviation)
    rows = [trial_cells(trial, run) for trial in run.trials]
    rows += [(name, "damaged", None, None, error) for name, error in damaged.items()]
    header = ("trial", "status", "value", "seconds", "warnings")
    put_table(header, rows, right=("value", "seconds"))


def _put_layers(
    options: Options,
    run: LoadedRun,
    csv: bool,
) -> None:
    names = [arm.label for arm in run.run.plan.fs_setups]
    if options.json or csv:
        setups = []
        for trials in groups(run.trials).values():
            setups += time_layers.document(trials, names)
        if options.json:
            put_json({"run": run.run.name, "setups": setups})
        else:
            put(csv_text(time_layers.CSV, time_layers.csv_rows(setups)))
        return
    for table in verdicts([run]).tables:
        trials = groups(run.trials)[table.group]
        put_paragraph(
            f"{table.engine} {title_of(table.workload, table.variant)}: ms per transaction"
        )
        _put_layer_table(time_layers.document(trials, names))
        for sentence in time_layers.sentences(trials, table.rows):
            put_paragraph(sentence)
        for second in time_layers.slow_seconds(trials, names):
            put_paragraph(", ".join(second))
        put()


def _put_layer_table(setups: Sequence[Json]) -> None:
    for setup in setups:
        for note in setup["notes"]:
            put_paragraph(f"{setup['fs_setup']}: not observed: {note}")
    # A column for each setup, a row for each layer that matters in one of them.
    columns = {}
    for setup in setups:
        columns[setup["fs_setup"]] = {row["layer"]: row for row in setup["layers"]}
    rows = []
    for layer, label in TIME_LAYERS.items():
        cells = [column[layer] for column in columns.values() if column]
        if any(cell["share"] >= LEAST_SHARE for cell in cells):
            texts = []
            for cell in cells:
                share = f"{100 * cell['share']:.0f} %"
                ms = cell["ms_per_tx"]
                texts.append(share if ms is None else f"{number(ms)} ({share})")
            rows.append((label, *texts))
    names = [name for name, column in columns.items() if column]
    if rows:
        put_table(("", *names), rows, right=names)


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
