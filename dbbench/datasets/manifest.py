"""What a golden copy is: a folder with `data/` as a stopped server left it, and `manifest.json`.

The manifest names every folder, link and file with its size, CRC-32 and mode. A copy is complete when its manifest
is there, for it is written last; a copy in which a fault was found has its manifest taken away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import random
import stat
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from dbbench.errors import DatasetBuildFailed, RestoreFailed
from dbbench.model import Dataset, plain
from dbbench.store.files import write_json

FORMAT: Final = 1  # of the manifest and of what the builders make; part of every key
BLOCK: Final = 2**20  # bytes read at once: larger ones were no faster, smaller ones cost calls
SAMPLE_BYTES: Final = 4 * 2**20  # for the compressibility: +-1 % of the whole on the datasets tried
SAMPLE_PIECE: Final = 64 * 2**10  # half of what btrfs compresses at once (128 KiB), so that pieces come from everywhere
SAMPLE_SEED: Final = 1

Crc = Callable[[Path], int]


@dataclass(frozen=True)
class Entry:
    """One name below `data/`. `crc32` and `size` are of files, `target` of links."""

    path: str  # relative, "/" between names
    kind: Literal["file", "dir", "link"]
    mode: int  # permission bits
    size: int = 0
    crc32: int = 0
    target: str = ""


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json. `entries` are sorted by path: the order in which a copy is restored."""

    key: str
    engine: str
    version: str
    build: str
    dataset: Dataset
    page_size: int | None
    locale: str
    logical_bytes: int  # of all files
    build_s: float
    compressibility: float | None  # bytes ÷ bytes after zlib level 1, of a sample of the data files
    entries: tuple[Entry, ...]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the server while it was built
    told: tuple[str, ...] = ()  # of a user's own data: what was left out or changed, in sentences
    tablespaces: dict[str, str] = dataclasses.field(default_factory=dict)  # PostgreSQL: name -> OID
    format: int = FORMAT

    def of_kind(self, kind: str) -> list[Entry]:
        """The entries of a kind, in order."""
        return [entry for entry in self.entries if entry.kind == kind]


@dataclass(frozen=True)
class Golden:
    """A dataset that was built once, and is restored byte for byte for each trial."""

    path: Path
    manifest: Manifest
    inside: str = ""  # of a part of a copy: the folder of `data` that its names begin at

    @property
    def data(self) -> Path:
        return self.path / "data" / self.inside

    @property
    def lock(self) -> Path:
        """The file that is locked by who builds or evicts (alone) and by who uses it (shared); its mtime is the
        last use."""
        return lock_of(self.path)

    @property
    def key(self) -> str:
        return self.manifest.key


def split(golden: Golden, folder: str) -> tuple[Golden, Golden]:
    """What lies in that folder of the copy, and all the rest, each as a copy of its own (of the same files)."""
    below = f"{folder}/"
    within = tuple(dataclasses.replace(entry, path=entry.path.removeprefix(below))
                   for entry in golden.manifest.entries if entry.path.startswith(below))  # fmt: skip
    rest = tuple(entry for entry in golden.manifest.entries if not f"{entry.path}/".startswith(below))
    parts = [
        dataclasses.replace(golden.manifest, entries=entries, logical_bytes=sum(entry.size for entry in entries))
        for entries in (within, rest)
    ]
    return Golden(golden.path, parts[0], folder), Golden(golden.path, parts[1])


_MANIFEST: TypeAdapter[Manifest] | None = None


def lock_of(folder: Path) -> Path:
    """The lock file of the golden copy in `folder`. It stays when the copy goes: removing it would race."""
    return folder.with_name(f".{folder.name}.lock")


def load(folder: Path) -> Golden | None:
    """The golden copy in `folder`; None where there is none, or where it is not as its manifest says.

    Only sizes and kinds are looked at here; contents are checked with each restore.
    """
    global _MANIFEST
    if _MANIFEST is None:
        _MANIFEST = TypeAdapter(Manifest)
    try:
        manifest = _MANIFEST.validate_json((folder / "manifest.json").read_bytes())
    except (OSError, ValidationError, ValueError):
        return None
    golden = Golden(folder, manifest)
    return golden if manifest.format == FORMAT and not any(map(golden_lacks(golden), manifest.entries)) else None


def golden_lacks(golden: Golden) -> Callable[[Entry], bool]:
    """Whether an entry is not there as the manifest says, by its kind and size alone."""

    def lacks(entry: Entry) -> bool:
        try:
            found = (golden.data / entry.path).lstat()
        except OSError:
            return True
        kind = {"file": stat.S_ISREG, "dir": stat.S_ISDIR, "link": stat.S_ISLNK}[entry.kind]
        return not kind(found.st_mode) or (entry.kind == "file" and found.st_size != entry.size)

    return lacks


def save(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json; from now on the folder counts as a golden copy."""
    write_json(folder / "manifest.json", plain(manifest))


def condemn(golden: Golden) -> None:
    """Take the manifest of a damaged copy away, so that the next run builds the dataset again."""
    with contextlib.suppress(OSError):
        (golden.path / "manifest.json").rename(golden.path / "manifest.damaged.json")


@contextlib.contextmanager
def in_use(golden: Golden) -> Iterator[None]:
    """Keep the copy from being evicted while the block runs. RestoreFailed where it has already gone."""
    fd = os.open(golden.lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not (golden.path / "manifest.json").exists():
            raise RestoreFailed(
                f"the golden copy {golden.path} is gone",
                remedy="Type the same command again; the dataset is then built again.",
            )
        with contextlib.suppress(OSError):
            os.utime(fd)
        yield
    finally:
        os.close(fd)


def crc_of(path: Path) -> tuple[int, int]:
    """Size in bytes and CRC-32 of a file's content. Raises OSError."""
    size = crc = 0
    buffer = memoryview(bytearray(BLOCK))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while count := os.readv(fd, [buffer]):
            crc = zlib.crc32(buffer[:count], crc)  # releases the interpreter's lock
            size += count
    finally:
        os.close(fd)
    return size, crc


def scan(data: Path, threads: int) -> tuple[Entry, ...]:
    """All that lies below `data`, sorted by path, files with their CRC-32 (`threads` at a time).

    DatasetBuildFailed where something is neither folder, link nor file: a stopped server leaves no sockets.
    """
    names = sorted(path.relative_to(data).as_posix() for path in data.rglob("*"))
    with ThreadPoolExecutor(threads) as pool:
        return tuple(pool.map(lambda name: _entry(data, name), names))


def _entry(data: Path, name: str) -> Entry:
    path = data / name
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return Entry(name, "link", 0o777, target=str(path.readlink()))
    if stat.S_ISDIR(mode):
        return Entry(name, "dir", stat.S_IMODE(mode))
    if not stat.S_ISREG(mode):
        raise DatasetBuildFailed(f"the server left {path}, which is neither file, folder nor link")
    size, crc = crc_of(path)
    return Entry(name, "file", stat.S_IMODE(mode), size, crc)


def compressibility(files: list[Path]) -> float | None:
    """Bytes ÷ bytes after zlib level 1 of a seeded 4-MiB sample of `files`; None where they are empty.

    Pieces are compressed one by one, as a compressing filesystem does.
    """
    sizes = [(path, path.stat().st_size) for path in files]
    pieces = [(path, at) for path, size in sizes for at in range(0, size, SAMPLE_PIECE)]
    if not pieces:
        return None
    chosen = random.Random(SAMPLE_SEED).sample(pieces, min(len(pieces), SAMPLE_BYTES // SAMPLE_PIECE))
    raw = packed = 0
    for path, at in sorted(chosen):
        with path.open("rb") as file:
            file.seek(at)
            piece = file.read(SAMPLE_PIECE)
        raw += len(piece)
        packed += len(zlib.compress(piece, 1))
    return round(raw / packed, 3)
