"""Image files: written completely once, and their allocation on their disk; and the loop images of
a run, which each of its trials uses, so that all filesystems have the same extents.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import DbbenchError, DiskTooSmall, NotWritable
from dbbench.model import Role, Run
from dbbench.results.fileio import open_fd, open_file, remove, try_lock, writing
from dbbench.results.journal import Journal, tag_of
from dbbench.units import size_text

_CHUNK: Final = 4 * 2**20  # bytes per write: large enough for the full rate of a disk
# sizes are rounded up to this, so that they are whole sectors, also of 4096 bytes
_ALIGNED: Final = 2**20
_FS_IOC_FIEMAP: Final = 0xC020660B
_FIEMAP: Final = struct.Struct("=2Q4I")  # struct fiemap without extents
_FIEMAP_FLAG_SYNC: Final = 1
# struct fiemap_extent: logical, physical, length, reserved, flags, reserved
_EXTENT: Final = struct.Struct("=3Q2Q4I")
_EXTENTS_A_CALL: Final = 256
UNWRITTEN: Final = 0x800  # FIEMAP_EXTENT_UNWRITTEN: allocated but not written; reads return zeros
_LAST: Final = 0x1
GETFLAGS: Final = 0x80086601  # FS_IOC_GETFLAGS (linux/fs.h)
_FS_IOC_SETFLAGS: Final = 0x40086602
NOCOW_FL: Final = 0x00800000


def make_image(
    path: Path,
    size_bytes: int,
    progress: Callable[[float], None] = lambda share: None,
) -> None:
    """Make a private file of `size_bytes` (rounded up to MiB), with every block written: allocated
    ones cost time at the first write, which the first trial would pay for all. The content is
    incompressible, because a compressing host filesystem would store zeros as holes. An existing
    file is replaced; an error leaves none. Raises DiskTooSmall.
    """
    size_bytes = -(-size_bytes // _ALIGNED) * _ALIGNED
    path.unlink(missing_ok=True)
    if (free := shutil.disk_usage(path.parent).free) < size_bytes:
        raise _too_small(path, size_bytes, f"{size_text(free)} are free")
    try:
        with _create(path) as fd:
            # a hint for contiguous extents, which some filesystems reject
            with contextlib.suppress(OSError):
                os.posix_fallocate(fd, 0, size_bytes)
            _fill(fd, size_bytes, progress)
            os.fsync(fd)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _too_small(path, size_bytes, str(error.strerror)) from None
        raise


def allocation(path: Path) -> tuple[int, int | None]:
    """Return the blocks of 512 bytes and the extents of an image, as its filesystem reports them.
    Raises OSError.
    """
    with open_fd(path) as fd:
        number: int | None = None
        with contextlib.suppress(OSError):  # tmpfs and zfs do not support the call
            number = sum(1 for _ in extents(fd))
        return os.fstat(fd).st_blocks, number


def write_out(path: Path) -> int:
    """Write zeros wherever the image has unwritten blocks or holes; return the number of bytes.
    Raises OSError.

    If mkfs asks the device to zero its log, the loop driver calls fallocate(2) on the image; the
    first write to each such block then changes the extents of the host filesystem: in the log,
    for every commit. So do discarded holes.
    """
    with open_fd(path, os.O_RDWR) as fd:
        ranges: list[tuple[int, int]] = []
        with contextlib.suppress(OSError):  # tmpfs and zfs do not answer
            ranges = list(_unwritten_ranges(fd))
        zeros = bytes(_CHUNK)
        for start, length in ranges:
            for offset in range(start, start + length, _CHUNK):
                os.pwrite(fd, zeros[: min(_CHUNK, start + length - offset)], offset)
        if ranges:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return sum(length for _, length in ranges)


def _unwritten_ranges(fd: int) -> Iterator[tuple[int, int]]:
    offset = 0
    for start, length, flags in extents(fd):
        if start > offset:
            yield offset, start - offset
        if flags & UNWRITTEN:
            yield start, length
        offset = start + length
    if 0 < offset < os.fstat(fd).st_size:  # a file without any extent is not proof
        yield offset, os.fstat(fd).st_size - offset


def extents(fd: int) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, length, flags) of each extent of a file. Raises OSError if its filesystem does
    not report it.
    """
    start = 0
    while True:
        request = _FIEMAP.pack(start, 2**64 - 1 - start, _FIEMAP_FLAG_SYNC, 0, _EXTENTS_A_CALL, 0)
        buffer = bytearray(request + bytes(_EXTENT.size * _EXTENTS_A_CALL))
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer)
        count = _FIEMAP.unpack_from(buffer)[3]
        for number in range(count):
            logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(
                buffer, _FIEMAP.size + number * _EXTENT.size
            )
            yield logical, length, flags
            start = logical + length
        if not count or flags & _LAST:
            return


@contextlib.contextmanager
def _create(path: Path) -> Iterator[int]:
    """Yield a new empty file, open for direct I/O if possible, and without copy-on-write if
    possible.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open_fd(path, flags, 0o600) as fd:
        # btrfs: otherwise overwritten blocks move, and the image becomes fragmented
        with contextlib.suppress(OSError):
            answer = fcntl.ioctl(fd, GETFLAGS, bytes(8))
            (attributes,) = struct.unpack("=q", answer)
            fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("=q", attributes | NOCOW_FL))
        with contextlib.suppress(OSError):  # tmpfs has no attributes before Linux 6.6
            modes = fcntl.fcntl(fd, fcntl.F_GETFL)
            fcntl.fcntl(fd, fcntl.F_SETFL, modes | os.O_DIRECT)
        yield fd


def _fill(fd: int, size_bytes: int, progress: Callable[[float], None]) -> None:
    # mmap returns page-aligned memory, which direct I/O needs
    with mmap.mmap(-1, _CHUNK) as buffer:
        buffer.write(os.urandom(_CHUNK))
        written = shown = 0
        with memoryview(buffer) as view:
            while written < size_bytes:
                written += os.write(fd, view[: size_bytes - written])
                # Reports progress at most a hundred times.
                if (written - shown) * 100 >= size_bytes or written == size_bytes:
                    shown = written
                    progress(written / size_bytes)


def _too_small(path: Path, size_bytes: int, found: str) -> DbbenchError:
    return DiskTooSmall(
        f"the image {path} requires {size_text(size_bytes)}: {found}",
        effect="Nothing was kept.",
        remedy='Reduce "size" in [device], or use another directory with at = "/directory".',
    )


def images_of(run: Run, folder: Path) -> dict[Role, tuple[Path, ...]]:
    """Return the run's images, in `at` of the plan or in the run's own directory; {} without loop
    devices.
    """
    if run.plan.device.kind != "loop":
        return {}
    stem = f".dbbench-{run.name}-{tag_of(folder)}"
    images: dict[Role, tuple[Path, ...]] = {}
    for role, spec in run.plan.device.volumes.items():
        place = Path(spec.at or folder).resolve()
        marks = (
            ["-wal"]
            if role == "log"
            else ["", *(f"-{number}" for number in range(2, spec.count + 1))]
        )
        images[role] = tuple(place / f"{stem}{mark}.img" for mark in marks)
    return images


def folders_of_images(run: Run, folder: Path) -> list[Path]:
    """Return the directories of the images."""
    return sorted({path.parent for images in images_of(run, folder).values() for path in images})


def missing_bytes(run: Run, folder: Path) -> dict[Path, int]:
    """Return what is still to be written, by directory."""
    missing: dict[Path, int] = {}
    for path, size_bytes in _sizes(run, folder).items():
        if not path.exists():
            missing[path.parent] = missing.get(path.parent, 0) + size_bytes
    return missing


def make_images(
    run: Run,
    folder: Path,
    journal: Journal,
    progress: Callable[[str, float], None],
) -> None:
    """Make the missing images of the run. Raises DiskTooSmall, NotWritable, FilesystemFull."""
    for path, size_bytes in _sizes(run, folder).items():
        if os.path.lexists(path):
            if str(path) in journal.outstanding("image") and not path.is_symlink():
                continue
            raise NotWritable(
                f"{path} exists and was not created by this run",
                remedy='Move it away, or use another directory with "at" in [device].',
            )
        journal.take("image", path)
        partial = _partial(path)
        with writing(path):
            make_image(
                partial,
                size_bytes,
                lambda share: progress("writing the disk image in full", share),
            )
            partial.rename(path)


def give_back_images(journal: Journal, patience_s: float = 0.0) -> list[Path]:
    """Remove this run's images; return them. One that is attached after `patience_s` (the kernel
    releases that of a killed trial a moment later), or whose path contains a link, stays
    recorded.
    """
    process.wait_while(
        lambda: any(map(_is_busy, map(Path, journal.outstanding("image")))), patience_s
    )
    removed: list[Path] = []
    for image in map(Path, journal.outstanding("image")):
        if not _is_busy(image):
            with contextlib.suppress(OSError):
                removed += [path for path in (image, _partial(image)) if remove(path)]
                journal.release("image", image)
    return removed


def _is_busy(image: Path) -> bool:
    """Whether another process has it locked, as a trial does (`devices.loop`)."""
    try:
        with open_file(image, sys.maxsize, Path("/")) as file:
            return not try_lock(file.fileno())
    except OSError:
        return False  # it does not exist, or its path contains a link


def _sizes(run: Run, folder: Path) -> dict[Path, int]:
    volumes = run.plan.device.volumes
    return {
        path: volumes[role].size_bytes
        for role, images in images_of(run, folder).items()
        for path in images
    }


def _partial(image: Path) -> Path:
    return image.with_suffix(".partial")
