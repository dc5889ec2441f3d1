"""dask's own SSHCluster as the scheduler of a fleet (needs asyncssh).

Each worker is called by its machine's hostname. Run it, then in another terminal:

    dbbench fleet run plan.toml --scheduler tls://coordinator.lan:8786 --spread --hosts 2

What it starts gets its certificates by dask's configuration, so they lie in the same folder on
all machines.
"""

import signal

import dask
from distributed import SSHCluster

HOSTS = ["db1.lan", "db2.lan"]
SCHEDULER = "coordinator.lan"
CONNECT = {"username": "root"}  # arguments of asyncssh.connect
CERTS = "/root/.config/dbbench/fleet"  # of `dbbench fleet scheduler`, which prints how to copy it

if __name__ == "__main__":
    roles = ("scheduler", "worker", "client")
    comm: dict[str, object] = {
        "default-scheme": "tls",
        "require-encryption": True,
        "tls.ca-file": f"{CERTS}/ca.pem",
    }
    comm["tls.min-version"] = 1.3
    comm |= {f"tls.{role}.cert": f"{CERTS}/host.pem" for role in roles}
    comm |= {f"tls.{role}.key": f"{CERTS}/host.key" for role in roles}
    dask.config.set({f"distributed.comm.{key}": value for key, value in comm.items()})
    # Below /tmp, other accounts could plant links where dask writes as root.
    dask.config.set({"temporary-directory": "/run/dbbench-dask"})
    cluster = SSHCluster(
        [SCHEDULER, *HOSTS],
        connect_options=CONNECT,
        worker_options={"nthreads": 1, "preload": "dbbench.fleet.preload"},
        worker_class="distributed.Worker",  # it starts the trials, and they end with it
        scheduler_options={"port": 8786, "dashboard": False},
    )
    print(f"{cluster.scheduler_address}: {len(HOSTS)} hosts")
    signal.pause()
