"""For workers that somebody else starts: `dask worker ADDRESS --nthreads 1 --preload dbbench.fleet.preload`.

The host's name and results folder are DBBENCH_FLEET_NAME and DBBENCH_FLEET_RESULTS of its environment, by default the
hostname and `results`. It is less quiet than `dbbench fleet worker`, which is the one that is measured.
"""

from __future__ import annotations

from typing import Any

from dbbench.fleet import daemons
from dbbench.fleet.engine import DISK, PLACE
from dbbench.fleet.host import HERE, named


def dask_setup(worker: Any) -> None:
    """Called by dask before the worker registers: its place, and one question at a time."""
    for resource in (f"{PLACE}{named(HERE.name)}", DISK):
        worker.state.total_resources[resource] = 1.0
        worker.state.available_resources[resource] = 1.0
    HERE.results.mkdir(parents=True, exist_ok=True)
    worker.periodic_callbacks["heartbeat"].callback_time = 1000 * daemons.HEARTBEAT_S
