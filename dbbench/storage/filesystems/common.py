"""What several families share: options, the mount of a path, flags of files, processes that hold a
filesystem.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import DbbenchError, MakeFailed, UnmountFailed
from dbbench.machine.mounts import Mount, mounts_of
from dbbench.model import Extents, FsSetup, Words
from dbbench.results.fileio import open_fd
from dbbench.storage.devices import image, used
from dbbench.storage.devices.hold import retry
from dbbench.storage.devices.port import Device
from dbbench.units import bytes_of

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
BLOCK: Final = 512  # bytes per unit of st_blocks, whatever the block size of the filesystem is
BUSY_S: Final = 15.0  # a killed server may take seconds to close its files
UMOUNT_S: Final = 300.0  # umount and export write back all dirty data; after fsync=off it took 21 s
FSCK_S: Final = 6 * 3600.0  # long enough for terabytes of small files
TOOL_S: Final = 600.0  # long enough to read the free-space trees of terabytes
# the blocks do not contain the bytes as they are read: they are compressed
_EXTENT_ENCODED: Final = 0x8


def option_value(options: Words, flag: str) -> str | None:
    """Return the word after the last `flag` ("-b 16384"), or None."""
    value = None
    for word, following in pairwise(options):
        if word == flag:
            value = following
    return value


def block_bytes(setup: FsSetup) -> int:
    """Return the size of the blocks that mkfs is asked for ("-b 65536", "-b size=64k"); 0 for its
    default.
    """
    size = option_value(setup.mkfs.options, "-b") or ""
    with contextlib.suppress(ValueError):
        return bytes_of(size.removeprefix("size=").upper())
    return 0


def mkfs_error(
    setup: FsSetup,
    device: Device,
    failure: Exception,
) -> DbbenchError:
    """Return the error for a failed mkfs."""
    return MakeFailed(
        f"{setup.mkfs.family} on {device.path}: {failure}",
        effect="The device has no usable filesystem now.",
        remedy="dbbench plan prints the commands of the plan.",
    )


def match(pattern: str, text: str) -> re.Match[str]:
    """Return the first match of `pattern` in a tool's output. Raises ValueError."""
    first = re.search(pattern, text, re.MULTILINE)
    if first is None:
        raise ValueError(f"no line is like {pattern}")
    return first


def inode_flags(path: Path) -> int:
    """Return the FS_*_FL bits that lsattr prints."""
    buffer = array.array("L", [0])
    with open_fd(path) as fd:
        fcntl.ioctl(fd, image.GETFLAGS, buffer)
    return buffer[0]


def has_encoding(path: Path) -> bool:
    """Whether an extent of the file is compressed, by FIEMAP; the file is written back for it.
    Raises OSError.
    """
    with path.open("rb") as file:
        return any(
            flags & _EXTENT_ENCODED for _offset, _length, flags in image.extents(file.fileno())
        )


def extents_from(path: Path, offset: int = 0) -> Extents | None:
    """Return a file's extents from that offset on by FIEMAP; None if it has none (ZFS) or cannot be
    read.
    """
    count = 0
    compressed = 0
    unwritten = 0
    with contextlib.suppress(OSError), path.open("rb") as file:
        for start, length, flags in image.extents(file.fileno()):
            size = start + length - max(start, offset)
            if size <= 0:
                continue
            count += 1
            if flags & _EXTENT_ENCODED:
                compressed += size
            if flags & image.UNWRITTEN:
                unwritten += size
        return Extents(count, compressed, unwritten)
    return None


def extents_of(files: Iterable[Path]) -> int | None:
    """Return the number of extents of all files, or None if the filesystem does not report it."""
    count = 0
    for path in files:
        extents = extents_from(path)
        if extents is None:
            return None
        count += extents.count
    return count


def content_bytes(root: Path) -> int:
    """Return the bytes that all files in the directory occupy on the device."""
    blocks = {}
    for folder, _folders, names in os.walk(root):
        for name in names:
            status = Path(folder, name).lstat()
            blocks[status.st_ino] = status.st_blocks  # counts a file with several names once
    return BLOCK * sum(blocks.values())


def mount_of(path: Path) -> Mount:
    """Return the mount that contains `path`, by the kernel's mount ID: mountinfo has other device
    numbers than stat(2) for btrfs, and mounts may lie on top of each other. Raises OSError.
    """
    with open_fd(path, os.O_PATH) as fd:
        info = Path(f"/proc/self/fdinfo/{fd}").read_text()
    mount_id = int(match(r"^mnt_id:\s*(\d+)", info)[1])
    for mount in mounts_of(Path("/proc/self")):
        if mount.id == mount_id:
            return mount
    raise FileNotFoundError(
        f"{path} is on mount {mount_id}, which /proc/self/mountinfo does not list"
    )


def until_let_go(
    argv: Sequence[str | Path],
    what: object,
    at: Path | None,
    effect: str,
) -> None:
    """Repeat umount or zpool export of `what` until it succeeds. Raises UnmountFailed after BUSY_S
    seconds, with the holders of the filesystem at `at`, or with the last message.
    """
    failure = retry(lambda: process.run(argv, timeout_s=UMOUNT_S), BUSY_S)
    if failure:
        holders = used.by_files(at) if at else ()
        raise UnmountFailed(
            f"{what} is still busy after {BUSY_S:.0f} s: "
            f"it is in use by {'; '.join(holders) or failure}",
            effect=effect,
            remedy=f"End that process, then run: {' '.join(map(str, argv))}",
        ) from failure
