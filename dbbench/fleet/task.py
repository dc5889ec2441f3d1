"""The dask task of a part, on the worker of a host: run it, report its progress, stop it when the
task is cancelled or the worker ends, and return its finished trials. The part runs as `dbbench run
--share` does, in the run's directory on the host, and resumes what was left there. Trials on the
same disk take turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import distributed

from dbbench import results
from dbbench.errors import DbbenchError, RunNameTaken, Terminated
from dbbench.fleet.parts import Given, PartOutcome, pack
from dbbench.machine import host, namespaces, threads
from dbbench.machine.host import tunables
from dbbench.model import Run, TrialSpec
from dbbench.model.events import Emit, Event
from dbbench.plan import Expanded
from dbbench.plan.request import PlanRequest
from dbbench.results import RunFolder, merging
from dbbench.results.fileio import own_file, try_lock
from dbbench.run.children import Stop
from dbbench.run.preflight import check_run
from dbbench.run.queue import execute
from dbbench.storage.devices import image

STOP_S: Final = 90.0  # a clean stop of a trial may take a minute
# between two checks whether the task is still wanted, and two attempts to get the disk
_LOOK_S: Final = 0.5
# Events that the coordinator shows. None is sent within the window of a trial.
_REPORTED: Final = ("prepare", "trial_begin", "trial_end", "note")


@dataclass
class Here:
    """Identity of this host."""

    name: str
    results: Path


# A worker that dbbench did not start has it in its environment.
HERE: Final = Here(
    os.environ.get("DBBENCH_FLEET_NAME") or os.uname().nodename,
    Path(os.environ.get("DBBENCH_FLEET_RESULTS") or "results").resolve(),
)


def run_part(run: Run, given: Given, topic: str) -> PartOutcome:
    """Run a part on this host; its events go to `topic`. Errors of dbbench are part of the result."""
    worker = distributed.get_worker()
    stop = Stop()

    def emit(event: Event) -> None:
        if event.kind in _REPORTED:
            worker.log_event(topic, {"host": HERE.name, "kind": event.kind, "data": event.data})

    watch = partial(_stop_with_task, stop, worker, worker.get_current_task())
    try:
        folder = HERE.results / merging.checked_name(run.name)
        named = dataclasses.replace(run, host={"hostname": HERE.name})
        with threads.beside("fleet task", watch):
            run_share(named, given, folder, emit, stop)
        return PartOutcome(HERE.name, pack(folder))
    except DbbenchError as error:
        return PartOutcome(HERE.name, error=error.as_data())
    except OSError as error:
        return PartOutcome(HERE.name, error=DbbenchError(f"{HERE.name}: {error}").as_data())


def _stop_with_task(
    stop: Stop,
    worker: Any,
    key: str,
    ended: threading.Event,
) -> None:
    """Stop the trials when the scheduler no longer wants their task: dask does not end the thread of
    a cancelled one.
    """
    while not ended.wait(_LOOK_S):
        task = worker.state.tasks.get(key)
        running = worker.status in (distributed.Status.running, distributed.Status.paused)
        if not running or task is None or task.state != "executing":
            with contextlib.suppress(Terminated):
                stop(signal.SIGTERM, None)
            return


def run_share(
    run: Run,
    given: Given,
    folder: Path,
    emit: Emit,
    stop: Stop,
) -> None:
    """Run the trials of a part in `folder`. Raises RunNameTaken, RunLocked, and what `execute`
    raises.
    """
    emit = partial(report, stop, emit)
    with disk_turn(run, folder, emit, stop):
        run_folder = make_run(run, given, folder)
        own = run_folder.run
        request = PlanRequest("", own.plan, Expanded(own.cells, own.order), own.plan_sha256)
        check_run(request, "PLAN", folder.parent, run_folder, given.wipe)
        execute(folder, own.plan_sha256, wipe=given.wipe, emit=emit, stop=stop)


def report(stop: Stop, emit: Emit, event: Event) -> None:
    """Report an event. Raises Terminated if the run is stopped and no trial's process is there that
    could end it: an image is being written, for example.
    """
    if stop.signal is not None and stop.child is None:
        raise stop.error()
    emit(event)


def make_run(run: Run, given: Given, folder: Path) -> RunFolder:
    """Make the run's directory, or set the order of the one that exists. `run.host` has the name of
    the host.
    """
    run = dataclasses.replace(run, cells=merging.own_scripts(run.cells, folder))
    if not (folder / "run.json").exists():
        made = dataclasses.replace(
            run,
            host={**host.facts(), **run.host, "state": tunables.state()},
            versions=host.versions(),
        )
        results.create_run(folder.parent, made, given.plan)
    there = RunFolder(folder)
    if there.run.plan_sha256 != run.plan_sha256:
        raise RunNameTaken(
            f"{folder} on this host contains another plan",
            remedy="Choose another name with --name.",
        )
    results.must_match(there, run.plan, run.cells, given.scripts)
    with there.lock():
        order = (*run.order, *_find_additions(run, there.run))
        there.save(dataclasses.replace(there.run, order=order))
    merging.keep_scripts(folder, given.scripts)
    return there


def _find_additions(run: Run, there: Run) -> list[TrialSpec]:
    """Return the trials that this host has added to the part: repeats, and blocks of a budget."""
    planned = {spec.id for spec in run.order}
    attempts = {spec.block: spec.attempt for spec in run.order}
    return [
        spec
        for spec in there.order
        if spec.id not in planned
        and (run.budget is not None or spec.attempt > attempts.get(spec.block, spec.attempt))
    ]


@contextlib.contextmanager
def disk_turn(run: Run, folder: Path, emit: Emit, stop: Stop) -> Iterator[None]:
    """Hold the lock of the disk that the run uses within the block; trials on one disk take turns.
    Raises Terminated if the run is stopped before.
    """
    fd = own_file(lock_of(run, folder), os.O_RDWR, 0o600)
    with os.fdopen(fd, "r+", errors="replace") as lock:
        if not try_lock(fd):
            user = lock.read() or "another run"
            emit(Event("prepare", {"what": f"waiting for the disk, which is used by {user}"}))
        while not try_lock(fd):
            if stop.signal is not None:
                raise stop.error()
            time.sleep(_LOOK_S)
        # Waiting processes read here which run uses the disk.
        lock.truncate(0)
        os.pwrite(fd, os.fsencode(folder), 0)
        yield


def lock_of(run: Run, folder: Path) -> Path:
    """Return the lock file of the disk that the run uses."""
    device = run.plan.device
    images = map(str, image.folders_of_images(run, folder))
    places = [*images, *device.directories.values(), *device.disks, device.path or str(folder)]
    path = Path(places[0])
    while not path.exists():  # a missing device is refused later
        path = path.parent
    status = path.stat()
    return namespaces.private_folder() / f"disk-{status.st_rdev or status.st_dev}.lock"
