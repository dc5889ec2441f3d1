"""A trial, or the building of a golden copy, as a process of its own: `python -m dbbench.launcher VERB RUN [ID]`.

As root it works in private mount, pid and ipc namespaces: when it or its parent is killed, the kernel ends every
server, mount and loop device with it. Without root (kind `dir`) programs are tied to its life one by one, and the
journal says which folders are to be given back. stdout carries progress events, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench import ceiling, datasets, devices, images, namespaces, store
from dbbench.errors import DbbenchError, Interrupted, Terminated
from dbbench.journal import Journal
from dbbench.model import Run
from dbbench.parts import Permit, Room, golden_of, real_parts
from dbbench.progress.events import Emit, Event
from dbbench.record import Record
from dbbench.store import Draft
from dbbench.store.trials import ELSEWHERE
from dbbench.trial import run_trial

RUNTIME: Final = Path("/run/dbbench")  # short: a socket's path has at most 107 bytes
WIPE: Final = "DBBENCH_WIPE"  # identities that were typed, for the child; separated by newlines


def main(argv: list[str]) -> int:
    """Exit status 0: the work is done and published (a failed trial too); else an `error` event says why not."""
    verb, folder, rest = argv[0], Path(argv[1]), argv[2:]
    os.umask(0o022)
    emit = events_to(os.dup(1))
    run = store.load_spec(folder)

    def work(room: Room) -> None:
        if verb == "golden":
            golden_of(run.cell(rest[0]), room, emit)
        elif verb == "ceiling":
            _ceiling(run, folder)
        else:
            _trial(run, folder, rest[0], room, emit)

    try:
        if os.geteuid() != 0:
            return _beside_others(work, folder, emit)
        named = run.plan.device.paths.values() if isinstance(run.plan.device.paths, dict) else ()
        keep = [folder, *images.folders(run, folder), datasets.golden.cache_folder(), *map(Path, named)]
        keep += [path for cell in run.cells for path in datasets.sources.places(cell.dataset)]
        if run.plan.client is not None:  # what ssh and the password are read from
            keep += [Path(run.plan.client.password_file), Path(os.environ.get("SSH_AUTH_SOCK", "/"))]
        return namespaces.isolated(lambda: guarded(work, Room(RUNTIME, folder / ELSEWHERE), emit), RUNTIME, keep=keep)
    except DbbenchError as error:
        return told(error, emit)


def _ceiling(run: Run, folder: Path) -> None:
    """Measure what the first device of the plan can do, before a filesystem is on it."""
    longest = max(cell.window.measure_s for cell in run.cells)
    permit = Permit(tuple(os.environ.get(WIPE, "").splitlines()), Journal(folder / "journal.jsonl"))
    with devices.attached(run.plan.device, images.of(run, folder), permit) as device:
        permit.note(device)
        store.save_ceiling(folder, ceiling.measured(device.each[0], longest, run.plan.seed))


def _trial(run: Run, folder: Path, trial_id: str, room: Room, emit: Emit) -> None:
    spec = run.trial(trial_id)
    cell = run.cell(spec.cell)
    record = Record(run, spec, cell, Draft(folder, trial_id), emit)
    typed = tuple(os.environ.get(WIPE, "").splitlines())
    parts = real_parts(run, cell, Journal(folder / "journal.jsonl"), images.of(run, folder), typed, room, emit)
    try:
        run_trial(record, parts, room)
    finally:
        shutil.rmtree(room.elsewhere, ignore_errors=True)


def guarded(work: Callable[[Room], None], room: Room, emit: Emit) -> int:
    """Do the work in its room; exit status 0, or that of the error, which is told."""
    _signals_are_errors()
    try:
        room.make()
        work(room)
    except DbbenchError as error:
        return told(error, emit)
    return 0


def _beside_others(work: Callable[[Room], None], folder: Path, emit: Emit) -> int:
    """Without namespaces: a temporary folder, journalled, and the parent's death as our own."""
    namespaces.die_with_parent()
    runtime = Path(tempfile.mkdtemp(prefix="dbbench-", dir="/tmp"))
    journal = Journal(folder / "journal.jsonl")
    journal.note("take", what="runtime", path=str(runtime))
    try:
        return guarded(work, Room(runtime, folder / ELSEWHERE), emit)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
        journal.note("give_back", what="runtime", path=str(runtime))


def _signals_are_errors() -> None:
    """SIGINT and SIGTERM become exceptions once; what follows is cleaning up and is not disturbed again."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise (Interrupted if number == signal.SIGINT else Terminated)("stopped on request")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def told(error: DbbenchError, emit: Emit) -> int:
    """Tell the parent an error that ended the work, whole; its exit code."""
    emit(Event("error", {"class": type(error).__name__, "evidence": error.evidence, "where": error.where,
                         "effect": error.effect, "remedy": error.remedy}))  # fmt: skip
    return error.exit_code


def events_to(fd: int) -> Emit:
    """A function that writes events to `fd`, one JSON object a line. A reader that is gone is no error."""

    def emit(event: Event) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, f"{event.line()}\n".encode())

    return emit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
