"""The lab's disks: files in a FUSE filesystem that logs every write and flush when it arrives.
`main([MOUNTPOINT, LOG, IMAGE, ...])`, in a separate Python process, serves the images as
MOUNTPOINT/0, /1, ... until it is unmounted. Each file has a loop device below the filesystem
under test, whose flushes arrive here as fsync. What a flush makes safe is decided later from the
log (`disk_images`). One thread numbers requests as they arrive and answers in that order.

The log: `index` has records of fixed size, in order, `data` the bytes of the writes in sequence.
Times are from CLOCK_MONOTONIC, which all processes share, so that a commit has its place in the
log without a mark in it.
"""

from __future__ import annotations

import bisect
import errno
import os
import stat
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final

from dbbench import process
from dbbench.errors import LabUnavailable
from dbbench.machine import libc, mounts, namespaces
from dbbench.packages import FUSE

READY_S: Final = 60.0
_POLL_S: Final = 0.01
_PR_SET_IO_FLUSHER: Final = 57  # linux/prctl.h
# Not started with `-m`: the package imports this module, and Python would warn about the second
# import.
_PROGRAM: Final = ("-c", f"import sys; from {__name__} import main; main(sys.argv[1:])")
_FOLDER: Final = {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
# libfuse 3; version 2 may be installed as well.
_LIBRARIES: Final = tuple(f"{folder}/{FUSE}" for folder in ("usr/lib/*", "usr/lib64", "lib/*"))
# Time of arrival in ns, whether it is a flush, offset, length, position in `data`, number of the
# disk.
RECORD: Final = struct.Struct("<Q?QIQB")
BUFFER: Final = 2**20


class Disks:
    """The requests, with libfuse's names. Only the files `/0`, `/1`, ... exist, each with a fixed
    size.
    """

    use_ns = True
    mount_point = Path()  # set by `serve`

    def __init__(self, images: Sequence[Path], log: Path) -> None:
        self._fds = tuple(os.open(image, os.O_RDWR | os.O_CLOEXEC) for image in images)
        self._log = LogWriter(log)

    def init(self, _path: str) -> None:
        """Leave the mounts of the lab, once the kernel has this one. The last process of a killed lab
        unmounts what is left, and would wait for ever if it had to answer itself.
        """
        libc.call("unshare", namespaces.CLONE_NEWNS)
        namespaces.mount("", Path("/"), flags=namespaces.MS_REC | namespaces.MS_SLAVE)
        namespaces.unmount(self.mount_point, lazy=True)

    def getattr(self, path: str, _fh: Any = None) -> dict[str, int]:
        if path == "/":
            return _FOLDER
        number = path[1:]
        if number not in self.readdir("/", None)[2:]:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        size = os.fstat(self._fds[int(number)]).st_size
        return {
            "st_mode": stat.S_IFREG | 0o600,
            "st_nlink": 1,
            "st_size": size,
            "st_blocks": size // 512,
        }

    def readdir(self, _path: str, _fh: Any) -> list[str]:
        return [".", "..", *map(str, range(len(self._fds)))]

    def read(self, path: str, size: int, offset: int, _fh: Any) -> bytes:
        return os.pread(self._fds[int(path[1:])], size, offset)

    def write(self, path: str, data: bytes, offset: int, _fh: Any) -> int:
        number = int(path[1:])
        self._log.write(offset, data, number)
        return os.pwrite(self._fds[number], data, offset)

    def fsync(self, path: str, _datasync: int, _fh: Any) -> int:
        self._log.flush(int(path[1:]))
        return 0

    def destroy(self, _path: str) -> None:
        self._log.close()
        for fd in self._fds:
            os.close(fd)


def library() -> Path | None:
    """Return the path of libfuse 3 from a package, the newer of two; None if there is none."""
    for pattern in _LIBRARIES:
        paths = sorted(Path("/").glob(pattern))
        if paths:
            return paths[-1]
    return None


@contextmanager
def serve_disks(
    folder: Path,
    images: Sequence[Path],
    log: Path,
    output: Path,
    program: Sequence[str | Path] = _PROGRAM,
) -> Iterator[tuple[Path, ...]]:
    """Serve disks over `images` within the block, mounted below `folder`; yield the files for loop
    devices. Afterwards their log is complete. `program`: another program that serves disks, as
    arguments for Python; its second argument is `log`. Raises LabUnavailable if it does not
    start, DeadlinePassed if its process does not end.
    """
    mount_point = folder / "fuse"
    mount_point.mkdir(exist_ok=True)
    argv: list[str | Path] = [sys.executable, *program, mount_point, log, *images]
    env = {
        "FUSE_LIBRARY_PATH": str(library()),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with process.running(argv, stdout=output, env=env, note=False) as server:
        _await(server, mount_point, output)
        try:
            yield tuple(mount_point / str(number) for number in range(len(images)))
        except BaseException:
            namespaces.unmount(mount_point, lazy=True)
            raise
        namespaces.unmount(mount_point)
        status = server.wait(READY_S)
        if status:
            text = f"the lab's disks ended with status {status}"
            raise LabUnavailable(f"{text}: {_last_lines(output)}")


def _await(program: process.Running, mount_point: Path, output: Path) -> None:
    def is_absent() -> bool:
        if program.poll() is not None:
            text = f"the lab's disks did not start: {_last_lines(output)}"
            raise LabUnavailable(text, effect="Nothing was examined.")
        table = mounts.mounts_of(Path("/proc/self"))
        return not any(entry.point == mount_point for entry in table)

    if process.wait_while(is_absent, READY_S, _POLL_S):
        text = f"the lab's disks did not appear within {READY_S:.0f} s"
        raise LabUnavailable(f"{text}: {_last_lines(output)}")


def _last_lines(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines() if output.exists() else []
    return "; ".join(lines[-3:]) or "it printed nothing"


def serve(disks: Disks, mount_point: str) -> None:
    """Serve them at that mount point until it is unmounted."""
    import mfusepy

    # This process serves writes of the kernel, so its own memory allocations must not wait for
    # these writes.
    with suppress(OSError):  # Linux before 5.6 does not have it
        libc.call("prctl", _PR_SET_IO_FLUSHER, 1, 0, 0, 0)
    options = {
        "foreground": True,
        "nothreads": True,
        "direct_io": True,
        "fsname": "dbbench-lab",
    }
    disks.mount_point = Path(mount_point)
    mfusepy.FUSE(disks, mount_point, **options)


def main(argv: list[str]) -> None:
    """Serve until unmounted."""
    mount_point, log, *images = argv
    serve(Disks([Path(image) for image in images], Path(log)), mount_point)


@dataclass(frozen=True)
class LogEntry:
    """One request as it arrived."""

    ns: int
    flush: bool
    offset: int = 0
    length: int = 0
    place: int = 0  # position of its bytes in `data`
    disk: int = 0


class LogWriter:
    """Appends to a log; only used by the process of the disks."""

    def __init__(self, folder: Path) -> None:
        self._index: BinaryIO = (folder / "index").open("wb", BUFFER)
        self._data: BinaryIO = (folder / "data").open("wb", BUFFER)
        self._place = 0

    def write(self, offset: int, data: bytes, disk: int = 0) -> None:
        self._append(False, offset, len(data), disk)
        self._data.write(data)
        self._place += len(data)

    def flush(self, disk: int = 0) -> None:
        self._append(True, 0, 0, disk)

    def _append(
        self,
        flush: bool,
        offset: int,
        length: int,
        disk: int,
    ) -> None:
        now = time.monotonic_ns()
        self._index.write(RECORD.pack(now, flush, offset, length, self._place, disk))

    def close(self) -> None:
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
        """Return the entry after the disk's last flush before `position`: later writes may still be
        lost.
        """
        flushes = self._flushes_of[disk]
        before = bisect.bisect_left(flushes, position)
        return flushes[before - 1] + 1 if before else 0

    def volatile(self, position: int, disk: int = 0) -> list[int]:
        """Return the writes that the disk may lose if power is lost before `position`."""
        volatile = []
        for number in range(self.flushed_up_to(position, disk), position):
            entry = self.entries[number]
            if entry.disk == disk and not entry.flush:
                volatile.append(number)
        return volatile

    def unflushed_bytes(self, position: int, disk: int = 0) -> int:
        """Return the bytes of these writes, without deducting overwritten ones."""
        return sum(self.entries[number].length for number in self.volatile(position, disk))

    def without_flushes(self, spans: Sequence[tuple[int, int]] | None = None) -> Log:
        """Return the log of disks that acknowledge flushes without carrying them out: all, or those
        in `spans` (ns).
        """

        def was_done(entry: LogEntry) -> bool:
            lied = spans is None or any(begin <= entry.ns < end for begin, end in spans)
            return not entry.flush or not lied

        return Log(tuple(filter(was_done, self.entries)), self.data)

    def at(self, ns: int) -> int:
        return bisect.bisect_left(self._times, ns)

    def span(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """Return the positions between which power is lost. If nothing was written in these times,
        they contain the first write after them: ZFS without synchronous writes keeps everything
        in memory for 5 s.
        """
        begin = self.at(first_ns)
        end = max(self.at(last_ns), begin + 2)
        return begin, min(end, len(self.entries))

    def flushes_between(self, begin: int, end: int) -> Sequence[int]:
        first = bisect.bisect_left(self._flushes, begin)
        last = bisect.bisect_left(self._flushes, end)
        return self._flushes[first:last]


def read_log(folder: Path) -> Log:
    """Read the log in that directory. A truncated last record is ignored. Raises OSError."""
    raw = (folder / "index").read_bytes()
    whole = raw[: len(raw) // RECORD.size * RECORD.size]
    entries = tuple(LogEntry(*fields) for fields in RECORD.iter_unpack(whole))
    return Log(entries, folder / "data")
