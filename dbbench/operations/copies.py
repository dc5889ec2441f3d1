"""Copies of the data directory: by reflink (blocks are shared until they are written), or plain. A
running PostgreSQL is copied between its backup functions, the log last, so that it is
consistent; InnoDB would need a separate tool.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from dbbench import process
from dbbench.engines import profile_of
from dbbench.engines.port import Server
from dbbench.engines.settings import numbers_of
from dbbench.errors import OperationFailed
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Stored
from dbbench.storage.filesystems.family import attributes_of
from dbbench.units import size_text

COPY: Final = "data.copy"  # folder next to the data directory
_PROBE: Final = ".dbbench-reflink"
_FICLONE: Final = 0x40049409  # linux/fs.h
_COPY_S: Final = 6 * 3600.0
# free space relative to the data: also for metadata and new files of the second server
_SPARE: Final = 1.1

# PostgreSQL 15 renamed these functions and removed exclusive backups.
_BEGIN: Final = {
    True: "SELECT pg_backup_start('dbbench', true)",
    False: "SELECT pg_start_backup('dbbench', true, false)",
}
_END: Final = {
    True: "SELECT labelfile FROM pg_backup_stop(false)",
    False: "SELECT labelfile FROM pg_stop_backup(false, false)",
}
# Copied last: the log must reach at least to the state of the control file.
_CONTROL = "global/pg_control"
_LOG = "pg_wal"


@dataclass(frozen=True)
class Copies:
    """Copies with cp(1); satisfies `filesystems.family.Snapshots`. The clone is the copy itself.
    `shares` says whether files in a directory can share blocks.
    """

    reflink: Literal["always", "never"]
    name: str
    shares: Callable[[Path], bool]
    server: Server | None = None  # running, during a load; None: the server is stopped

    @property
    def atomic(self) -> bool:
        return self.server is not None

    def lacks(self, stored: Stored) -> str | None:
        if self.reflink == "always" and not self.shares(stored.fs.path):
            return f"{stored.fs.family} with these options does not support reflinks"
        if self.server is not None and not profile_of(self.server.engine).copied_running:
            files = f"files of a running {self.server.engine}"
            return f"{files} that are copied one after the other are not consistent"
        if self.reflink == "always":
            return None
        size = 0
        for folder, _folders, names in os.walk(stored.datadir):
            for name in names:
                size += Path(folder, name).lstat().st_size
        free = shutil.disk_usage(stored.fs.path).free
        needed = int(size * _SPARE)
        if needed <= free:
            return None
        return f"a copy needs {size_text(needed)}, but only {size_text(free)} is free"

    def snapshot(self, stored: Stored) -> None:
        if self.server is None:
            self._copy(stored, stored.datadir, _target(stored))
        else:
            _back_up(self.server, stored.datadir, _target(stored))

    def _copy(self, stored: Stored, source: Path, target: Path) -> None:
        """Run cp -a and sync. Attributes of the setup are set before it: reflinks require them to
        be equal.
        """
        target.mkdir(mode=0o700)
        setup = replace(stored.setup, attributes=attributes_of(stored.setup))
        filesystems.apply_attributes(setup, target)
        process.run(_cp(self.reflink, source, target), timeout_s=_COPY_S)
        stored.sync()

    @contextlib.contextmanager
    def clone(self, stored: Stored) -> Iterator[Path]:
        yield _target(stored)

    def taken_bytes(self, _stored: Stored) -> int | None:
        """Return None: no tool reports which blocks of a file are shared."""
        return None

    def rollback(self, stored: Stored) -> None:
        shutil.rmtree(stored.datadir)
        self._copy(stored, _target(stored), stored.datadir)

    def drop(self, stored: Stored) -> None:
        shutil.rmtree(_target(stored), ignore_errors=True)
        if self.server is None:
            stored.sync()


def shares_blocks(folder: Path) -> bool:
    """Whether files there can share blocks, tried with two temporary files."""
    first = folder / _PROBE
    second = folder / (_PROBE + "-2")
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


REFLINK: Final = Copies("always", "reflink", shares_blocks)
PLAIN: Final = Copies("never", "copy", shares_blocks)


def _target(stored: Stored) -> Path:
    return stored.datadir.with_name(COPY + stored.tag)


def _back_up(server: Server, source: Path, target: Path) -> None:
    renamed = numbers_of(server.version) >= (15,)
    with (
        contextlib.closing(server.connect()) as session,
        contextlib.closing(session.cursor()) as cursor,
    ):
        cursor.execute(_BEGIN[renamed])
        _copy_live(source, target)
        (target / _CONTROL).unlink()
        process.run(
            ["cp", "-a", "--reflink=always", source / _CONTROL, target / _CONTROL],
            timeout_s=_COPY_S,
        )
        cursor.execute(_END[renamed])
        label = str(cursor.fetchone()[0])
    shutil.rmtree(target / _LOG)
    _copy_live(source / _LOG, target / _LOG)
    (target / "backup_label").write_text(label)
    owner = target.stat()
    shutil.chown(target / "backup_label", owner.st_uid, owner.st_gid)


def _cp(reflink: str, source: Path, target: Path) -> list[str]:
    return ["cp", "-a", f"--reflink={reflink}", f"{source}/.", str(target)]


def _copy_live(source: Path, target: Path) -> None:
    """Run cp -a into a new directory. Files that the server removes meanwhile are not needed by a
    backup.
    """
    target.mkdir(mode=0o700)
    done = process.run(_cp("always", source, target), timeout_s=_COPY_S, ok=(0, 1))
    messages = without_vanishing(done.stderr) if done.returncode else []
    if messages:
        raise OperationFailed("cp says:\n  " + "\n  ".join(messages[:4]))


def without_vanishing(text: str) -> list[str]:
    """Return cp's messages without those about files that no longer exist."""
    lines = [line for line in text.splitlines() if line.strip()]
    return [line for line in lines if not line.endswith("No such file or directory")]
