"""The cache of golden copies: its location, its size limit, and what is evicted when it is full.

Each copy KEY has a lock file `.KEY.lock` next to it: locked exclusively to build or evict it, shared to restore it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench.datasets.copying import free_bytes
from dbbench.datasets.manifest import load, lock_of
from dbbench.errors import DiskTooSmall
from dbbench.results.fileio import lock_file
from dbbench.units import bytes_of, size_text

DEFAULT_LIMIT: Final = 50 * 2**30  # bytes; a dozen copies of the size of a small server's memory


def cache_folder() -> Path:
    """Return DBBENCH_CACHE, or dbbench/golden in the XDG cache. It need not exist."""
    if configured := os.environ.get("DBBENCH_CACHE"):
        return Path(configured).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "dbbench" / "golden"


def size_limit() -> int:
    """Return the maximum size of the cache in bytes: DBBENCH_CACHE_LIMIT ("80GiB") or the default."""
    return bytes_of(os.environ.get("DBBENCH_CACHE_LIMIT") or DEFAULT_LIMIT)


def exists(key: str, cache: Path | None = None) -> bool:
    """Whether the cache has the copy with that key, complete according to the sizes of its files."""
    return load((cache or cache_folder()) / key) is not None


@contextlib.contextmanager
def alone(lock: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a golden copy exclusively within the block; wait if another process holds it."""
    with lock_file(lock) as (fd, locked):
        if not locked:
            tell("waiting for another process that uses the same golden copy")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def make_room(cache: Path, needed: int) -> None:
    """Evict copies until `needed` bytes fit below the limit and on the disk. Raises DiskTooSmall.

    A copy that is in use is not evicted, even if the limit is then exceeded.
    """
    limit = size_limit()
    if needed > limit:
        raise DiskTooSmall(
            (
                f"the dataset needs about {size_text(needed)}, but the cache of golden copies is limited to "
                f"{size_text(limit)}"
            ),
            effect="Nothing was built.",
            remedy="Raise the limit, for example: DBBENCH_CACHE_LIMIT=200GiB",
        )
    _sweep(cache)
    copies = _by_last_use(cache)
    sizes = {folder: disk_bytes(folder) for folder in copies}
    for folder in copies:
        if sum(sizes.values()) + needed <= limit and free_bytes(cache) >= needed:
            break
        if evict(folder):
            del sizes[folder]
    if free_bytes(cache) < needed:
        raise DiskTooSmall(
            f"the dataset needs about {size_text(needed)}, but {cache} has {size_text(free_bytes(cache))} free",
            effect="Nothing was built.",
            remedy="Free some disk space, or set DBBENCH_CACHE to a folder on a larger disk.",
        )


def evict(folder: Path) -> bool:
    """Remove the copy in `folder`; return False if a process uses or builds it."""
    with lock_file(lock_of(folder)) as (_, locked):
        if locked:
            (folder / "manifest.json").unlink(missing_ok=True)  # first: an incomplete copy is invalid
            shutil.rmtree(folder, ignore_errors=True)
    return locked


def _sweep(cache: Path) -> None:
    """Remove what killed builds of other keys have left."""
    for making in cache.glob(".making-*"):
        folder = cache / making.name.removeprefix(".making-")
        with lock_file(lock_of(folder)) as (_, locked):
            if locked:  # otherwise another process builds it
                shutil.rmtree(making, ignore_errors=True)


def _by_last_use(cache: Path) -> list[Path]:
    """Return the directories of golden copies, least recently used first."""
    folders = [path for path in cache.iterdir() if path.is_dir() and not path.name.startswith(".")]
    ours = [folder for folder in folders if any(folder.glob("manifest*.json"))]

    def last_use(folder: Path) -> float:
        lock = lock_of(folder)
        return lock.stat().st_mtime if lock.exists() else 0.0

    return sorted(ours, key=last_use)


def disk_bytes(folder: Path) -> int:
    """Return the space that the directory occupies on its disk."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process evicts it just now
            blocks += path.lstat().st_blocks
    return blocks * 512
