"""Worker and scheduler of dask.distributed, configured without web pages and with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import dask

from dbbench import __version__
from dbbench.errors import DbbenchError, RunLocked
from dbbench.fleet import security
from dbbench.machine import namespaces, threads
from dbbench.model import Json
from dbbench.results.fileio import exclusive

# The background work of dask: with the defaults a worker wakes 50 times per second and uses 1.6 %
# of a core. dask's files are in a directory of this user only: below /tmp, other accounts could
# plant links where dask writes.
QUIET: Final[Json] = {
    "temporary-directory": str(namespaces.private_folder() / "dask"),
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.tick.cycle": "60s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.work-stealing-interval": "5s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.diagnostics.nvml": False,
    "logging": {"distributed": "error"},
}
dask.config.set(QUIET)

import distributed  # noqa: E402  (some of it is read when it is imported)

from dbbench.fleet.task import HERE, STOP_S  # noqa: E402

PLACE: Final = "host_"  # resource of the worker of one host
VERSION: Final = f"dbbench-{__version__}"  # resource of a worker with this version of dbbench
LOCK: Final = ".fleet-worker.lock"
HEARTBEAT_S: Final = 5.0
_AGAIN_S: Final = 2.0  # between two attempts to reach a scheduler
_STEP_S: Final = 0.5
_leave = threading.Event()  # the daemon is to end


class _Quiet:
    """A daemon without the web server: only the requested address is opened."""

    def start_http_server(self, *_args: Any, **_kwargs: Any) -> None:
        self.http_server = None


class Worker(_Quiet, distributed.Worker):  # type: ignore[misc]
    """A worker that runs one part at a time, with a heartbeat every few seconds."""

    async def heartbeat(self) -> None:
        await super().heartbeat()
        self.periodic_callbacks["heartbeat"].callback_time = 1000 * HEARTBEAT_S

    async def find_missing(self) -> None:
        """Do nothing: parts do not depend on each other's data."""


class QuietScheduler(_Quiet, distributed.Scheduler):  # type: ignore[misc]
    """A scheduler that serves tasks only."""


def resources(name: str) -> dict[str, float]:
    """Return the resources of the worker of a host."""
    return {f"{PLACE}{name}": 1.0, VERSION: 1.0}


def work(
    address: str,
    name: str,
    results: Path,
    certs: Path | None,
    give_up_s: float | None,
) -> None:
    """Run parts on this host until SIGINT or SIGTERM, or the end of its ssh. Without a scheduler,
    wait for one for `give_up_s` seconds (None: forever). Raises FleetInsecure; RunLocked for a
    used results folder.
    """
    address = security.whole(address)
    make = partial(
        Worker,
        address,
        nthreads=1,
        name=name,
        resources=resources(name),
        security=security.of(certs),
        memory_limit=0,
        death_timeout=10,
        heartbeat_interval=f"{HEARTBEAT_S}s",
        host="127.0.0.1" if security.is_loopback(address) else None,
    )
    HERE.name = name
    HERE.results = results.resolve()
    HERE.results.mkdir(parents=True, exist_ok=True)
    if certs == security.STDIN:
        threads.Helper("ssh", _leave_with_ssh).start()
    with exclusive(HERE.results / LOCK, _in_use):
        heard = time.monotonic()
        while not _leave.is_set() and (give_up_s is None or time.monotonic() - heard < give_up_s):
            # Closing it waits for the task, which stops its trial.
            with contextlib.suppress(OSError, TimeoutError, ValueError, RuntimeError):
                asyncio.run(_serve(make, timeout=STOP_S))
                heard = time.monotonic()
            _leave.wait(_AGAIN_S)


def _in_use(pid: str) -> DbbenchError:
    return RunLocked(
        f"{HERE.results} is used by another fleet worker: process {pid}",
        remedy="Name another folder: --results DIR.",
    )


def _leave_with_ssh() -> None:
    """Leave when the other end of standard output is closed: ssh has ended, and with it the right
    to the key.
    """
    ends = select.poll()
    ends.register(sys.stdout, 0)  # reports POLLERR and POLLHUP only
    ends.poll()
    _leave.set()


def schedule(address: str, certs: Path | None) -> None:
    """Run a scheduler on `address` until SIGINT or SIGTERM. Raises FleetInsecure, or OSError if the
    port is in use.
    """
    options = scheduler_options(address, security.of(certs))
    asyncio.run(_serve(partial(QuietScheduler, **options)))


def scheduler_options(address: str, secured: Any) -> Json:
    """Return the arguments of a scheduler that listens on `address`. Raises FleetInsecure."""
    host, port = security.parts(address)
    return {
        "host": host,
        "port": port,
        "protocol": security.PROTOCOL,
        "security": secured,
        "dashboard": False,
    }


async def _serve(make: Callable[[], Any], **closing: float) -> None:
    """Run a server of dask until it or this process ends. Raises what keeps it from starting."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _leave.set)
    server = make()
    try:
        await server
        while server.status == distributed.Status.running and not _leave.is_set():
            await asyncio.sleep(_STEP_S)
    finally:
        # It ends, whether it closes cleanly or not.
        with contextlib.suppress(Exception):
            await server.close(**closing)
