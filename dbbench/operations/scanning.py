"""Operation `scan`: read every table of the filled filesystem from a cold cache, then every table of a clone of it.

The server reads one table after the other in one session. The clone is a snapshot of the stopped data, taken by the
filesystem or a layer below it; a filesystem without snapshots has only the first step.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from dbbench.engines import sql_of
from dbbench.engines.port import Server
from dbbench.metrics.summary import SCAN_OF_CLONE, SCAN_OF_DATA
from dbbench.model import OperationFacts
from dbbench.operations.steps import Filled, cold, ended, impossible
from dbbench.storage import filesystems


def scan(filled: Filled) -> Iterator[OperationFacts]:
    """Run two steps, whose bytes are those of the tables."""
    said = cold(filled)
    with filled.serving(filled.datadir) as server:
        yield _read(SCAN_OF_DATA, server, said)
    how = filesystems.snapshots_of(filled.setup)
    if how is None:
        yield impossible(SCAN_OF_CLONE, filled.no_snapshots)
        return
    if why := filled.obstacle(how):
        yield impossible(SCAN_OF_CLONE, why)
        return
    try:
        how.snapshot(filled)
        said = cold(filled)
        with how.clone(filled) as datadir, filled.serving_copy(datadir) as server:
            yield _read(SCAN_OF_CLONE, server, said)
    finally:
        how.drop(filled)


def _read(name: str, server: Server, said: str) -> OperationFacts:
    """Read all tables to their end; return the step with their bytes and the rate."""
    sql = sql_of(server)
    with contextlib.closing(server.connect()) as connection:
        tables, began = sql.tables(connection), time.monotonic()
        for table in tables:
            sql.scanned(connection, sql.scan(connection, table.name))
        done = ended(name, began, None, sum(table.size_bytes for table in tables))
    rate = (done.bytes or 0) / 1e6 / (done.seconds or 1.0)
    return replace(done, text=f"{len(tables)} tables, {rate:.0f} MB/s, {said}")
