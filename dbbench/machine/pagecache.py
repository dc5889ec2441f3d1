"""The page cache: which part of some files it holds, how to empty it, and the proof that it is
empty.

There are two proofs: the kernel's count of resident pages, before (some) and after (none), and a
seeded sample of the files, whose bytes must come from the device. If a filesystem has its own
cache (the ARC of ZFS), its bytes count as well. Caches of a hypervisor or a controller are
outside the reach of both.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import itertools
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.machine import libc, threads
from dbbench.machine.host.proc import disk_counts, io_counts
from dbbench.machine.libc import syncfs
from dbbench.model import CacheFacts
from dbbench.results.fileio import open_fd

DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")
SAMPLE_BYTES: Final = 64 * 2**20
# share of the sample that must come from the device; less if the filesystem compresses
LEAST_SHARE: Final = 0.9
_PIECE: Final = 2**20
# ranges that are considered; enough for 64 MiB in files of one page each
_CANDIDATES: Final = 2**16
_TRIES: Final = 3  # pages in per-CPU lists or just written back survive the first try
_PAUSE_S: Final = 0.02
_OWN_S: Final = 2.0  # OpenZFS frees the buffers of an exported pool in the background
# cachestat(2) of Linux 6.5; the same number on every architecture except alpha
_CACHESTAT: Final = 451
# Writing 300 MB back takes 0.2 to 3 s, nothing 0.3 ms. A disk that takes longer than the second
# limit is busy: what it then does for others in a window is W127.
_SOON_S: Final = 2.0
_WRITE_BACK_S: Final = 60.0
_SECTOR: Final = 512  # bytes: the unit of /sys/block/*/stat, regardless of the device's own sectors


@dataclass(frozen=True)
class Piece:
    """A range of a file that holds data on the device (no hole)."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True)
class Emptying:
    """How the caches of the data files are emptied, while no process has them open. `bytes_held`
    returns the data in the filesystem's own cache; None: it has none or does not report it. If
    it is configured to keep no data, and nothing is in the page cache, the sample is the only
    proof.
    """

    how: str  # "unmount and mount", "export and import"
    empty: Callable[[], None]
    bytes_held: Callable[[], int | None] = lambda: None
    keeps_data: bool = True


# the files' pages alone, which are always evicted
EVICTING: Final = Emptying("posix_fadvise", lambda: None)


def _size(path: Path) -> int:
    with open_fd(path) as fd:
        return _size_of(fd)


def _size_of(fd: int) -> int:
    return os.lseek(fd, 0, os.SEEK_END)  # stat would report 0 for a bare device


def resident_bytes(files: Sequence[Path]) -> int | None:
    """Return the files' bytes in the page cache (cachestat(2), mincore(2)); None if unknown (files
    of another user).
    """
    total = 0
    for path in files:
        with open_fd(path) as fd:
            size = _size_of(fd)
            pages = _cachestat(fd) if size else 0
            if pages is None:
                pages = _mincore(fd, size) if os.access(path, os.W_OK) else None
        if pages is None:
            return None
        total += pages * mmap.PAGESIZE
    return total


def _cachestat(fd: int) -> int | None:
    """Return the resident pages at once; mincore reads a byte per page, 10 s for 1 TB. None: this
    kernel lacks it.
    """
    whole = (ctypes.c_uint64 * 2)(0, 0)
    counts = (ctypes.c_uint64 * 5)()  # cache, dirty, writeback, evicted, recently evicted
    try:
        libc.call("syscall", _CACHESTAT, fd, whole, counts, 0)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
            return None
        raise
    return int(counts[0])


def _mincore(fd: int, size: int) -> int:
    """Return the resident pages by a mapping that is never accessed; all of them for a file this
    user may not write.
    """
    address = libc.call("mmap", None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    try:
        resident = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))  # one byte per page
        libc.call("mincore", address, size, resident)
        return resident.raw.count(1)
    finally:
        libc.call("munmap", address, size)


def drop(at: Path, control: Path = DROP_CACHES) -> None:
    """Write back the filesystem of `at` and drop all clean caches (a container may ignore it).
    Raises OSError.
    """
    syncfs(at)
    control.write_text("3\n")


def write_back(
    folders: Sequence[Path], tell: Callable[[str], None], longest_s: float = _WRITE_BACK_S
) -> None:
    """Write back all dirty data of the filesystems of `folders`, so that the kernel does not do it in
    a window. Wait at most `longest_s`, and `tell` if it takes long.
    """
    # A signal interrupts the wait, but not the call.
    helper = threads.Helper("write back", lambda: list(map(syncfs, folders)))
    helper.start()
    helper.join(min(_SOON_S, longest_s))
    if helper.alive:
        tell("waiting until the disk has written what other programs left in memory")
        helper.join(longest_s)
    helper.error()  # the trial meets it too, and names it


def evict(files: Sequence[Path]) -> None:
    """Write back the files' filesystem and ask the kernel to evict their pages. Needs no root;
    mapped pages stay.
    """
    if files:
        syncfs(files[0])
    for path in files:
        with open_fd(path) as fd:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sample(
    files: Sequence[Path],
    seed: int,
    size_bytes: int = SAMPLE_BYTES,
) -> list[Piece]:
    """Return random ranges of the files, aligned to 1 MiB, without holes, `size_bytes` in total or
    all there is.
    """
    sizes = [_size(path) for path in files]
    pieces_of = [-(-size // _PIECE) for size in sizes]
    firsts = [0, *itertools.accumulate(pieces_of)]
    numbers = range(firsts.pop())
    order = random.Random(seed).sample(numbers, min(len(numbers), _CANDIDATES))
    pieces: list[Piece] = []
    missing_bytes = size_bytes
    for number in order:
        owner = bisect.bisect_right(firsts, number) - 1
        for piece in _data(files[owner], (number - firsts[owner]) * _PIECE, sizes[owner]):
            pieces.append(piece)
            missing_bytes -= piece.length
        if missing_bytes <= 0:
            break
    return pieces


def read(pieces: Sequence[Piece]) -> int:
    """Read the pieces through the page cache without read-ahead beyond them; return the bytes read."""
    buffer = bytearray(_PIECE)
    total = 0
    for piece in pieces:
        with open_fd(piece.path) as fd:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            total += os.preadv(fd, [memoryview(buffer)[: piece.length]], piece.offset)
    return total


def _data(path: Path, begin: int, size: int) -> Iterator[Piece]:
    with open_fd(path) as fd:
        for offset, end in data_parts(fd, begin, min(begin + _PIECE, size)):
            yield Piece(path, offset, end - offset)


def data_parts(fd: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each part of a file between two offsets that is not a hole. Raises
    OSError.
    """
    while begin < end:
        try:
            begin = os.lseek(fd, begin, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a bare device has no holes
                yield begin, end
            elif error.errno != errno.ENXIO:  # a hole up to the end of the file
                raise
            return
        hole = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
        if begin < hole:
            yield begin, hole
        begin = hole


def empty_and_prove(
    files: Sequence[Path],
    seed: int = 0,
    disks: Sequence[str] = (),
    by: Emptying = EVICTING,
    *,
    least_share: float = LEAST_SHARE,
    control: Path = DROP_CACHES,
) -> CacheFacts:
    """Empty the caches of the data files and prove it; on failure `proved` is False with a reason.
    `disks`: kernel names (["loop7"]) whose reads are counted; without them, this process's
    reads. If no file was resident, the sample is read first, so that there is something to
    empty. `least_share`: the share of the sample's bytes that the device must deliver. If data
    remains in memory, the page cache of the whole machine is dropped, which needs root.
    """
    files = [path for path in files if _size(path)]
    if not files:
        return CacheFacts(reason="there are no data files")
    facts, remains = _empty_once(files, sample(files, seed), disks, by, least_share)
    if not remains:
        return facts

    # Everything else has failed: the whole machine's cache is dropped, if that is allowed.
    def drop_all() -> None:
        by.empty()
        drop(files[0], control)

    whole = replace(
        by,
        how=f"{by.how}, then drop_caches of the whole machine",
        empty=drop_all,
    )
    try:
        facts_after, _ = _empty_once(files, sample(files, seed), disks, whole, least_share)
        return replace(facts_after, whole_machine=True)
    except OSError:  # only root may drop it, and not in every container
        return facts


def _empty_once(
    files: Sequence[Path],
    pieces: Sequence[Piece],
    disks: Sequence[str],
    by: Emptying,
    least_share: float,
) -> tuple[CacheFacts, bool]:
    """Return the facts, and whether the proof failed because data remains in memory."""
    syncfs(files[0])
    touched = ""
    # A proof needs something to remove: if nothing is cached, it is read first.
    before = resident_bytes(files)
    own_before = by.bytes_held()
    if before == 0 and not own_before:
        touched = "touched, then "
        read(pieces)
        before = resident_bytes(files)
        own_before = by.bytes_held()
    _empty(by, files)
    after = resident_bytes(files)
    own_after = by.bytes_held()

    # Whether a sample of the data comes from the device or from memory.
    read_before = _read_so_far(disks)
    sample_bytes = read(pieces)
    read_after = _read_so_far(disks)
    delivered = None if read_before is None or read_after is None else read_after - read_before
    _empty(by, files)  # the load begins without what the sample has read
    last = resident_bytes(files)
    after = max(after, last) if after is not None and last is not None else None
    # The first reason why it is not proven cold; "" if it is.
    reason = _first_reason(before, after, own_before, own_after, by.keeps_data)
    reason = reason or _sample_reason(sample_bytes, delivered, least_share)
    remains = bool(after) or (delivered is not None and delivered < sample_bytes * least_share)
    facts = CacheFacts(
        touched + by.how,
        None if before is None else before + (own_before or 0),
        None if after is None else after + (own_after or 0),
        sample_bytes,
        delivered,
        not reason,
        reason,
    )
    return facts, remains


def _empty(by: Emptying, files: Sequence[Path]) -> None:
    by.empty()
    evict(files)
    for _try in range(_TRIES - 1):
        if not resident_bytes(files):
            break
        time.sleep(_PAUSE_S)
        evict(files)
    process.wait_while(by.bytes_held, _OWN_S, _PAUSE_S)


def _read_so_far(disks: Sequence[str]) -> int | None:
    if not disks:
        return io_counts("self").get("read_bytes")
    each = [disk_counts(f"/sys/class/block/{disk}") for disk in disks]
    if None in each:
        return None
    return sum(counts[2] for counts in each if counts) * _SECTOR


def _first_reason(
    before: int | None,
    after: int | None,
    own_before: int | None,
    own_after: int | None,
    keeps_data: bool,
) -> str:
    if before is None or after is None:
        return "the kernel does not report which pages of these files are resident"
    if before == 0 and not own_before and keeps_data:
        return "no page of the data files was in memory, not even after reading them"
    # it may also hold other data
    if own_before and own_after is not None and own_after >= own_before:
        return f"the filesystem's own cache holds {own_after} bytes, no less than before"
    if after:
        return f"{after} bytes of the data files are still resident"
    return ""


def _sample_reason(
    sample_bytes: int,
    delivered: int | None,
    least_share: float,
) -> str:
    if sample_bytes == 0:
        return "the data files contain only holes: there is no sample to read"
    if delivered is None:
        return "the bytes that the device delivers are not counted"
    if delivered < sample_bytes * least_share:
        return (
            f"the device delivered {delivered} bytes for a sample of {sample_bytes}, at least "
            f"{sample_bytes * least_share:.0f} were expected"
        )
    return ""
