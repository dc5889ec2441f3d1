"""One trial at a time on a disk, for all runs of this machine, in whatever fleet they are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench.machine import namespaces
from dbbench.model import Run
from dbbench.results.fileio import own_file, try_lock

_POLL_S: Final = 0.2


class DiskTurn:
    """A lock of the disk that is kept for a whole block. A waiting process also holds a second lock, for which all
    others queue, so that the run that releases the disk does not get it back at once. `waits` is called again and again
    with the folder of the run that uses the disk; what it raises ends the waiting."""

    def __init__(self, folder: Path, waits: Callable[[str], None]) -> None:
        self._folder, self._waits = folder, waits
        self._fd: int | None = None
        self._block: int | None = None

    def take(self, run: Run, block: int | None) -> None:
        """Wait until the disk belongs to this run, and keep it while the block is the same (None: preparations)."""
        if self._fd is None or self._block not in (block, None):
            self.release()
            path = lock_of(run, self._folder)
            queue = self._lock(path.with_suffix(".queue"), path)
            try:
                self._fd = self._lock(path, path)
            finally:
                os.close(queue)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, os.fsencode(self._folder), 0)  # waiting processes read here which run uses the disk
        self._block = block

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None

    def _lock(self, path: Path, disk: Path) -> int:
        """Lock the file `path`; return its descriptor, whose closing releases the lock."""
        fd = own_file(path, os.O_RDWR, 0o600)
        try:
            while not try_lock(fd):
                self._waits(disk.read_text(errors="replace") if disk.exists() else "")
                time.sleep(_POLL_S)
        except BaseException:
            os.close(fd)
            raise
        return fd


def lock_of(run: Run, folder: Path) -> Path:
    """Return the lock file of the disk that the run uses."""
    from dbbench.storage.devices import image  # imported here, because it imports all kinds of devices

    device = run.plan.device
    named = [*map(str, image.folders_of_images(run, folder)), *device.directories.values(), *device.disks]
    path = Path(named[0] if named else device.path or folder)
    status = path.stat() if path.exists() else folder.stat()  # a missing path is refused later
    return namespaces.private_folder() / f"disk-{status.st_rdev or status.st_dev}.lock"
