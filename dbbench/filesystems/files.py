"""Options that act on files when they are made: set on the data directory, then verified on the files."""

from __future__ import annotations

import array
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.image import extents
from dbbench.errors import CommandFailed, MountFailed, OptionNotInForce
from dbbench.filesystems.families import COMPRESSING, POOLED
from dbbench.filesystems.port import Mounted
from dbbench.model import FsSetup, Volume

_GETFLAGS: Final = 0x80086601  # FS_IOC_GETFLAGS (linux/fs.h)
NOCOW_FL: Final = 0x00800000
_EXTENT_ENCODED: Final = 0x8  # the blocks do not hold the bytes as they are read: compressed


def data_directory(setup: FsSetup, fs: Mounted) -> Path:
    """A new empty data directory on the filesystem, for its owner only: a plain folder, or the setup's own volume
    for it, which is there since the mount."""
    datadir = fs.path / "data"
    datadir.mkdir(mode=0o700, exist_ok="data" in setup.volumes)
    datadir.chmod(0o700)
    return datadir


def data_attributes(setup: FsSetup) -> tuple[str, ...]:
    """What chattr sets on the data directory, or on the volume that it is."""
    return (*setup.attributes, *setup.volumes.get("data", Volume()).attributes)


def wal_directory(setup: FsSetup, fs: Mounted) -> Path | None:
    """Where the write-ahead log lies instead of in the data directory: on the filesystem of `[device.wal]`, else in
    the setup's own volume for it; None: nowhere else. It may not be there yet."""
    if fs.wal is not None:
        return fs.wal.path / "wal"
    return fs.path / "wal" if "wal" in setup.volumes else None


def apply_attributes(setup: FsSetup, datadir: Path) -> None:
    """chattr on the still empty data directory, so that what is restored into it inherits them; MountFailed."""
    if not setup.attributes:
        return
    try:
        process.run(["chattr", *setup.attributes, datadir])
    except CommandFailed as failure:
        raise MountFailed(f"{' '.join(setup.attributes)} on {datadir}: {failure}") from failure


def verify_files(setup: FsSetup, files: Iterable[Path]) -> None:
    """OptionNotInForce where nodatacow, +C or compression, which do nothing to files that exist already, are not
    in force on these files. nodatacow and +C: on every file. Compression: on one at least, as the kernel
    leaves data alone that does not shrink; an arm that compresses nothing at all is not what it says it is."""
    found = [path for path in files if path.stat().st_size > 0]
    if not found:
        return
    if "nodatacow" in setup.mount or "+C" in data_attributes(setup):
        wrong = [path for path in found if not inode_flags(path) & NOCOW_FL]
        if wrong:
            raise OptionNotInForce(
                f"{len(wrong)} of {len(found)} files are copied on write though {setup.name!r} turns it off, "
                f"first {wrong[0]}",
                effect="Nothing was measured.",
                remedy="The option must be in force before files are restored; reflinked files keep their old state.",
            )
    compressing = COMPRESSING.get(setup.mkfs.family)
    options = (*setup.mount, *setup.volumes.get("data", Volume()).options)
    algorithm = compressing.compresses(options) if compressing else None
    if algorithm and not _compressed(setup.mkfs.family, sorted(found, key=_size, reverse=True)):
        raise OptionNotInForce(
            f"none of {len(found)} files has a compressed extent though {setup.name!r} asks for {algorithm}",
            effect="Nothing was measured.",
            remedy="The option must be in force before files are restored. Where the data does not shrink, this setup "
            "is the same as the one without compression.",
        )


def inode_flags(path: Path) -> int:
    """The FS_*_FL bits that lsattr prints."""
    buffer = array.array("L", [0])
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _GETFLAGS, buffer)
    finally:
        os.close(fd)
    return buffer[0]


def _compressed(family: str, files: Sequence[Path]) -> bool:
    pooled = POOLED.get(family)
    return pooled.compressed(files) if pooled else any(is_encoded(path) for path in files)


def is_encoded(path: Path) -> bool:
    """Whether an extent of the file is compressed, by FIEMAP; the file is written back for it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return any(flags & _EXTENT_ENCODED for _offset, _length, flags in extents(fd))
    finally:
        os.close(fd)


def _size(path: Path) -> int:
    return path.stat().st_size
