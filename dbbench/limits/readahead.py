"""`equal_readahead`: the same read-ahead for all filesystems of a run, on their disks and on the mounts themselves.

ext4 and xfs read ahead as much as their disk says, btrfs at least 4 MiB: that alone moves a scan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

BLOCK: Final = Path("/sys/class/block")


@contextlib.contextmanager
def on_disks(disks: Sequence[str], size_bytes: int | None, root: Path = BLOCK) -> Iterator[None]:
    """The disks' read-ahead is `size_bytes` while the block lasts (None: as it is), then what it was. OSError.

    To be set before the filesystem is mounted: that is when most of them take it over.
    """
    files = [root / disk / "queue/read_ahead_kb" for disk in disks] if size_bytes is not None else []
    before = [(path, path.read_text()) for path in files]
    try:
        for path in files:
            path.write_text(str((size_bytes or 0) // 1024))
        yield
    finally:
        for path, value in before:
            path.write_text(value)


def on_mount(bdi: Path, size_bytes: int) -> int | None:
    """Set a mounted filesystem's own read-ahead; what it then has, in kB. None: it has none (ZFS prefetches)."""
    path = bdi / "read_ahead_kb"
    if not path.is_file():
        return None
    path.write_text(str(size_bytes // 1024))
    return int(path.read_text())
