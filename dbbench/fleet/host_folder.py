"""The files of a fleet in the directory of a run on a host.
fleet/state.json    the state of the share, which runs the trials
fleet/taken.json    what the coordinator has, and where it is; its mtime is the time of the last
                    question
fleet/lock          held by the share as long as it lives
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dbbench import results
from dbbench.errors import ResultDamaged
from dbbench.fleet.messages import HostState
from dbbench.model import Run, TrialSpec
from dbbench.results.fileio import (
    own_file,
    parsed_as,
    read_bytes,
    real_folder,
    try_lock,
    write_text,
)

# after a question, the next one is expected within this time: longer than its patience
LISTENING_S: Final = 20.0
T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """The content of taken.json."""

    trials: tuple[str, ...] = ()  # ids of trials that the coordinator has
    coordinator: str = ""  # its folder, if trials must not go on without it


class HostFolder:
    """The directory of one run on a host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "fleet"

    def make(self) -> None:
        """Make the directory. Raises ResultNotRegular."""
        real_folder(self.path, self.folder.parent).mkdir(exist_ok=True)

    def run(self) -> Run:
        """Return run.json, read again only after a change, because a host is asked while it
        measures.
        """
        return _run(self.folder, self.stamp("../run.json"))

    def stamp(self, name: str) -> int:
        """Return a value that changes when the file is replaced; 0 if there is none."""
        try:
            return (self.path / name).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def save_state(self, state: HostState) -> None:
        """Write the state; it need not survive a power loss."""
        write_text(self.path / "state.json", json.dumps(dataclasses.asdict(state)), durable=False)

    def state(self) -> HostState:
        return self._read(HostState, "state.json") or HostState()

    def save_receipt(self, taken: Taken) -> None:
        """Note which trials the coordinator has, and that it has just asked."""
        write_text(self.path / "taken.json", json.dumps(dataclasses.asdict(taken)), durable=False)

    def receipt(self) -> Taken:
        return self._read(Taken, "taken.json") or Taken()

    def awaits_transfer(self) -> bool:
        """Whether a coordinator asks, and does not have a finished trial yet."""
        recent = time.time() - self.stamp("taken.json") / 1e9 < LISTENING_S
        return recent and bool(self.finished_beyond(self.receipt().trials))

    def finished_beyond(self, taken: Collection[str]) -> list[TrialSpec]:
        """Return the finished trials of the run without those of `taken`, in its order."""
        new = results.list_results(self.folder).difference(taken)
        return [spec for spec in self.run().order if spec.id in new]

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Yield False if a share holds the lock; else hold it in the block. Raises
        ResultNotRegular, OSError.
        """
        fd = own_file(real_folder(self.path, self.folder.parent) / "lock", os.O_RDWR, 0o600)
        try:
            yield try_lock(fd)
        finally:
            os.close(fd)

    def is_alive(self) -> bool:
        with self.lock() as free:
            return not free

    def pid(self) -> int | None:
        """Return the pid of the share, or None if none is alive. No file names it: any process that
        can write to the results folder could name another process there, which would then be
        stopped.
        """
        argument = os.fsencode(self.folder.resolve())
        for path in Path("/proc").glob("[0-9]*/cmdline") if self.is_alive() else ():
            with contextlib.suppress(OSError):  # it has ended
                words = path.read_bytes().split(b"\0")
                if {b"dbbench.fleet.share", argument} <= {
                    *words
                } and path.stat().st_uid == os.geteuid():
                    return int(path.parent.name)
        return None

    def _read(self, kind: type[T], name: str) -> T | None:
        try:
            return parsed_as(kind, read_bytes(self.path / name, self.folder.parent))
        except (OSError, ValueError, ResultDamaged):  # a ValidationError is a ValueError
            return None


@functools.lru_cache(maxsize=1)
def _run(folder: Path, _stamp: int) -> Run:
    return results.load_spec(folder)
