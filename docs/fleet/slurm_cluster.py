"""dask-jobqueue: a worker on each of eight nodes of a Slurm cluster, and the fleet's scheduler
here.

What a host runs ends with its job: ask for a time in which its blocks are done. Run it, then
in another terminal:

    dbbench fleet run plan.toml --scheduler tls://coordinator.lan:8786 --spread --hosts 8
"""

import signal

from dask_jobqueue import SLURMCluster

from dbbench.fleet import security

NODES = 8

if __name__ == "__main__":
    cluster = SLURMCluster(
        queue="bench",
        cores=1,  # a worker processes one request at a time
        processes=1,
        nanny=False,  # the worker itself starts the trials, and they end with it
        local_directory="/run/dbbench-dask",  # below /tmp, other accounts could plant links
        memory="2GB",
        walltime="12:00:00",
        job_extra_directives=["--exclusive"],  # no other job runs on the node while it measures
        worker_extra_args=["--preload", "dbbench.fleet.preload"],
        job_script_prologue=["export DBBENCH_FLEET_RESULTS=/var/lib/dbbench"],
        scheduler_options={"port": 8786, "dashboard": False},
        protocol="tls",
        security=security.of(security.make(None)),  # in a home directory that the nodes share
    )
    cluster.scale(jobs=NODES)
    print(f"{cluster.scheduler_address}: {NODES} nodes asked for")
    signal.pause()
