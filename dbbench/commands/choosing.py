"""Which run a plan goes on with, and how a new one is made."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import string
import time
from collections.abc import Iterator
from pathlib import Path

from dbbench import store
from dbbench.catalog import NAME
from dbbench.clock import iso
from dbbench.commands.planning import Asked
from dbbench.errors import ResultDamaged, RunMissing, RunNameTaken
from dbbench.model import Cell, Run
from dbbench.store.files import write_text, writing


def choose(results: Path, wanted: Asked, *, new: bool, name: str | None) -> Path | None:
    """The folder of the run to go on with; None where a new one is to be made. RunNameTaken.

    Without a name: the newest unfinished run of the same plan, else the newest finished one.
    """
    if name is not None:
        return _of_that_name(results, wanted, name)
    if new or not results.is_dir():
        return None
    return store.find_unfinished(results, wanted.sha256) or _newest(results, wanted.sha256)


def create(results: Path, wanted: Asked, name: str | None, version: str, precision: float | None = None) -> Path:
    """Make the folder of a new run, with the plan, the order and the host's facts."""
    from dbbench import host

    folder = results / (name or free_name(results, wanted.plan.name))
    run = Run(
        name=folder.name,
        created=iso(time.time()),
        plan=wanted.plan,
        plan_sha256=wanted.sha256,
        cells=tuple(_with_own_script(cell, folder) for cell in wanted.expanded.cells),
        order=wanted.expanded.order,
        host={**host.facts(), "state": host.state()},
        versions=host.versions(),
        dbbench_version=version,
        precision=precision,
        skipped=wanted.skipped,
    )
    return store.create_run(results, run, wanted.text)


def refine(folder: Path, precision: float) -> None:
    """Ask a run of that precision; where it is finished but not that precise, another block follows. RunLocked."""
    from dbbench.runner.adaptive import further

    with store.locked(folder):
        run = dataclasses.replace(store.load_spec(folder), precision=precision, settled={})
        loaded = store.load_run(folder, verify=False)
        if not loaded.unfinished:
            run = further(run, {trial.id: trial for trial in loaded.trials})
        store.save_spec(folder, run)


def keep_scripts(folder: Path, wanted: Asked) -> None:
    """Copy the workloads' scripts into the run's folder, those that are not there yet."""
    for cell in wanted.expanded.cells:
        for script in map(Path, (cell.workload.script, *cell.workload.beside)):
            own = folder / "scripts" / script.name
            if script.is_absolute() and not own.exists():
                with writing(own):
                    own.parent.mkdir(exist_ok=True)
                write_text(own, script.read_text(encoding="utf-8"))


def free_name(results: Path, plan_name: str, day: str | None = None) -> str:
    """Plan name, date and the first letter that is free: "new-server-2026-11-21-a"."""
    day = day or time.strftime("%Y-%m-%d")
    for letter in _letters():
        name = f"{plan_name}-{day}-{letter}"
        if not (results / name).exists():
            return name
    raise AssertionError("there is always another letter")


def _letters() -> Iterator[str]:
    for length in itertools.count(1):
        for word in itertools.product(string.ascii_lowercase, repeat=length):
            yield "".join(word)


def _of_that_name(results: Path, wanted: Asked, name: str) -> Path | None:
    folder = results / name
    if not NAME.fullmatch(name):
        raise RunNameTaken(f'"{name}" is no name for a run: letters, digits and . _ + : = - are')
    if not folder.exists():
        return None
    with contextlib.suppress(RunMissing):
        if _goes_on(store.load_spec(folder), wanted):
            return folder
    raise RunNameTaken(
        f"{folder} exists and holds another plan or share (or was made by another version of this one, or elsewhere)",
        effect="Nothing was changed.",
        remedy=f"Name the run otherwise, or put the old one away:  mv {folder} {folder}-old",
    )


def _goes_on(run: Run, wanted: Asked) -> bool:
    """The same plan, the same share of its blocks, driven on this machine."""
    if run.plan_sha256 != wanted.sha256 or run.hosts:
        return False
    mine = {spec.block for spec in run.order if spec.block <= run.plan.blocks}
    asked = {spec.block for spec in wanted.expanded.order}
    whole = store.drivable(run) and len(asked) >= wanted.plan.blocks
    return whole or mine == asked


def _newest(results: Path, sha256: str) -> Path | None:
    found = []
    for folder in store.runs(results):
        with contextlib.suppress(ResultDamaged, RunMissing):
            run = store.load_spec(folder)
            if run.plan_sha256 == sha256 and store.drivable(run):
                found.append((run.created, folder))
    return max(found)[1] if found else None


def _with_own_script(cell: Cell, folder: Path) -> Cell:
    """The cell with its script in the run's folder, which stays as it was and is seen by the trial's namespace."""
    script = Path(cell.workload.script)
    if not script.is_absolute():
        return cell
    beside = tuple(str(folder / "scripts" / Path(file).name) for file in cell.workload.beside)
    own = dataclasses.replace(cell.workload, script=str(folder / "scripts" / script.name), beside=beside)
    return dataclasses.replace(cell, workload=own)
