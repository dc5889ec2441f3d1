"""Kind `loop`: a file as a disk. The image lasts for a run, the loop device for a trial. It clears
itself (LO_FLAGS_AUTOCLEAR) when its last user is gone, also after a SIGKILL, and uses direct I/O
on the image: otherwise the host's page cache would be below the filesystem.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import DeviceInUse, DeviceUnusable, MakeFailed
from dbbench.model import DeviceFacts
from dbbench.results.fileio import try_lock
from dbbench.storage.devices import guard, loop_driver, sysfs, used
from dbbench.storage.devices.hold import afterwards
from dbbench.storage.devices.image import allocation
from dbbench.storage.devices.port import Device

# another process may take the free device before us; each attempt asks the kernel for another one
_TRIES: Final = 50
_RETRY_S: Final = 0.02
# the kernel may still clear that of a killed trial (median 90 ms, on a busy disk seconds)
_SETTLE_S: Final = 15.0
# the driver flushes and clears in the background, which takes longer on a busy disk
_CLEARED_S: Final = 30.0


@contextlib.contextmanager
def attach(image: Path, sector_bytes: int = 0) -> Iterator[Device]:
    """Attach a locked loop device over `image` within the block; then wait until the driver has
    released it. Before Linux 6.15 or so, sectors are at most a page. `facts.direct_io` is read
    back: False if the image's filesystem lacks it. Raises DeviceUnusable, DeviceInUse (another
    loop device), MakeFailed; the last one also at the end.
    """
    with contextlib.ExitStack() as stack:
        # The image is checked and opened once; the kernel gets this descriptor.
        file, direct = _open(image)
        stack.callback(os.close, file)
        _must_be_free(image, file)
        blocks, extents = allocation(image)
        name, fd = _bound(file, direct, sector_bytes)
        sequence, dio = (sysfs.attribute(name, place) for place in ("diskseq", "loop/dio"))
        # The driver releases the device some time after the last close.
        stack.enter_context(afterwards(lambda: _wait_until_free(name, sequence)))
        stack.callback(os.close, fd)
        # Without direct I/O the image would be cached twice.
        if direct and dio != "1":
            raise MakeFailed(
                f"/dev/{name} does not use direct I/O (loop/dio = {dio})",
                remedy='Put the image on another filesystem with at = "/directory" in [device].',
            )
        facts = DeviceFacts(
            "loop",
            f"/dev/{name}",
            name,
            sysfs.size_bytes(name),
            direct_io=dio == "1",
            image=str(image),
            image_blocks_before=blocks,
            image_extents_before=extents,
        )
        yield Device(Path(facts.path), fd, os.fstat(fd).st_rdev, facts, (name,))


def _open(image: Path) -> tuple[int, bool]:
    for flags in (os.O_DIRECT, 0):
        try:
            return os.open(image, os.O_RDWR | os.O_CLOEXEC | flags), bool(flags)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise DeviceUnusable(f"the image {image}: {error.strerror}") from None
    raise DeviceUnusable(f"the image {image} cannot be opened")


def _must_be_free(image: Path, file: int) -> None:
    """Refuse an image that another loop device uses, after _SETTLE_S seconds for an ending trial:
    two destroy it.
    """
    status = os.fstat(file)
    behind = used.Target("", frozenset(), frozenset({(status.st_dev, status.st_ino)}))
    # The loop driver keeps the descriptor, and so the lock, until it has cleared the device.
    process.wait_while(lambda: not try_lock(file) or bool(used.by_loops(behind)), _SETTLE_S, 0.02)
    if users := used.by_loops(behind):
        raise DeviceInUse(f"the image {image} is in use: " + "; ".join(users))
    if not try_lock(file):
        raise DeviceInUse(
            f"another process has locked the image {image} (flock):{guard.locked_by(file)}"
        )


def _bound(file: int, direct: bool, sector_bytes: int) -> tuple[str, int]:
    """Bind a free loop device to the image; return its name and a descriptor that keeps it bound."""
    flags = loop_driver.LO_FLAGS_AUTOCLEAR | (loop_driver.LO_FLAGS_DIRECT_IO if direct else 0)
    problem = ""
    for _ in range(_TRIES):
        try:
            # Another process may take the free device first, so it is tried again.
            name, fd = loop_driver.open_free()
        except OSError as error:
            raise MakeFailed(
                f"no loop device is available: {error}", remedy="Load the driver: modprobe loop"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # udev does not open a locked device
            loop_driver.configure(fd, file, flags, sector_bytes)
            return name, fd
        except OSError as error:
            os.close(fd)
            problem = f"/dev/{name}: {error.strerror}"
            # An older kernel has no sectors above a page.
            if error.errno == errno.EINVAL and sector_bytes > mmap.PAGESIZE:
                sector_bytes = mmap.PAGESIZE
                continue
            if error.errno not in (errno.EBUSY, errno.EAGAIN):
                break
            time.sleep(_RETRY_S)
    raise MakeFailed(f"the loop device could not be attached to its image: {problem}")


def _wait_until_free(name: str, sequence: str | None) -> None:
    def is_attached() -> bool:  # another media number means that it already has a new image
        return loop_driver.is_bound(name) and sysfs.attribute(name, "diskseq") == sequence

    if process.wait_while(is_attached, _CLEARED_S, 0.005):
        raise MakeFailed(
            f"/dev/{name} is still attached {_CLEARED_S:.0f} s after its last use: "
            + ("; ".join(used.users(name)) or "?"),
            remedy=f"Unmount the filesystem on it, then run: losetup -d /dev/{name}",
        )
