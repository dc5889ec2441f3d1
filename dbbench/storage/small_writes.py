"""Small writes on the filesystem under test: the latency of fsync and fdatasync, and the limits of atomic writes.

Measured after the load, when the server has stopped and all facts about space were read: the filesystem is filled, and
nothing of the trial's window is affected.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench.machine import libc
from dbbench.model import SyncFacts

APPEND_BYTES: Final = 16 * 2**10
_MOST: Final = 4096  # most appends of one row: 64 MiB in total
_LONGEST_S, _SHORTEST_S = 0.4, 0.03
_SHARE: Final = 1 / 60  # share of the measured window for each row, as for the bare device, which is measured longer
_CALLS: Final[dict[str, Callable[[int], None]]] = {"fsync": os.fsync, "fdatasync": os.fdatasync}
_STATX_WRITE_ATOMIC: Final = 0x10000  # include/uapi/linux/stat.h, since Linux 6.11
_STATX_BYTES: Final = 256
_UNITS_AT: Final = 0xA8  # stx_atomic_write_unit_min and stx_atomic_write_unit_max


def syncs(folder: Path, window_s: float, seed: int) -> tuple[tuple[SyncFacts, ...], str]:
    """Append 16 KiB to a new file of the directory again and again, each followed by an fsync or fdatasync.

    Returns a row for each of the two and "", or () and the reason. It lasts at most 0.4 s for each, a sixtieth of
    the window if that is shorter. The file is removed.
    """
    each_s = min(_LONGEST_S, max(_SHORTEST_S, window_s * _SHARE))
    block = random.Random(seed).randbytes(APPEND_BYTES)
    path = folder / ".dbbench-sync"
    try:
        try:
            return tuple(_synced(path, name, block, each_s) for name in _CALLS), ""
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        return (), str(error)


def _synced(path: Path, name: str, block: bytes, seconds: float) -> SyncFacts:
    sync, taken_s = _CALLS[name], list[float]()
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, block)
        os.fsync(fd)  # otherwise the first measured sync would also write the new directory entry
        begin = after = time.perf_counter()
        while len(taken_s) < _MOST and (after - begin < seconds or not taken_s):
            before = time.perf_counter()
            os.write(fd, block)
            sync(fd)
            after = time.perf_counter()
            taken_s.append(after - before)
    finally:
        os.close(fd)
    ordered_ms = [round(1000 * value, 4) for value in sorted(taken_s)]

    def rank(percent: float) -> float:
        return ordered_ms[math.ceil(percent / 100 * len(ordered_ms)) - 1]

    mean_ms = round(1000 * sum(taken_s) / len(taken_s), 4)
    return SyncFacts(name, len(ordered_ms), mean_ms, rank(50), rank(99), ordered_ms[-1])


def atomic_write_bytes(folder: Path) -> tuple[int, int] | None:
    """Return the smallest and the largest write to a file of this directory that the filesystem does as a whole or not
    at all (RWF_ATOMIC); (0, 0) if it offers none, None if the kernel or the C library does not report it.

    Asked for a file, because a directory has no such writes. The file is removed.
    """
    path, buffer = folder / ".dbbench-atomic", ctypes.create_string_buffer(_STATX_BYTES)
    with contextlib.suppress(OSError, AttributeError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            libc.call("statx", fd, b"", 0x1000, _STATX_WRITE_ATOMIC, buffer)  # AT_EMPTY_PATH
        finally:
            os.close(fd)
            path.unlink(missing_ok=True)
        (mask,) = struct.unpack_from("I", buffer)
        if mask & _STATX_WRITE_ATOMIC:
            least, most = struct.unpack_from("II", buffer, _UNITS_AT)
            return int(least), int(most)
    return None
