"""Moving a stopped server's log out of its data directory, or its tablespace onto a bare device."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dbbench.engines.serving import own
from dbbench.errors import FilesystemFull, RestoreUnequal
from dbbench.pagecache import syncfs
from dbbench.process import User

_PIECE: Final = 2**20


def written(source: Path, device: Path) -> None:
    """Write a file's bytes onto a block device, past the page cache, and compare. FilesystemFull, RestoreUnequal."""
    size, buffer = source.stat().st_size, mmap.mmap(-1, _PIECE)  # page-aligned, as direct I/O wants it
    target = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    try:
        if (room := os.lseek(target, 0, os.SEEK_END)) < size:
            raise FilesystemFull(
                f"the tablespace has {size} bytes, the device {room}",
                effect="Nothing was measured.",
                remedy="Take a larger device or a smaller dataset.",
            )
        with source.open("rb", buffering=0) as file:
            for offset in range(0, size, _PIECE):
                count = file.readinto(buffer)  # a tablespace has whole MiB
                os.pwritev(target, [memoryview(buffer)[:count]], offset)
            os.fsync(target)
            file.seek(0)
            for offset in range(0, size, _PIECE):
                wanted = file.read(_PIECE)
                os.preadv(target, [buffer], offset)
                if buffer[: len(wanted)] != wanted:
                    raise RestoreUnequal(f"{device} at byte {offset} is not what was written")
    finally:
        os.close(target)


def moved(sources: Iterable[Path], to: Path, account: User) -> None:
    """Move files and folders into the folder `to`, which is made where it is missing, for the server's account.

    Copied by plain writes, as a golden copy is restored, and on the device when this returns.
    """
    own(to, account)
    for source in sources:
        target = to / source.name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
            shutil.rmtree(source)
        else:
            shutil.copy2(source, target)
            source.unlink()
        for path in (target, *(target.rglob("*") if target.is_dir() else ())):
            if os.geteuid() == 0:
                os.lchown(path, account.uid, account.gid)
    syncfs(to)
