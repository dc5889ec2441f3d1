"""Choose the run that a plan resumes, or make a new one."""

from __future__ import annotations

import contextlib
import itertools
import string
import time
from dataclasses import replace
from pathlib import Path

from dbbench import __version__, results
from dbbench.errors import PlanInvalid, RunMissing, RunNameTaken, TrialDied
from dbbench.model import Budget, Plan, Run, Search
from dbbench.model.base import NAME, NAME_RULE
from dbbench.plan.catalog import MOST_SCRIPT
from dbbench.plan.request import PlanRequest
from dbbench.results import RunFolder
from dbbench.results.fileio import given_text
from dbbench.results.merging import decoding, own_scripts
from dbbench.run.recover import must_be_trusted
from dbbench.units import iso, one_line


def choose(
    results_folder: Path,
    wanted: PlanRequest,
    *,
    new: bool,
    name: str | None,
) -> RunFolder | None:
    """Return the plan's run to resume: `name`, the newest unfinished, or the newest. Raises
    RunNameTaken.
    """
    if name is not None:
        return _of_that_name(results_folder, wanted, name)
    if new or not results_folder.is_dir():
        return None
    of_plan = results.find_runs(results_folder, wanted.sha256)
    unfinished = [folder for folder in of_plan if folder.pending]
    return next(iter((*unfinished, *of_plan)), None)


def create(
    results_folder: Path,
    wanted: PlanRequest,
    name: str | None,
    precision: float | None = None,
) -> Path:
    """Make the directory of a new run, with the plan, the order and the host's facts."""
    from dbbench.machine import host
    from dbbench.machine.host import tunables

    # What was found on this host belongs to the run, not to its trials.
    folder = results_folder / (name or free_name(results_folder, wanted.plan.name))
    run = Run(
        name=folder.name,
        created=iso(time.time()),
        plan=wanted.plan,
        plan_sha256=wanted.sha256,
        cells=own_scripts(wanted.expanded.cells, folder),
        order=wanted.expanded.order,
        host={**host.facts(), "state": tunables.state()},
        versions=host.versions(),
        dbbench_version=__version__,
        precision=precision,
        budget=None if wanted.plan.budget_s is None else Budget(wanted.step),
        skipped=wanted.skipped,
    )
    return results.create_run(results_folder, run, wanted.text)


def refine(folder: RunFolder, precision: float | None, plan: Plan) -> None:
    """Set precision (None keeps it), budget and margin; a finished run may then get a block. Raises
    RunLocked.
    """
    from dbbench.run.adaptive import conclude, further

    before = folder.run.plan
    if precision is None and (before.budget_s, before.margin) == (plan.budget_s, plan.margin):
        return
    with folder.lock():
        new = replace(before, budget_s=plan.budget_s, margin=plan.margin)
        run = replace(folder.run, plan=new)
        if precision is not None or before.margin != plan.margin:
            run = replace(run, precision=precision or run.precision, questions={})
        if run.budget is not None:
            run = replace(run, budget=replace(run.budget, ended="", blocks=None))
        if not folder.pending:
            finished = {trial.id: trial for trial in folder.trials}
            longer = further(run, finished)
            # Without a further block, the answers are those of the trials that exist.
            if longer.order == run.order:
                longer = conclude(longer, finished)[0]
            run = longer
        folder.save(run)


def begin_search(folder: RunFolder, search: Search) -> None:
    """Set the question of a search, and add its next block if none is left to run. Raises RunLocked."""
    from dbbench.run.adaptive import further

    with folder.lock():
        run = replace(folder.run, search=search)
        if not folder.pending:
            run = further(run, {trial.id: trial for trial in folder.trials})
        folder.save(run)


def is_complete(folder: RunFolder) -> bool:
    """Return whether every trial was run and none failed because its process died (E348)."""
    return not folder.pending and not deaths(folder)


def deaths(folder: RunFolder) -> list[str]:
    """Return the ids of trials that failed because their process died, which is not evidence about
    the filesystem.
    """
    return [
        trial.id
        for trial in folder.trials
        if trial.error is not None and trial.error.id == TrialDied.id
    ]


def set_killed_aside(folder: RunFolder) -> list[str]:
    """Move trials whose process died aside, so that they run again; return their ids. Raises
    RunLocked.
    """
    with folder.lock():
        return folder.set_aside(deaths(folder), TrialDied.id)


def must_be_of(folder: RunFolder, wanted: PlanRequest) -> None:
    """Raise RunLocked if the run in `folder` has another plan, other cells or other scripts than
    those wanted, or if another account could change it.
    """
    must_be_trusted(folder.path)
    cells = own_scripts(wanted.expanded.cells, folder.path)
    results.must_match(folder, wanted.plan, cells, scripts_of(wanted))


def scripts_of(wanted: PlanRequest) -> dict[str, str]:
    """Return the workloads' scripts by file name. Raises PlanInvalid if two that differ have the
    same name.
    """
    words = (
        word
        for cell in wanted.expanded.cells
        for word in (cell.workload.script, *cell.workload.beside)
    )
    first: dict[str, tuple[Path, str]] = {}
    for path in dict.fromkeys(path for path in map(Path, words) if path.is_absolute()):
        text = given_text(path, MOST_SCRIPT, decoding(path.name))
        other, content = first.setdefault(path.name, (path, text))
        if content != text:
            text = f"{other} and {path} have the same name, and differ"
            raise PlanInvalid(text, remedy="Rename one of the scripts.")
    return {name: text for name, (_path, text) in first.items()}


def free_name(
    results_folder: Path,
    plan_name: str,
    day: str | None = None,
) -> str:
    """Return plan name, date and the first free letter: "new-server-2026-11-21-a". A fleet has its
    name too.
    """
    day = day or time.strftime("%Y-%m-%d")
    length = 0
    while True:
        length += 1
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            name = f"{plan_name}-{day}-{''.join(letters)}"
            places = (results_folder / name, results_folder / results.FLEETS / name)
            if not any(place.exists() for place in places):
                return name


def _of_that_name(
    results_folder: Path,
    wanted: PlanRequest,
    name: str,
) -> RunFolder | None:
    path = results_folder / name
    if not NAME.fullmatch(name):
        raise RunNameTaken(f'invalid name of a run "{one_line(name)}": {NAME_RULE}')
    if not path.exists():
        return None
    with contextlib.suppress(RunMissing):
        folder = RunFolder(path)
        if _goes_on(folder.run, wanted):
            return folder
    raise RunNameTaken(
        f"{path} exists and belongs to another plan, share or host, or was made by another "
        "version of dbbench",
        remedy=f"Choose another name with --name, or rename the folder of the old run: mv {path} "
        f"{path}-old",
    )


def _goes_on(run: Run, wanted: PlanRequest) -> bool:
    if run.plan_sha256 != wanted.sha256 or run.hosts:
        return False
    # The same plan, and the same blocks of it.
    step = run.budget.step if run.budget is not None else 1
    blocks = {spec.block for spec in run.order if spec.block <= max(run.plan.blocks, step)}
    asked = {spec.block for spec in wanted.expanded.order}
    if run.budget is not None:
        return blocks == asked and step == wanted.step
    whole = results.drivable(run) and len(asked) >= wanted.plan.blocks
    return whole or blocks == asked
