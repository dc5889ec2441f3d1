"""Load generators. A driver is a module that satisfies `port.Driver`; it is registered here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.clock import Clock
from dbbench.drivers import apply, beside, bonnie, copy, fio, pgbench, scan, smallfiles, statements, sysbench
from dbbench.drivers.port import Driver, Load
from dbbench.engines.port import Server
from dbbench.model import Cell

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


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """The load of a cell, with the statement that its workload wants beside it. See the port."""
    with DRIVERS[cell.workload.driver].driving(server, cell, seed, clock, raw, scratch) as load:
        if not cell.workload.during:
            yield load
            return
        with beside.beside(load, server, cell, clock, raw) as both:
            yield both
