"""Worker and scheduler of dask.distributed, configured without dashboards and with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import select
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import dask

from dbbench.fleet import here, security
from dbbench.fleet.connection import DISK, PLACE
from dbbench.fleet.host import HERE
from dbbench.machine import threads

# Background work of a Dask worker: with the defaults it wakes 50 times per second and uses 1.6 % of
# a core.
QUIET: Final[dict[str, Any]] = {
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
    "distributed.worker.daemon": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.allowed-failures": 0,  # the coordinator repeats lost questions itself
    "distributed.diagnostics.nvml": False,
    "distributed.comm.retry.count": 0,
    "logging": {"distributed": "warning"},
}
dask.config.set(QUIET)

import distributed  # noqa: E402  (some of it is read when it is imported)

HEARTBEAT_S: Final = 5.0
_AGAIN_S: Final = 2.0  # a scheduler that died is restarted by the process that started it
_STEP_S: Final = 0.5
_leave = threading.Event()  # the daemon is to end


class _Quiet:
    """A daemon without the web server: only the requested address is opened."""

    def start_http_server(self, *_args: Any, **_kwargs: Any) -> None:
        self.http_server = None


class Worker(_Quiet, distributed.Worker):  # type: ignore[misc]
    """A worker that answers one question at a time, with a heartbeat every few seconds."""

    async def heartbeat(self) -> None:
        await super().heartbeat()
        self.periodic_callbacks["heartbeat"].callback_time = 1000 * HEARTBEAT_S

    async def find_missing(self) -> None:
        """Do nothing: workers do not depend on each other's data."""


class Scheduler(_Quiet, distributed.Scheduler):  # type: ignore[misc]
    """A scheduler that serves questions only."""


def work(
    address: str, name: str, results: Path, certs: Path | None, give_up_s: float | None
) -> None:
    """Answer questions on this host until SIGINT or SIGTERM, or the end of its ssh. Without a
    scheduler, wait for one for `give_up_s` seconds (None: forever). Raises FleetInsecure;
    RunLocked for a used results folder.
    """
    address = security.whole(address)
    secured = security.of(certs)
    HERE.name = name
    HERE.results = results.resolve()
    if certs == security.STDIN:
        threads.Helper("ssh", _leave_with_ssh).start()
    with here.worker_of(HERE.results) as scratch:
        heard = time.monotonic()
        while not _leave.is_set() and (give_up_s is None or time.monotonic() - heard < give_up_s):
            if asyncio.run(_serve(address, name, secured, scratch)):
                heard = time.monotonic()
            if not _leave.is_set():
                time.sleep(_AGAIN_S)


def _leave_with_ssh() -> None:
    """Leave when the other end of standard output is closed: ssh has ended, and with it the right
    to the key.
    """
    ends = select.poll()
    ends.register(sys.stdout, 0)  # reports POLLERR and POLLHUP only
    ends.poll()
    _leave.set()


async def _serve(address: str, name: str, secured: Any, scratch: Path) -> bool:
    """Run the worker once; return whether it reached a scheduler."""
    worker = Worker(
        address,
        nthreads=1,
        name=name,
        resources={f"{PLACE}{name}": 1, DISK: 1},
        security=secured,
        local_directory=str(scratch),
        memory_limit=0,
        dashboard=False,
        death_timeout=10,
        validate=False,
        heartbeat_interval=f"{HEARTBEAT_S}s",
        host="127.0.0.1" if security.is_loopback(address) else None,
    )
    _leave_at_signals()
    try:
        await worker
        while (
            worker.status not in (distributed.Status.closed, distributed.Status.failed)
            and not _leave.is_set()
        ):
            await asyncio.sleep(_STEP_S)
        return True
    except (OSError, TimeoutError, ValueError, RuntimeError):
        return False
    finally:
        with contextlib.suppress(Exception):  # the worker ends, whether it closes cleanly or not
            await worker.close(timeout=2)
        shutil.rmtree(scratch, ignore_errors=True)


def schedule(address: str, certs: Path | None) -> None:
    """Run a scheduler on `address` until SIGINT or SIGTERM. Raises FleetInsecure, or OSError if the
    port is in use.
    """
    host, port = security.parts(address)
    asyncio.run(_schedule(host, port, security.of(certs)))


async def _schedule(host: str, port: int, secured: Any) -> None:
    _leave_at_signals()
    scheduler = Scheduler(
        host=host, port=port, protocol=security.PROTOCOL, security=secured, dashboard=False
    )
    await scheduler
    try:
        while scheduler.status == distributed.Status.running and not _leave.is_set():
            await asyncio.sleep(_STEP_S)
    finally:
        await scheduler.close()


def _leave_at_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _leave.set)
