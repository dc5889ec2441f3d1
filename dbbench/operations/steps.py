"""What operations use: the filled filesystem with its servers, and a timed step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.engines.port import Server
from dbbench.machine.pagecache import empty_and_prove
from dbbench.model import CacheFacts, OperationFacts
from dbbench.storage.filesystems import Stored
from dbbench.storage.filesystems.family import Snapshots

# A copy contains these files of the running server. They name its pid, which is still alive, so a
# second server would not start.
_LOCKS: Final = ("postmaster.pid", "postmaster.opts")


@dataclass(frozen=True)
class StoredDatabase(Stored):
    """A filesystem that contains the dataset, and the ways to use its files."""

    # starts the server of the trial on its data directory
    serving: Callable[[], AbstractContextManager[Server]]
    second: Callable[[Path], AbstractContextManager[Server]]  # starts a second server on a clone
    # Empties the caches of these files, with proof, while no process uses the filesystem.
    cold: Callable[[Sequence[Path]], CacheFacts] = empty_and_prove
    check: Callable[[Path], str] = lambda _: ""  # integrity check of the engine on the stopped data
    data_files: Callable[[Path], Sequence[Path]] = lambda _: ()
    log: Path | None = None  # directory of the write-ahead log, if it is not in the data directory

    @property
    def files(self) -> list[Path]:
        return [path for path in self.data_files(self.datadir) if path.exists()]

    @property
    def no_snapshots(self) -> str:
        return f"neither {self.fs.family} nor a layer below it has snapshots"

    def obstacle(self, how: Snapshots) -> str | None:
        """Return why no second server can run on such a copy, or None. A log outside of it has one
        writer.
        """
        if self.log is not None or "wal" in self.setup.volumes:
            return "the write-ahead log is on another device, and a consistent copy would need both"
        return how.lacks(self)

    @contextlib.contextmanager
    def serving_copy(self, datadir: Path) -> Iterator[Server]:
        for lock in _LOCKS:
            (datadir / lock).unlink(missing_ok=True)
        with self.second(datadir) as server:
            yield server


Operation = Callable[[StoredDatabase], Iterator[OperationFacts]]


def end_step(
    name: str,
    began: float,
    text: str | None = None,
    bytes: int | None = None,
) -> OperationFacts:
    """Return a step that began at `began` (monotonic clock) and ends now."""
    return OperationFacts(name, round(time.monotonic() - began, 6), bytes, text or "")


def time_step(name: str, work: Callable[[], str | None]) -> OperationFacts:
    """Run `work`; return its duration and its text."""
    began = time.monotonic()
    text = work()
    return end_step(name, began, text)


def impossible(name: str, why: str) -> OperationFacts:
    """Return an operation that this filesystem does not support, or that is not possible here."""
    return OperationFacts(name, None, text=why)


def cold(filled: StoredDatabase) -> str:
    """Empty the cache of the data files; return a description of the result."""
    filled.sync()
    facts = filled.cold(filled.data_files(filled.datadir))
    if facts.proved:
        return "from a cold cache"
    return f"the cache could not be verified as cold: {facts.reason}"
