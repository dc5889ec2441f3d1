"""The log of a recording: every write and every flush that reached the disks, in order, each with its time.

`index` holds records of fixed size, `data` the bytes of the writes in sequence. Times are from CLOCK_MONOTONIC, which
all processes of the machine share, so that an acknowledged commit has its place in the log without a mark in it.
"""

from __future__ import annotations

import bisect
import struct
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

# Arrival in ns, whether it is a flush, offset, length, place in `data`, number of the disk.
RECORD: Final = struct.Struct("<Q?QIQB")
BUFFER: Final = 2**20


@dataclass(frozen=True)
class LogEntry:
    """One request as it arrived."""

    ns: int
    flush: bool
    offset: int = 0
    length: int = 0
    place: int = 0  # of its bytes in `data`
    disk: int = 0


class LogWriter:
    """Appends to a log; only used by the process of the disks."""

    def __init__(self, folder: Path) -> None:
        self._index: BinaryIO = (folder / "index").open("wb", BUFFER)
        self._data: BinaryIO = (folder / "data").open("wb", BUFFER)
        self._place = 0

    def write(self, offset: int, data: bytes, disk: int = 0) -> None:
        """Log a write that has arrived."""
        self._index.write(RECORD.pack(time.monotonic_ns(), False, offset, len(data), self._place, disk))
        self._data.write(data)
        self._place += len(data)

    def flush(self, disk: int = 0) -> None:
        """Log a flush that has arrived; it applies to that disk only."""
        self._index.write(RECORD.pack(time.monotonic_ns(), True, 0, 0, self._place, disk))

    def close(self) -> None:
        """Complete the log, so that it can be read."""
        self._index.close()
        self._data.close()


@dataclass(frozen=True)
class Log:
    """A finished log. `data` is the file with the writes' bytes."""

    entries: tuple[LogEntry, ...]
    data: Path

    @cached_property
    def _flushes(self) -> list[int]:
        return [number for number, entry in enumerate(self.entries) if entry.flush]

    @cached_property
    def _flushes_of(self) -> defaultdict[int, list[int]]:
        flushes = defaultdict[int, list[int]](list)
        for number in self._flushes:
            flushes[self.entries[number].disk].append(number)
        return flushes

    @cached_property
    def _times(self) -> list[int]:
        return [entry.ns for entry in self.entries]

    def flushed_up_to(self, position: int, disk: int = 0) -> int:
        """Return the entry after the disk's last flush before `position`: later writes may still be lost."""
        flushes = self._flushes_of[disk]
        before = bisect.bisect_left(flushes, position)
        return flushes[before - 1] + 1 if before else 0

    def unflushed(self, position: int, disk: int = 0) -> list[int]:
        """Return the writes that the disk may lose if power is lost before `position`."""
        since = range(self.flushed_up_to(position, disk), position)
        return [number for number in since if self.entries[number].disk == disk and not self.entries[number].flush]

    def unflushed_bytes(self, position: int, disk: int = 0) -> int:
        """Return the bytes of these writes, without deducting overwritten ones."""
        return sum(self.entries[number].length for number in self.unflushed(position, disk))

    def without_flushes(self) -> Log:
        """Return the log of disks that acknowledge flushes without carrying them out."""
        return Log(tuple(entry for entry in self.entries if not entry.flush), self.data)

    def at(self, ns: int) -> int:
        """Return the position of the first entry that arrived at that time or later."""
        return bisect.bisect_left(self._times, ns)

    def flushes_between(self, begin: int, end: int) -> Sequence[int]:
        """Return the positions of the flushes from `begin` up to, but not including, `end`."""
        return self._flushes[bisect.bisect_left(self._flushes, begin) : bisect.bisect_left(self._flushes, end)]


def read(folder: Path) -> Log:
    """Read the log in that directory. A truncated last record is ignored. Raises OSError."""
    raw = (folder / "index").read_bytes()
    whole = raw[: len(raw) // RECORD.size * RECORD.size]
    return Log(tuple(LogEntry(*fields) for fields in RECORD.iter_unpack(whole)), folder / "data")
