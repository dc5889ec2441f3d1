"""Copies file by file: by reflink (xfs, btrfs: blocks are shared until they are written), and plain, the reference that
every filesystem supports.

For a running PostgreSQL, its backup functions make the copy consistent: files are copied in sequence while they are
written, and changes are in the log from the start of the backup to its end, which is copied last. The second server
applies it, as for any base backup. InnoDB has no such functions without a separate tool.

Operations `snapshot` and `clone`: make a copy, start a second server on it, query it, roll back to it, drop it.

`snapshot` uses the filesystem's own snapshots while a server runs: the second server recovers as after a crash. `clone`
copies the files of a stopped server: by reflink if possible, and plain, as the reference.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from dbbench import process
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.port import BacksUp, Server
from dbbench.engines.settings import numbers_of
from dbbench.errors import FilesystemDamaged, OperationFailed
from dbbench.model import OperationFacts
from dbbench.operations.steps import Filled, cold, ended, impossible, timed
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Stored
from dbbench.storage.filesystems.port import Snapshots, attributes_of
from dbbench.units import size_text

COPY: Final = "data.copy"  # folder next to the data directory
_PROBE: Final = ".dbbench-reflink"
_FICLONE: Final = 0x40049409  # linux/fs.h
_COPY_S: Final = 6 * 3600.0
_SPARE: Final = 1.1  # free space relative to the data: also for metadata and new files of the second server

# PostgreSQL 15 renamed these functions and removed exclusive backups.
_BEGIN: Final = {
    True: "SELECT pg_backup_start('dbbench', true)",
    False: "SELECT pg_start_backup('dbbench', true, false)",
}
_END: Final = {True: "SELECT labelfile FROM pg_backup_stop(false)",
               False: "SELECT labelfile FROM pg_stop_backup(false, false)"}  # fmt: skip
# Copied last: the log must reach at least to the state of the control file.
_LAST: Final = ("global/pg_control", "pg_wal")
# Rows that show the moment of a copy: some were acknowledged before it, one was written after it.
TABLE: Final = "dbbench_witness"
DOUBLINGS: Final = 14  # 16 384 rows, a few MB of log, so that recovery has work to do
ROWS: Final = 2**DOUBLINGS
LATER: Final = -1


@dataclass(frozen=True)
class Copying:
    """Copy with cp(1); satisfies `filesystems.port.Snapshots`. The clone is the copy itself."""

    reflink: Literal["always", "never"]
    atomic: bool = False
    name: str = "reflink"

    def lacks(self, stored: Stored) -> str | None:
        """Return why no copy is possible: no reflinks, or no space for a second copy."""
        if self.reflink == "always":
            return (
                None if _shares(stored.fs.path) else f"{stored.fs.family} with these options does not support reflinks"
            )
        place = os.statvfs(stored.fs.path)
        free, needed = place.f_bavail * place.f_frsize, int(_size(stored.datadir) * _SPARE)
        return None if needed <= free else f"a copy needs {size_text(needed)}, but only {size_text(free)} is free"

    def snapshot(self, stored: Stored) -> None:
        """Copy the data directory to a directory next to it."""
        self._copied(stored, stored.datadir, stored.datadir.with_name(COPY))

    def _copied(self, stored: Stored, source: Path, target: Path) -> None:
        """Run cp -a into a new directory of the same owner, and sync it.

        The attributes of the setup are set before: reflinks require them to be equal.
        """
        target.mkdir(mode=0o700)
        filesystems.apply_attributes(replace(stored.setup, attributes=attributes_of(stored.setup)), target)
        process.run(["cp", "-a", f"--reflink={self.reflink}", f"{source}/.", target], timeout_s=_COPY_S)
        filesystems.sync(stored.fs.path)

    @contextlib.contextmanager
    def clone(self, stored: Stored) -> Iterator[Path]:
        """Yield the copy, which needs no mount."""
        yield stored.datadir.with_name(COPY)

    def taken_bytes(self, stored: Stored) -> int | None:
        """Return None: the caller takes the difference in free space, because nothing else is written."""
        return None

    def rollback(self, stored: Stored) -> None:
        """Remove the data directory and copy it back."""
        shutil.rmtree(stored.datadir)
        self._copied(stored, stored.datadir.with_name(COPY), stored.datadir)

    def drop(self, stored: Stored) -> None:
        """Remove the copy."""
        shutil.rmtree(stored.datadir.with_name(COPY), ignore_errors=True)
        filesystems.sync(stored.fs.path)


REFLINK: Final = Copying("always")
PLAIN: Final = Copying("never", name="copy")


@dataclass(frozen=True)
class Reflinked:
    """Reflink copies during a load; satisfies `filesystems.port.Snapshots`, without rollback."""

    server: Server
    atomic: bool = True
    name: str = "reflink"

    def lacks(self, stored: Stored) -> str | None:
        """Return why no copy is possible: no reflinks, or a server without backup functions."""
        if why := REFLINK.lacks(stored):
            return why
        if not profile_of(self.server.engine).copied_running:
            return f"files of a running {self.server.engine} that are copied one after the other are not consistent"
        return None

    def snapshot(self, stored: Stored) -> None:
        """Make a base backup with cp(1), starting with an immediate checkpoint. Raises OperationFailed."""
        source, target = stored.datadir, _target(stored)
        renamed = numbers_of(self.server.version) >= (15,)
        with contextlib.closing(self.server.connect()) as session, contextlib.closing(session.cursor()) as cursor:
            cursor.execute(_BEGIN[renamed])
            _copied_live(source, target)
            (target / _LAST[0]).unlink()
            process.run(["cp", "-a", "--reflink=always", source / _LAST[0], target / _LAST[0]], timeout_s=_COPY_S)
            cursor.execute(_END[renamed])
            label = str(cursor.fetchone()[0])
        shutil.rmtree(target / _LAST[1])
        _copied_live(source / _LAST[1], target / _LAST[1])
        (target / "backup_label").write_text(label)
        shutil.chown(target / "backup_label", *_owner_of(target))

    @contextlib.contextmanager
    def clone(self, stored: Stored) -> Iterator[Path]:
        """Yield the copy itself."""
        yield _target(stored)

    def taken_bytes(self, stored: Stored) -> int | None:
        """Return None: no tool reports which blocks of a file are shared."""
        return None

    def rollback(self, stored: Stored) -> None:
        raise OperationFailed("a copy cannot be restored while a load runs")

    def drop(self, stored: Stored) -> None:
        """Remove the copy."""
        shutil.rmtree(_target(stored), ignore_errors=True)


def _shares(folder: Path) -> bool:
    """Whether files there can share blocks, tried with two temporary files."""
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


def _target(stored: Stored) -> Path:
    return stored.datadir.with_name(COPY + stored.tag)


def _owner_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


def _copied_live(source: Path, target: Path) -> None:
    """Run cp -a into a new directory. Files that the server removes meanwhile are not needed by a backup."""
    target.mkdir(mode=0o700)
    done = process.run(["cp", "-a", "--reflink=always", f"{source}/.", target], timeout_s=_COPY_S, ok=(0, 1))
    if done.returncode and (wrong := beyond_vanished(done.stderr)):
        raise OperationFailed("cp says:\n  " + "\n  ".join(wrong[:4]))


def beyond_vanished(text: str) -> list[str]:
    """Return cp's messages without those about files that no longer exist."""
    return [line for line in text.splitlines() if line.strip() and not line.endswith("No such file or directory")]


def snapshot(filled: Filled) -> Iterator[OperationFacts]:
    """Use snapshots of the filesystem, or of the layer below it."""
    how = filesystems.snapshots_of(filled.setup)
    if how is None:
        yield impossible("snapshot", filled.no_snapshots)
    else:
        yield from _taken("snapshot", how, filled)


def clone(filled: Filled) -> Iterator[OperationFacts]:
    """Copy by reflink, then plain."""
    yield from _taken("clone by reflink", REFLINK, filled)
    yield from _taken("clone by copy", PLAIN, filled)


def _taken(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    if why := filled.obstacle(how):
        yield impossible(name, why)
        return
    try:
        yield from (_while_it_runs if how.atomic else _while_it_is_stopped)(name, how, filled)
        yield timed(f"{name}: roll back", lambda: how.rollback(filled))
        with filled.serving(filled.datadir) as server:
            _must_be_of_before(server, f"{name}, rolled back")
        yield timed(f"{name}: drop", lambda: how.drop(filled))
    except BaseException:
        how.drop(filled)
        raise


def _while_it_runs(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    with filled.serving(filled.datadir) as server:
        _add_rows(server)
        yield timed(f"{name}: create", lambda: how.snapshot(filled))
        _add_later_row(server)
        yield from _second_server(name, how, filled)


def _while_it_is_stopped(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    """Run while nothing else is written, so that the copy's size is the difference in free space."""
    with filled.serving(filled.datadir) as server:
        _add_rows(server)
    free, began = _free_bytes(filled), time.monotonic()
    how.snapshot(filled)
    created, left = ended(f"{name}: create", began), _free_bytes(filled)
    yield replace(created, bytes=None if free is None or left is None else free - left)
    with filled.serving(filled.datadir) as server:
        _add_later_row(server)
        yield from _second_server(name, how, filled)


def _second_server(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    """Run next to the first server: mount the clone, start a server on it (including recovery) and query it."""
    with contextlib.ExitStack() as copy:
        began = time.monotonic()
        datadir = copy.enter_context(how.clone(filled))
        if how.atomic:  # a copy of files already exists
            yield ended(f"{name}: mount", began)
        began = time.monotonic()
        server = copy.enter_context(filled.serving_copy(datadir))
        yield ended(f"{name}: start a server", began)
        began = time.monotonic()
        rows_found = _must_be_of_before(server, name)
        yield ended(f"{name}: query", began, rows_found, how.taken_bytes(filled))


def _free_bytes(filled: Filled) -> int | None:
    """Return the free space, or None if other processes may write to the same filesystem (an existing directory)."""
    if not os.path.ismount(filled.fs.path):
        return None
    filesystems.sync(filled.fs.path)
    place = os.statvfs(filled.fs.path)
    return place.f_bfree * place.f_frsize


def _add_rows(server: Server) -> None:
    """Commit the rows from before the copy, as the last acknowledged change."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, filler VARCHAR(120) NOT NULL)")
        cursor.execute(f"INSERT INTO {TABLE} VALUES (0, %s)", ("x" * 120,))
        for power in range(DOUBLINGS):
            cursor.execute(f"INSERT INTO {TABLE} SELECT id + {2**power}, filler FROM {TABLE}")


def _add_later_row(server: Server) -> None:
    """Commit a row after the copy."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(f"INSERT INTO {TABLE} VALUES ({LATER}, 'later')")


def _must_be_of_before(server: Server, what: str) -> str:
    """Query a copy; return the result. Raises FilesystemDamaged if the copy is not from the expected moment."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT COUNT(*), COALESCE(MIN(id), 0) FROM {TABLE}")
        count, first = cursor.fetchone()
    if int(count) != ROWS or int(first) == LATER:
        raise FilesystemDamaged(
            f"{what}: {count} rows, the first of id {first}; {ROWS} were acknowledged before it, from 0 on",
            effect="The trial is marked failed.",
        )
    return f"{count} rows, all of them acknowledged before"


# --- Base backup -----------------------------------------------------------------------------------


_PIECE: Final = 1 << 20
_NO_BACKUP: Final = "dbbench knows no program for physical backups of {}"


def base_backup(filled: Filled) -> Iterator[OperationFacts]:
    """Run one step; its bytes are those of the stream."""
    cache_text = cold(filled)
    with filled.serving(filled.datadir) as server:
        engine = ENGINES[server.engine]
        argv = engine.backup(server, filled.room) if isinstance(engine, BacksUp) else _NO_BACKUP.format(server.engine)
        if isinstance(argv, str):
            yield impossible("base-backup", argv)
            return
        began = time.monotonic()
        size = _streamed(argv, filled.room, server.env)
        done = ended("base-backup", began, None, size)
    rate = size / 1e6 / (done.seconds or 1.0)
    yield replace(done, text=f"{rate:.0f} MB/s by {Path(argv[0]).name}, streamed and discarded; {cache_text}")


def _streamed(argv: list[str], room: Path, env: Mapping[str, str]) -> int:
    """Run the command and count what it writes. Raises OperationFailed with its last lines."""
    size = 0
    with tempfile.TemporaryDirectory(dir=room) as folder:
        messages = Path(folder) / "stderr"
        with process.running(argv, stdout=subprocess.PIPE, stderr=messages, env=env) as program:
            if program.popen.stdout is None:
                raise AssertionError("a pipe was requested")
            while piece := program.popen.stdout.read(_PIECE):
                size += len(piece)
            status = program.popen.wait()
        if status:
            lines = messages.read_text(errors="replace").splitlines()
            raise OperationFailed(f"{argv[0]} ended with status {status}:\n  " + "\n  ".join(lines[-6:]))
    return size


__all__ = ["base_backup"]
