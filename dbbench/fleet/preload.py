"""For workers started by other means: `dask worker ADDRESS --nthreads 1 --no-nanny --preload
dbbench.fleet.preload --local-directory DIR`. The host's name and results folder are
DBBENCH_FLEET_NAME and DBBENCH_FLEET_RESULTS in the environment, by default the hostname and
`results`. DIR must belong to the worker's user only.
"""

from __future__ import annotations

from typing import Any

from dbbench.errors import FleetInsecure
from dbbench.fleet import daemons, security
from dbbench.fleet.task import HERE


def dask_setup(worker: Any) -> None:
    """Give the worker the resources of its host. dask calls this before the worker registers. A
    worker that does not use TLS is ended: everyone who can connect to it could run commands.
    """
    for address in (worker.address, worker.scheduler.address):
        if not address.startswith("tls://"):
            error = FleetInsecure(f"{address} does not use TLS")
            # dask only logs other exceptions
            raise SystemExit(f"{error.id} {error.title}: {error}")
    for resource, quantity in daemons.resources(security.valid_name(HERE.name)).items():
        worker.state.total_resources[resource] = quantity
        worker.state.available_resources[resource] = quantity
    HERE.results.mkdir(parents=True, exist_ok=True)
