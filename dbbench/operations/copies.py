"""Copies file by file, of a stopped server's data: by reflink (xfs, btrfs: blocks are shared until they are written),
and plainly, the reference that every filesystem has."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from dbbench import filesystems, process
from dbbench.filesystems.files import data_attributes
from dbbench.operations.port import Filled
from dbbench.units import size_text

COPY: Final = "data.copy"  # beside the data directory
_PROBE: Final = ".dbbench-reflink"
_FICLONE: Final = 0x40049409  # linux/fs.h
_COPY_S: Final = 6 * 3600.0
_SPARE: Final = 1.1  # of the data's size: metadata, and the second server's own new files


@dataclass(frozen=True)
class Copying:
    """Satisfies `port.Snapshots` by cp(1). The clone is the copy itself."""

    reflink: Literal["always", "never"]
    ATOMIC: bool = False

    def lacks(self, filled: Filled) -> str | None:
        """No reflinks, or no room for a second set of bytes."""
        if self.reflink == "always":
            return None if _shares(filled.fs.path) else f"{filled.fs.family} made so has no reflinks"
        place = os.statvfs(filled.fs.path)
        free, wanted = place.f_bavail * place.f_frsize, int(_size(filled.datadir) * _SPARE)
        return None if wanted <= free else f"a copy needs {size_text(wanted)}, {size_text(free)} are free"

    def snapshot(self, filled: Filled) -> None:
        """The data directory, copied beside itself."""
        self._copied(filled, filled.datadir, filled.datadir.with_name(COPY))

    def _copied(self, filled: Filled, source: Path, target: Path) -> None:
        """cp -a into a new folder of the same owner, on disk when it ends. The attributes of the setup are set
        before: reflinks want them equal."""
        target.mkdir(mode=0o700)
        filesystems.apply_attributes(replace(filled.setup, attributes=data_attributes(filled.setup)), target)
        process.run(["cp", "-a", f"--reflink={self.reflink}", f"{source}/.", target], timeout_s=_COPY_S)
        filesystems.sync(filled.fs.path)

    @contextlib.contextmanager
    def clone(self, filled: Filled) -> Iterator[Path]:
        """The copy, which needs no mount."""
        yield filled.datadir.with_name(COPY)

    def taken_bytes(self, filled: Filled) -> int | None:
        """Told by the difference in free space around the copy, which the caller takes: nothing else is written."""
        return None

    def rollback(self, filled: Filled) -> None:
        """The data directory is removed and copied back."""
        shutil.rmtree(filled.datadir)
        self._copied(filled, filled.datadir.with_name(COPY), filled.datadir)

    def drop(self, filled: Filled) -> None:
        """The copy is removed."""
        shutil.rmtree(filled.datadir.with_name(COPY), ignore_errors=True)
        filesystems.sync(filled.fs.path)


REFLINK: Final = Copying("always")
PLAIN: Final = Copying("never")


def _shares(folder: Path) -> bool:
    """Whether one file can share another's blocks there, tried with two of our own."""
    first, second = folder / _PROBE, folder / (_PROBE + "-2")
    try:
        first.write_bytes(bytes(4096))
        with first.open("rb") as source, second.open("wb") as target:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        return True
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            return False
        raise
    finally:
        first.unlink(missing_ok=True)
        second.unlink(missing_ok=True)


def _size(root: Path) -> int:
    return sum(Path(folder, name).lstat().st_size for folder, _folders, names in os.walk(root) for name in names)
