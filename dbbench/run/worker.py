"""Run a trial, build a golden copy, or measure the bare device, in a process of the fork server
(`run/children.py`). As root it has mount, pid and ipc namespaces: if it or its parent is killed,
the kernel ends every server, mount and loop device. Without root (kind `dir`) each program is
tied to its life.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import datasets, process, results
from dbbench.datasets.golden import cache_folder
from dbbench.errors import (
    EXIT_TRIAL_FAILED,
    DatasetBuildFailed,
    DbbenchError,
    DeadlinePassed,
    Interrupted,
    RunLocked,
    Terminated,
)
from dbbench.machine import namespaces
from dbbench.model import Json, Phase, Run
from dbbench.model.base import adapter
from dbbench.model.events import Emit, Event
from dbbench.plan import identity
from dbbench.plan.catalog import MOST_SCRIPT
from dbbench.results import RunFolder
from dbbench.results.fileio import naming_full, read_input
from dbbench.results.merging import own_scripts
from dbbench.results.trials import ELSEWHERE
from dbbench.run.children import serve
from dbbench.run.record import Record, translate
from dbbench.run.stages import attach, restore
from dbbench.run.trial import run_trial
from dbbench.run.workdir import WorkDir
from dbbench.storage import devices
from dbbench.storage.devices import canary, ceiling, image
from dbbench.storage.devices.guard import Permit


@dataclass(frozen=True)
class Request:
    """The work of a process. Identity and disks are the command's: a results folder may come from
    someone else.
    """

    work: str  # "trial", "golden" or "ceiling"
    folder: str
    sha256: str  # the identity of the user's plan
    wipe: Sequence[str] = ()  # typed identities of the disks that may be erased
    item: str = ""  # the id of the trial, or of the cell whose golden copy is built


def must_be(run: Run, sha256: str) -> None:
    """Raise RunLocked if plan, cells and scripts of run.json are not those of the user's plan."""
    if identity(run.plan, run.cells) != sha256:
        raise RunLocked(
            f"run.json or a script of {run.name} is not what the command has checked",
            effect="Nothing was executed.",
            remedy="Find out which process changed it, then start another run with --name.",
        )


def private(run: Run, workdir: WorkDir, sha256: str) -> Run:
    """Return the run with scripts that no other process can change. Raises RunLocked if it is not
    the user's.
    """
    for cell in run.cells:
        for script in map(Path, (cell.workload.script, *cell.workload.beside)):
            if script.is_absolute():
                copy = workdir.root / "scripts" / script.name
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(read_input(script, MOST_SCRIPT))
    run = dataclasses.replace(run, cells=own_scripts(run.cells, workdir.root))
    must_be(run, sha256)
    return run


def main(document: Json) -> int:
    """Do the work of a `Request`. Return 0 if it is published (also a failed trial), else report an
    `error` event.
    """
    request = Request(**document)
    os.umask(0o022)
    emit = events_to(os.dup(1))
    folder = RunFolder(Path(request.folder))
    run = folder.run
    path = folder.path

    # Root executes copies of the scripts, which no other process can change.
    def work(workdir: WorkDir) -> None:
        folder.run = private(run, workdir, request.sha256)
        WORKS[request.work](folder, request, workdir, emit)

    try:
        if os.geteuid() != 0:
            return _without_namespaces(work, folder, emit)
        # What the process keeps of the machine's directories.
        keep = [path, *image.folders_of_images(run, path), datasets.golden.cache_folder()]
        keep += map(Path, run.plan.device.directories.values())
        for cell in run.cells:
            keep += datasets.sources.places(cell.dataset)
        if run.plan.client is not None:  # the files that ssh reads and the file of the password
            keep.append(Path(run.plan.client.password_file))
            keep.append(Path(os.environ.get("SSH_AUTH_SOCK", "/")))
        workdir = WorkDir(namespaces.RUNTIME, path / ELSEWHERE)
        return namespaces.isolate(lambda: guard(work, workdir, emit), keep=keep)
    except DbbenchError as error:
        return report(error, emit)


def _build_golden(
    folder: RunFolder,
    request: Request,
    workdir: WorkDir,
    emit: Emit,
) -> None:
    """Build the golden copy of a cell; whatever fails is an error of dbbench, which reaches the
    user.
    """
    cell = folder.run.cell(request.item)
    title = f"the dataset of {cell.workload.name} on {cell.engine.name}"
    effect = "The copy was removed; nothing was measured."
    # A copy is built before the first trial, so that its deadline is that of restoring it.
    asked_s = folder.run.plan.deadlines.get(Phase.RESTORE)
    try:
        with (
            process.in_phase(Phase.RESTORE.value, asked_s),
            process.on_disk(lambda: canary.slowness(canary.measure(cache_folder()))),
        ):
            restore.ensure_golden(cell, workdir, emit)
    # The deadline's own message names a trial, and there is none.
    except DeadlinePassed as error:
        raise DatasetBuildFailed(
            f"{title}: {error.evidence}",
            effect=effect,
            remedy=error.remedy,
        ) from error
    except DbbenchError as error:
        if error.exit_code == EXIT_TRIAL_FAILED:  # there is no trial yet
            error.effect = effect
        raise
    # A fault of dbbench: its traceback is in launcher.log, its cause on the screen.
    except Exception as error:
        traceback.print_exc()
        cause = translate(error, workdir.root)
        kind = type(cause) if isinstance(cause, DbbenchError) else DatasetBuildFailed
        raise kind(
            f"{title}: {type(error).__name__}: {error}",
            effect=effect,
            remedy="If the message does not say what to correct, report it with launcher.log of the "
            "run.",
        ) from error


def _measure_ceiling(
    folder: RunFolder,
    request: Request,
    workdir: WorkDir,
    _emit: Emit,
) -> None:
    """Measure the first device without a filesystem: before the run with each of the limits, or
    again after it.
    """
    run = folder.run
    path = folder.path
    longest = max(cell.window.measure_s for cell in run.cells)
    permit = Permit(request.wipe, folder.journal)
    # Only the disks of the data, erased, so that fio finds no filesystem.
    disk_set = devices.DiskSet(run.plan.device, image.images_of(run, path).get("data", ()))
    with devices.attach({"data": disk_set}, permit) as volumes:
        disks = volumes["data"].each
        permit.note(disks)
        attach.erase(disks)
        disk = disks[0]
        each_s = ceiling.row_seconds(longest)
        seed = run.plan.seed
        facts = ceiling.measure(disk, each_s, seed)
        # The second measurement goes next to the first one; limits are measured once.
        first = results.load_ceiling(path)
        if first is not None:
            facts = dataclasses.replace(first, again=facts.rows)
        elif run.plan.device.limit and facts.rows:
            limits = []
            for level in run.plan.device.limit.throttled:
                args = (disk, level, each_s, seed, folder.journal, workdir.root)
                limits.append(ceiling.measure_limit(*args))
            facts = dataclasses.replace(facts, limits=tuple(limits))
        results.save_ceiling(path, facts)


def _run_trial(
    folder: RunFolder,
    request: Request,
    workdir: WorkDir,
    emit: Emit,
) -> None:
    record = Record(folder, folder.run.trial(request.item), emit)
    images = image.images_of(folder.run, folder.path)
    try:
        run_trial(
            record,
            workdir,
            images,
            Permit(request.wipe, folder.journal),
        )
    finally:
        shutil.rmtree(workdir.elsewhere, ignore_errors=True)


WORKS: Final = {
    "trial": _run_trial,
    "golden": _build_golden,
    "ceiling": _measure_ceiling,
}


def guard(
    work: Callable[[WorkDir], None],
    workdir: WorkDir,
    emit: Emit,
) -> int:
    """Do the work in its directory; return 0, or the exit status of the error, which is reported to
    the parent.
    """
    _signals_are_errors(emit)
    try:
        with naming_full(workdir.elsewhere.parent):
            workdir.make()
            work(workdir)
    except DbbenchError as error:
        return report(error, emit)
    return 0


def _without_namespaces(
    work: Callable[[WorkDir], None],
    folder: RunFolder,
    emit: Emit,
) -> int:
    namespaces.die_with_parent()
    journal = folder.journal
    runtime = Path(tempfile.mkdtemp(prefix=f"dbbench-{journal.tag}-", dir="/tmp"))
    journal.take("runtime", runtime)
    try:
        return guard(work, WorkDir(runtime, folder.path / ELSEWHERE), emit)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
        journal.release("runtime", runtime)


def _signals_are_errors(emit: Emit) -> None:
    """Turn the first SIGINT or SIGTERM into an exception; further signals do not interrupt the
    cleanup. Forked processes do the same without a note.
    """
    process_id = os.getpid()

    def stop(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.getpid() == process_id:
            again = "; a second Ctrl-C stops at once" if number == signal.SIGINT else ""
            emit(Event("note", {"text": f"stopping cleanly{again}"}))
        raise (Interrupted if number == signal.SIGINT else Terminated)("stopped on request")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def report(error: DbbenchError, emit: Emit) -> int:
    """Report an error that ended the work to the parent, with all its parts; return its exit code."""
    emit(Event("error", error.as_data()))
    return error.exit_code


def events_to(fd: int) -> Emit:
    """Return a function that writes events to `fd`, one JSON object per line. A closed reader is
    not an error.
    """

    def emit(event: Event) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, f"{event.line()}\n".encode())

    return emit


if __name__ == "__main__":
    gc.set_threshold(50_000)  # as in `dbbench/__main__.py`
    # Once per run instead of once per trial.
    adapter(Run)
    for library in ("numpy", "psycopg2", "mysql.connector"):
        with contextlib.suppress(ImportError):  # a trial that needs the missing library says so
            importlib.import_module(library)
    serve(main)
