"""A run: the trials of its recorded order, one at a time, each in a process of its own; resumed where it stopped.

What is finished is known from the folders that are there, nothing else.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dbbench import datasets, images, layers, limits, store
from dbbench.errors import DatasetBuildFailed, DbbenchError, TrialDied, TrialStuck
from dbbench.filesystems.families import POOLED
from dbbench.journal import Journal
from dbbench.launcher import WIPE
from dbbench.metrics import METRICS
from dbbench.model import Run, Status, TrialSpec
from dbbench.progress.events import Emit, Event
from dbbench.record import Record
from dbbench.runner.adaptive import further
from dbbench.runner.children import Stop, launch, stoppable
from dbbench.runner.repeats import extended
from dbbench.store import Draft, pending
from dbbench.store.trials import leftovers

__all__ = ["Between", "Finished", "execute", "give_back"]

RELEASE_S = 10.0  # what the kernel may take to give back what a killed trial had; with little dirty it is 0.1 s
LOG = "launcher.log"  # in the run's folder: what the trials' processes print on stderr


Between = Callable[[Run], Run]  # called before each trial; the run as it is to go on


@dataclass(frozen=True)
class Finished:
    """How many trials of the run ended how."""

    ok: int
    suspect: int
    failed: int


def execute(folder: Path, *, wipe: tuple[str, ...] = (), emit: Emit, between: Between = lambda run: run) -> Finished:
    """Work off what is left of the run in `folder`; what all its trials came to.

    `between` is called when no trial is going on; what it returns is the run from there on.

    Raises RunLocked, the error of a trial that could not begin at all, Interrupted and Terminated: all leave a
    run that the same command resumes.
    """
    with store.locked(folder), stoppable() as stop:
        began = time.monotonic()
        run = store.load_spec(folder)
        journal = Journal(folder / "journal.jsonl")
        give_back(folder, journal)
        _tell_begin(folder, run, emit)
        if pending(folder, run):
            images.make(run, folder, journal, lambda what, share: _tell_prepare(emit, what, share))
            _measure_ceiling(folder, run, wipe, emit, stop)
            _build_goldens(folder, run, emit, stop)
        while left := pending(folder, run := between(run)) or pending(folder, run := _longer(folder, run, emit)):
            spec = left[0]
            emit(Event("trial_begin", _described(run, spec)))
            _drive(folder, run, spec, wipe, emit, stop)
            emit(Event("trial_end", _ended(folder, run, spec)))
        images.give_back(journal, RELEASE_S)
        return _tell_end(folder, run, emit, began)


def give_back(folder: Path, journal: Journal) -> None:
    """Remove what a run that was killed has left, what lies above before what it lies on: groups of processes, pools,
    layers, cut-off trials, temporary folders."""
    limits.give_back(journal)
    for pooled in POOLED.values():
        pooled.give_back(journal)
    layers.give_back(journal)
    for path in leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)
    for taken in journal.outstanding("runtime"):
        if Path(taken).is_dir() and Path(taken).lstat().st_uid == os.geteuid():
            shutil.rmtree(taken, ignore_errors=True)
        journal.note("give_back", what="runtime", path=taken)


def _measure_ceiling(folder: Path, run: Run, wipe: tuple[str, ...], emit: Emit, stop: Stop) -> None:
    """Once a run, on the bare device; a directory on somebody's filesystem has none. A failure leaves none."""
    if run.plan.device.kind == "dir" or store.load_ceiling(folder) is not None:
        return
    _tell_prepare(emit, "measuring what the bare device can do")
    launch(["ceiling", str(folder)], folder / LOG, emit, stop, {WIPE: "\n".join(wipe)})


def _build_goldens(folder: Path, run: Run, emit: Emit, stop: Stop) -> None:
    """Build the golden copies that the run needs and that are not in the cache."""
    seen: set[str] = set()
    for cell in run.cells:
        key = datasets.golden.key(cell.engine, cell.dataset, cell.raw)
        if key not in seen and not datasets.golden.exists(key):
            _tell_prepare(emit, f"building the dataset of {cell.workload.name} on {cell.engine.name}")
            status = launch(["golden", str(folder), cell.id], folder / LOG, emit, stop, {})
            if status != 0:
                raise DatasetBuildFailed(f"its process ended with status {status}", remedy=f"See {folder / LOG}.")
        seen.add(key)


def _drive(folder: Path, run: Run, spec: TrialSpec, wipe: tuple[str, ...], emit: Emit, stop: Stop) -> None:
    argv = ["trial", str(folder), spec.id]
    try:
        status = launch(argv, folder / LOG, emit, stop, {WIPE: "\n".join(wipe)})
        died: DbbenchError = TrialDied(f"it ended with status {status}; see {folder / LOG}")
    except TrialStuck as stuck:
        died = stuck
    if not (folder / "trials" / spec.id).is_dir():  # its process died before it could say anything
        give_back(folder, Journal(folder / "journal.jsonl"))  # else the next trial finds its devices in use
        record = Record(run, spec, run.cell(spec.cell), Draft(folder, spec.id), emit)
        record.fail(died)
        record.publish()


def _longer(folder: Path, run: Run, emit: Emit) -> Run:
    """The run with what its results ask for: repeats, and further blocks until the precision."""
    return _go_on(folder, _repeat(folder, run, emit), emit)


def _repeat(folder: Path, run: Run, emit: Emit) -> Run:
    longer = extended(run, lambda spec: store.load_trial(folder / "trials" / spec.id).status)
    if longer is not run:
        store.save_spec(folder, longer)
        more = len(longer.order) - len(run.order)
        emit(Event("note", {"text": f"{more} trials more: blocks with a suspect trial are repeated as a whole"}))
    return longer


def _go_on(folder: Path, run: Run, emit: Emit) -> Run:
    """With --until-precision: one more block of what is not settled, once nothing else is left."""
    if run.precision is None or pending(folder, run):
        return run
    trials = {spec.id: store.load_trial(folder / "trials" / spec.id) for spec in run.order}
    longer = further(run, trials)
    if longer != run:
        store.save_spec(folder, longer)
    if more := longer.order[len(run.order) :]:
        arms = ", ".join(dict.fromkeys(longer.cell(spec.cell).arm for spec in more))
        emit(Event("note", {"text": f"{len(more)} trials more, block {more[0].block}: {arms}, until the precision"}))
    return longer


def _tell_prepare(emit: Emit, what: str, fraction: float | None = None) -> None:
    emit(Event("prepare", {"what": what, "fraction": fraction}))


def _tell_begin(folder: Path, run: Run, emit: Emit) -> None:
    done = len(run.order) - len(pending(folder, run))
    arms = [arm.label for arm in run.plan.fs_setups]
    emit(Event("run_begin", {"name": run.name, "trials": len(run.order), "done": done, "seed": run.plan.seed,
                             "arms": arms, "blocks": run.plan.blocks}))  # fmt: skip


def _tell_end(folder: Path, run: Run, emit: Emit, began: float) -> Finished:
    found = [store.load_trial(folder / "trials" / spec.id).status for spec in run.order]
    finished = Finished(found.count(Status.OK), found.count(Status.SUSPECT), found.count(Status.FAILED))
    emit(Event("run_end", {"name": run.name, "seconds": time.monotonic() - began, **dataclasses.asdict(finished)}))
    return finished


def _described(run: Run, spec: TrialSpec) -> dict[str, object]:
    cell = run.cell(spec.cell)
    return {"id": spec.id, "position": spec.position, "total": len(run.order), "arm": cell.arm, "block": spec.block,
            "attempt": spec.attempt, "engine": cell.engine.name, "workload": cell.title,
            "warmup_s": cell.window.warmup_s, "measure_s": cell.window.measure_s}  # fmt: skip


def _ended(folder: Path, run: Run, spec: TrialSpec) -> dict[str, object]:
    trial = store.load_trial(folder / "trials" / spec.id)
    primary = run.cell(spec.cell).workload.primary
    return {**_described(run, spec), "trial": spec.id, "status": trial.status.value, "metric": primary,
            "unit": METRICS[primary].unit, "value": trial.summary.get(primary),
            "error": dataclasses.asdict(trial.error) if trial.error else None}  # fmt: skip
