"""For workers started by other means: `dask worker ADDRESS --nthreads 1 --preload
dbbench.fleet.preload`. The host's name and results folder are DBBENCH_FLEET_NAME and
DBBENCH_FLEET_RESULTS in the environment, by default the hostname and `results`. It uses more
resources than `dbbench fleet worker`, whose overhead is measured.
"""

from __future__ import annotations

from typing import Any

from dbbench.errors import FleetInsecure
from dbbench.fleet import daemons
from dbbench.fleet.connection import DISK, PLACE
from dbbench.fleet.host import HERE, valid_name


def dask_setup(worker: Any) -> None:
    """Set the host's identity and a limit of one question at a time. dask calls this before the
    worker registers. A worker that does not use TLS is ended: everyone who can connect to it
    could run commands.
    """
    for address in (worker.address, worker.scheduler.address):
        if not address.startswith("tls://"):
            error = FleetInsecure(f"{address} does not use TLS")
            # dask only logs other exceptions
            raise SystemExit(f"{error.id} {error.title}: {error}")
    for resource in (f"{PLACE}{valid_name(HERE.name)}", DISK):
        worker.state.total_resources[resource] = 1.0
        worker.state.available_resources[resource] = 1.0
    HERE.results.mkdir(parents=True, exist_ok=True)
    worker.periodic_callbacks["heartbeat"].callback_time = 1000 * daemons.HEARTBEAT_S
