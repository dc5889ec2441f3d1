"""Load generators. A driver is a module that satisfies `port.Driver`; it is registered here."""

from __future__ import annotations

from typing import Final

from dbbench.drivers import apply, bonnie, copy, fio, pgbench, scan, smallfiles, sysbench
from dbbench.drivers.port import Driver

DRIVERS: Final[dict[str, Driver]] = {
    "apply": apply,
    "bonnie": bonnie,
    "copy": copy,
    "fio": fio,
    "pgbench": pgbench,
    "scan": scan,
    "smallfiles": smallfiles,
    "sysbench": sysbench,
}
