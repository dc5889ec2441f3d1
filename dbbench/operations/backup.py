"""Operations `base-backup`, `snapshot` (the filesystem's own, while a server runs: the second
server recovers as after a crash) and `clone` (copies of the files of a stopped server).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import ENGINES
from dbbench.engines.port import BacksUp, Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import FilesystemDamaged, OperationFailed
from dbbench.model import OperationFacts
from dbbench.operations.copies import PLAIN, REFLINK
from dbbench.operations.steps import StoredDatabase, cold, end_step, impossible, time_step
from dbbench.storage.filesystems import volumes
from dbbench.storage.filesystems.family import Snapshots

# Rows that show the moment of a copy: some were acknowledged before it, one was written after it.
TABLE: Final = "dbbench_witness"
DOUBLINGS: Final = 14  # 16 384 rows, a few MB of log, so that recovery has work to do
ROWS: Final = 2**DOUBLINGS
LATER: Final = -1
_PIECE: Final = 1 << 20
_NO_BACKUP: Final = "dbbench knows no program for physical backups of {}"


def snapshot(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """Use snapshots of the filesystem, or of the layer below it."""
    how = volumes.snapshots_of(filled.setup)
    if how is None:
        yield impossible("snapshot", filled.no_snapshots)
    else:
        yield from _try("snapshot", how, filled)


def clone(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """Copy by reflink, then plain."""
    yield from _try("clone by reflink", REFLINK, filled)
    yield from _try("clone by copy", PLAIN, filled)


def _try(
    name: str,
    how: Snapshots,
    filled: StoredDatabase,
) -> Iterator[OperationFacts]:
    obstacle = filled.obstacle(how)
    if obstacle:
        yield impossible(name, obstacle)
        return
    try:
        yield from (_while_it_runs if how.atomic else _run_at_rest)(name, how, filled)
        yield time_step(f"{name}: roll back", lambda: how.rollback(filled))
        with filled.serving() as server:
            _must_be_of_before(server, f"{name}, rolled back")
        yield time_step(f"{name}: drop", lambda: how.drop(filled))
    except BaseException:
        how.drop(filled)
        raise


def _while_it_runs(
    name: str,
    how: Snapshots,
    filled: StoredDatabase,
) -> Iterator[OperationFacts]:
    with filled.serving() as server:
        _add_rows(server)
        yield time_step(f"{name}: create", lambda: how.snapshot(filled))
        _add_later_row(server)
        yield from _second_server(name, how, filled)


def _run_at_rest(
    name: str,
    how: Snapshots,
    filled: StoredDatabase,
) -> Iterator[OperationFacts]:
    """Run while nothing else is written, so that the copy's size is the difference in free space."""
    with filled.serving() as server:
        _add_rows(server)
    free = _free_bytes(filled)
    began = time.monotonic()
    how.snapshot(filled)
    created = end_step(f"{name}: create", began)
    left = _free_bytes(filled)
    yield replace(created, bytes=None if free is None or left is None else free - left)
    with filled.serving() as server:
        _add_later_row(server)
        yield from _second_server(name, how, filled)


def _second_server(
    name: str,
    how: Snapshots,
    filled: StoredDatabase,
) -> Iterator[OperationFacts]:
    with contextlib.ExitStack() as copy:
        began = time.monotonic()
        datadir = copy.enter_context(how.clone(filled))
        if how.atomic:  # a copy of files already exists
            yield end_step(f"{name}: mount", began)
        began = time.monotonic()
        server = copy.enter_context(filled.serving_copy(datadir))
        yield end_step(f"{name}: start a server", began)
        began = time.monotonic()
        text = _must_be_of_before(server, name)
        yield end_step(f"{name}: query", began, text, how.taken_bytes(filled))


def _free_bytes(filled: StoredDatabase) -> int | None:
    """Return the free space, or None if other processes may write to the same filesystem (an
    existing directory).
    """
    if not os.path.ismount(filled.fs.path):
        return None
    filled.sync()
    place = os.statvfs(filled.fs.path)
    return place.f_bfree * place.f_frsize


def _add_rows(server: Server) -> None:
    statements = [
        f"DROP TABLE IF EXISTS {TABLE}",
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, filler VARCHAR(120) NOT NULL)",
        f"INSERT INTO {TABLE} VALUES (0, '{'x' * 120}')",
    ]
    for power in range(DOUBLINGS):
        statements.append(f"INSERT INTO {TABLE} SELECT id + {2**power}, filler FROM {TABLE}")
    execute(server, *statements)


def _add_later_row(server: Server) -> None:
    execute(server, f"INSERT INTO {TABLE} VALUES ({LATER}, 'later')")


def _must_be_of_before(server: Server, what: str) -> str:
    """Query a copy; return the result. Raises FilesystemDamaged if the copy is not from the
    expected moment.
    """
    ((count, first),) = rows(server, f"SELECT COUNT(*), COALESCE(MIN(id), 0) FROM {TABLE}")
    if int(count) != ROWS or int(first) == LATER:
        expected = f"{ROWS} were acknowledged before it, from 0 on"
        raise FilesystemDamaged(f"{what}: {count} rows, the first of id {first}; {expected}")
    return f"{count} rows, all of them acknowledged before"


def base_backup(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """Run one step; its bytes are those of the stream."""
    cache_text = cold(filled)
    with filled.serving() as server:
        engine = ENGINES[server.engine]
        if not isinstance(engine, BacksUp):
            yield impossible("base-backup", _NO_BACKUP.format(server.engine))
            return
        argv = engine.backup(server, filled.room)
        if isinstance(argv, str):
            yield impossible("base-backup", argv)
            return
        began = time.monotonic()
        size = _stream(argv, filled.room, server.env)
        done = end_step("base-backup", began, None, size)
    rate = size / 1e6 / (done.seconds or 1.0)
    text = f"{rate:.0f} MB/s by {Path(argv[0]).name}, streamed and discarded"
    yield replace(done, text=f"{text}; {cache_text}")


def _stream(argv: list[str], room: Path, env: Mapping[str, str]) -> int:
    size = 0
    with tempfile.TemporaryDirectory(dir=room) as folder:
        messages = Path(folder) / "stderr"
        with process.running(argv, stdout=subprocess.PIPE, stderr=messages, env=env) as program:
            assert program.popen.stdout is not None
            while piece := program.popen.stdout.read(_PIECE):
                size += len(piece)
            status = program.popen.wait()
        if status:
            lines = messages.read_text(errors="replace").splitlines()
            text = "\n  ".join(lines[-6:])
            raise OperationFailed(f"{argv[0]} ended with status {status}:\n  {text}")
    return size
