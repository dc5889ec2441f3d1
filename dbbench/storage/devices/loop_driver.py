"""The loop driver's ioctls (linux/loop.h): get a free device, bind a file to it, query the bound
file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.machine import questions
from dbbench.results.fileio import open_fd
from dbbench.storage.devices import sysfs

CONTROL: Final = Path("/dev/loop-control")
LO_FLAGS_AUTOCLEAR: Final = 4
LO_FLAGS_DIRECT_IO: Final = 16
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_GET_STATUS64: Final = 0x4C05
_BLKBSZSET: Final = 0x40081271
_INFO: Final = struct.Struct("=5Q4I64s64s32s2Q")  # struct loop_info64
_CONFIG: Final = struct.Struct(f"=2I{_INFO.size}s8Q")  # struct loop_config
_ANSWER_S: Final = 1.0  # a file on a local disk, and one on a network that works, take milliseconds


@dataclass(frozen=True)
class LoopStatus:
    """The file of a loop device as (device, inode), or its block device by number (0: none)."""

    file: tuple[int, int]
    number: int
    # from sysfs: never truncated, but possibly misleading from another mount namespace
    file_name: str
    failure: str = ""  # why the device could not be queried
    answers: bool = True  # the filesystem of the file


def open_free() -> tuple[str, int]:
    """Open a currently free loop device; return its name and descriptor. Raises OSError."""
    with open_fd(CONTROL, os.O_RDWR) as control:
        name = f"loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
    return name, os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)


def configure(device: int, file: int, flags: int, sector_bytes: int) -> None:
    """Bind an open file to an open loop device with these flags and sectors (0: of 512 bytes)
    atomically. OSError EBUSY: another process was faster. EINVAL: the kernel has no such
    sectors.
    """
    name = os.fsencode(Path(f"/proc/self/fd/{file}").readlink())[:63]
    info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    fcntl.ioctl(device, _LOOP_CONFIGURE, _CONFIG.pack(file, sector_bytes, info, *[0] * 8))
    # until the next first open, the page cache of the device would still have smaller blocks
    if sector_bytes:
        fcntl.ioctl(device, _BLKBSZSET, struct.pack("=i", sector_bytes))


def is_bound(name: str) -> bool:
    """Whether that is a loop device with a bound file."""
    return (sysfs.folder(name) / "loop/backing_file").exists()


def statuses(names: Sequence[str]) -> dict[str, LoopStatus]:
    """Return what these loop devices are bound to, without those that were released meanwhile. The
    driver asks the filesystem of the file.
    """
    files = {name: sysfs.attribute(name, "loop/backing_file") for name in names}
    bound = {name: file for name, file in files.items() if file is not None}
    answers = questions.ask_each(_ask, list(bound), _ANSWER_S)
    status_of = dict[str, LoopStatus]()
    for name, file in bound.items():
        if name not in answers:
            status_of[name] = LoopStatus((0, 0), 0, file, answers=False)
        elif answers[name] is not None:
            device, inode, number, failure = answers[name]
            status_of[name] = LoopStatus((device, inode), number, file, failure)
    return status_of


def _ask(name: str) -> tuple[int, int, int, str] | None:
    """Return device, inode, number and failure of a loop device; None if it was released. The first
    three are 0 for a file that the kernel cannot examine, because the server of its filesystem
    has died.
    """
    try:
        with open_fd(f"/dev/{name}") as fd:
            try:
                answer = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(_INFO.size))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return None
                answer = bytes(_INFO.size)
    except OSError as error:
        return 0, 0, 0, error.strerror or str(error)
    device, inode, number, *_ = _INFO.unpack(answer)
    return device, inode, number, ""
