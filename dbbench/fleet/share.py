"""The process on a host that runs a part of a fleet's run (`python -m dbbench.fleet.share RESULTS
HOST`, a `task.PartWork` as JSON on standard input, events on standard output). It runs the trials
as `dbbench run --share` does, in the run's directory on the host, and resumes what an earlier
process has left there. It ends with its worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbbench import __version__, results
from dbbench.errors import DbbenchError, RunNameTaken
from dbbench.machine import host, namespaces
from dbbench.machine.host import tunables
from dbbench.model import Run, TrialSpec
from dbbench.model.events import Emit, Event
from dbbench.plan import Expanded
from dbbench.plan.request import PlanRequest
from dbbench.results import merging
from dbbench.results.fileio import own_file, try_lock
from dbbench.run.preflight import check_run
from dbbench.run.queue import execute
from dbbench.storage.devices import image


def main(results_folder: Path, host_name: str) -> int:
    """Run the part that standard input describes; return the exit status."""
    namespaces.die_with_parent()
    try:
        run_share(json.load(sys.stdin), results_folder, host_name, _emit)
    except DbbenchError as error:
        _emit(Event("error", error.as_data()))
        return 1
    return 0


def _emit(event: Event) -> None:
    print(event.line(), flush=True)


def run_share(
    work: dict[str, Any],
    results_folder: Path,
    host_name: str,
    emit: Emit,
) -> None:
    """Run the trials of a part. Raises RunNameTaken, RunLocked, and what `execute` raises."""
    run = results.parsed_spec(work["spec"].encode())
    folder = results_folder / merging.checked_name(run.name)
    wipe = tuple(work["wipe"])
    with disk_turn(run, folder, emit):
        _make_run(work, run, folder, host_name)
        run_folder = results.RunFolder(folder)
        own = run_folder.run
        request = PlanRequest("", own.plan, Expanded(own.cells, own.order), run.plan_sha256)
        check_run(request, "PLAN", results_folder, run_folder, wipe)
        execute(folder, run.plan_sha256, wipe=wipe, emit=emit)


def _make_run(
    work: dict[str, Any],
    run: Run,
    folder: Path,
    host_name: str,
) -> None:
    """Make the run's directory, or set the order of the one that exists."""
    cells = merging.own_scripts(run.cells, folder)
    if (folder / "run.json").exists():
        there = results.RunFolder(folder)
        if there.run.plan_sha256 != run.plan_sha256:
            raise RunNameTaken(
                f"{folder} on {host_name} contains another plan",
                remedy="Choose another name with --name.",
            )
        results.must_match(there, run.plan, cells, work["scripts"])
        order = (*run.order, *_added(run, there.run))
        with results.lock(folder):
            results.save_spec(folder, dataclasses.replace(there.run, order=order))
    else:
        made = dataclasses.replace(
            run,
            cells=cells,
            host={**host.facts(), "hostname": host_name, "state": tunables.state()},
            versions=host.versions(),
            dbbench_version=__version__,
        )
        results.create_run(folder.parent, made, work["plan"])
    merging.keep_scripts(folder, work["scripts"])


def _added(run: Run, there: Run) -> list[TrialSpec]:
    """Return the trials that this host has added to the part: repeats, and blocks of a budget."""
    known = {spec.id for spec in run.order}
    attempts = {spec.block: spec.attempt for spec in run.order}
    return [
        spec
        for spec in there.order
        if spec.id not in known
        and (run.budget is not None or spec.attempt > attempts.get(spec.block, spec.attempt))
    ]


@contextlib.contextmanager
def disk_turn(run: Run, folder: Path, emit: Emit) -> Iterator[None]:
    """Hold the lock of the disk that the run uses within the block; trials on one disk take turns."""
    path = lock_of(run, folder)
    fd = own_file(path, os.O_RDWR, 0o600)
    try:
        if not try_lock(fd):
            user = path.read_text(errors="replace") or "another run"
            emit(Event("prepare", {"what": f"waiting for the disk, which is used by {user}"}))
            fcntl.flock(fd, fcntl.LOCK_EX)
        # Waiting processes read here which run uses the disk.
        os.ftruncate(fd, 0)
        os.pwrite(fd, os.fsencode(folder), 0)
        yield
    finally:
        os.close(fd)


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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
