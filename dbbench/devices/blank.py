"""Is there data on a device that carries no signature? Read as far as two seconds go.

That is all of a small disk. Of a large one the places where filesystems keep copies of what stands at their begin come
first (a begin that was overwritten leaves them), then places ever closer to each other. What lies between the places
of a large disk that is otherwise blank is not seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

_WITHIN_S: Final = 2.0
_LEAST: Final = 64  # places, however long they take
_PIECE: Final = 2**16  # bytes read at a place
# Second superblocks: of ext2/3/4 with blocks of 1, 2 and 4 KiB, of btrfs; those of xfs are at about each quarter.
_COPIES: Final = (8 * 2**20, 32 * 2**20, 128 * 2**20, 64 * 2**20, 256 * 2**30)


def data_at(fd: int, within_s: float = _WITHIN_S) -> int | None:
    """Where the first byte stands that was found not to be 0; None where all that was read is 0. OSError."""
    until = time.monotonic() + within_s
    for number, place in enumerate(places(os.lseek(fd, 0, os.SEEK_END))):
        piece = os.pread(fd, _PIECE, place)
        if rest := piece.lstrip(b"\0"):
            return place + len(piece) - len(rest)
        os.posix_fadvise(fd, place, _PIECE, os.POSIX_FADV_DONTNEED)  # a whole disk of zeros is nothing to keep
        if number >= _LEAST and time.monotonic() > until:
            break
    return None


def places(size: int) -> Iterator[int]:
    """Where to look on a device of so many bytes; together they are all of it."""
    yield 0
    yield max(0, size - _PIECE)
    quarters = (size * number // 4 // _PIECE * _PIECE for number in (1, 2, 3))
    yield from (place for place in (*_COPIES, *quarters) if place < size)
    step = 1 << (size - 1).bit_length() if size > 1 else 0
    while step > _PIECE:
        yield from range(step // 2, size, step)
        step //= 2
