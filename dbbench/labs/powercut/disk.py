"""The lab's disks: files in a FUSE filesystem that logs every write and flush when it arrives.

`main([MOUNTPOINT, LOG, IMAGE, ...])`, in a separate Python process, serves the images as MOUNTPOINT/0, /1, ... until it
is unmounted. Each file has a loop device, and the filesystem under test is on the loop devices, whose flushes arrive
here as fsync. What a flush makes safe, and what is still in a volatile cache, is decided later from the log (`images`).

There is one thread: requests are numbered as they arrive and answered in that order.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import DeadlinePassed, LabUnavailable
from dbbench.labs.powercut.log import LogWriter
from dbbench.machine import libc, namespaces
from dbbench.packages import FUSE

READY_S: Final = 10.0
_POLL_S: Final = 0.01
# Not by `-m`: the package imports this module, and Python would warn that it is there twice.
_PR_SET_IO_FLUSHER: Final = 57  # linux/prctl.h
_PROGRAM: Final = ("-c", f"import sys; from {__name__} import main; main(sys.argv[1:])")
_FOLDER: Final = {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
# libfuse 3, and not 2, which may be there too.
_LIBRARIES: Final = tuple(f"{folder}/{FUSE}" for folder in ("usr/lib/*", "usr/lib64", "lib/*"))


class Disks:
    """The requests, with libfuse's names. Only the files `/0`, `/1`, ... exist, each with a fixed size."""

    use_ns = True

    def __init__(self, images: Sequence[Path], log: Path) -> None:
        self._fds = opened(images)
        self._log = LogWriter(log)

    def getattr(self, path: str, _fh: Any = None) -> dict[str, int]:
        """Return the stat(2) data of directory and files."""
        if path == "/":
            return _FOLDER
        if (number := path[1:]) not in self.readdir("/", None)[2:]:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        size = os.fstat(self._fds[int(number)]).st_size
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size, "st_blocks": size // 512}

    def readdir(self, _path: str, _fh: Any) -> list[str]:
        """Return the files."""
        return [".", "..", *map(str, range(len(self._fds)))]

    def read(self, path: str, size: int, offset: int, _fh: Any) -> bytes:
        """Read from the image, which has all writes."""
        return os.pread(self._fds[int(path[1:])], size, offset)

    def write(self, path: str, data: bytes, offset: int, _fh: Any) -> int:
        """Log the write, then do it."""
        number = int(path[1:])
        self._log.write(offset, data, number)
        return os.pwrite(self._fds[number], data, offset)

    def fsync(self, path: str, _datasync: int, _fh: Any) -> int:
        """Log a flush of the disk's cache."""
        self._log.flush(int(path[1:]))
        return 0

    def destroy(self, _path: str) -> None:
        """Complete the log after the unmount."""
        self._log.close()
        for fd in self._fds:
            os.close(fd)


def opened(images: Sequence[Path]) -> tuple[int, ...]:
    """Return descriptors of the images."""
    return tuple(os.open(image, os.O_RDWR | os.O_CLOEXEC) for image in images)


def library() -> Path | None:
    """Return the path of libfuse 3 from a package, the newer of two; None if there is none."""
    return next((path for pattern in _LIBRARIES for path in sorted(Path("/").glob(pattern), reverse=True)), None)


@contextmanager
def served(
    folder: Path,
    images: Sequence[Path],
    log: Path,
    output: Path,
    program: Sequence[str | Path] = _PROGRAM,
) -> Iterator[tuple[Path, ...]]:
    """Serve disks over `images` within the block, mounted below `folder`; yield the files for loop devices.

    Afterwards their log is complete. `program`: another program that serves disks, as arguments for Python; its second
    argument is `log`. Raises LabUnavailable if it does not start, DeadlinePassed if its process does not end.
    """
    mount_point = folder / "fuse"
    mount_point.mkdir(exist_ok=True)
    argv: list[str | Path] = [sys.executable, *program, mount_point, log, *images]
    env = {"FUSE_LIBRARY_PATH": str(library()), "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    with process.running(argv, stdout=output, env=env, note=False) as server:
        _await(server, mount_point, output)
        try:
            yield tuple(mount_point / str(number) for number in range(len(images)))
        except BaseException:
            namespaces.unmount(mount_point, lazy=True)
            raise
        namespaces.unmount(mount_point)
        if status := server.wait(READY_S):
            raise LabUnavailable(f"the lab's disks ended with status {status}: {_said(output)}")


def _await(program: process.Running, at: Path, output: Path) -> None:
    for _ in range(int(READY_S / _POLL_S)):
        if any(entry.point == at for entry in namespaces.mounts_of(Path("/proc/self"))):
            return
        if program.poll() is not None:
            raise LabUnavailable(f"the lab's disks did not start: {_said(output)}", effect="Nothing was examined.",
                                 remedy="dbbench doctor")  # fmt: skip
        try:
            program.wait(_POLL_S)
        except DeadlinePassed:
            continue
    raise LabUnavailable(f"the lab's disks are not there after {READY_S:.0f} s: {_said(output)}")


def _said(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines() if output.exists() else []
    return "; ".join(lines[-3:]) or "it printed nothing"


def serve(disks: Disks, at: str) -> None:
    """Serve them at that mount point until it is unmounted."""
    import mfusepy

    # It serves writes of the kernel: memory that it asks for must not wait for these same writes.
    with suppress(OSError):  # before Linux 5.6
        libc.call("prctl", _PR_SET_IO_FLUSHER, 1, 0, 0, 0)
    mfusepy.FUSE(disks, at, foreground=True, nothreads=True, direct_io=True, fsname="dbbench-lab")


def main(argv: list[str]) -> None:
    """Serve until unmounted."""
    mount_point, log, *images = argv
    serve(Disks([Path(image) for image in images], Path(log)), mount_point)
