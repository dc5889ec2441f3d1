"""A snapshot every so often while the load runs: the newest is started as a second server and asked, some are kept.

A thread of this process waits and calls the tools. Its servers are no part of the trial's control group, so that they
take no memory from the load; they share its cores and its disk, which is what is to be seen.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from dbbench import process
from dbbench.drivers.scan_queries import DIALECTS, rows_of
from dbbench.engines.port import Server
from dbbench.errors import DbbenchError
from dbbench.model import SnapshotTaken
from dbbench.operations.abilities import SNAPSHOTS, of
from dbbench.operations.copying import LOCKS, log_elsewhere
from dbbench.operations.port import Filled, Snapshots
from dbbench.operations.reflinked import Reflinked

_FIRST: Final = "1"  # a tag


def way(filled: Filled, server: Server) -> Snapshots:
    """The filesystem's own snapshots, or those of the layer below it; else reflinks, as far as the server helps."""
    return of(SNAPSHOTS, filled.setup) or Reflinked(server)


def lacks(how: Snapshots, filled: Filled) -> str | None:
    """Why none can be taken while a server runs, or None."""
    why = log_elsewhere(filled) or how.lacks(dataclasses.replace(filled, tag=_FIRST))
    if why is None or of(SNAPSHOTS, filled.setup) is not None:
        return why
    return f"neither {filled.fs.family} nor a layer below it has snapshots; {why}"


@contextlib.contextmanager
def taking(every_s: float, keep: int, filled: Filled, how: Snapshots, now_utc: Callable[[], float]) -> Iterator[Taking]:
    """Take them while the block runs; one that is under way then is ended first. Afterwards what each of the kept
    ones holds is read, and all are dropped."""
    thread = Taking(every_s, keep, filled, how, now_utc)
    thread.start()
    try:
        yield thread
    finally:
        thread.end()


class Taking(threading.Thread):
    """The thread, and what it has seen. `fault` is why it ended early."""

    def __init__(self, every_s: float, keep: int, filled: Filled, how: Snapshots, now_utc: Callable[[], float]) -> None:
        super().__init__(name="snapshots", daemon=True)
        self.how = str(getattr(how, "__name__", "reflink")).rpartition(".")[2]
        self.taken: list[SnapshotTaken] = []
        self.fault = ""
        self.late = 0
        self._every_s, self._keep, self._filled, self._by, self._now_utc = every_s, keep, filled, how, now_utc
        self._kept: list[tuple[int, Filled]] = []  # its number in `taken`
        self._enough = threading.Event()
        self._context = contextvars.copy_context()  # its programs are noted among the trial's

    def run(self) -> None:
        self._context.run(self._work)

    def end(self) -> None:
        """Wait for what is under way; then nothing of them is left."""
        self._enough.set()
        self.join()
        with self._told("dropping them"):
            for number, one in self._kept:
                if number < len(self.taken):
                    held = self._by.taken_bytes(one)
                    self.taken[number] = dataclasses.replace(self.taken[number], bytes=held)
        for _number, one in self._kept:
            with self._told("dropping one"):
                self._by.drop(one)

    def _work(self) -> None:
        due = time.monotonic() + self._every_s
        with process.placing({}), self._told("a snapshot"):  # its servers stand beside the trial's own
            while not self._enough.wait(max(0.0, due - time.monotonic())):
                self._turn()
                due += self._every_s
                if time.monotonic() > due:
                    self.late += 1
                    due = time.monotonic()

    def _turn(self) -> None:
        """Take one, start a server on it, ask it, stop it; drop the oldest."""
        number = len(self.taken)
        one = dataclasses.replace(self._filled, tag=str(number + 1))
        at, began = self._now_utc(), time.monotonic()
        self._kept.append((number, one))  # also where it fails half-way
        self._by.snapshot(one)
        snapshot_s, began = time.monotonic() - began, time.monotonic()
        with self._by.clone(one) as datadir:
            for lock in LOCKS:
                (datadir / lock).unlink(missing_ok=True)
            with one.second(datadir) as server:
                text = asked(server)
                ready_s = time.monotonic() - began
        drop_s = None
        if len(self._kept) > self._keep:
            began = time.monotonic()
            self._by.drop(self._kept[0][1])
            del self._kept[0]
            drop_s = time.monotonic() - began
        self.taken.append(SnapshotTaken(at, self._now_utc(), snapshot_s, ready_s, drop_s, text=text))

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """A fault ends the snapshots and not the load."""
        try:
            yield
        except Exception as error:
            said = error.evidence if isinstance(error, DbbenchError) else f"{type(error).__name__}: {error}"
            self.fault = self.fault or f"{what} failed after {len(self.taken)}: {said}"


def asked(server: Server) -> str:
    """A query on the copy: the rows of its smallest table that has any bytes."""
    with contextlib.closing(server.connect()) as connection:
        tables = [table for table in DIALECTS[server.engine].tables(connection) if table.size_bytes]
        if not tables:
            return "no table"
        name = min(tables, key=lambda table: (table.size_bytes, table.name)).name
        quoted = f'"{name}"' if server.engine == "postgres" else f"`{name}`"
        return f"{name}: {rows_of(connection, f'SELECT COUNT(*) FROM {quoted}')[0][0]} rows"
