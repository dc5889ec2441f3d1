"""The files of a run's folder by which supervisor and worker know of each other, on one host.

fleet/dealt.json    the order of this host, as the coordinator last dealt it, and what may be wiped
fleet/state.json    where the supervisor stands
fleet/taken.json    ids of trials that the coordinator holds
fleet/listening     its time: when a coordinator last asked
fleet/lock          held by the supervisor as long as it lives
fleet/bell          a FIFO: a trial is over, or the supervisor is; who waits for it sleeps until then
fleet/ack           another one: the coordinator holds more, or has dealt
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import select
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from dbbench import store
from dbbench.fleet.words import State
from dbbench.model import Run, TrialSpec, plain
from dbbench.store.files import write_json

LISTENING_S: Final = 5.0  # after a question: an answer goes home and the next question comes back

_STATE: Final = TypeAdapter(State)


class Room:
    """One run's folder on a host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "fleet"

    def make(self) -> None:
        """Make the folder and its FIFOs."""
        self.path.mkdir(exist_ok=True)
        for name in ("bell", "ack"):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.path / name, 0o600)

    # --- what was dealt ---

    def deal(self, order: tuple[TrialSpec, ...], wipe: tuple[str, ...]) -> None:
        """Write down the host's order."""
        write_json(self.path / "dealt.json", {"order": plain(order), "wipe": wipe})
        self.ring("ack")

    def dealt(self) -> tuple[tuple[TrialSpec, ...], tuple[str, ...]]:
        """(order, identities that may be wiped); nothing before the first deal."""
        path = self.path / "dealt.json"
        try:
            return _dealt(path, _stamp(path))
        except (FileNotFoundError, ValueError):
            return (), ()

    def wanted(self, run: Run) -> Run:
        """The run with what was dealt meanwhile. Blocks that are new stand last: one that was begun is finished
        first. Those that went to another host are dropped, unless they were begun."""
        order, done = self.dealt()[0], store.finished(self.folder)
        blocks, known = {spec.block for spec in order}, {spec.id for spec in run.order}
        begun = {spec.block for spec in run.order if spec.id in done}
        kept = [spec for spec in run.order if spec.block in blocks | begun]
        merged = (*kept, *(spec for spec in order if spec.id not in known))
        return run if merged == run.order else dataclasses.replace(run, order=merged)

    def run(self) -> Run:
        """The content of run.json, read again only where it has changed: a host is asked while it measures."""
        return _run(self.folder, _stamp(self.folder / "run.json"))

    # --- where the supervisor stands ---

    def tell(self, state: State) -> None:
        """Write the state, whole (not durable: it is of the moment). It is looked at when somebody asks."""
        temporary = self.path / ".state.tmp"
        temporary.write_text(json.dumps(dataclasses.asdict(state)))
        temporary.rename(self.path / "state.json")

    def state(self) -> State:
        """What was told last."""
        known = self._read("state.json")
        return State() if known is None else _STATE.validate_python(known)

    @contextlib.contextmanager
    def supervising(self) -> Iterator[bool]:
        """Hold the supervisor's lock; False where another one does."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)  # the pid of the last one
                held = True
            except BlockingIOError:
                held = False
            yield held
        finally:
            os.close(fd)

    def sign(self) -> None:
        """The supervisor's pid goes into its lock file, for who wants to stop it."""
        (self.path / "lock").write_text(str(os.getpid()))

    def supervisor(self) -> int | None:
        """The pid of the supervisor, None where none is alive."""
        with self.supervising() as free:
            if free:
                return None
        text = (self.path / "lock").read_text()
        return int(text) if text.isdecimal() else None

    def supervised(self) -> bool:
        """Whether a supervisor is alive."""
        with self.supervising() as free:
            return not free

    # --- handing over ---

    def listen(self) -> None:
        """A coordinator is asking."""
        (self.path / "listening").touch()

    def listened(self) -> bool:
        """Whether one asked lately."""
        try:
            return time.time() - (self.path / "listening").stat().st_mtime < LISTENING_S
        except FileNotFoundError:
            return False

    def acknowledge(self, taken: tuple[str, ...]) -> None:
        """Write down what the coordinator holds."""
        if self._read("taken.json") != list(taken):
            (self.path / "taken.json.tmp").write_text(json.dumps(taken))
            (self.path / "taken.json.tmp").rename(self.path / "taken.json")
        self.ring("ack")

    def untaken(self) -> list[str]:
        """Finished trials that no coordinator holds yet, in the order of the run."""
        return self.finished_beyond(set(self._read("taken.json") or ()))

    def finished_beyond(self, taken: Collection[str]) -> list[str]:
        """Finished trials of the blocks that are this host's, without those of `taken`, in the order of the run."""
        blocks = {spec.block for spec in self.dealt()[0]}
        new = store.finished(self.folder).difference(taken)
        return [spec.id for spec in self.run().order if spec.block in blocks and spec.id in new]

    # --- bells ---

    def ring(self, name: str) -> None:
        """Wake who waits at the bell. Nobody there, or one that is full already, is no error."""
        with contextlib.suppress(OSError):
            fd = os.open(self.path / name, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(fd, b".")
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def hearing(self, name: str) -> Iterator[Bell]:
        """Hear a bell while the block lasts, also what rings between two waits."""
        fd = os.open(self.path / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield Bell(fd)
        finally:
            os.close(fd)

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except (FileNotFoundError, ValueError):
            return None


def _stamp(path: Path) -> tuple[int, int]:
    """What is another one once the file was replaced."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


@functools.lru_cache(maxsize=1)
def _run(folder: Path, _stamp: tuple[int, int]) -> Run:
    return store.load_spec(folder)


@functools.lru_cache(maxsize=1)
def _dealt(path: Path, _stamp: tuple[int, int]) -> tuple[tuple[TrialSpec, ...], tuple[str, ...]]:
    known = json.loads(path.read_text())
    return tuple(TrialSpec(**spec) for spec in known["order"]), tuple(known["wipe"])


@dataclasses.dataclass(frozen=True)
class Bell:
    """An open FIFO."""

    fd: int

    def wait(self, seconds: float) -> None:
        """Sleep until it rings, or that long."""
        if select.select([self.fd], [], [], max(0.0, seconds))[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 4096)
