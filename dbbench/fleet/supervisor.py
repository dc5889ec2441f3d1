"""What drives a host's trials: a daemon of its own, started once, by the run's folder alone.

It is a `dbbench run` that tells where it stands and takes what is dealt to it between two trials. It outlives the
worker that started it, the scheduler and the coordinator; its trials go with it. The folder is the truth: where it was
killed, the next question starts another, which goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from dbbench import store
from dbbench.errors import DbbenchError
from dbbench.fleet.room import Room
from dbbench.fleet.words import State
from dbbench.model import Run
from dbbench.progress.events import Emit, Event

HANDOVER_S: Final = 120.0  # a coordinator that asks, but does not take: the night goes on without it
_LOCKS: Final = Path("/run/lock")


class Drive(Protocol):
    """`runner.execute`, or what stands in for it."""

    def __call__(self, folder: Path, *, wipe: tuple[str, ...], emit: Emit, between: Callable[[Run], Run]) -> object: ...


def supervise(folder: Path, drive: Drive, checked: Callable[[Run], Run]) -> None:
    """Drive what is dealt to this host until nothing is left. The caller holds the room's lock.

    `checked` gives the run back without what this machine cannot do, or raises why nothing can be driven. What stops
    it is told in the state.
    """
    room = Room(folder)
    keeper = Keeper(room)
    try:
        with Turn(folder) as turn:
            keeper.turn = turn
            run = room.wanted(store.load_spec(folder))
            turn.take(run, None, keeper.note)
            store.save_spec(folder, checked(run))
            drive(folder, wipe=room.dealt()[1], emit=keeper.emit, between=keeper.between)
    except DbbenchError as error:
        keeper.ended(error)
    except BaseException as error:
        keeper.ended(DbbenchError(f"{type(error).__name__}: {error}", remedy=f"See {room.path / 'supervisor.log'}."))
        raise
    else:
        keeper.ended(None)


class Keeper:
    """Tells where the supervisor stands; between trials hands over and takes what was dealt."""

    def __init__(self, room: Room) -> None:
        self.room, self.turn = room, Turn(room.folder)
        self._state = State(since=time.time())
        self._took_s: list[float] = []
        self._began = 0.0

    def emit(self, event: Event) -> None:
        """Follow the run's events; a state is written when a phase begins, never in between."""
        data = event.data
        match event.kind:
            case "trial_begin":
                self._began = time.monotonic()
                self._tell(trial=str(data["id"]), phase="begin", note="")
            case "phase_begin":
                self._tell(phase=str(data["phase"]))
            case "prepare" if str(data["what"]) != self._state.note:
                self.note(str(data["what"]))
            case "trial_end":
                self._took_s.append(time.monotonic() - self._began)
                self._tell(trial="", phase="", mean_s=sum(self._took_s) / len(self._took_s))
                self.room.ring("bell")

    def between(self, run: Run) -> Run:
        """What `runner.execute` calls before each trial."""
        self._hand_over()
        wanted = self.room.wanted(run)
        if wanted is not run:
            store.save_spec(self.room.folder, wanted)
        left = store.pending(self.room.folder, wanted)
        self._tell(left=len(left))
        if left:
            self.turn.take(wanted, left[0].block, self.note)
        return wanted

    def note(self, text: str) -> None:
        """Say what is being done between trials."""
        self._tell(note=text)

    def ended(self, error: DbbenchError | None) -> None:
        """The last word."""
        self._tell(trial="", phase="", note="", ended=True, error=None if error is None else described(error))
        self.room.ring("bell")

    def _hand_over(self) -> None:
        """Results travel now, before the next trial begins; nobody is waited for who does not ask."""
        until = time.monotonic() + HANDOVER_S
        with self.room.hearing("ack") as bell:
            while self.room.listened() and time.monotonic() < until and self.room.untaken():
                bell.wait(1.0)

    def _tell(self, **news: object) -> None:
        self._state = dataclasses.replace(self._state, since=time.time(), **news)  # type: ignore[arg-type]
        self.room.tell(self._state)


class Turn:
    """One trial at a time on a disk, whoever else of this machine has blocks to drive: a lock that is kept for a
    whole block. Who waits for it holds a second one, where all others queue: who gives the disk up is not the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fd: int | None = None
        self._block: int | None = None

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_error: object) -> None:
        self._give()

    def take(self, run: Run, block: int | None, note: Callable[[str], None]) -> None:
        """Wait until the disk is ours; keep it as long as the block is the same (None: preparations)."""
        if self._fd is None or self._block not in (block, None):
            self._give()
            path = lock_of(run, self.folder)
            queue = _locked(path.with_suffix(".queue"), note)
            self._fd = _locked(path, note)
            os.close(queue)
        self._block = block

    def _give(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def _locked(path: Path, note: Callable[[str], None]) -> int:
    """The lock file, open and held; closing it gives it up."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("waiting for the disk, which another run uses")
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def lock_of(run: Run, folder: Path) -> Path:
    """The lock file of the disk that the run works on."""
    from dbbench import images  # with all kinds of devices

    device = run.plan.device
    if device.kind == "loop":
        path = images.folders(run, folder)[0]
    else:
        named = device.paths.values() if isinstance(device.paths, dict) else device.paths
        path = Path(next(iter(named), device.path or str(folder)))
    found = path.stat() if path.exists() else folder.stat()  # what is not there is refused a moment later
    number = found.st_rdev or found.st_dev
    place = _LOCKS if os.access(_LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    return place / f"dbbench-{os.geteuid()}-disk-{number}.lock"


def described(error: DbbenchError) -> dict[str, object]:
    """An error as data, to be raised again elsewhere."""
    return {"class": type(error).__name__, "evidence": error.evidence, "where": error.where,
            "effect": error.effect, "remedy": error.remedy}  # fmt: skip


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Hold the lock of the folder's supervisor; False where one is at work."""
    room = Room(folder)
    room.make()
    with room.supervising() as held:
        yield held
