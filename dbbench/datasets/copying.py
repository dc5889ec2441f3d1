"""Restore a golden copy: the same bytes, written in the same order, on every filesystem.

One thread writes the files one after the other in 1-MiB blocks. Then the whole filesystem is synced, so that no write
of the restore remains. Each file is read again and its CRC-32 compared with the manifest, while the sync waits for the
device, or LAG bytes behind the writer for larger datasets. The method follows from measurements on loop devices with
ext4, xfs and btrfs and 2 cores:

- One writer is as fast as dd with 1-MiB blocks. Two are faster only on btrfs, and they mix the order in which the
  filesystem allocates space. With one, the layout is the same each time, as far as the filesystem permits.
- Another thread reads the golden copy ahead of the writer, so that two cores fill the page cache: from a cold golden
  copy, 629 MB then take 1.6 s instead of 2.1 s. The order of the writes stays the same.
- Comparing during the write reduced its rate by a quarter if the device was faster than a core; during the sync it
  costs nothing.
- Plain read and write, never copy_file_range: it may share extents if source and target are on one filesystem
  (kind `dir`), and the first write of each page would then be slower. sendfile was not faster.
- Through the page cache, not O_DIRECT, which bypasses the compression of btrfs. No fallocate: its extents are
  unwritten, and the first write of each would pay for the conversion. No holes: every zero is written.

The comparison mostly reads from the page cache: it shows that the copy is correct, not that the device keeps it; the
server's page checksums show that later. Pages of the golden copy may stay in the page cache of the host; those of the
target are dropped, with proof, later in the trial.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Semaphore
from typing import Final, Protocol

from dbbench.datasets.manifest import BLOCK, Entry, Golden, Manifest, condemn, crc_of, in_use, open_entry
from dbbench.errors import DbbenchError, FilesystemFull, RestoreFailed
from dbbench.machine import namespaces, threads
from dbbench.machine.pagecache import syncfs
from dbbench.model import DatasetFacts
from dbbench.process import User
from dbbench.results.fileio import FULL
from dbbench.units import size_text

ALLOCATION: Final = 4096  # bytes: files occupy multiples of this with the defaults of all filesystem families
LAG: Final = 512 * 2**20  # bytes written but not yet compared; with 2 GiB of memory they are still in the page cache
AHEAD: Final = 64  # blocks that are read before the writer needs them
CHECKERS: Final = 4  # threads that compare, at 3 GB/s each; together faster than any disk of today
NAMED: Final = 5  # files that an error message lists

Progress = Callable[[int, int], None]  # receives the bytes written so far and the total
Advance = Callable[[int], None]  # receives the number of bytes written since the last call
Check = Callable[[Entry], None]  # queues a written file for comparison


class Writer(Protocol):
    """A method that writes the files of a copy into existing directories. It passes each file to `check` once."""

    def __call__(self, golden: Golden, datadir: Path, owner: User, advance: Advance, check: Check) -> None: ...


@dataclass(frozen=True)
class Restored:
    """A golden copy that was restored and compared."""

    bytes: int
    files: int
    copy_s: float  # until everything was written and synced; the restore rate is bytes ÷ copy_s
    seconds: float  # copy_s and the time that the comparison took beyond it
    datadir: Path | None = None  # the server's data directory if the files were restored elsewhere; otherwise None
    facts: DatasetFacts | None = None


def restored(
    golden: Golden, datadir: Path, owner: User, progress: Progress | None = None, write: Writer | None = None
) -> Restored:
    """Restore `golden` as `datadir`, which does not exist or is an empty directory (its attributes stay), for `owner`.

    `write`: another method than plain copies (`METHODS`). On return everything is on the device and equal to the
    manifest. Raises FilesystemFull, RestoreFailed (the copy, or the golden copy itself, differs from the manifest) and
    RestoreFailed.
    """
    manifest, began = golden.manifest, time.monotonic()
    with in_use(golden), _writing(golden, datadir):
        _make_root(datadir)
        _check_space(golden, datadir)
        for entry in manifest.of_kind("dir"):
            (datadir / entry.path).mkdir(0o700)
        with ThreadPoolExecutor(min(CHECKERS, len(os.sched_getaffinity(0)))) as checkers:
            later = _Later(datadir, checkers)
            (write or _copied)(golden, datadir, owner, _counted(progress, manifest.logical_bytes), later.check)
            answers = later.all()
            _finish(manifest, datadir, owner)
            syncfs(datadir)
            copied = time.monotonic()
        wrong = [entry for entry, answer in answers if not answer.result()]
    if wrong:
        raise _blamed(golden, wrong)
    return Restored(manifest.logical_bytes, len(answers), copied - began, time.monotonic() - began)


def needed_bytes(manifest: Manifest) -> int:
    """Return the space of the copy on a filesystem without compression, excluding the filesystem's own metadata."""
    return sum(-(-entry.size // ALLOCATION) * ALLOCATION for entry in manifest.entries)


def _make_root(datadir: Path) -> None:
    try:
        datadir.mkdir(0o700)
    except FileExistsError:
        if not datadir.is_dir() or any(datadir.iterdir()):
            raise RestoreFailed(f"{datadir} is not an empty directory", effect="Nothing was changed.") from None


def _check_space(golden: Golden, datadir: Path) -> None:
    if _compresses(datadir):
        return  # the space that compressed data will need is not known in advance
    needed, free = needed_bytes(golden.manifest), free_bytes(datadir)
    if needed > free:
        raise full(golden, datadir, needed, free, "before anything was written")


def _compresses(path: Path) -> bool:
    mount = namespaces.mount_holding(path.resolve(), namespaces.mounts_of(Path("/proc/self")))
    return mount is not None and any(option.startswith("compress") for option in mount.options)


def free_bytes(path: Path) -> int:
    """Return the space that is free for the server, which is not root: ext4 reserves some for root."""
    status = os.statvfs(path)
    return status.f_frsize * status.f_bavail


class _Later:
    """Compares each file with the manifest, LAG bytes after it was written."""

    def __init__(self, datadir: Path, checkers: ThreadPoolExecutor) -> None:
        self._datadir, self._checkers = datadir, checkers
        self._answers: list[tuple[Entry, Future[bool]]] = []
        self._written: deque[Entry] = deque()
        self._lag = 0

    def check(self, entry: Entry) -> None:
        self._written.append(entry)
        self._lag += entry.size
        while self._lag > LAG:
            self._check_oldest()

    def all(self) -> list[tuple[Entry, Future[bool]]]:
        while self._written:
            self._check_oldest()
        return self._answers

    def _check_oldest(self) -> None:
        entry = self._written.popleft()
        self._lag -= entry.size
        self._answers.append((entry, self._checkers.submit(equal, self._datadir / entry.path, entry)))


def _counted(progress: Progress | None, whole: int) -> Advance:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, whole)

    return advance


def _copied(golden: Golden, datadir: Path, owner: User, advance: Advance, check: Check) -> None:
    """Write all files in the order of the manifest, one after the other."""
    buffer, ahead = memoryview(bytearray(BLOCK)), Semaphore(AHEAD)

    def written(count: int) -> None:
        ahead.release()
        advance(count)

    with threads.beside("read ahead", functools.partial(_read_ahead, golden, ahead)):
        for entry in golden.manifest.of_kind("file"):
            _copy(golden, entry, datadir / entry.path, owner, buffer, written)
            check(entry)


def _read_ahead(golden: Golden, ahead: Semaphore, ended: Event) -> None:
    """Read the files into the page cache, each block as soon as `ahead` can be acquired."""
    with suppress(OSError):  # the writer meets the same error, and reports it
        for entry in golden.manifest.of_kind("file"):
            with (golden.data / entry.path).open("rb", buffering=0) as source:
                for offset in range(0, entry.size, BLOCK):
                    while not ahead.acquire(timeout=0.1):
                        if ended.is_set():
                            return
                    os.posix_fadvise(source.fileno(), offset, BLOCK, os.POSIX_FADV_WILLNEED)


def _copy(golden: Golden, entry: Entry, target: Path, owner: User, buffer: memoryview, advance: Advance) -> None:
    source = -1
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with reading(golden, entry):
            source = open_entry(golden, entry)
        while True:
            with reading(golden, entry):
                count = os.readv(source, [buffer])
            if count == 0:
                break
            written = 0
            while written < count:  # a filesystem that becomes full first writes less than requested, then fails
                written += os.write(out, buffer[written:count])
            advance(count)
        if (owner.uid, owner.gid) != (os.geteuid(), os.getegid()):
            os.fchown(out, owner.uid, owner.gid)
        os.fchmod(out, entry.mode)
    finally:
        os.close(out)
        if source >= 0:
            os.close(source)


def equal(target: Path, entry: Entry) -> bool:
    """Whether the file matches the manifest."""
    return crc_of(target) == (entry.size, entry.crc32)


def _finish(manifest: Manifest, datadir: Path, owner: User) -> None:
    """Set owners and modes of directories; modes last and bottom-up, because a directory may be read-only."""
    for entry in reversed(manifest.of_kind("dir")):
        os.chown(datadir / entry.path, owner.uid, owner.gid)
        (datadir / entry.path).chmod(entry.mode)
    os.chown(datadir, owner.uid, owner.gid)
    datadir.chmod(0o700)  # PostgreSQL accepts only this and 0750


def _blamed(golden: Golden, wrong: list[Entry]) -> DbbenchError:
    """Return the error for files that differ: either the golden copy, which is then not used again, or the restored
    files."""
    damaged = [entry for entry in wrong if not _source_equal(golden, entry)]
    if damaged:
        condemn(golden)
        return RestoreFailed(
            f"the golden copy {golden.path} is damaged: {_named(damaged)} not what was built",
            effect="This golden copy will not be used again.",
            remedy="Run the same command again to rebuild the dataset, and check the disk that holds the cache.",
        )
    return RestoreFailed(
        (
            f"{_named(wrong)} not equal to the golden copy {golden.path} when read back, although the golden copy "
            "is intact"
        ),
        remedy=("The memory, the device under test or its driver altered the data. Read dmesg and check the hardware."),
    )


def _source_equal(golden: Golden, entry: Entry) -> bool:
    with reading(golden, entry):
        return equal(golden.data / entry.path, entry)


def _named(entries: list[Entry]) -> str:
    names = ", ".join(entry.path for entry in entries[:NAMED])
    more = f" and {len(entries) - NAMED} more" if len(entries) > NAMED else ""
    return f"{names}{more} {'is' if len(entries) == 1 else 'are'}"


@contextmanager
def reading(golden: Golden, entry: Entry) -> Iterator[None]:
    """Raise RestoreFailed if a file of the golden copy cannot be read; the copy is then not used again."""
    try:
        yield
    except BrokenPipeError:
        raise  # the program that receives the data has ended; the golden copy can be read
    except OSError as error:
        condemn(golden)
        raise RestoreFailed(
            f"{golden.data / entry.path} in the golden copy cannot be read: {error.strerror}",
            effect="This golden copy will not be used again.",
            remedy="Run the same command again to rebuild the dataset, and check the disk that holds the cache.",
        ) from error


@contextmanager
def _writing(golden: Golden, datadir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            needed = needed_bytes(golden.manifest)
            raise full(golden, datadir, needed, free_bytes(datadir.parent), "during the restore") from error
        raise RestoreFailed(f"{datadir} could not be written: {error}") from error


def full(golden: Golden, datadir: Path, needed: int, free: int, when: str) -> DbbenchError:
    """Return the error with the required and the free space."""
    return FilesystemFull(
        (
            f"{datadir} has {size_text(free)} ({free} bytes) free {when}, but the dataset needs "
            f"{size_text(needed)} ({needed} bytes) in addition to the metadata of the filesystem"
        ),
        effect=f"The golden copy {golden.key} is kept.",
        remedy="Use a larger device or a smaller dataset.",
    )
