"""Reflink copies of the data directory of a PostgreSQL that runs: its backup functions make them a copy of one moment.

Files are copied one after the other while they are written; what changed meanwhile is in the log from the backup's
begin to its end, which is copied last. The second server applies it, as of any base backup. InnoDB has no such
functions without a tool of its own.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines.port import Server
from dbbench.errors import OperationFailed
from dbbench.operations.copies import COPY, REFLINK
from dbbench.operations.port import Filled

_COPY_S: Final = 6 * 3600.0
# PostgreSQL 15 renamed them, and has no exclusive backups any more.
_BEGIN: Final = {
    True: "SELECT pg_backup_start('dbbench', true)",
    False: "SELECT pg_start_backup('dbbench', true, false)",
}
_END: Final = {True: "SELECT labelfile FROM pg_backup_stop(false)",
               False: "SELECT labelfile FROM pg_stop_backup(false, false)"}  # fmt: skip
_LAST: Final = ("global/pg_control", "pg_wal")  # a standby's control file is of the end; the log reaches to it


@dataclass(frozen=True)
class Reflinked:
    """Satisfies `port.Snapshots` beside a load. There is no rolling back to it."""

    server: Server
    ATOMIC: bool = True

    def lacks(self, filled: Filled) -> str | None:
        """No reflinks, or a server that has no backup functions."""
        if why := REFLINK.lacks(filled):
            return why
        if self.server.engine != "postgres":
            return f"files of a running {self.server.engine} that are copied one after the other are of no one moment"
        return None

    def snapshot(self, filled: Filled) -> None:
        """A base backup by cp(1), begun with a checkpoint that does not wait. OperationFailed."""
        source, target = filled.datadir, _target(filled)
        renamed = int(self.server.version.partition(".")[0]) >= 15
        with contextlib.closing(self.server.connect()) as session, contextlib.closing(session.cursor()) as cursor:
            cursor.execute(_BEGIN[renamed])
            _copied(source, target)
            (target / _LAST[0]).unlink()
            process.run(["cp", "-a", "--reflink=always", source / _LAST[0], target / _LAST[0]], timeout_s=_COPY_S)
            cursor.execute(_END[renamed])
            label = str(cursor.fetchone()[0])
        shutil.rmtree(target / _LAST[1])
        _copied(source / _LAST[1], target / _LAST[1])
        (target / "backup_label").write_text(label)
        shutil.chown(target / "backup_label", *_owner(target))

    @contextlib.contextmanager
    def clone(self, filled: Filled) -> Iterator[Path]:
        """The copy itself."""
        yield _target(filled)

    def taken_bytes(self, filled: Filled) -> int | None:
        """Nobody tells which blocks of a file are shared."""
        return None

    def rollback(self, filled: Filled) -> None:
        raise OperationFailed("a copy beside a load is not gone back to")

    def drop(self, filled: Filled) -> None:
        """The copy is removed."""
        shutil.rmtree(_target(filled), ignore_errors=True)


def _target(filled: Filled) -> Path:
    return filled.datadir.with_name(COPY + filled.tag)


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def _copied(source: Path, target: Path) -> None:
    """cp -a into a new folder. Files that the server removes meanwhile are none that a backup needs."""
    target.mkdir(mode=0o700)
    done = process.run(["cp", "-a", "--reflink=always", f"{source}/.", target], timeout_s=_COPY_S, ok=(0, 1))
    if done.returncode and (wrong := beyond_vanished(done.stderr)):
        raise OperationFailed("cp says:\n  " + "\n  ".join(wrong[:4]))


def beyond_vanished(said: str) -> list[str]:
    """What cp printed that is not of a file that was there no more."""
    return [line for line in said.splitlines() if line.strip() and not line.endswith("No such file or directory")]
