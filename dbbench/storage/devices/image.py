"""Image files: written completely once, and their allocation on their disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError, DiskTooSmall
from dbbench.units import size_text

_CHUNK: Final = 4 * 2**20  # bytes a write: large enough for a disk's full rate
_ALIGNED: Final = 2**20  # sizes are rounded up to this: whole sectors, also of 4096 bytes
_FS_IOC_FIEMAP: Final = 0xC020660B
_FIEMAP: Final = struct.Struct("=2Q4I")  # struct fiemap without extents
_FIEMAP_FLAG_SYNC: Final = 1
_EXTENT: Final = struct.Struct("=3Q2Q4I")  # struct fiemap_extent: logical, physical, length, reserved, flags, reserved
_EXTENTS_A_CALL: Final = 256
_UNWRITTEN: Final = 0x800  # FIEMAP_EXTENT_UNWRITTEN: allocated, and read as zeros without being there
_LAST: Final = 0x1
_FS_IOC_GETFLAGS: Final = 0x80086601
_FS_IOC_SETFLAGS: Final = 0x40086602
_FS_NOCOW_FL: Final = 0x00800000


@dataclass(frozen=True)
class ImageFacts:
    """The allocation of an image on its disk. `blocks` have 512 bytes; `extents` is None if unknown."""

    size_bytes: int
    blocks: int
    extents: int | None

    @property
    def allocated_bytes(self) -> int:
        """Return the bytes on its disk."""
        return self.blocks * 512


def make_image(path: Path, size_bytes: int, progress: Callable[[float], None] = lambda share: None) -> None:
    """Make a file of `size_bytes` (rounded up to MiB), with every block written; only its owner can access it.

    Blocks that are only allocated cost time at the first write, which the first trial would pay for all. The content is
    incompressible, because a compressing host filesystem would store zeros as holes. `progress` gets the share done. An
    existing file is replaced; after an error none is left. Raises DiskTooSmall.
    """
    size_bytes = -(-size_bytes // _ALIGNED) * _ALIGNED
    path.unlink(missing_ok=True)
    place = os.statvfs(path.parent)
    if place.f_bavail * place.f_frsize < size_bytes:
        raise _too_small(path, size_bytes, f"{size_text(place.f_bavail * place.f_frsize)} are free")
    try:
        with _created(path) as fd:
            with contextlib.suppress(OSError):  # a hint for contiguous extents; some filesystems do not take it
                os.posix_fallocate(fd, 0, size_bytes)
            _fill(fd, size_bytes, progress)
            os.fsync(fd)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _too_small(path, size_bytes, str(error.strerror)) from None
        raise


def image_facts(path: Path) -> ImageFacts:
    """Return size, blocks and extents of an image, as its filesystem reports them. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        request = _FIEMAP.pack(0, 2**64 - 1, _FIEMAP_FLAG_SYNC, 0, 0, 0)  # room for none: it only counts
        try:
            extents = _FIEMAP.unpack(fcntl.ioctl(fd, _FS_IOC_FIEMAP, request))[3]
        except OSError:
            extents = None  # tmpfs, zfs
        return ImageFacts(status.st_size, status.st_blocks, extents)
    finally:
        os.close(fd)


def write_out(path: Path) -> int:
    """Write zeros wherever the image has unwritten blocks or holes; return the number of bytes.

    If mkfs asks the device to zero its log, the loop driver calls fallocate(2) on the image. Such blocks read as zeros,
    and the first write to each changes the extents of the host filesystem: in the log, for every commit of the window.
    Online discard of an fs setup leaves holes with the same effect for the next one. Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        ranges: list[tuple[int, int]] = []
        with contextlib.suppress(OSError):  # tmpfs, zfs: nobody tells
            ranges = list(_not_written(fd))
        zeros = bytes(_CHUNK)
        for start, length in ranges:
            for offset in range(start, start + length, _CHUNK):
                os.pwrite(fd, zeros[: min(_CHUNK, start + length - offset)], offset)
        if ranges:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return sum(length for _, length in ranges)
    finally:
        os.close(fd)


def _not_written(fd: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of allocated but unwritten ranges, and of holes."""
    offset = 0
    for start, length, flags in extents(fd):
        if start > offset:
            yield offset, start - offset
        if flags & _UNWRITTEN:
            yield start, length
        offset = start + length
    if 0 < offset < os.fstat(fd).st_size:  # nothing at all is known where no extent is
        yield offset, os.fstat(fd).st_size - offset


def extents(fd: int) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, length, flags) of each extent of a file. Raises OSError if its filesystem does not report it."""
    start = 0
    while True:
        request = _FIEMAP.pack(start, 2**64 - 1 - start, _FIEMAP_FLAG_SYNC, 0, _EXTENTS_A_CALL, 0)
        buffer = bytearray(request + bytes(_EXTENT.size * _EXTENTS_A_CALL))
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer)
        count = _FIEMAP.unpack_from(buffer)[3]
        for number in range(count):
            logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(buffer, _FIEMAP.size + number * _EXTENT.size)
            yield logical, length, flags
            start = logical + length
        if not count or flags & _LAST:
            return


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    """Yield a new empty file, open for direct I/O if possible, and without copy-on-write if possible."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        with contextlib.suppress(OSError):  # btrfs: overwritten blocks would move, and the image fall to pieces
            attributes = struct.unpack("=q", fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(8)))[0]
            fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("=q", attributes | _FS_NOCOW_FL))
        with contextlib.suppress(OSError):  # tmpfs before Linux 6.6 has none
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
        yield fd
    finally:
        os.close(fd)


def _fill(fd: int, size_bytes: int, progress: Callable[[float], None]) -> None:
    with mmap.mmap(-1, _CHUNK) as buffer:  # page-aligned, as direct I/O wants it
        buffer.write(os.urandom(_CHUNK))
        written = shown = 0
        with memoryview(buffer) as view:
            while written < size_bytes:
                written += os.write(fd, view[: size_bytes - written])
                if (written - shown) * 100 >= size_bytes or written == size_bytes:  # at most a hundred times
                    shown = written
                    progress(written / size_bytes)


def _too_small(path: Path, size_bytes: int, found: str) -> DbbenchError:
    return DiskTooSmall(
        f"the image {path} requires {size_text(size_bytes)}: {found}",
        effect="Nothing was kept.",
        remedy='Reduce "size" in [device], or use another directory with at = "/directory".',
    )
