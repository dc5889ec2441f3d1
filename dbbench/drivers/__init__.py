"""Load generators, one module per tool. A driver satisfies `protocol.Driver`; it is registered
here.
"""

from __future__ import annotations

from typing import Final

from dbbench.drivers import (
    apply,
    bonnie,
    filework_load,
    fio,
    insert,
    pgbench,
    scan,
    statements,
    sysbench,
)
from dbbench.drivers.protocol import Away, Driver
from dbbench.model import Cell

DRIVERS: Final[dict[str, Driver]] = {
    "apply": apply,
    "bonnie": bonnie,
    "copy": filework_load.COPY,
    "fio": fio,
    "insert": insert,
    "pgbench": pgbench,
    "scan": scan,
    "smallfiles": filework_load.SMALLFILES,
    "statements": statements,
    "sysbench": sysbench,
}
# Drivers whose programs `doctor` must find. Others are dbbench's own, or come with the server.
PROGRAMS: Final = {
    "bonnie": "bonnie++",
    "fio": "fio",
    "insert": "sysbench",
    "sysbench": "sysbench",
}
# drivers that can run on another host
AWAY: Final[dict[str, Away]] = {
    "pgbench": pgbench,
    "sysbench": sysbench,
}


def sessions_of(cell: Cell) -> int | None:
    """Return the most sessions that a load's programs open; None: a user's own script may open any
    number.
    """
    clients = int({**cell.dataset.parameters, **cell.parameters}.get("clients", 1))
    if cell.workload.driver == "sysbench" and not sysbench.one_session_each(cell):
        return None
    return {
        "pgbench": clients + 1,  # the additional one reads the scale, then ends
        "sysbench": clients,
        "insert": clients,
        "apply": 1,  # the client that applies binary logs
    }.get(cell.workload.driver, 0)
