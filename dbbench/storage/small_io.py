"""Small reads and flushed writes in a directory, one at a time, and the limits of atomic writes. A
trial measures appends after its load, when the server is stopped and space was read; `dbbench
probe` measures all.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import mmap
import os
import random
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError, DeviceInUse
from dbbench.machine import libc
from dbbench.model import SyncFacts
from dbbench.results.fileio import open_fd, try_lock

FILE_BYTES: Final = 64 * 2**20  # of each file: a segment of a write-ahead log or more
MOST_BYTES: Final = 3 * FILE_BYTES  # that a directory needs
_LONGEST_S = 0.4
_SHORTEST_S = 0.03
# of the measured window for each row, as for the bare device, which is measured longer
_SHARE: Final = 1 / 60
_STATX_WRITE_ATOMIC: Final = 0x10000  # include/uapi/linux/stat.h, since Linux 6.11
_STATX_BYTES: Final = 256
_UNITS_AT: Final = 0xA8  # stx_atomic_write_unit_min and stx_atomic_write_unit_max


@dataclass(frozen=True)
class Method:
    """One way to read or write; `flush` is called after each write. An append begins with an empty
    file. `at_a_time`: I/Os of as many threads.
    """

    name: str
    title: str
    io_bytes: int
    flags: int = os.O_WRONLY
    flush: Callable[[int], None] | None = None
    append: bool = False
    at_a_time: int = 1

    @property
    def reads(self) -> bool:
        return self.flags & os.O_ACCMODE == os.O_RDONLY

    @property
    def flushes(self) -> bool:
        return self.flush is not None or bool(self.flags & os.O_DSYNC)


APPEND_FDATASYNC: Final = Method(
    "append_fdatasync",
    "append 16 KiB, fdatasync",
    2**14,
    flush=os.fdatasync,
    append=True,
)
APPEND_FSYNC: Final = replace(
    APPEND_FDATASYNC,
    name="append_fsync",
    title="append 16 KiB, fsync",
    flush=os.fsync,
)
GROUP: Final = replace(
    APPEND_FDATASYNC,
    name="append_1m",
    title="append 1 MiB, fdatasync",
    io_bytes=2**20,
)
OVERWRITE: Final = Method(
    "overwrite_16k",
    "overwrite 16 KiB, fdatasync",
    2**14,
    flush=os.fdatasync,
)
READ: Final = Method(
    "random_read_4k",
    "random read 4 KiB, O_DIRECT",
    2**12,
    os.O_RDONLY | os.O_DIRECT,
)
# what the disk can do at once: enough for the queue of a cloud volume
PARALLEL: Final = (
    replace(READ, name="parallel_reads_4k", title="16 random reads at a time", at_a_time=16),
    Method(
        "parallel_writes_4k",
        "16 random writes at a time",
        2**12,
        os.O_WRONLY | os.O_DIRECT,
        at_a_time=16,
    ),
)
METHODS: Final = (
    APPEND_FDATASYNC,
    APPEND_FSYNC,
    Method("append_dsync", "append 16 KiB, O_DSYNC", 2**14, os.O_WRONLY | os.O_DSYNC, append=True),
    GROUP,
    replace(GROUP, name="append_1m_fsync", title="append 1 MiB, fsync", flush=os.fsync),
    Method("overwrite_8k", "overwrite 8 KiB, fdatasync", 2**13, flush=os.fdatasync),
    OVERWRITE,
    Method("overwrite_16k_fsync", "overwrite 16 KiB, fsync", 2**14, flush=os.fsync),
    Method("overwrite_1m", "overwrite 1 MiB, fdatasync", 2**20, flush=os.fdatasync),
    Method("overwrite_1m_fsync", "overwrite 1 MiB, fsync", 2**20, flush=os.fsync),
    *PARALLEL,
    READ,
)


class MeasuredDirectory:
    """A directory in which methods are measured, one process at a time. Raises DeviceInUse,
    OSError. Its files keep names (btrfs does not flush files without one) and are opened from
    the descriptor of a folder closed to others.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self._random = random.Random(seed)
        self._name = path / ".dbbench-probe"
        self._filled = False
        # one that is not locked was left by a killed process
        self._name.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folder = os.open(self._name, flags)
        status = os.fstat(self._folder)
        problem: Exception | None = None
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            text = f"{self._name.name} in it belongs to, or can be written by, another account"
            problem = PermissionError(errno.EACCES, text)
        elif not try_lock(self._folder):
            problem = DeviceInUse(f"{path} is being measured by another process")
        if problem is not None:
            os.close(self._folder)
            raise problem
        self._buffer = mmap.mmap(-1, 2**20)  # aligned, as O_DIRECT requires
        self._buffer.write(self._random.randbytes(2**20))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            for name in ("appended", "filled"):
                self._remove(name)
            self._name.rmdir()
        os.close(self._folder)

    def measure(self, method: Method, seconds: float) -> list[float]:
        """Return the seconds of each I/O with its flush, at least one. Raises OSError."""
        if method.append:
            # flushed, or the first flush would also write the new entry
            self._write_new("appended")
        elif not self._filled:
            pieces = [self._random.randbytes(2**20) for _ in range(FILE_BYTES >> 20)]
            self._write_new("filled", *pieces)
            self._filled = True
        if method.at_a_time == 1:
            return self._repeat(method, seconds)
        with ThreadPoolExecutor(method.at_a_time) as pool:
            threads = [pool.submit(self._repeat, method, seconds) for _ in range(method.at_a_time)]
            return [taken_s for thread in threads for taken_s in thread.result()]

    def _repeat(self, method: Method, seconds: float) -> list[float]:
        # Everything that the loop needs is looked up before the first measurement.
        transfer = os.preadv if method.reads else os.pwritev
        buffers = [memoryview(self._buffer)[: method.io_bytes]]
        flush = method.flush
        places = FILE_BYTES // method.io_bytes
        name = "appended" if method.append else "filled"
        with self._open(name, method.flags) as fd:
            taken_s = list[float]()
            begin = time.perf_counter()
            after = begin
            while after - begin < seconds or not taken_s:
                offset = 0  # overwrites are in one place, as in pg_test_fsync
                if method.append:
                    offset = len(taken_s) % places * method.io_bytes
                    # The file begins anew, or the following I/Os would overwrite.
                    if offset == 0:
                        os.ftruncate(fd, 0)
                        os.fsync(fd)
                elif flush is None:
                    offset = self._random.randrange(places) * method.io_bytes
                # Only the I/O and its flush are timed.
                before = time.perf_counter()
                transfer(fd, buffers, offset)
                if flush is not None:
                    flush(fd)
                after = time.perf_counter()
                taken_s.append(after - before)
        return taken_s

    def _write_new(self, name: str, *pieces: bytes) -> None:
        self._remove(name)
        with (
            self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd,
            os.fdopen(fd, "wb", closefd=False) as file,
        ):
            file.writelines(pieces)
            file.flush()
            os.fsync(fd)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)

    def _open(self, name: str, flags: int) -> AbstractContextManager[int]:
        return open_fd(name, flags | os.O_NOFOLLOW, dir_fd=self._folder)


def percentile(ordered: list[float], percent: float) -> float:
    """Return the nearest rank of sorted values."""
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1]


def syncs(
    folder: Path,
    window_s: float,
    seed: int,
) -> tuple[tuple[SyncFacts, ...], str]:
    """Measure appends of 16 KiB with fsync and with fdatasync; return their rows and "", or () and
    the reason. Each lasts at most 0.4 s, and at most a sixtieth of the window.
    """
    each_s = min(_LONGEST_S, max(_SHORTEST_S, window_s * _SHARE))
    try:
        rows = []
        with contextlib.closing(MeasuredDirectory(folder, seed)) as directory:
            for method in (APPEND_FSYNC, APPEND_FDATASYNC):
                taken_s = directory.measure(method, each_s)
                rows.append(_row(method.name.removeprefix("append_"), taken_s))
        return tuple(rows), ""
    except (OSError, DbbenchError) as error:
        return (), str(error)


def _row(call: str, taken_s: list[float]) -> SyncFacts:
    count = len(taken_s)
    ordered_ms = [round(1000 * value, 4) for value in sorted(taken_s)]
    return SyncFacts(
        call,
        count,
        round(1000 * sum(taken_s) / count, 4),
        percentile(ordered_ms, 50),
        percentile(ordered_ms, 99),
        ordered_ms[-1],
    )


def atomic_write_bytes(
    folder: Path, call: Callable[..., int] = libc.call
) -> tuple[int, int] | None:
    """Return the smallest and largest atomic write (RWF_ATOMIC) to a file of this directory; (0, 0)
    if none, None if the kernel or C library does not report it. Asks a file, which is removed:
    directories have none. `call` calls a function of the C library.
    """
    path = folder / ".dbbench-atomic"
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    with contextlib.suppress(OSError, AttributeError):
        with open_fd(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
            path.unlink()
            call(
                "statx",
                fd,
                b"",
                0x1000,
                _STATX_WRITE_ATOMIC,
                buffer,
            )  # AT_EMPTY_PATH
        (mask,) = struct.unpack_from("I", buffer)
        if mask & _STATX_WRITE_ATOMIC:
            least, most = struct.unpack_from("II", buffer, _UNITS_AT)
            return int(least), int(most)
    return None
