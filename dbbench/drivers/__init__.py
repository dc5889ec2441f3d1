"""Load generators. A driver is a module that satisfies `port.Driver`; it is registered here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.clock import Clock
from dbbench.drivers import apply, beside, bonnie, copy, fio, pgbench, scan, smallfiles, statements, sysbench
from dbbench.drivers.port import Away, Driver, Load
from dbbench.engines.port import Server
from dbbench.model import Cell
from dbbench.remote import Client

DRIVERS: Final[dict[str, Driver]] = {
    "apply": apply,
    "bonnie": bonnie,
    "copy": copy,
    "fio": fio,
    "pgbench": pgbench,
    "scan": scan,
    "smallfiles": smallfiles,
    "statements": statements,
    "sysbench": sysbench,
}


AWAY: Final[dict[str, Away]] = {"pgbench": pgbench, "sysbench": sysbench}  # can run on another host


@contextlib.contextmanager
def driving(
    server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path, client: Client | None = None
) -> Iterator[Load]:
    """The load of a cell, from the client's host where there is one, with the statement that its workload wants beside
    it. See the port."""
    with _started(server, cell, seed, clock, raw, scratch, client) as load:
        if not cell.workload.during:
            yield load
            return
        with beside.beside(load, server, cell, clock, raw) as both:
            yield both


def _started(
    server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path, client: Client | None
) -> contextlib.AbstractContextManager[Load]:
    if client is not None:
        return AWAY[cell.workload.driver].driving_from(client, server, cell, seed, clock, raw, scratch)
    return DRIVERS[cell.workload.driver].driving(server, cell, seed, clock, raw, scratch)
