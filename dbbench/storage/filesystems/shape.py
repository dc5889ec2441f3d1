"""Health, usage and fragmentation of a mounted filesystem; and how the new ends of files that grow
during the load are stored, compared with the restored files. What a filesystem does not report
is None.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from dbbench.errors import AnswerUnknown, CommandFailed, DeadlinePassed, ProgramMissing
from dbbench.machine.libc import syncfs
from dbbench.model import Extents, FileShape, FreeExtents, GrownFile, GrowthFacts, SpaceFacts
from dbbench.results.fileio import open_fd
from dbbench.storage.filesystems.common import content_bytes, extents_from, extents_of, mount_of
from dbbench.storage.filesystems.families import family_in
from dbbench.storage.filesystems.family import FreeExtent, Mounted

T = TypeVar("T")

LARGEST: Final = 5  # files: enough for the largest table of a dataset and its largest indexes
# Files of each kind that are examined, those that grew most first: they contain nearly all of the
# growth.
MOST_GROWN: Final = 64
SHOWN_GROWN: Final = 5
Sizes = Mapping[Path, int]
_BAD: Final = frozenset({"ro", "emergency_ro", "shutdown"})
_PROBE: Final = ".dbbench-probe"
# share of the requested bytes; ends of files and metadata change it a little
_LEAST_READ: Final = 0.9
_BEST_COMPRESSION: Final = 32  # btrfs: an extent of 128 KiB occupies at least one block of 4 KiB


def healthy(fs: Mounted) -> str | None:
    """Return why the filesystem is no longer reliable, or None: changed mount options, a failing
    fsync (xfs still reports rw after a shutdown), or the superblock options ro, emergency_ro or
    shutdown.
    """
    now = mount_of(fs.path).options
    before = [option for option in fs.options_effective if option not in fs.properties]
    bad = _BAD.intersection(now)
    if bad:
        return f"the kernel shows {fs.path} as {', '.join(sorted(bad))}"
    # strictatime shows as the absence of noatime and relatime.
    changed = [f"+{option}" for option in sorted({*now} - {*before})]
    changed += [f"-{option}" for option in sorted({*before} - {*now})]
    if fs.pool is None and fs.raw is None and changed:
        return f"the mount options of {fs.path} changed during the trial: {', '.join(changed)}"
    try:
        _probe(fs.path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None  # a full filesystem is not broken, and has its own error
        return f"write and fsync on {fs.path} fail: {error.strerror}"
    return None


def space(fs: Mounted, logical_bytes: int) -> SpaceFacts:
    """Return used and free space, after writing dirty data; of an existing filesystem the
    directory's. `logical_bytes`: the sizes of the data files.
    """
    # Data that is not written yet has no blocks yet.
    syncfs(fs.path)
    total = os.statvfs(fs.path)
    free = total.f_bavail * total.f_frsize
    if fs.pool is not None:  # the mount shows only its own dataset, so the pool is asked
        fs.pool.sync()
        used, free = fs.pool.used_and_free()
    elif os.path.ismount(fs.path):
        used = (total.f_blocks - total.f_bfree) * total.f_frsize
    else:
        used = content_bytes(fs.path)

    family = family_in(fs)
    unread: list[str] = []
    ratio = None
    # A load that deletes its files leaves nothing to inspect.
    if logical_bytes and family.compresses(fs.options_effective):
        data = fs.path / "data"  # without aged files
        folder = data if fs.pool is None and data.is_dir() else fs.path
        ratio = read_or_say(
            "compression",
            lambda: family.compression_ratio(folder),
            unread,
        )
    return SpaceFacts(
        logical_bytes,
        used,
        free,
        ratio,
        unread=tuple(unread),
    )


def least_read_share(fs: Mounted) -> float:
    """Return the share of a sample that a cold read must get from the device: nearly all, or less
    if compressed.
    """
    algorithm = family_in(fs).compresses(fs.options_effective)
    if algorithm:
        return _LEAST_READ / _BEST_COMPRESSION
    return _LEAST_READ


def find_shape(
    facts: SpaceFacts,
    fs: Mounted,
    files: Sequence[Path],
) -> SpaceFacts:
    """Return the facts of `space` with the fragmentation. Of an existing directory only its files
    are inspected.
    """
    facts = replace(facts, largest=largest(fs, files))
    if not os.path.ismount(fs.path):
        return facts
    unread = list(facts.unread)
    taken = read_or_say(
        "metadata",
        lambda: family_in(fs).taken_bytes(fs),
        unread,
    )
    metadata, content = taken or (None, 0)
    return replace(
        facts,
        metadata_bytes=metadata,
        metadata_share=metadata / (metadata + content) if metadata else None,
        free=free_space(fs, unread),
        unread=tuple(unread),
    )


def largest(fs: Mounted, files: Sequence[Path]) -> tuple[FileShape, ...]:
    """Return the largest of these files with their extents, the largest first."""
    sizes = {path: path.stat().st_size for path in files}
    shapes = [
        FileShape(_below(path, fs.path), sizes[path], extents_of([path]))
        for path in _largest_first(sizes)[:LARGEST]
    ]
    return tuple(shapes)


def _largest_first(sizes: Sizes) -> list[Path]:
    return sorted(sizes, key=lambda path: (-sizes[path], path))


def _below(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def free_space(fs: Mounted, unread: list[str] | None = None) -> tuple[FreeExtents, ...] | None:
    """Return the histogram of the free extents, or None without a tool; one that failed is added to
    `unread`.
    """
    if not os.path.ismount(fs.path):
        return None
    syncfs(fs.path)

    def read() -> tuple[FreeExtents, ...] | None:
        free = family_in(fs).free_extents(fs)
        return None if free is None else histogram(free)

    return read_or_say(
        "free space",
        read,
        [] if unread is None else unread,
    )


def histogram(extents: Iterable[FreeExtent]) -> tuple[FreeExtents, ...]:
    """Return free extents in bins of powers of two, the smallest first."""
    counts = Counter[int]()
    totals = Counter[int]()
    for size, count, total in extents:
        low = 1 << max(0, size.bit_length() - 1)
        counts[low] += count
        totals[low] += total
    return tuple(FreeExtents(low, counts[low], totals[low]) for low in sorted(counts))


def read_or_say(
    what: str,
    read: Callable[[], T],
    unread: list[str],
) -> T | None:
    """Return what `read` does; None and a reason in `unread` if its tool is missing, fails or is
    not understood.
    """
    try:
        return read()
    except (ProgramMissing, CommandFailed, DeadlinePassed, AnswerUnknown, OSError) as error:
        unread.append(f"{what}: {error}")
        return None


def _probe(folder: Path) -> None:
    path = folder / _PROBE
    try:
        with open_fd(path, os.O_WRONLY | os.O_CREAT) as fd:
            os.write(fd, bytes(4096))
            os.fsync(fd)
    finally:
        # the error of a file that cannot be made is the one that counts
        path.unlink(missing_ok=True)


def sizes(files: Iterable[Path]) -> dict[Path, int]:
    """Return the sizes of those files that exist."""
    sizes_of_files = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # the server has removed the file
            sizes_of_files[path] = path.stat().st_size
    return sizes_of_files


def restored_share(fs: Mounted, files: Sizes) -> float | None:
    """Return the share of bytes in compressed extents, of the largest files; None if unknown or not
    compressed.
    """
    if not _compresses(fs):
        return None
    ends = [
        (files[path], extents_from(path))
        for path in _largest_first(files)[:MOST_GROWN]
        if files[path]
    ]
    return _share(ends, "compressed_bytes")


def growth(
    fs: Mounted,
    before: Sizes,
    data: Sizes,
    logs: Sizes,
    restored: float | None,
) -> GrowthFacts:
    """Return what grew since `before`, the sizes then; new files from 0. `restored`: see
    `restored_share`.
    """
    tables = _grown_files(fs, before, data)
    log = _grown_files(fs, before, logs)
    ends = [(file.grown_bytes, file.extents) for file in tables[:MOST_GROWN]]
    # The sum is unknown if the extents of one file are.
    counts = [extents.count for _, extents in ends if extents is not None]
    largest = [*tables[:SHOWN_GROWN], *log[:SHOWN_GROWN]]
    largest.sort(key=lambda file: (-file.grown_bytes, file.path))
    return GrowthFacts(
        data_bytes=sum(file.grown_bytes for file in tables),
        log_bytes=sum(file.grown_bytes for file in log),
        extents=sum(counts) if ends and len(counts) == len(ends) else None,
        compressed_share=_share(ends, "compressed_bytes") if _compresses(fs) else None,
        restored_share=restored,
        preallocated_share=_share(ends, "preallocated_bytes"),
        largest=tuple(largest[:SHOWN_GROWN]),
    )


def _compresses(fs: Mounted) -> bool:
    return fs.raw is None and family_in(fs).compresses(fs.options_effective) is not None


def _grown_files(
    fs: Mounted,
    before: Sizes,
    files: Sizes,
) -> list[GrownFile]:
    """Return the files that grew, those that grew most first; only these have their extents."""
    grown: dict[Path, int] = {}
    for path, size in files.items():
        grown_bytes = size - before.get(path, 0)
        if grown_bytes > 0:
            grown[path] = grown_bytes
    rows: list[GrownFile] = []
    for path in _largest_first(grown):
        end = extents_from(path, before.get(path, 0)) if len(rows) < MOST_GROWN else None
        rows.append(GrownFile(_below(path, fs.path), files[path], grown[path], end))
    return rows


def _share(ends: Sequence[tuple[int, Extents | None]], field: str) -> float | None:
    """Return the share of the bytes; at most 1: the last extent may reach beyond the end of the
    file.
    """
    whole = 0
    part = 0
    for size, extents in ends:
        if extents is not None:
            whole += size
            part += getattr(extents, field)
    if whole:
        return min(1.0, part / whole)
    return None
