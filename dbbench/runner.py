"""A run: the trials of its recorded order, one at a time, each in a process of its own; resumed where it stopped.

What is finished is known from the folders that are there, nothing else. A block with a suspect trial is driven
once more at the end, as a whole, within limits (METHOD: a trial is repeated only for what telemetry says).
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from dbbench import datasets, errors, process, store
from dbbench.devices import loop
from dbbench.errors import DbbenchError, Interrupted, Terminated
from dbbench.journal import Journal
from dbbench.launcher import WIPE, image_folder
from dbbench.metrics import METRICS
from dbbench.model import Cell, Run, Status, Trial, TrialSpec
from dbbench.parts import golden_key
from dbbench.progress.events import Event
from dbbench.record import Record
from dbbench.store import Draft
from dbbench.store.trials import leftovers

Emit = Callable[[Event], None]
STOP_GRACE_S: Final = 60.0  # a clean stop: a server's shutdown, an umount; then it is killed and the kernel cleans up
EXTRA_TRIALS: Final = 0.5  # repeats, as a share of the plan's trials


@dataclass(frozen=True)
class Finished:
    """How many trials of the run ended how."""

    ok: int
    suspect: int
    failed: int


def execute(folder: Path, *, wipe: tuple[str, ...] = (), emit: Emit) -> Finished:
    """Work off what is left of the run in `folder`; what all its trials came to.

    Raises RunLocked, the error of a trial that could not begin at all, Interrupted and Terminated: all leave a
    run that the same command resumes.
    """
    with store.locked(folder), _stoppable() as stop:
        began = time.monotonic()
        run = store.load_spec(folder)
        journal = Journal(folder / "journal.jsonl")
        give_back(folder, journal)
        _begin(folder, run, emit)
        if pending(folder, run):
            make_images(folder, run, journal, emit)
            build_goldens(folder, run, emit, stop)
        while left := pending(folder, run):
            for spec in left:
                emit(Event("trial_begin", _described(run, spec)))
                _drive(folder, run, spec, wipe, emit, stop)
                emit(Event("trial_end", _ended(folder, run, spec)))
            run = repeat_suspect(folder, run, emit)
        give_back_images(folder, journal)
        return _end(folder, run, emit, began)


def pending(folder: Path, run: Run) -> list[TrialSpec]:
    """The trials that have no result yet, in the recorded order."""
    return [spec for spec in run.order if not (folder / "trials" / spec.id).is_dir()]


# --- what stands for the whole run -----------------------------------------------------------------


def make_images(folder: Path, run: Run, journal: Journal, emit: Emit) -> None:
    """The loop image of the run, fully written once, so that every filesystem lies on the same extents."""
    if run.plan.device.kind != "loop":
        return
    image = image_of(run, folder)
    if image.exists() and str(image) in journal.outstanding("image"):
        return
    journal.note("take", what="image", path=str(image))
    partial = image.with_suffix(".partial")
    loop.make_image(
        partial,
        run.plan.device.size_bytes,
        lambda share: emit(Event("prepare", {"what": f"writing the disk image {image.name}", "fraction": share})),
    )
    partial.rename(image)


def image_of(run: Run, folder: Path) -> Path:
    """The run's loop image."""
    return image_folder(run, folder) / f".dbbench-{run.name}.img"


def give_back_images(folder: Path, journal: Journal) -> None:
    """Remove the images that this run made."""
    for path in journal.outstanding("image"):
        Path(path).unlink(missing_ok=True)
        Path(path).with_suffix(".partial").unlink(missing_ok=True)
        journal.note("give_back", what="image", path=path)


def give_back(folder: Path, journal: Journal) -> None:
    """Remove what a run that was killed has left: cut-off trials, temporary folders, folders under test."""
    for path in leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)
    for what in ("runtime", "directory"):
        for taken in journal.outstanding(what):
            shutil.rmtree(taken, ignore_errors=True)
            journal.note("give_back", what=what, path=taken)


def build_goldens(folder: Path, run: Run, emit: Emit, stop: _Stop) -> None:
    """Build the golden copies that the run needs and that are not in the cache."""
    seen: set[str] = set()
    for cell in run.cells:
        key = golden_key(cell)
        if key not in seen and not datasets.golden.exists(key):
            emit(Event("prepare", {"what": f"building the dataset of {cell.workload.name} on {cell.engine.name}"}))
            status = _launch(["golden", str(folder), cell.id], folder, emit, stop, {})
            if status != 0:
                raise DbbenchError(
                    f"building the dataset of {cell.workload.name} ended with status {status}",
                    remedy=f"See {folder / 'launcher.log'}.",
                )
        seen.add(key)


# --- one trial -------------------------------------------------------------------------------------


def _drive(folder: Path, run: Run, spec: TrialSpec, wipe: tuple[str, ...], emit: Emit, stop: _Stop) -> None:
    status = _launch(["trial", str(folder), spec.id], folder, emit, stop, {WIPE: "\n".join(wipe)})
    if not (folder / "trials" / spec.id).is_dir():  # its process died before it could say anything
        record = Record(run, spec, run.cell(spec.cell), Draft(folder, spec.id), emit)
        record.fail(DbbenchError(f"the trial's process ended with status {status}; see {folder / 'launcher.log'}"))
        record.publish()


def _launch(argv: list[str], folder: Path, emit: Emit, stop: _Stop, env: dict[str, str]) -> int:
    """Run the launcher, pass its events on; its exit status. Raises the error that it tells."""
    told: list[DbbenchError] = []
    command = [sys.executable, "-m", "dbbench.launcher", *argv]
    keep = {name: os.environ[name] for name in ("XDG_CACHE_HOME", "DBBENCH_CACHE", "PYTHONPATH") if name in os.environ}
    with process.running(
        command,
        stdout=subprocess.PIPE,
        stderr=folder / "launcher.log",
        env={**keep, **env, "PYTHONDONTWRITEBYTECODE": "1"},
        stop_with=signal.SIGTERM,
        grace_s=STOP_GRACE_S,
        own_session=True,  # Ctrl-C is ours to pass on: the servers must not get it from the terminal
    ) as child:
        stop.child = child
        assert child.popen.stdout is not None
        try:
            for line in child.popen.stdout:
                event = _event(line)
                if event is not None and event.kind == "error":
                    told.append(_error(event))
                elif event is not None:
                    emit(event)
            status = child.wait(STOP_GRACE_S)
        finally:
            stop.child = None
    if stop.signal is not None:
        raise (Interrupted if stop.signal == signal.SIGINT else Terminated)("stopped on request")
    if told:
        raise told[0]
    return status


def _event(line: bytes) -> Event | None:
    try:
        parsed = json.loads(line)
        return Event(parsed["kind"], parsed["data"])
    except (ValueError, KeyError, TypeError):
        return None


def _error(event: Event) -> DbbenchError:
    data = event.data
    kind = getattr(errors, str(data.get("class")), DbbenchError)
    error: DbbenchError = kind(data["evidence"], where=data["where"], effect=data["effect"], remedy=data["remedy"])
    return error


# --- being stopped ---------------------------------------------------------------------------------


class _Stop:
    """The first SIGINT or SIGTERM asks the child to stop cleanly, the second kills it."""

    def __init__(self) -> None:
        self.child: process.Running | None = None
        self.signal: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        again, self.signal = self.signal is not None, number
        if self.child is None:
            raise (Interrupted if number == signal.SIGINT else Terminated)("stopped on request")
        self.child.popen.send_signal(signal.SIGKILL if again else number)


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- repeats ---------------------------------------------------------------------------------------


def repeat_suspect(folder: Path, run: Run, emit: Emit) -> Run:
    """The run, extended by a second attempt of each block in which telemetry found a trial suspect.

    A block is repeated for one engine and workload as a whole, because pairs are made within these; at most
    once, and at most EXTRA_TRIALS of the plan's trials in all.
    """
    planned = sum(spec.attempt == 1 for spec in run.order)
    budget = int(planned * EXTRA_TRIALS) - (len(run.order) - planned)
    order = list(run.order)
    if run.plan.repeat_suspect:
        for group in _suspect_blocks(folder, run):
            if len(group) <= budget:
                budget -= len(group)
                random.Random(f"{run.plan.seed}:{group[0].id}").shuffle(group)
                for spec in group:
                    again = f"{spec.cell}-b{spec.block}-a2"
                    order.append(dataclasses.replace(spec, id=again, attempt=2, position=len(order) + 1))
                emit(Event("note", {"text": f"block {group[0].block} is repeated: a trial of it is suspect"}))
    if len(order) == len(run.order):
        return run
    extended = dataclasses.replace(run, order=tuple(order))
    store.save_spec(folder, extended)
    return extended


def _suspect_blocks(folder: Path, run: Run) -> list[list[TrialSpec]]:
    groups: dict[tuple[str, str, int], list[TrialSpec]] = {}
    repeated = set()
    for spec in run.order:
        cell = run.cell(spec.cell)
        key = (cell.engine.name, cell.workload.name, spec.block)
        groups.setdefault(key, []).append(spec)
        if spec.attempt > 1:
            repeated.add(key)
    return [
        group
        for key, group in groups.items()
        if key not in repeated
        and any(store.load_trial(folder / "trials" / spec.id).status is Status.SUSPECT for spec in group)
    ]


# --- events ----------------------------------------------------------------------------------------


def _begin(folder: Path, run: Run, emit: Emit) -> None:
    done = len(run.order) - len(pending(folder, run))
    arms = [arm.label for arm in run.plan.fs_setups]
    emit(Event("run_begin", {"name": run.name, "trials": len(run.order), "done": done, "seed": run.plan.seed,
                             "arms": arms, "blocks": run.plan.blocks, "cells": len(run.cells)}))  # fmt: skip


def _described(run: Run, spec: TrialSpec) -> dict[str, object]:
    cell: Cell = run.cell(spec.cell)
    return {"id": spec.id, "position": spec.position, "total": len(run.order), "arm": cell.arm, "block": spec.block,
            "attempt": spec.attempt, "engine": cell.engine.name, "workload": cell.workload.name,
            "warmup_s": cell.window.warmup_s, "measure_s": cell.window.measure_s}  # fmt: skip


def _ended(folder: Path, run: Run, spec: TrialSpec) -> dict[str, object]:
    trial: Trial = store.load_trial(folder / "trials" / spec.id)
    primary = run.cell(spec.cell).workload.primary
    return {**_described(run, spec), "trial": spec.id, "status": trial.status.value, "metric": primary,
            "unit": METRICS[primary].unit, "value": trial.summary.get(primary),
            "error": dataclasses.asdict(trial.error) if trial.error else None}  # fmt: skip


def _end(folder: Path, run: Run, emit: Emit, began: float) -> Finished:
    found = [store.load_trial(folder / "trials" / spec.id).status for spec in run.order]
    finished = Finished(found.count(Status.OK), found.count(Status.SUSPECT), found.count(Status.FAILED))
    emit(Event("run_end", {"name": run.name, "seconds": time.monotonic() - began, **dataclasses.asdict(finished)}))
    return finished
