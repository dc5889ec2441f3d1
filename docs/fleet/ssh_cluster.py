"""dask's own SSHCluster as the scheduler of a fleet (needs asyncssh).

Each worker is called by its machine's hostname. Run it, then in another terminal:

    dbbench fleet run plan.toml --scheduler tls://coordinator.lan:8786 --spread --hosts 2
"""

import signal

from distributed import SSHCluster

from dbbench.fleet import security

HOSTS = ["db1.lan", "db2.lan"]
SCHEDULER = "coordinator.lan"

if __name__ == "__main__":
    cluster = SSHCluster(
        [SCHEDULER, *HOSTS],
        connect_options={"username": "root"},
        worker_options={"nthreads": 1, "preload": "dbbench.fleet.preload"},
        scheduler_options={"port": 8786, "dashboard": False},
        security=security.of(f"tls://{SCHEDULER}:8786", None),
    )
    print(f"{cluster.scheduler_address}: {len(HOSTS)} hosts")
    signal.pause()
