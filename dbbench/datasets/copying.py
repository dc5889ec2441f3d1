"""Restore a golden copy: the same bytes in the same order on every filesystem, synced and compared."""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Semaphore
from typing import Final

from dbbench.datasets.manifest import (
    BLOCK,
    DAMAGED,
    Entry,
    Golden,
    Manifest,
    condemn,
    crc_of,
    in_use,
    open_entry,
)
from dbbench.errors import DbbenchError, FilesystemFull, RestoreFailed
from dbbench.machine import mounts, threads
from dbbench.machine.libc import syncfs
from dbbench.model import DatasetFacts
from dbbench.process import User
from dbbench.results.fileio import FULL, open_fd
from dbbench.units import size_text

# Measured on loop devices with ext4, xfs and btrfs and 2 cores:
# - One thread writes in 1-MiB blocks, as fast as dd. Two are faster only on btrfs, and they mix the
#   order in which the
#   filesystem allocates space. Another one reads the golden copy ahead: 629 MB then take 1.6 s
#   instead of 2.1 s.
# - Comparing during the write reduced its rate by a quarter if the device was faster than a core;
#   during the sync, or
#   LAG bytes behind the writer, it costs nothing. It mostly reads from the page cache: it shows
#   that the copy is
#   correct, not that the device keeps it, which the server's page checksums show later.
# - Plain read and write, never copy_file_range, which may share extents if both are on one
#   filesystem (kind `dir`).
#   Through the page cache, because O_DIRECT bypasses the compression of btrfs. No fallocate, whose
#   unwritten extents
#   the first write would pay for. No holes: every zero is written.
# bytes: files occupy multiples of this with the defaults of all filesystem families
ALLOCATION: Final = 4096
# bytes written but not yet compared; with 2 GiB of memory they are still in the page cache
LAG: Final = 512 * 2**20
AHEAD: Final = 64  # blocks that are read before the writer needs them
CHECKERS: Final = 4  # threads that compare, at 3 GB/s each; together faster than any disk of today
NAMED: Final = 5  # files that an error message lists

Progress = Callable[[int, int], None]  # receives the bytes written so far and the total


@dataclass(frozen=True)
class Restored:
    """A golden copy that was restored and compared."""

    bytes: int
    copy_s: float  # until everything was written and synced; the restore rate is bytes ÷ copy_s
    # the server's data directory if the files were restored elsewhere; otherwise None
    datadir: Path | None = None
    facts: DatasetFacts | None = None


def restore_copy(
    golden: Golden,
    datadir: Path,
    owner: User,
    progress: Progress = lambda _done, _whole: None,
    lag_bytes: int = LAG,
) -> Restored:
    """Restore `golden` as `datadir`, which does not exist or is an empty directory (its attributes
    stay), for `owner`. Comparing starts `lag_bytes` behind the writer. Raises FilesystemFull,
    and RestoreFailed also if the copy, or the golden copy itself, differs from the manifest.
    """
    manifest = golden.manifest
    began = time.monotonic()
    with in_use(golden), _writing(golden, datadir):
        _make_root(golden, datadir)
        for entry in manifest.of_kind("dir"):
            (datadir / entry.path).mkdir(0o700)
        with ThreadPoolExecutor(min(CHECKERS, len(os.sched_getaffinity(0)))) as checkers:
            written = _delay(_copy_files(golden, datadir, owner, progress), lag_bytes)
            answers = []
            for entry in written:
                answers.append((entry, checkers.submit(_equal, datadir / entry.path, entry)))
            # Modes last and bottom-up, because a directory may be read-only.
            for entry in reversed(manifest.of_kind("dir")):
                path = datadir / entry.path
                os.chown(path, owner.uid, owner.gid)
                path.chmod(entry.mode)
            os.chown(datadir, owner.uid, owner.gid)
            datadir.chmod(0o700)  # PostgreSQL accepts only this and 0750
            syncfs(datadir)
            copy_s = time.monotonic() - began
        differing = [entry for entry, answer in answers if not answer.result()]
    if differing:
        raise _difference(golden, differing)
    return Restored(manifest.logical_bytes, copy_s)


def _delay(entries: Iterator[Entry], lag_bytes: int) -> Iterator[Entry]:
    """Yield the files, each as soon as more than `lag_bytes` of it and of later ones were written."""
    waiting = deque[Entry]()
    lag = 0
    for entry in entries:
        waiting.append(entry)
        lag += entry.size
        while lag > lag_bytes:
            lag -= waiting[0].size
            yield waiting.popleft()
    yield from waiting


def _make_root(golden: Golden, datadir: Path) -> None:
    """Make the data directory. Raises RestoreFailed, or FilesystemFull if the copy cannot fit."""
    datadir.mkdir(0o700, exist_ok=True)
    if any(datadir.iterdir()):
        raise RestoreFailed(f"{datadir} is not an empty directory", effect="Nothing was changed.")
    mount = mounts.mount_holding(datadir.resolve(), mounts.mounts_of(Path("/proc/self")))
    options = mount.options if mount is not None else ()
    if any(option.startswith("compress") for option in options):
        return  # the space that compressed data will need is not known in advance
    # Without what ext4 reserves for root: the server's account may not use it.
    if _needed_bytes(golden.manifest) > shutil.disk_usage(datadir).free:
        raise _full(golden, datadir, "before anything was written")


def _needed_bytes(manifest: Manifest) -> int:
    """Return the space of the copy on a filesystem without compression, excluding the filesystem's
    own metadata.
    """
    blocks = sum(-(-entry.size // ALLOCATION) for entry in manifest.entries)
    return blocks * ALLOCATION


def _copy_files(
    golden: Golden,
    datadir: Path,
    owner: User,
    progress: Progress,
) -> Iterator[Entry]:
    buffer = memoryview(bytearray(BLOCK))
    ahead = Semaphore(AHEAD)
    done = 0
    with threads.beside("read ahead", functools.partial(_read_ahead, golden, ahead)):
        for entry in golden.manifest.of_kind("file"):
            for count in _copy(golden, entry, datadir / entry.path, owner, buffer):
                ahead.release()
                done += count
                progress(done, golden.manifest.logical_bytes)
            yield entry


def _read_ahead(golden: Golden, ahead: Semaphore, ended: Event) -> None:
    """Read the files into the page cache, each block as soon as `ahead` can be acquired."""
    with suppress(OSError):  # the writer meets the same error, and reports it
        for entry in golden.manifest.of_kind("file"):
            with (golden.data / entry.path).open("rb", buffering=0) as source:
                for offset in range(0, entry.size, BLOCK):
                    while not ahead.acquire(timeout=0.1):
                        if ended.is_set():
                            return
                    os.posix_fadvise(
                        source.fileno(),
                        offset,
                        BLOCK,
                        os.POSIX_FADV_WILLNEED,
                    )


def _copy(
    golden: Golden,
    entry: Entry,
    target: Path,
    owner: User,
    buffer: memoryview,
) -> Iterator[int]:
    with ExitStack() as stack:
        out = stack.enter_context(open_fd(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        with _reading(golden, entry):
            source = stack.enter_context(open_entry(golden, entry))
        while True:
            with _reading(golden, entry):
                count = os.readv(source.fileno(), [buffer])
            if count == 0:
                break
            written = 0
            # a filesystem that becomes full first writes less than requested, then fails
            while written < count:
                written += os.write(out, buffer[written:count])
            yield count
        if (owner.uid, owner.gid) != (os.geteuid(), os.getegid()):
            os.fchown(out, owner.uid, owner.gid)
        os.fchmod(out, entry.mode)


def _equal(target: Path, entry: Entry) -> bool:
    return crc_of(target) == (entry.size, entry.crc32)


def _difference(golden: Golden, differing: list[Entry]) -> DbbenchError:
    """Return the error for files that differ: the golden copy, which is then not used again, or the
    restored ones.
    """
    damaged = []
    for entry in differing:
        with _reading(golden, entry):
            if not _equal(golden.data / entry.path, entry):
                damaged.append(entry)
    entries = damaged or differing
    names = ", ".join(entry.path for entry in entries[:NAMED])
    if len(entries) > NAMED:
        names += f" and {len(entries) - NAMED} more"
    if damaged:
        condemn(golden)
        return RestoreFailed(
            f"the golden copy {golden.path} is damaged: these files changed: {names}", **DAMAGED
        )
    return RestoreFailed(
        f"files differ from the golden copy {golden.path} after reading them back, and it is "
        f"intact: {names}",
        remedy="The memory, the device under test or its driver altered the data. Read dmesg and "
        "check the hardware.",
    )


@contextmanager
def _reading(golden: Golden, entry: Entry) -> Iterator[None]:
    """Raise RestoreFailed if a file of the golden copy cannot be read; the copy is then not used
    again.
    """
    try:
        yield
    except OSError as error:
        condemn(golden)
        path = golden.data / entry.path
        raise RestoreFailed(
            f"{path} in the golden copy cannot be read: {error.strerror}", **DAMAGED
        ) from error


@contextmanager
def _writing(golden: Golden, datadir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise _full(golden, datadir, "during the restore") from error
        raise RestoreFailed(f"{datadir} could not be written: {error}") from error


def _full(golden: Golden, datadir: Path, when: str) -> DbbenchError:
    place = datadir if datadir.exists() else datadir.parent
    needed = _needed_bytes(golden.manifest)
    free = shutil.disk_usage(place).free
    return FilesystemFull(
        f"{datadir} has {size_text(free)} ({free} bytes) free {when}, but the dataset needs "
        f"{size_text(needed)} ({needed} bytes) in addition to the metadata of the filesystem",
        effect=f"The golden copy {golden.manifest.key} is kept.",
        remedy="Use a larger device or a smaller dataset.",
    )
