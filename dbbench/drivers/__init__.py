"""Load generators. A driver is a module that satisfies `port.Driver`; it is registered here."""

from __future__ import annotations

from typing import Final

from dbbench.drivers import pgbench, scan, sysbench
from dbbench.drivers.port import Driver

DRIVERS: Final[dict[str, Driver]] = {"pgbench": pgbench, "scan": scan, "sysbench": sysbench}
