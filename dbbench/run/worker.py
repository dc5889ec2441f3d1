"""Run a trial, build a golden copy, or measure the bare device, in a process of the fork server (`run/children.py`).

As root it uses private mount, pid and ipc namespaces: if it or its parent is killed, the kernel ends every server,
mount and loop device. Without root (kind `dir`) each program is tied to its life, and the journal records the
directories to release. stdout carries progress events, one JSON object per line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import datasets, results
from dbbench.errors import DatasetBuildFailed, DbbenchError, Interrupted, RunLocked, Terminated
from dbbench.machine import namespaces
from dbbench.model import Run
from dbbench.model.events import Emit, Event
from dbbench.plan import identity
from dbbench.plan.catalog import MOST_SCRIPT
from dbbench.results import Draft
from dbbench.results.fileio import given, naming_full
from dbbench.results.journal import Journal
from dbbench.results.merging import own_scripts
from dbbench.results.trials import ELSEWHERE
from dbbench.run.children import serve
from dbbench.run.job import Job, RunPermit, WorkDir
from dbbench.run.record import Record, named
from dbbench.run.stages import dataset, device
from dbbench.run.trial import run_trial
from dbbench.storage import devices
from dbbench.storage.devices import condition, image

RUNTIME: Final = Path("/run/dbbench")  # short, because the path of a socket has at most 107 bytes
WIPE: Final = "DBBENCH_WIPE"  # environment variable: typed identities of devices, separated by newlines
IDENTITY: Final = "DBBENCH_IDENTITY"  # environment variable: the identity of the user's plan


def environment(sha256: str, wipe: tuple[str, ...] = ()) -> dict[str, str]:
    """Return what a process needs to know from the command, because a results folder may come from someone else."""
    return {IDENTITY: sha256, WIPE: "\n".join(wipe)}


def must_be(run: Run, sha256: str) -> None:
    """Raise RunLocked if plan, cells and scripts of run.json are not those of the user's plan."""
    if identity(run.plan, run.cells) != sha256:
        raise RunLocked(
            f"run.json or a script of {run.name} is not what the command has checked",
            effect="Nothing was executed.",
            remedy="Find out which process changed it, then start another run with --name.",
        )


def private(run: Run, workdir: WorkDir) -> Run:
    """Return the run with its scripts in the trial's own directory, where no other process can change them. Raises
    RunLocked if the run is not that of the user's plan."""
    for cell in run.cells:
        for script in map(Path, (cell.workload.script, *cell.workload.beside)):
            if script.is_absolute():
                copy = workdir.root / "scripts" / script.name
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(given(script, MOST_SCRIPT))
    run = dataclasses.replace(run, cells=own_scripts(run.cells, workdir.root))
    must_be(run, os.environ[IDENTITY])
    return run


def main(argv: list[str]) -> int:
    """Do the work VERB RUN [ID], where the verb is trial, golden or ceiling.

    Return 0 if it is done and published (a failed trial too), otherwise another exit status after an `error` event with
    the reason.
    """
    verb, folder, rest = argv[0], Path(argv[1]), argv[2:]
    os.umask(0o022)
    emit = events_to(os.dup(1))
    run = results.load_spec(folder)

    def work(workdir: WorkDir) -> None:
        checked = private(run, workdir)
        if verb == "golden":
            _golden(checked, rest[0], workdir, emit)
        elif verb == "ceiling":
            _ceiling(checked, folder)
        else:
            _trial(checked, folder, rest[0], workdir, emit)

    try:
        if os.geteuid() != 0:
            return _without_namespaces(work, folder, emit)
        paths = run.plan.device.paths.values() if isinstance(run.plan.device.paths, dict) else ()
        keep = [folder, *image.folders_of_images(run, folder), datasets.golden.cache_folder(), *map(Path, paths)]
        keep += [path for cell in run.cells for path in datasets.sources.places(cell.dataset)]
        if run.plan.client is not None:  # the files that ssh reads and the file of the password
            keep += [Path(run.plan.client.password_file), Path(os.environ.get("SSH_AUTH_SOCK", "/"))]
        workdir = WorkDir(RUNTIME, folder / ELSEWHERE)
        return namespaces.isolated(lambda: guarded(work, workdir, emit), RUNTIME, keep=keep)
    except DbbenchError as error:
        return reported(error, emit)


def _golden(run: Run, cell_id: str, workdir: WorkDir, emit: Emit) -> None:
    """Build the golden copy of a cell; whatever fails is an error of dbbench, which reaches the user."""
    cell = run.cell(cell_id)
    try:
        dataset.golden_of(cell, workdir, emit)
    except DbbenchError:
        raise
    except Exception as error:
        traceback.print_exc()
        cause = named(error, workdir.root)
        kind = type(cause) if isinstance(cause, DbbenchError) else DatasetBuildFailed
        raise kind(
            f"the dataset of {cell.workload.name} on {cell.engine.name}: {type(error).__name__}: {error}",
            effect="The copy was removed; nothing was measured.",
            remedy="If the message does not say what to correct, report it with launcher.log of the run.",
        ) from error


def _ceiling(run: Run, folder: Path) -> None:
    """Measure what the plan's first device can do without a filesystem: before the run, or again after it."""
    longest = max(cell.window.measure_s for cell in run.cells)
    permit = RunPermit(_typed(), Journal(folder / "journal.jsonl"))
    with devices.attached(run.plan.device, image.images_of(run, folder), permit) as disks:
        permit.note(disks)
        device.erase(disks)
        ceiling, first = condition.measured_ceiling(disks.each[0], longest, run.plan.seed), results.load_ceiling(folder)
        results.save_ceiling(folder, ceiling if first is None else replace(first, again=ceiling.rows))


def _trial(run: Run, folder: Path, trial_id: str, workdir: WorkDir, emit: Emit) -> None:
    spec = run.trial(trial_id)
    cell = run.cell(spec.cell)
    record = Record(run, spec, cell, Draft(folder, trial_id), emit)
    job = Job(run, cell, Journal(folder / "journal.jsonl"), workdir, emit, image.images_of(run, folder), _typed())
    try:
        run_trial(record, job)
    finally:
        shutil.rmtree(workdir.elsewhere, ignore_errors=True)


def _typed() -> tuple[str, ...]:
    """Return the identities of the devices that may be erased."""
    return tuple(os.environ.get(WIPE, "").splitlines())


def guarded(work: Callable[[WorkDir], None], workdir: WorkDir, emit: Emit) -> int:
    """Do the work in its directory; return 0, or the exit status of the error, which is reported to the parent."""
    _signals_are_errors()
    try:
        with naming_full(workdir.elsewhere.parent):
            workdir.make()
            work(workdir)
    except DbbenchError as error:
        return reported(error, emit)
    return 0


def _without_namespaces(work: Callable[[WorkDir], None], folder: Path, emit: Emit) -> int:
    """Do the work in a temporary directory recorded in the journal; die with the parent."""
    namespaces.die_with_parent()
    journal = Journal(folder / "journal.jsonl")
    runtime = Path(tempfile.mkdtemp(prefix=f"dbbench-{journal.tag}-", dir="/tmp"))
    journal.note("take", what="runtime", path=str(runtime))
    try:
        return guarded(work, WorkDir(runtime, folder / ELSEWHERE), emit)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
        journal.note("give_back", what="runtime", path=str(runtime))


def _signals_are_errors() -> None:
    """Turn the first SIGINT or SIGTERM into an exception; further signals do not interrupt the cleanup."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise (Interrupted if number == signal.SIGINT else Terminated)("stopped on request")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def reported(error: DbbenchError, emit: Emit) -> int:
    """Report an error that ended the work to the parent, with all its parts; return its exit code."""
    emit(Event("error", {"id": error.id, "evidence": error.evidence, "where": error.where,
                         "effect": error.effect, "remedy": error.remedy}))  # fmt: skip
    return error.exit_code


def events_to(fd: int) -> Emit:
    """Return a function that writes events to `fd`, one JSON object per line. A closed reader is not an error."""

    def emit(event: Event) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, f"{event.line()}\n".encode())

    return emit


if __name__ == "__main__":
    for client in ("psycopg2", "mysql.connector"):  # once per run instead of once per trial
        with contextlib.suppress(ImportError):  # a trial that needs the missing library says so
            importlib.import_module(client)
    serve(main)
