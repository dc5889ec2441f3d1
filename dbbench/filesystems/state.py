"""Of a mounted filesystem: is it well, how much does it hold, and write back what is dirty."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from dbbench.filesystems import mountinfo
from dbbench.filesystems.families import COMPRESSING
from dbbench.filesystems.port import Mounted
from dbbench.model import SpaceFacts
from dbbench.pagecache import OwnCache, syncfs

_BAD: Final = frozenset({"ro", "emergency_ro", "shutdown"})
_PROBE: Final = ".dbbench-probe"
_LEAST_READ: Final = 0.9  # of what is asked for; files' ends and metadata move it a little
_BEST_COMPRESSION: Final = 32  # btrfs: an extent of 128 KiB takes one block of 4 KiB at least
_BLOCK: Final = 512  # the unit of st_blocks, whatever the filesystem's own


def sync(path: Path) -> None:
    """Write back what is dirty of the filesystem that `path` lies on (syncfs(2)). OSError where that fails."""
    syncfs(path)


def healthy(fs: Mounted) -> str | None:
    """Why the filesystem is no longer to be trusted, or None.

    Beside other mount options than at its begin two signs, as no one of them works for all: an fsync that fails (xfs
    that was shut down still says rw), and superblock options that show ro, emergency_ro or shutdown. Another one, the
    kernel's lines, is in `kmsg`.
    """
    now = mountinfo.of(fs.path).options
    bad = _BAD.intersection(now)
    if bad:
        return f"the kernel shows {fs.path} as {', '.join(sorted(bad))}"
    if fs.pool is None and fs.raw is None and (other := sorted(set(now).difference(fs.options_effective))):
        return f"{fs.path} was mounted anew while it was measured: it has {', '.join(other)}"
    try:
        _probe(fs.path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None  # full is not broken, and has an error of its own
        return f"write and fsync on {fs.path} fail: {error.strerror}"
    return None


def space(fs: Mounted, logical_bytes: int) -> SpaceFacts:
    """Used and free space, after what is dirty was written. A filesystem of ours counts whole; of an existing
    one only what lies below the directory. `logical_bytes`: the data files' sizes."""
    syncfs(fs.path)
    total = os.statvfs(fs.path)
    free = total.f_bavail * total.f_frsize
    if fs.pool is not None:  # a mount shows its own dataset alone
        fs.pool.sync()
        used, free = fs.pool.used_and_free()
    elif os.path.ismount(fs.path):
        used = (total.f_blocks - total.f_bfree) * total.f_frsize
    else:
        used = sum(_BLOCK * Path(folder, name).lstat().st_blocks
                   for folder, _folders, names in os.walk(fs.path) for name in names)  # fmt: skip
    compressing = COMPRESSING.get(fs.family)
    algorithm = compressing.compresses(fs.options_effective) if compressing else None
    data = fs.path / "data" if fs.pool is None and (fs.path / "data").is_dir() else fs.path  # not what was aged
    ratio = compressing.compression_ratio(data) if compressing and algorithm else None
    return SpaceFacts(logical_bytes, used, free, ratio)


def own_cache(fs: Mounted) -> OwnCache | None:
    """The cache that the filesystem has beside the page cache; None where it has none."""
    if fs.pool is None:
        return None
    return OwnCache(fs.pool.reopening, fs.pool.reopen, fs.pool.cached_bytes, "primarycache=all" in fs.options_effective)


def least_read_share(fs: Mounted) -> float:
    """The least share of a sample's bytes that the device must deliver when the sample is read cold: nearly all,
    or what the best compression leaves of it."""
    compressing = COMPRESSING.get(fs.family)
    algorithm = compressing.compresses(fs.options_effective) if compressing else None
    return _LEAST_READ / _BEST_COMPRESSION if algorithm else _LEAST_READ


def _probe(folder: Path) -> None:
    path = folder / _PROBE
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, bytes(4096))
        os.fsync(fd)
    finally:
        os.close(fd)
        path.unlink()
