"""The shape of a filled filesystem: extents of its largest files, its metadata's share, and how its free space lies.

Everything is asked of the filesystem itself: FIEMAP, statfs, e2freefrag, xfs_spaceman, btrfs's own trees. What a
filesystem does not tell is None. A new family is one line in FREE, and in TAKEN where statfs does not say it all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices import image
from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing
from dbbench.filesystems import mountinfo, shape_btrfs
from dbbench.filesystems.port import Mounted
from dbbench.filesystems.shape_parse import FreeExtent, histogram, parse_e2freefrag, parse_freesp
from dbbench.model import FileShape, FreeExtents, SpaceFacts
from dbbench.pagecache import syncfs

LARGEST: Final = 5  # files; a dataset's largest table is in it, with its largest indexes
_BLOCK: Final = 512  # the unit of st_blocks
_TOOL_S: Final = 600.0  # a walk through the free-space trees of terabytes


def shaped(found: SpaceFacts, fs: Mounted, files: Sequence[Path]) -> SpaceFacts:
    """The facts of `state.space` with the shape added. Of an existing directory only its files are looked at: what
    else lies on that filesystem is not ours."""
    found = replace(found, largest=largest(fs, files))
    if not os.path.ismount(fs.path):
        return found
    metadata, content = taken_bytes(fs) or (None, 0)
    share = metadata / (metadata + content) if metadata else None
    return replace(found, metadata_bytes=metadata, metadata_share=share, free=free_space(fs))


def largest(fs: Mounted, files: Sequence[Path]) -> tuple[FileShape, ...]:
    """The largest of these files with their extents, the largest first."""
    sizes = sorted(((path.stat().st_size, path) for path in files), key=lambda one: (-one[0], one[1]))
    return tuple(FileShape(_below(path, fs.path), size, extents(path)) for size, path in sizes[:LARGEST])


def _below(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def extents(path: Path) -> int | None:
    """How many extents a file has, as FIEMAP counts them; None where the filesystem has none (ZFS)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return sum(1 for _ in image.extents(fd))
    except OSError:
        return None
    finally:
        os.close(fd)


def taken_bytes(fs: Mounted) -> tuple[int, int] | None:
    """Bytes of the devices that metadata takes, and that the content of files takes; None where it cannot be told.

    Metadata is all that is neither free nor content: inode tables, trees, journal, and what is kept in reserve.
    """
    special = TAKEN.get(fs.family)
    try:
        return special(fs) if special else _by_statfs(fs)
    except (ProgramMissing, CommandFailed, DeadlinePassed, OSError):
        return None


def free_space(fs: Mounted) -> tuple[FreeExtents, ...] | None:
    """The histogram of the free extents, after what is dirty was written; None where no tool tells."""
    if fs.family not in FREE or not os.path.ismount(fs.path):
        return None
    syncfs(fs.path)
    try:
        return histogram(FREE[fs.family](fs))
    except (ProgramMissing, CommandFailed, DeadlinePassed, OSError):
        return None


def _by_statfs(fs: Mounted) -> tuple[int, int] | None:
    """Size of the volume − free − blocks of the files. One volume: ext and xfs lie on no more."""
    size_of = Path(f"/sys/dev/block/{mountinfo.of(fs.path).device}/size")
    if not size_of.exists():
        return None
    found, content = os.statvfs(fs.path), _content_bytes(fs.path)
    taken = int(size_of.read_text()) * _BLOCK - found.f_bfree * found.f_frsize
    return max(0, taken - content), content


def _content_bytes(root: Path) -> int:
    """Bytes that all files below take on the device."""
    blocks = {}
    for folder, _folders, names in os.walk(root):
        for name in names:
            found = Path(folder, name).lstat()
            blocks[found.st_ino] = found.st_blocks  # a file of several names once
    return _BLOCK * sum(blocks.values())


def _ext(fs: Mounted) -> Iterable[FreeExtent]:
    return parse_e2freefrag(process.run(["e2freefrag", mountinfo.of(fs.path).source], timeout_s=_TOOL_S).stdout)


def _xfs(fs: Mounted) -> Iterable[FreeExtent]:
    said = process.run(["xfs_spaceman", "-c", "freesp -b", fs.path], timeout_s=_TOOL_S).stdout
    return parse_freesp(said, os.statvfs(fs.path).f_frsize)


FREE: Final[dict[str, Callable[[Mounted], Iterable[FreeExtent]]]] = {
    "ext2": _ext, "ext3": _ext, "ext4": _ext, "xfs": _xfs, "btrfs": shape_btrfs.free,
}  # fmt: skip
TAKEN: Final[dict[str, Callable[[Mounted], tuple[int, int] | None]]] = {"btrfs": shape_btrfs.taken_bytes}
