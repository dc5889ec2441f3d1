"""A disk that fails on command: the disk of the power-loss lab, which reads its orders from a file.

`python sick_disk.py MOUNTPOINT ORDERS IMAGE`: as long as ORDERS holds the word `read`, `write`
or `flush`, requests of that kind end with EIO; as long as it holds `silent`, no request ends.
"""

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbbench.labs.powercut.disk import Disks, serve, serve_disks

SIZE = 384 * 2**20  # bytes; mkfs.xfs refuses less than 300 MiB
_ZEROS = 2**20
SILENT_S = 30.0  # longest silence, below the kernel's hung_task_timeout_secs (120)


class SickDisk(Disks):
    """It logs nothing, and reads its orders before each request."""

    def __init__(self, image: Path, orders: Path) -> None:
        self._fds = (os.open(image, os.O_RDWR | os.O_CLOEXEC),)
        self._orders = orders

    def _obey(self, request: str) -> None:
        until = time.monotonic() + SILENT_S
        while "silent" in (told := self._note_error()) and time.monotonic() < until:
            time.sleep(0.02)
        if request in told:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _note_error(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return self._orders.read_text().split()
        return []

    def read(self, path: str, size: int, offset: int, fh: Any) -> bytes:
        """Read from the image, unless reads fail."""
        self._obey("read")
        return super().read(path, size, offset, fh)

    def write(self, _path: str, data: bytes, offset: int, _fh: Any) -> int:
        """Write to the image, unless writes fail."""
        self._obey("write")
        return os.pwrite(self._fds[0], data, offset)

    def fsync(self, _path: str, _datasync: int, _fh: Any) -> int:
        """Do nothing, unless flushes fail: no test cuts the power of the disk with the image."""
        self._obey("flush")
        return 0

    def fallocate(
        self,
        _path: str,
        _mode: int,
        offset: int,
        size: int,
        _fh: Any,
    ) -> int:
        """Write zeros for every mode, because the kernel would log a refusal."""
        self._obey("write")
        for begin in range(offset, offset + size, _ZEROS):
            os.pwrite(self._fds[0], bytes(min(_ZEROS, offset + size - begin)), begin)
        return 0

    def destroy(self, _path: str) -> None:
        """Do nothing on unmount."""
        os.close(self._fds[0])


@dataclass(frozen=True)
class Sick:
    """A block device on such a disk."""

    path: Path
    orders: Path

    def order(self, *words: str) -> None:
        """Follow these orders from now on; without a word the disk works again."""
        new = self.orders.with_suffix(".new")
        new.write_text(" ".join(words))
        new.rename(self.orders)


@contextlib.contextmanager
def sick_disk(folder: Path) -> Iterator[Sick]:
    """Yield a blank loop device on such a disk, which works at first."""
    image = folder / "sick.img"
    image.touch(0o600)
    os.truncate(image, SIZE)
    orders = folder / "orders"
    with serve_disks(folder, [image], orders, folder / "sick.log", (__file__,)) as (file,):
        attach = ["losetup", "--find", "--show", "--direct-io=on", file]
        name = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        disk = Sick(Path(name), orders)
        try:
            yield disk
        finally:
            disk.order()
            subprocess.run(["losetup", "--detach", name], check=True)
            until = time.monotonic() + 10
            while Path("/sys/block", disk.path.name, "loop").exists() and time.monotonic() < until:
                time.sleep(0.02)


def main(argv: list[str]) -> None:
    """Serve the disk until it is unmounted."""
    at, orders, image = argv
    serve(SickDisk(Path(image), Path(orders)), at)


if __name__ == "__main__":
    main(sys.argv[1:])
