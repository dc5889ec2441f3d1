"""The supervisor: a daemon that runs a host's trials, started once by the host's worker
(`python -m dbbench.fleet.supervisor FOLDER SHA256 ID...`). Its input is the run's directory, the identity of the user's
plan, and the devices that may be wiped.

It is a `dbbench run` that reports its state and accepts new blocks between two trials. It outlives the worker that
started it, the scheduler and the coordinator; its trials end with it. All state is in the directory: if it is killed,
the next question starts another one, which continues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol

from dbbench import process, results
from dbbench.errors import CoordinatorGone, DbbenchError, Terminated
from dbbench.fleet.room import HostState, Room
from dbbench.machine import namespaces
from dbbench.model import Run
from dbbench.model.events import Emit, Event
from dbbench.results.fileio import own_file, try_lock

HANDOVER_S: Final = 120.0  # if the coordinator asks but does not collect results, the run continues without it
_POLL_S: Final = 0.2


class Note(Protocol):
    """The type of `Keeper.note`."""

    def __call__(self, text: str, waits_for: str = "") -> None: ...


class Drive(Protocol):
    """The type of the function that runs the trials."""

    def __call__(self, folder: Path, *, emit: Emit, between: Callable[[Run], Run]) -> object: ...


def supervise(folder: Path, drive: Drive, checked: Callable[[Run], Run]) -> None:
    """Run what is assigned to this host until nothing is left. The caller holds the lock.

    `checked` returns the run without what this machine cannot do, or raises why nothing can run. What stops it is
    recorded in the state.
    """
    room = Room(folder)
    keeper = Keeper(room)
    try:
        with Turn(folder) as turn:
            keeper.turn = turn
            run = room.wanted(results.load_spec(folder))
            turn.take(run, None, keeper.note)
            results.save_spec(folder, checked(run))
            drive(folder, emit=keeper.emit, between=keeper.between)
    except DbbenchError as error:
        keeper.ended(error)
    except BaseException as error:
        keeper.ended(DbbenchError(f"{type(error).__name__}: {error}", remedy=f"See {room.path / 'supervisor.log'}."))
        raise
    else:
        keeper.ended(None)


class Keeper:
    """Reports the state of the supervisor; between trials it hands over results and accepts new blocks."""

    def __init__(self, room: Room) -> None:
        self.room, self.turn = room, Turn(room.folder)
        self._state = HostState(since=time.time())
        self._took_s: list[float] = []
        self._began = 0.0

    def emit(self, event: Event) -> None:
        """Follow the run's events. During a phase the state is not written, because that would be load."""
        data = event.data
        match event.kind:
            case "trial_begin":
                self._began = time.monotonic()
                self._tell(trial=str(data["id"]), phase="begin", note="", waits_for="")
            case "phase_begin":
                self._tell(phase=str(data["phase"]))
            case "prepare" if str(data["what"]) != self._state.note:
                self.note(str(data["what"]))
            case "trial_end":
                self._took_s.append(time.monotonic() - self._began)
                self._tell(trial="", phase="", mean_s=sum(self._took_s) / len(self._took_s))
                self.room.ring("bell")

    def between(self, run: Run) -> Run:
        """Accept new blocks; `queue.execute` calls this before each trial."""
        self._hand_over()
        must_be_wanted(self.room.folder)
        trials_left = self.room.wanted(run)
        if trials_left is not run:
            results.save_spec(self.room.folder, trials_left)
        left = results.pending(self.room.folder, trials_left)
        self._tell(left=len(left), used_s=trials_left.budget.used_s if trials_left.budget else 0.0)
        if left:
            self.turn.take(trials_left, left[0].block, self.note)
        return trials_left

    def note(self, text: str, waits_for: str = "") -> None:
        """Report what is done between trials."""
        self._tell(note=text, waits_for=waits_for)

    def ended(self, error: DbbenchError | None) -> None:
        """Report the end."""
        self._tell(
            trial="", phase="", note="", waits_for="", ended=True, error=None if error is None else described(error)
        )
        self.room.ring("bell")

    def _hand_over(self) -> None:
        """Let results be copied before the next trial begins; do not wait for a coordinator that does not ask."""
        until = time.monotonic() + HANDOVER_S
        with self.room.hearing("ack") as bell:
            while self.room.listened() and time.monotonic() < until and self.room.untaken():
                bell.wait(1.0)

    def _tell(self, **news: object) -> None:
        self._state = dataclasses.replace(self._state, since=time.time(), **news)  # type: ignore[arg-type]
        self.room.tell(self._state)


class Turn:
    """Allow one trial at a time on a disk, for all runs of this machine: a lock that is kept for a whole block.

    A waiting process also holds a second lock, for which all others queue, so that the run that releases the disk does
    not get it back at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fd: int | None = None
        self._block: int | None = None

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_error: object) -> None:
        self._give()

    def take(self, run: Run, block: int | None, note: Note) -> None:
        """Wait until the disk belongs to this run, and keep it while the block is the same (None: preparations).

        Raises CoordinatorGone.
        """
        if self._fd is None or self._block not in (block, None):
            self._give()
            path = lock_of(run, self.folder)
            with _held(path.with_suffix(".queue"), path, self.folder, note):
                self._fd = _locked(path, path, self.folder, note)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, os.fsencode(self.folder), 0)  # waiting processes read here which run uses the disk
        self._block = block

    def _give(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def must_be_wanted(folder: Path) -> None:
    """Raise CoordinatorGone if the run's host is on this machine and its coordinator has ended."""
    from dbbench.fleet import ledger  # imported here, because a worker does not need the code that makes plans

    if ledger.abandoned(folder):
        raise CoordinatorGone(
            f"{folder.parent.name} found no coordinator of the fleet {folder.parents[2].name}",
            effect="It stopped after its current trial. Finished trials are kept.",
            remedy="Run the same `dbbench fleet run` command again to resume. With --detach, hosts continue without "
            "it.",
        )


def _locked(path: Path, disk: Path, folder: Path, note: Note) -> int:
    """Lock the file `path`; return its descriptor, whose closing releases the lock. The file `disk` names the run that
    uses it.

    This polls, because the coordinator may end meanwhile.
    """
    fd = own_file(path, os.O_RDWR, 0o600)
    last_user = None
    try:
        while True:
            if try_lock(fd):
                return fd
            if (has := disk.read_text(errors="replace") if disk.exists() else "") != last_user:
                note(f"waiting for the disk, which is used by {has or 'another run'}", has)
                last_user = has
            must_be_wanted(folder)
            time.sleep(_POLL_S)
    except BaseException:
        os.close(fd)
        raise


@contextlib.contextmanager
def _held(path: Path, disk: Path, folder: Path, note: Note) -> Iterator[None]:
    """Hold the lock file within the block."""
    fd = _locked(path, disk, folder, note)
    try:
        yield
    finally:
        os.close(fd)


def lock_of(run: Run, folder: Path) -> Path:
    """Return the lock file of the disk that the run uses."""
    from dbbench.storage.devices import image  # imported here, because it imports all kinds of devices

    device = run.plan.device
    if device.imaged:
        path = image.folders_of_images(run, folder)[0]
    else:
        named = device.paths.values() if isinstance(device.paths, dict) else device.paths
        path = Path(next(iter(named), device.path or str(folder)))
    status = path.stat() if path.exists() else folder.stat()  # a missing path is refused later
    number = status.st_rdev or status.st_dev
    return namespaces.private_folder() / f"disk-{number}.lock"


def described(error: DbbenchError) -> dict[str, object]:
    """Return an error as data, so that another process can raise it again."""
    return {"id": error.id, "evidence": error.evidence, "where": error.where,
            "effect": error.effect, "remedy": error.remedy}  # fmt: skip


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Hold the lock of the directory's supervisor; yield False if one is running."""
    room = Room(folder)
    room.make()
    with room.supervising() as held:
        yield held


def main(folder: Path, sha256: str, wipe: tuple[str, ...]) -> None:
    """Become a daemon and run the trials assigned to this host. Returns at once if another supervisor already does."""
    from dbbench.plan import Expanded  # imported here, because a worker needs `described` only
    from dbbench.plan.request import Asked
    from dbbench.run.preflight import check_run
    from dbbench.run.queue import execute
    from dbbench.run.worker import must_be

    room = Room(folder)

    def checked(run: Run) -> Run:
        must_be(run, sha256)
        request = Asked("", run.plan, Expanded(run.cells, run.order), run.plan_sha256)
        check_run(request, "PLAN", folder.parent, results.RunFolder(folder), wipe)
        return run

    def stopped(_number: int, _frame: object) -> NoReturn:
        raise Terminated("stopped on request")

    with alone(folder) as held:
        if held:
            process.become_daemon(own_file(room.path / "supervisor.log", os.O_WRONLY | os.O_APPEND, 0o644))
            room.sign()
            signal.signal(signal.SIGTERM, stopped)  # handled also while waiting for the disk
            supervise(folder, partial(execute, sha256=sha256, wipe=wipe), checked)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:]))
