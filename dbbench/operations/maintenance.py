"""Operations on the whole filesystem: `fsck`; `grow` by another device; `repair`, with the
filesystem's tool and then with the engine; `scan` of every table, then of every table of a
clone, from a cold cache and in one session.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from dbbench import process
from dbbench.engines import sql_of
from dbbench.engines.port import Server
from dbbench.engines.sql import execute
from dbbench.metrics.summary import SCAN_OF_CLONE, SCAN_OF_DATA
from dbbench.model import OperationFacts
from dbbench.operations.steps import StoredDatabase, cold, end_step, impossible, time_step
from dbbench.storage import filesystems
from dbbench.storage.filesystems import volumes
from dbbench.storage.filesystems.common import extents_of
from dbbench.units import size_text

_TOOL_S: Final = 6 * 3600.0


def fsck(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """One step per check: e2fsck -fn, xfs_repair -n, btrfs scrub and check, zpool scrub. Raises
    FilesystemDamaged.
    """
    checks = filesystems.family_of(filled.setup).checks
    if not checks:
        yield impossible("fsck", f"dbbench knows no check for {filled.fs.family}")
        return
    for check in checks:
        name = f"fsck: {check.name}"
        work = partial(check.run, filled)
        if check.mounted:
            yield time_step(name, work)
        else:
            with volumes.formatted_of(filled.setup).unmount_for(filled):
                yield time_step(name, work)


def grow(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """Run two steps; the text then states how much larger the filesystem is."""
    able = volumes.growing_of(filled.setup)
    spare = filled.volume.spare
    if able is None:
        text = f"{filled.fs.family} cannot take another device, and neither can a layer below it"
        yield impossible("grow", text)
        return
    if spare is None:
        yield impossible("grow", "the plan has no device beyond those that the fs setup uses")
        return
    before = shutil.disk_usage(filled.fs.path).total
    yield time_step("grow: add device", lambda: able.add(filled, spare))
    began = time.monotonic()
    text = able.rebalance(filled)
    done = end_step("grow: rebalance", began)
    larger = shutil.disk_usage(filled.fs.path).total - before
    yield replace(done, text=f"{text}; {size_text(larger)} larger")


def repair(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """Run `of_filesystem`, then `of_engine`."""
    yield of_filesystem(filled)
    yield of_engine(filled)


def of_filesystem(filled: StoredDatabase) -> OperationFacts:
    """Defragment the data files with the family's tool; the text has the number of extents before
    and after.
    """
    family = filesystems.family_in(filled.fs)
    files = filled.files
    argvs = family.defragmenting(filled.datadir, files)
    if argvs is None:
        return impossible("repair: filesystem", f"{family.name} has no tool that defragments files")
    if not files:
        return impossible("repair: filesystem", "it contains no data files")
    before = extents_of(files)
    filled.sync()
    began = time.monotonic()
    for argv in argvs:
        process.run(argv, timeout_s=_TOOL_S, ok=family.defragmented)
    filled.sync()
    done = end_step("repair: filesystem", began)
    words = " ".join(word for word in argvs[0] if not word.startswith("/"))
    return replace(done, text=f"{words}: {before} extents before, {extents_of(files)} after")


def of_engine(filled: StoredDatabase) -> OperationFacts:
    """Rewrite every table with the server, until it is on the device."""
    before = extents_of(filled.files)
    with filled.serving() as server:
        sql = sql_of(server)
        with contextlib.closing(server.connect()) as connection:
            verb = sql.rewriting
            tables = [sql.quote(table.name) for table in sql.tables(connection)]
        began = time.monotonic()
        execute(server, *(f"{verb} {table}" for table in tables))
        server.checkpoint()
        filled.sync()
        done = end_step("repair: engine", began)
    after = extents_of(filled.files)
    text = f"{verb} of {len(tables)} tables: {before} extents before, {after} after"
    return replace(done, text=text)


def read_tables(name: str, server: Server, cache_text: str) -> OperationFacts:
    """Read every table of the server once; `cache_text`: what happened to the cache before."""
    sql = sql_of(server)
    with contextlib.closing(server.connect()) as connection:
        tables = sql.tables(connection)
        began = time.monotonic()
        for table in tables:
            sql.scan_plan(connection, sql.scan(connection, table.name))
        done = end_step(name, began, None, sum(table.size_bytes for table in tables))
    rate = (done.bytes or 0) / 1e6 / (done.seconds or 1.0)
    return replace(done, text=f"{len(tables)} tables, {rate:.0f} MB/s, {cache_text}")


def scan(
    filled: StoredDatabase, read: Callable[[str, Server, str], OperationFacts] = read_tables
) -> Iterator[OperationFacts]:
    """Run two steps, whose bytes are those of the tables that `read` reads."""
    cache_text = cold(filled)
    with filled.serving() as server:
        yield read(SCAN_OF_DATA, server, cache_text)
    how = volumes.snapshots_of(filled.setup)
    if how is None:
        yield impossible(SCAN_OF_CLONE, filled.no_snapshots)
        return
    obstacle = filled.obstacle(how)
    if obstacle:
        yield impossible(SCAN_OF_CLONE, obstacle)
        return
    try:
        how.snapshot(filled)
        cache_text = cold(filled)
        with how.clone(filled) as datadir, filled.serving_copy(datadir) as server:
            yield read(SCAN_OF_CLONE, server, cache_text)
    finally:
        how.drop(filled)
