"""How coordinator, worker and supervisor communicate: messages over the network, and files on one host.

Messages are plain data, because the transport pickles them. The files are in the directory of the run:

fleet/dealt.json    the order of this host as last assigned by the coordinator
fleet/state.json    the state of the supervisor
fleet/taken.json    ids of trials that the coordinator has
fleet/listening     its mtime: when a coordinator last asked
fleet/lock          held by the supervisor as long as it lives
fleet/bell          a FIFO: a trial or the supervisor has ended; a waiting process sleeps until then
fleet/ack           another FIFO: the coordinator has more, or has reassigned blocks
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import select
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from dbbench import results
from dbbench.errors import ResultDamaged
from dbbench.model import Run, TrialSpec, plain
from dbbench.results.fileio import (
    NotRegular,
    own_file,
    read_bytes,
    real_folder,
    sound_json,
    try_lock,
    write_json,
    write_text,
)


@dataclass(frozen=True)
class Deal:
    """Make the run's directory on the host if it does not exist; these are its blocks from now on."""

    run: str
    spec: bytes  # run.json with the order of this host
    plan: str
    scripts: dict[str, str]
    wipe: tuple[str, ...]
    version: str  # version of dbbench, which must be the same on both sides


@dataclass(frozen=True)
class See:
    """A question: ensure that the host's blocks are run; answer with the first result that is not in `taken`.

    After `patience_s` the answer comes without one, so that nothing waits for a coordinator that has ended.
    """

    run: str
    blocks: tuple[int, ...]
    taken: tuple[str, ...]
    patience_s: float
    start: bool = True  # start a supervisor if trials are left and none runs


@dataclass(frozen=True)
class Chunk:
    """Bytes of a file of a finished trial."""

    run: str
    trial: str
    file: str
    offset: int


@dataclass(frozen=True)
class Halt:
    """Stop the run's supervisor cleanly."""

    run: str


@dataclass(frozen=True)
class Leave:
    """End the worker; no further questions follow. The supervisor continues."""


Question = Deal | See | Chunk | Halt | Leave


@dataclass(frozen=True)
class Dealt:
    """The host's facts."""

    facts: dict[str, Any]


@dataclass(frozen=True)
class HostState:
    """The state of the supervisor: the content of state.json."""

    trial: str = ""  # "" between trials
    phase: str = ""
    since: float = 0.0  # start of the phase, UTC
    note: str = ""  # what the host prepares or waits for
    waits_for: str = ""  # folder of the run that uses the disk for which this host waits
    mean_s: float | None = None  # mean duration of the trials since the start of this supervisor
    left: int = 0  # trials that are left
    used_s: float = 0.0  # seconds of the budget used so far, by all supervisors of the run
    ended: bool = False
    error: dict[str, Any] | None = None  # the error that stopped it: class, evidence, where, effect, remedy


@dataclass(frozen=True)
class HostSeen:
    """The results of the host. `dealt` is false if it does not know the run, or has other blocks of it."""

    dealt: bool
    state: HostState = field(default_factory=HostState)
    trial: str = ""  # id of a finished trial
    files: tuple[tuple[str, int], ...] = ()  # names of all its files, with their sizes in bytes
    content: dict[str, bytes] = field(default_factory=dict)  # contents of the small files
    repeats: tuple[dict[str, Any], ...] = ()  # trials that the host has added, to repeat blocks


@dataclass(frozen=True)
class Refused:
    """An error of the host, with all its parts."""

    error: dict[str, Any]


Answer = Dealt | HostSeen | bytes | Refused | None


LISTENING_S: Final = 5.0  # time after an answer in which the next question is expected

_STATE: Final = TypeAdapter(HostState)


class Room:
    """The directory of one run on a host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "fleet"

    def make(self) -> None:
        """Make the directory and its FIFOs. Raises ResultNotRegular."""
        real_folder(self.path, self.folder.parent).mkdir(exist_ok=True)
        for name in ("bell", "ack"):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.path / name, 0o600)

    # --- trials of this host ---

    def deal(self, order: tuple[TrialSpec, ...]) -> None:
        """Record the host's order."""
        write_json(self.path / "dealt.json", {"order": plain(order)})
        self.ring("ack")

    def dealt(self) -> tuple[TrialSpec, ...]:
        """Return the host's order; it is empty before the first assignment."""
        path = self.path / "dealt.json"
        try:
            return _dealt(path, _stamp(path))
        except (FileNotFoundError, ValueError):
            return ()

    def wanted(self, run: Run) -> Run:
        """Return the run with blocks assigned since then.

        New blocks are last: a block that was begun is finished first. Blocks that were moved to another host are
        dropped, unless they were begun.
        """
        order, done = self.dealt(), results.finished(self.folder)
        blocks, trial_ids = {spec.block for spec in order}, {spec.id for spec in run.order}
        begun = {spec.block for spec in run.order if spec.id in done}
        kept = [spec for spec in run.order if spec.block in blocks | begun]
        merged = (*kept, *(spec for spec in order if spec.id not in trial_ids))
        return run if merged == run.order else dataclasses.replace(run, order=merged)

    def run(self) -> Run:
        """Return run.json, read again only after a change, because a host is asked while it measures."""
        return _run(self.folder, _stamp(self.folder / "run.json"))

    # --- state and lock of the supervisor ---

    def tell(self, state: HostState) -> None:
        """Write the state; it need not survive a power loss."""
        write_text(self.path / "state.json", json.dumps(dataclasses.asdict(state)), durable=False)

    def state(self) -> HostState:
        """Return the last written state."""
        try:
            return _STATE.validate_python(self._read("state.json") or {})
        except ValidationError:
            return HostState()

    @contextlib.contextmanager
    def supervising(self) -> Iterator[bool]:
        """Hold the supervisor's lock; yield False if another one does. Raises ResultNotRegular, OSError."""
        fd = own_file(real_folder(self.path, self.folder.parent) / "lock", os.O_RDWR, 0o600)
        try:
            if held := try_lock(fd):
                os.ftruncate(fd, 0)  # removes the pid of the previous process
            yield held
        finally:
            os.close(fd)

    def sign(self) -> None:
        """Write the supervisor's pid into its lock file, so that it can be stopped."""
        with os.fdopen(own_file(self.path / "lock", os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(str(os.getpid()))

    def supervisor(self) -> int | None:
        """Return the pid of the supervisor, or None if none is alive."""
        with self.supervising() as free:
            if free:
                return None
        text = read_bytes(self.path / "lock", self.folder.parent).decode(errors="replace")
        return int(text) if text.isdecimal() and len(text) < 10 and _holds(int(text), self.path / "lock") else None

    def supervised(self) -> bool:
        """Whether a supervisor is alive."""
        with self.supervising() as free:
            return not free

    # --- transfer of results to the coordinator ---

    def listen(self) -> None:
        """Note that a coordinator is asking."""
        fd = own_file(self.path / "listening", os.O_WRONLY, 0o600)
        os.utime(fd)
        os.close(fd)

    def listened(self) -> bool:
        """Whether a coordinator has asked recently."""
        try:
            return time.time() - (self.path / "listening").stat().st_mtime < LISTENING_S
        except FileNotFoundError:
            return False

    def acknowledge(self, taken: tuple[str, ...]) -> None:
        """Record which trials the coordinator has."""
        if self._read("taken.json") != list(taken):
            write_text(self.path / "taken.json", json.dumps(taken), durable=False)
        self.ring("ack")

    def untaken(self) -> list[str]:
        """Return finished trials that no coordinator has yet, in the order of the run."""
        return self.finished_beyond(set(self._read("taken.json") or ()))

    def finished_beyond(self, taken: Collection[str]) -> list[str]:
        """Return finished trials of this host's blocks without those of `taken`, in the order of the run."""
        blocks = {spec.block for spec in self.dealt()}
        new = results.finished(self.folder).difference(taken)
        return [spec.id for spec in self.run().order if spec.block in blocks and spec.id in new]

    # --- bells: FIFOs that wake a waiting process ---

    def ring(self, name: str) -> None:
        """Wake the process that waits at the bell. It is not an error if there is none, or the FIFO is full."""
        with contextlib.suppress(OSError):
            fd = _fifo(self.path / name, os.O_WRONLY)
            try:
                os.write(fd, b".")
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def hearing(self, name: str) -> Iterator[Bell]:
        """Open a bell within the block; it also registers rings between two waits."""
        fd = _fifo(self.path / name, os.O_RDWR)
        try:
            yield Bell(fd)
        finally:
            os.close(fd)

    def _read(self, name: str) -> Any:
        try:
            return sound_json(read_bytes(self.path / name, self.folder.parent))
        except (OSError, ValueError, ResultDamaged):
            return None


def _fifo(path: Path, flags: int) -> int:
    """Open a FIFO, and nothing else that may be in its place; return the descriptor. Raises OSError."""
    if not stat.S_ISFIFO(path.lstat().st_mode):
        raise NotRegular(errno.EINVAL, "it is not a FIFO", str(path))
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _holds(pid: int, lock: Path) -> bool:
    """Whether that process holds the lock according to the kernel.

    The pid in the file is not trusted: any process that can write to the results folder could name another one there,
    which would then be stopped. The supervisor inherits the lock from the process that started it, so the pid in
    /proc/locks is not its own; its file descriptors show the lock.
    """
    inode = str(lock.lstat().st_ino)
    lines = [line.split() for path in Path(f"/proc/{pid}/fdinfo").glob("*") for line in _lines(path)]
    locks = [words for words in lines if words[:1] == ["lock:"] and "FLOCK" in words]
    return any(word.rpartition(":")[2] == inode for words in locks for word in words)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # the descriptor was closed meanwhile
        return []


def _stamp(path: Path) -> tuple[int, int]:
    """Return a value that changes when the file is replaced."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


@functools.lru_cache(maxsize=1)
def _run(folder: Path, _stamp: tuple[int, int]) -> Run:
    return results.load_spec(folder)


@functools.lru_cache(maxsize=1)
def _dealt(path: Path, _stamp: tuple[int, int]) -> tuple[TrialSpec, ...]:
    return tuple(TrialSpec(**spec) for spec in json.loads(path.read_text())["order"])


@dataclasses.dataclass(frozen=True)
class Bell:
    """An open FIFO."""

    fd: int

    def wait(self, seconds: float) -> None:
        """Sleep until it rings, but at most `seconds`."""
        if select.select([self.fd], [], [], max(0.0, seconds))[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 4096)
