"""`dbbench rehearse PLAN`: try setups that this kernel does not support in a second one, at a small
scale.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from dbbench import __version__, results
from dbbench.commands.options import (
    Options,
    command_line,
    fs_option,
    plan_argument,
    progress_option,
    results_option,
)
from dbbench.errors import EXIT_OK, EXIT_TRIAL_FAILED, RunNameTaken
from dbbench.labs.second_kernel import CommandEnd, left_out, rehearse, small_root
from dbbench.labs.second_kernel import folder as builds
from dbbench.model import Status
from dbbench.model.events import Event
from dbbench.plan import identity
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.request import PlanRequest, load_request
from dbbench.report.progress import renderer
from dbbench.report.text import put, put_json, put_table
from dbbench.results import LoadedRun
from dbbench.results.merging import keep_scripts
from dbbench.run.create import create, free_name, scripts_of
from dbbench.storage import filesystems


@command_line("dbbench rehearse plan.toml", statuses=(0, 1, 2, 130, 143))
@plan_argument
@fs_option
@click.option(
    "--all", "every", is_flag=True, help="Include setups that this machine's own kernel supports."
)
@click.option("--name", metavar="RUN", help="Name of the run.")
@progress_option
@results_option
def command(
    options: Options, plan_file: str, fs: tuple[str, ...], every: bool, name: str | None
) -> int:
    """Try the plan's setups that this kernel does not support in a second kernel, at a small scale.

    One block with windows of a few seconds, small datasets and loop files of 1 GiB shows that
    each setup can be made, filled, measured and removed. Its figures are not comparable. The
    second kernel (user-mode Linux with OpenZFS, md, LVM, f2fs and nilfs2) is built once, which
    takes some minutes.
    """
    request = load_request(plan_file, options.paths, Narrowing(fs))
    if name and (options.results_folder / name).exists():
        raise RunNameTaken(f"a run {name} exists", remedy="Give another --name.")
    lacks = lacking(request)
    arms = [arm for arm, reason in lacks.items() if reason is not None or every]
    if not arms:
        options.put(
            {
                "run": None,
                "path": None,
                "kernel": None,
                "comparable": False,
                "setups": [],
                "faults": [],
            },
            f"This machine's kernel supports {', '.join(lacks)}. Use --all to rehearse them "
            "anyway.",
        )
        return EXIT_OK
    folder, end = _rehearse(options, request, arms, name)
    run = results.load_run(folder)
    setups = [_outcome(arm, lacks[arm], run) for arm in arms]
    _put(options, run, setups, end)
    return (
        EXIT_OK
        if all(setup["worked"] for setup in setups) and not end.faults
        else EXIT_TRIAL_FAILED
    )


def lacking(wanted: PlanRequest) -> dict[str, str | None]:
    """Return, by arm, why its setup does not work with this machine's own kernel; None if it does."""
    return {cell.arm: filesystems.works(cell.setup) for cell in wanted.expanded.cells}


def _rehearse(
    options: Options, wanted: PlanRequest, arms: list[str], name: str | None
) -> tuple[Path, CommandEnd]:
    from dbbench.labs.second_kernel.rehearsal import PLACE, small

    root = options.results_folder.resolve()
    with options.shown(renderer) as emit:
        # First, because building it may fail, and no run should be left then.
        small_root(lambda what: emit(Event("prepare", {"what": what})))
        plan, expanded = small(wanted.plan, wanted.expanded, arms, PLACE)
        less = dataclasses.replace(
            wanted, plan=plan, expanded=expanded, sha256=identity(plan, expanded.cells)
        )
        folder = create(root, less, name or free_name(root, f"{plan.name}-rehearsal"), __version__)
        keep_scripts(folder, scripts_of(less))
        return folder, rehearse(folder, emit)


def _outcome(arm: str, lacks: str | None, run: LoadedRun) -> dict[str, Any]:
    trials = [trial for trial in run.trials if trial.fs_setup == arm]
    planned = sum(cell.arm == arm for cell in run.run.cells)
    worked = len(trials) == planned and all(trial.status is not Status.FAILED for trial in trials)
    errors = [
        {
            "trial": trial.id,
            "id": trial.error.id,
            "phase": trial.error.phase,
            "text": trial.error.text,
        }
        for trial in trials
        if trial.error is not None
    ]
    return {
        "fs_setup": arm,
        "lacks": lacks,
        "worked": worked,
        "trials": [trial.id for trial in trials],
        "errors": errors,
    }


def _put(options: Options, run: LoadedRun, setups: list[dict[str, Any]], end: CommandEnd) -> None:
    if options.json:
        put_json(
            {
                "run": run.path.name,
                "path": str(run.path),
                "kernel": end.kernel,
                "comparable": False,
                "setups": setups,
                "faults": list(end.faults),
                "left_out": left_out(),
            }
        )
        return
    rows = []
    for setup in setups:
        outcome = "worked" if setup["worked"] else "failed"
        why = setup["lacks"] or ""
        if setup["errors"]:
            error = setup["errors"][0]
            why = f"{error['phase'] or '?'}: {error['id']} {error['text']}"
        rows.append((setup["fs_setup"], outcome, len(setup["trials"]), why))
    put(
        f"Rehearsed with Linux {end.kernel} (user-mode Linux). This shows that setups work, not "
        "how fast they are."
    )
    put_table(("filesystem", "outcome", "trials", "why"), rows, right=("trials",))
    for line in end.faults:
        put(f"fault in the second kernel: {line}")
    for line in left_out():
        put(
            f"the second kernel was built without {line}\n  To build it again later:  rm -r "
            f"{builds()}"
        )
    put(f"results: {run.path}")
