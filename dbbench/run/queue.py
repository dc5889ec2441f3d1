"""A run: its trials in the recorded order, one at a time, each in a separate process; resumed after an interruption.

The directories that exist show which trials are finished. A block with a suspect trial is repeated at the end, as a
whole and once, up to half as many trials as planned. With a budget of time, blocks are added while they fit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import datasets, results
from dbbench.engines.serving import tail
from dbbench.errors import BudgetUsedUp, DatasetBuildFailed, DbbenchError, TrialDied, TrialStuck
from dbbench.machine import limits
from dbbench.metrics.table import METRICS
from dbbench.model import Run, Status, TrialSpec
from dbbench.model.events import Emit, Event
from dbbench.plan import writes
from dbbench.report.sentences import budget_text
from dbbench.results import Draft, pending
from dbbench.results.fileio import writing
from dbbench.results.journal import Journal
from dbbench.results.trials import leftovers, set_aside
from dbbench.run import worker
from dbbench.run.adaptive import charged, concluded, fits, further, may_begin, of_first_blocks
from dbbench.run.children import Launcher, stoppable
from dbbench.run.record import Record
from dbbench.storage import filesystems, layers
from dbbench.storage.devices import image
from dbbench.units import duration_text

__all__ = ["Between", "Finished", "execute", "give_back"]

RELEASE_S = 10.0  # time for the kernel to release what a killed trial used; with little dirty data it takes 0.1 s
LOG = "launcher.log"  # in the run's directory: stderr of the trials' processes


Between = Callable[[Run], Run]  # called before each trial; returns the run to continue with
EXTRA_TRIALS: Final = 0.5  # repeated trials, as a share of the plan's trials
# Engine, workload, variant, block. Pairs are formed within a group, so a group is repeated as a whole.
Group = tuple[str, str, str, int]


@dataclass(frozen=True)
class Finished:
    """The number of trials of the run by result."""

    ok: int
    suspect: int
    failed: int


def execute(
    folder: Path, sha256: str, *, wipe: tuple[str, ...] = (), emit: Emit, between: Between = lambda run: run
) -> Finished:
    """Run the remaining trials of the run in `folder`; return the results of all its trials.

    `sha256` is the identity of the user's plan, which every process of the run compares with run.json. `between` is
    called when no trial is running, and returns the run to continue with. Raises RunLocked, the error of a
    trial that could not begin, Interrupted and Terminated; the same command resumes the run after each of them.
    """
    with (
        results.locked(folder),
        stoppable() as stop,
        Launcher(worker.__name__, folder / LOG, emit, stop, worker.environment(sha256, wipe)) as launcher,
    ):
        began = time.monotonic()
        run = results.load_spec(folder)
        worker.must_be(run, sha256)
        journal = Journal(folder / "journal.jsonl")
        give_back(folder, journal)
        for identity in wipe:
            journal.note("wipe", device=identity)
        _tell_begin(folder, run, emit)
        with BudgetClock(folder) as clock:
            if to_run := any(may_begin(run, spec) for spec in pending(folder, run)):
                launcher.prepare()
                image.make_images(run, folder, journal, lambda what, share: _tell_prepare(emit, what, share))
                _measure_ceiling(folder, run, launcher)
                _build_goldens(folder, run, launcher)
                run = clock.charge(run)
            while left := pending(folder, run := between(run)) or pending(folder, run := _longer(folder, run, emit)):
                if not may_begin(run, spec := left[0]):
                    break
                emit(Event("trial_begin", _described(run, spec)))
                _drive(folder, run, spec, launcher)
                run = clock.charge(run, spec.cell)
                emit(Event("trial_end", _ended(folder, run, spec)))
            if to_run:
                _measure_again(folder, launcher)
        image.give_back_images(journal, RELEASE_S)
        return _tell_end(folder, _concluded(folder, run, emit), emit, began)


class BudgetClock:
    """Charge the time that passes to the budget of a run, if it has one, including the time of a trial that was
    stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._since = folder, time.monotonic()

    def __enter__(self) -> BudgetClock:
        return self

    def __exit__(self, error: type[BaseException] | None, *_rest: object) -> None:
        if error is not None:
            with contextlib.suppress(DbbenchError):
                self.charge(results.load_spec(self._folder))

    def charge(self, run: Run, cell: str = "") -> Run:
        """Return the run with the time since the last call charged, and save it; `cell` is that of the trial which
        used it."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        if run.budget is not None:
            run = charged(run, seconds, cell)
            results.save_spec(self._folder, run)
        return run


def give_back(folder: Path, journal: Journal) -> None:
    """Remove what a killed run has left, from top to bottom: process groups, pools, layers, interrupted trials,
    temporary directories."""
    limits.give_back(journal)
    filesystems.give_back(journal)
    layers.give_back(journal)
    for path in leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)
    for taken in journal.outstanding("runtime"):
        if Path(taken).is_dir() and Path(taken).lstat().st_uid == os.geteuid():
            shutil.rmtree(taken, ignore_errors=True)
        journal.note("give_back", what="runtime", path=taken)


def _measure_ceiling(folder: Path, run: Run, launcher: Launcher) -> None:
    """Measure the bare device once per run, except for an existing directory. If it fails, the run has no ceiling."""
    if run.plan.device.existing or results.load_ceiling(folder) is not None:
        return
    _tell_prepare(launcher.emit, "measuring the bare device")
    launcher.run(["ceiling", str(folder)])


def _measure_again(folder: Path, launcher: Launcher) -> None:
    """Measure the bare device once more if a trial exceeded the first measurement: it may have been disturbed."""
    ceiling = results.load_ceiling(folder)
    if ceiling is not None and not ceiling.again and results.load_whole(folder, verify=False).exceeded:
        _tell_prepare(launcher.emit, "measuring the bare device again, because a trial exceeded the first measurement")
        launcher.run(["ceiling", str(folder)])


def _build_goldens(folder: Path, run: Run, launcher: Launcher) -> None:
    """Build the golden copies that the run needs and that are not in the cache."""
    seen: set[str] = set()
    for cell in run.cells:
        key = datasets.golden.key(cell.engine, cell.dataset, cell.raw)
        if key not in seen and not datasets.golden.exists(key):
            _tell_prepare(launcher.emit, f"building the dataset of {cell.workload.name} on {cell.engine.name}")
            status = launcher.run(["golden", str(folder), cell.id])
            if status != 0:
                raise DatasetBuildFailed(
                    f"the process that builds the dataset of {cell.workload.name} on {cell.engine.name} ended with "
                    f"status {status}:\n{tail(launcher.log)}",
                    effect="The copy was removed; nothing was measured.",
                    remedy="Read dmesg: the kernel kills processes if the memory is exhausted.",
                )
        seen.add(key)


def _drive(folder: Path, run: Run, spec: TrialSpec, launcher: Launcher) -> None:
    try:
        status = launcher.run(["trial", str(folder), spec.id])
        died: DbbenchError = TrialDied(f"the process of the trial ended with status {status}; see {launcher.log}")
    except TrialStuck as stuck:
        died = stuck
    _must_be_there(folder)
    if not (folder / "trials" / spec.id).is_dir():  # its process died before it could publish a result
        give_back(folder, Journal(folder / "journal.jsonl"))  # otherwise the next trial finds its devices in use
        record = Record(run, spec, run.cell(spec.cell), Draft(folder, spec.id), launcher.emit)
        record.fail(died)
        record.publish()


def _must_be_there(folder: Path) -> None:
    """Raise ResultsUnwritable if the run's directory was removed or renamed while the trial ran."""
    with writing(folder / "run.json"):
        (folder / "run.json").stat()


def _longer(folder: Path, run: Run, emit: Emit) -> Run:
    """Return the run with additional trials: repeated blocks, and further blocks to reach the precision is reached.

    With a budget, further blocks come first; repeated blocks get the time that is left.
    """
    if run.budget is not None:
        return _repeat(folder, _go_on(folder, run, emit), emit)
    return _go_on(folder, _repeat(folder, run, emit), emit)


def _repeat(folder: Path, run: Run, emit: Emit) -> Run:
    if pending(folder, run):
        return run
    longer = extended(run, lambda spec: results.load_trial(folder / "trials" / spec.id).status)
    if longer is not run:
        results.save_spec(folder, longer)
        more = len(longer.order) - len(run.order)
        emit(Event("note", {"text": f"{more} more trials: blocks with a suspect trial are repeated as a whole",
                            "total": len(longer.order)}))  # fmt: skip
    return longer


def _go_on(folder: Path, run: Run, emit: Emit) -> Run:
    """Add a block when no trial is pending: with --until-precision for the open questions, with a budget only if it
    fits."""
    if (run.precision is None and run.budget is None) or pending(folder, run):
        return run
    trials = {}
    if run.precision is not None:
        trials = {spec.id: results.load_trial(folder / "trials" / spec.id) for spec in run.order}
    longer = further(run, trials)
    if longer != run:
        results.save_spec(folder, longer)
    if more := longer.order[len(run.order) :]:
        arms = ", ".join(dict.fromkeys(longer.cell(spec.cell).arm for spec in more))
        why = "to reach the precision" if run.precision is not None else "within the budget"
        text = f"{len(more)} more trials, block {more[0].block}: {arms}, {why}"
        emit(Event("note", {"text": text, "total": len(longer.order)}))
    return longer


def _concluded(folder: Path, run: Run, emit: Emit) -> Run:
    """Return the run with the outcome of its budget; trials of a block that the budget interrupted are set aside."""
    if run.budget is None:
        return run
    if run.budget.step == 0 and pending(folder, run):
        raise BudgetUsedUp(f"{folder.name} used {duration_text(run.budget.used_s)}", effect="Finished trials are kept.")
    run, aside = concluded(run, results.finished(folder))
    set_aside(folder, aside, "budget")
    results.save_spec(folder, run)
    emit(Event("note", {"text": budget_text(run)}))
    return run


def _tell_prepare(emit: Emit, what: str, fraction: float | None = None) -> None:
    emit(Event("prepare", {"what": what, "fraction": fraction}))


def _tell_begin(folder: Path, run: Run, emit: Emit) -> None:
    done = len(run.order) - len(pending(folder, run))
    arms = [arm.label for arm in run.plan.fs_setups]
    budget_s = None if run.budget is None else (run.plan.budget_s or 0.0) - run.budget.used_s
    first = sum(run.budget is not None and of_first_blocks(run, spec) for spec in run.order)
    emit(Event("run_begin", {"name": run.name, "trials": len(run.order), "done": done, "seed": run.plan.seed,
                             "arms": arms, "blocks": run.plan.blocks, "first": first,
                             "budget_s": budget_s}))  # fmt: skip


def _tell_end(folder: Path, run: Run, emit: Emit, began: float) -> Finished:
    done = results.finished(folder)
    trials = [results.load_trial(folder / "trials" / spec.id) for spec in run.order if spec.id in done]
    if text := writes.deviation(trials):
        emit(Event("note", {"text": text}))
    statuses = [trial.status for trial in trials]
    finished = Finished(statuses.count(Status.OK), statuses.count(Status.SUSPECT), statuses.count(Status.FAILED))
    emit(Event("run_end", {"name": run.name, "seconds": time.monotonic() - began, **dataclasses.asdict(finished)}))
    return finished


def _described(run: Run, spec: TrialSpec) -> dict[str, object]:
    cell = run.cell(spec.cell)
    return {"id": spec.id, "position": spec.position, "total": len(run.order), "arm": cell.arm, "block": spec.block,
            "attempt": spec.attempt, "engine": cell.engine.name, "workload": cell.title,
            "warmup_s": cell.window.warmup_s, "measure_s": cell.window.measure_s}  # fmt: skip


def _ended(folder: Path, run: Run, spec: TrialSpec) -> dict[str, object]:
    trial = results.load_trial(folder / "trials" / spec.id)
    primary = run.cell(spec.cell).workload.primary
    return {**_described(run, spec), "trial": spec.id, "status": trial.status.value, "metric": primary,
            "unit": METRICS[primary].unit, "value": trial.summary.get(primary),
            "error": dataclasses.asdict(trial.error) if trial.error else None}  # fmt: skip


def extended(run: Run, status_of: Callable[[TrialSpec], Status]) -> Run:
    """Return the run with a second attempt of each block that has a suspect trial, or the same run if there is none.

    A failed trial is not repeated, because its failure would most likely happen again. With a budget, blocks are
    repeated while they fit.
    """
    planned = sum(spec.attempt == 1 for spec in run.order)
    extra = int(planned * EXTRA_TRIALS) - (len(run.order) - planned)
    order, last = list(run.order), max((spec.position for spec in run.order), default=0)
    for block in _suspect_blocks(run, status_of) if run.plan.repeat_suspect else []:
        if len(block) <= extra and fits(run, [*order[len(run.order) :], *block]):
            extra -= len(block)
            random.Random(f"{run.plan.seed}:{block[0].id}").shuffle(block)
            for spec in block:
                again = f"{spec.cell}-b{spec.block}-a2"
                last += 1  # not the length of the order: a host of a fleet has only some of the plan's positions
                order.append(dataclasses.replace(spec, id=again, attempt=2, position=last))
    return run if len(order) == len(run.order) else dataclasses.replace(run, order=tuple(order))


def _suspect_blocks(run: Run, status_of: Callable[[TrialSpec], Status]) -> list[list[TrialSpec]]:
    blocks: dict[Group, list[TrialSpec]] = {}
    for spec in run.order:
        cell = run.cell(spec.cell)
        blocks.setdefault((cell.engine.name, cell.workload.name, cell.variant, spec.block), []).append(spec)
    return [
        block
        for block in blocks.values()
        if all(spec.attempt == 1 for spec in block) and any(status_of(spec) is Status.SUSPECT for spec in block)
    ]
