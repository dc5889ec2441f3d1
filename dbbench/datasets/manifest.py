"""The format of a golden copy: `data/` as left by a stopped server, and `manifest.json`, written
last and removed if the copy is damaged, so that a copy with a manifest is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import io
import os
import random
import stat
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dbbench.errors import DatasetBuildFailed, RestoreFailed
from dbbench.model import Dataset, SourceChange, plain
from dbbench.model.base import adapter
from dbbench.results.fileio import kind_of, open_fd, open_file, own_file, write_json

FORMAT: Final = 2  # version of the manifest and of the builders' output; part of every key
# bytes per read; larger reads were no faster, smaller ones need more system calls
BLOCK: Final = 2**20
# sampled for the compressibility; within ±1 % of the whole in all datasets measured
SAMPLE_BYTES: Final = 4 * 2**20
# half of btrfs's compression unit (128 KiB), so that more places are sampled
SAMPLE_PIECE: Final = 64 * 2**10
SAMPLE_SEED: Final = 1

DAMAGED: Final = {
    "effect": "This golden copy will not be used again.",
    "remedy": "Run the same command again to rebuild the dataset, and check the disk that holds the "
    "cache.",
}


@dataclass(frozen=True)
class Entry:
    """One name in `data/`. `crc32` and `size` apply to files."""

    path: str  # relative, "/" between names
    kind: Literal["file", "dir"]
    mode: int  # permission bits
    size: int = 0
    crc32: int = 0


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json. `entries` are sorted by path: the order in which a copy is
    restored.
    """

    key: str
    dataset: Dataset
    logical_bytes: int  # sum of the sizes of all files
    compressibility: float | None  # size ÷ size after zlib level 1, for a sample of the data files
    entries: tuple[Entry, ...]
    # what was left out of a user's own data or changed in it
    changes: tuple[SourceChange, ...] = ()
    tablespaces: dict[str, str] = dataclasses.field(default_factory=dict)  # PostgreSQL: name -> OID
    format: int = FORMAT

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]


@dataclass(frozen=True)
class Golden:
    """A dataset that was built once and is restored byte for byte for each trial."""

    path: Path
    manifest: Manifest
    # for a part of a copy (`split`): the directory in `data` that contains its entries
    inside: str = ""

    @property
    def data(self) -> Path:
        return self.path / "data" / self.inside


def split(golden: Golden, folder: str) -> tuple[Golden, Golden]:
    """Split a copy into the content of that directory and the rest; both are copies that use the
    same files.
    """
    below = f"{folder}/"
    within = []
    rest = []
    for entry in golden.manifest.entries:
        if entry.path.startswith(below):
            within.append(dataclasses.replace(entry, path=entry.path.removeprefix(below)))
        elif entry.path != folder:
            rest.append(entry)

    def part(entries: list[Entry]) -> Manifest:
        size = sum(entry.size for entry in entries)
        return dataclasses.replace(
            golden.manifest,
            entries=tuple(entries),
            logical_bytes=size,
        )

    return Golden(golden.path, part(within), folder), Golden(golden.path, part(rest))


def open_entry(golden: Golden, entry: Entry) -> io.BufferedReader:
    """Open a file of the copy for reading, through no link. Raises OSError."""
    return open_file(golden.data / entry.path, sys.maxsize, golden.path)


def lock_of(folder: Path) -> Path:
    """Return the lock file of the golden copy in `folder`: exclusive to build or evict, shared to
    use; its mtime is the time of the last use. It outlives the copy: removing it would race.
    """
    return folder.with_name(f".{folder.name}.lock")


def load(folder: Path) -> Golden | None:
    """Return the golden copy in `folder`, or None if there is none or sizes or kinds differ from
    its manifest; contents are checked by each restore.
    """
    try:
        manifest = adapter(Manifest).validate_json((folder / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return None
    golden = Golden(folder, manifest)
    # thousands of entries: with Path this took half of the time of a command
    data = os.fspath(golden.data)
    there = manifest.format == FORMAT and all(_is_there(data, entry) for entry in manifest.entries)
    return golden if there else None


def _is_there(data: str, entry: Entry) -> bool:
    """Whether an entry, which must be below `data`, has the kind and the size of the manifest."""
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        return False
    try:
        status = os.lstat(f"{data}/{entry.path}")
    except OSError:
        return False
    if entry.kind == "dir":
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_size == entry.size


def save(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json; after this the directory is a golden copy."""
    write_json(folder / "manifest.json", plain(manifest))


def condemn(golden: Golden) -> None:
    """Remove the manifest of a damaged copy, so that the next run builds the dataset again."""
    with contextlib.suppress(OSError):
        (golden.path / "manifest.json").rename(golden.path / "manifest.damaged.json")


@contextlib.contextmanager
def in_use(golden: Golden) -> Iterator[None]:
    """Protect the copy from eviction within the block. Raises RestoreFailed if it no longer exists."""
    fd = own_file(lock_of(golden.path), os.O_RDONLY, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not (golden.path / "manifest.json").exists():
            raise RestoreFailed(
                f"the golden copy {golden.path} no longer exists",
                remedy="Run the same command again to rebuild the dataset.",
            )
        with contextlib.suppress(OSError):
            os.utime(fd)
        yield
    finally:
        os.close(fd)


def crc_of(path: Path) -> tuple[int, int]:
    """Return the size in bytes and the CRC-32 of a file's content. Raises OSError."""
    size = crc = 0
    buffer = memoryview(bytearray(BLOCK))
    with open_fd(path) as fd:
        while count := os.readv(fd, [buffer]):
            # without the GIL, so that threads run in parallel
            crc = zlib.crc32(buffer[:count], crc)
            size += count
    return size, crc


def scan(data: Path, threads: int) -> tuple[Entry, ...]:
    """Return everything in `data`, sorted by path, files with their CRC-32 (`threads` at a time).
    Raises DatasetBuildFailed for anything else: a stopped server leaves no sockets, and a link
    could lead out of the copy.
    """
    names = sorted(path.relative_to(data).as_posix() for path in data.rglob("*"))
    with ThreadPoolExecutor(threads) as pool:
        return tuple(pool.map(functools.partial(_entry, data), names))


def _entry(data: Path, name: str) -> Entry:
    path = data / name
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        return Entry(name, "dir", stat.S_IMODE(mode))
    if not stat.S_ISREG(mode):
        raise DatasetBuildFailed(f"the server created {path}, which is {kind_of(mode)}")
    size, crc = crc_of(path)
    return Entry(name, "file", stat.S_IMODE(mode), size, crc)


def compressibility(files: list[Path]) -> float | None:
    """Return the size divided by the size after zlib level 1, for a seeded 4-MiB sample; None if
    the files are empty. Pieces are compressed separately, as a compressing filesystem does.
    """
    pieces: list[tuple[Path, int]] = []
    for path in files:
        pieces += [(path, offset) for offset in range(0, path.stat().st_size, SAMPLE_PIECE)]
    if not pieces:
        return None
    count = min(len(pieces), SAMPLE_BYTES // SAMPLE_PIECE)
    raw = 0
    packed = 0
    for path, offset in sorted(random.Random(SAMPLE_SEED).sample(pieces, count)):
        with path.open("rb") as file:
            file.seek(offset)
            piece = file.read(SAMPLE_PIECE)
        raw += len(piece)
        packed += len(zlib.compress(piece, 1))
    return round(raw / packed, 3)
