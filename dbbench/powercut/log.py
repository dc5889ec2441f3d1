"""The one log of a recording: every write and every flush that reached the disk, in order, each with its time.

`index` holds records of a fixed size, `data` the bytes of the writes one behind the other. Times are of
CLOCK_MONOTONIC, which all processes of the machine share, so a commit that a client saw acknowledged stands at its
place in the log without a mark in it.
"""

from __future__ import annotations

import bisect
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

RECORD: Final = struct.Struct("<Q?QIQ")  # arrival in ns, whether it is a flush, offset, length, place in `data`
BUFFER: Final = 2**20


@dataclass(frozen=True)
class Entry:
    """One request as it arrived."""

    ns: int
    flush: bool
    offset: int = 0
    length: int = 0
    place: int = 0  # of its bytes in `data`


class Writer:
    """Appends to a log; used by the disk's process alone."""

    def __init__(self, folder: Path) -> None:
        self._index: BinaryIO = (folder / "index").open("wb", BUFFER)
        self._data: BinaryIO = (folder / "data").open("wb", BUFFER)
        self._place = 0

    def write(self, offset: int, data: bytes) -> None:
        """Note a write that has arrived."""
        self._index.write(RECORD.pack(time.monotonic_ns(), False, offset, len(data), self._place))
        self._data.write(data)
        self._place += len(data)

    def flush(self) -> None:
        """Note a flush that has arrived."""
        self._index.write(RECORD.pack(time.monotonic_ns(), True, 0, 0, self._place))

    def close(self) -> None:
        """From here on the log can be read."""
        self._index.close()
        self._data.close()


@dataclass(frozen=True)
class Log:
    """A finished log. `data` is the file with the writes' bytes."""

    entries: tuple[Entry, ...]
    data: Path
    _flushes: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = [number for number, entry in enumerate(self.entries) if entry.flush]
        object.__setattr__(self, "_flushes", found)

    @cached_property
    def _times(self) -> list[int]:
        return [entry.ns for entry in self.entries]

    def unflushed(self, position: int) -> range:
        """The entries between the last flush before `position` and it: writes that the disk may still lose."""
        before = bisect.bisect_left(self._flushes, position)
        return range(self._flushes[before - 1] + 1 if before else 0, position)

    def unflushed_bytes(self, position: int) -> int:
        """What these writes have, overwriting not deducted."""
        return sum(self.entries[number].length for number in self.unflushed(position))

    def without_flushes(self) -> Log:
        """As a disk leaves it that acknowledges flushes and does nothing."""
        return Log(tuple(entry for entry in self.entries if not entry.flush), self.data)

    def at(self, ns: int) -> int:
        """The position of the first entry that arrived at that time or later."""
        return bisect.bisect_left(self._times, ns)

    def flushes_between(self, begin: int, end: int) -> Sequence[int]:
        """The positions of the flushes from `begin` up to, but not with, `end`."""
        return self._flushes[bisect.bisect_left(self._flushes, begin) : bisect.bisect_left(self._flushes, end)]


def read(folder: Path) -> Log:
    """The log in that folder. A record that was cut off at the end is passed over. Raises OSError."""
    raw = (folder / "index").read_bytes()
    whole = raw[: len(raw) // RECORD.size * RECORD.size]
    return Log(tuple(Entry(*fields) for fields in RECORD.iter_unpack(whole)), folder / "data")
