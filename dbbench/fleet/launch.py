"""The scheduler and the workers that the coordinator starts itself, as a SpecCluster of dask: the
scheduler in its own process, workers in processes on this machine or through ssh.

dask's SSHCluster is a SpecCluster too, but it starts its scheduler through ssh, and sends dask's
configuration, of which the private key would be a part, in the command line of a worker, which
every account of the host can read. Here the key goes through ssh's standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distributed.deploy.spec import ProcessInterface, SpecCluster

from dbbench import process
from dbbench.errors import FleetUnreachable, ProgramMissing
from dbbench.fleet import daemons, fleet_files, security
from dbbench.fleet.task import STOP_S
from dbbench.machine import namespaces
from dbbench.remote import ssh
from dbbench.results.fileio import own_file, writing

_GIVE_UP_S: Final = 20  # a worker that has no scheduler for this time ends
_AGAIN_S: Final = 5.0  # between two starts of the same worker
_DBBENCH: Final = (sys.executable, "-m", "dbbench")


@dataclass(frozen=True)
class HostOptions:
    """How hosts are reached: by exactly one of `scheduler`, `ssh` and `local`."""

    scheduler: str | None
    ssh: str | None
    local: int | None
    listen: str | None
    remote: str  # command that runs dbbench on the hosts
    host_results: str
    certs: Path | None


@dataclass(frozen=True)
class Cluster:
    """A scheduler that can be connected to."""

    address: str
    certs: Path | None
    logs: dict[str, Path]  # host -> log of its worker; only of hosts that dbbench starts itself


class HostProcess(ProcessInterface):  # type: ignore[misc]
    """The process of a worker, which is started again when it ends before the cluster."""

    def __init__(
        self,
        scheduler: str,
        name: str,
        argv: tuple[str, ...],
        stdin: bytes,
        log: Path,
    ) -> None:
        """`argv` without the address of the scheduler, which is its last word."""
        super().__init__(scheduler=scheduler, name=name)
        self._argv = (*argv, scheduler)
        self._stdin = stdin
        self._log = log
        self._stack = contextlib.ExitStack()
        self._upkeep: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._upkeep = asyncio.create_task(self._keep_running())
        await super().start()

    async def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
        await asyncio.to_thread(self._stack.close)
        await super().close()

    async def _keep_running(self) -> None:
        while True:
            worker = self._start()
            while worker.poll() is None:
                await asyncio.sleep(1.0)
            self._stack.close()
            await asyncio.sleep(_AGAIN_S)

    def _start(self) -> process.Running:
        # This runs in the thread of dask's event loop, which lives as long as this process, so that
        # the kernel ends a worker on this machine with it.
        env = {**process.kept_environment(), namespaces.PARENT: str(os.getpid())}
        with contextlib.ExitStack() as files:
            files.enter_context(writing(self._log))
            log = own_file(self._log, os.O_WRONLY | os.O_APPEND, 0o644)
            files.callback(os.close, log)
            # The key is in memory only.
            stdin = files.enter_context(os.fdopen(os.memfd_create("stdin"), "w+b"))
            stdin.write(self._stdin)
            stdin.seek(0)
            started = process.running(
                self._argv,
                stdin=stdin,
                stdout=log,
                env=env,
                grace_s=STOP_S,
                own_session=True,
                note=False,
            )
            return self._stack.enter_context(started)


@contextlib.contextmanager
def cluster(options: HostOptions, folder: Path) -> Iterator[Cluster]:
    """Yield the fleet's scheduler; what was started ends with the block. `folder` has the
    coordinator's files. Raises FleetUnreachable, ProgramMissing, FleetInsecure, FileUnreadable.
    """
    # A scheduler that runs already, with certificates that the user made.
    if options.scheduler is not None:
        yield Cluster(security.whole(options.scheduler), options.certs, {})
        return
    with contextlib.ExitStack() as stack:
        # Otherwise a scheduler of this fleet, with certificates that end with it.
        certs = options.certs
        if certs is None:
            certs = security.folder_of_fleet(folder)
            stack.callback(shutil.rmtree, security.make(certs), ignore_errors=True)
        secured = security.of(certs)
        # Workers of this machine need no network; those of ssh reach it by name.
        if options.local is not None:
            listen = "tls://127.0.0.1:0"
            workers = _local_workers(options.local, certs, folder)
        else:
            listen = options.listen or f"tls://{socket.getfqdn()}"
            workers = _ssh_workers(options, certs, folder)
        scheduler = daemons.scheduler_options(listen, secured)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            # dask starts them and ends them; what they print is in their logs.
            started = SpecCluster(
                {name: {"cls": HostProcess, "options": of} for name, of in workers.items()},
                {"cls": daemons.QuietScheduler, "options": scheduler},
                security=secured,
            )
        except RuntimeError as error:
            raise FleetUnreachable(
                f"the scheduler cannot listen on {listen}: {error}", effect="Nothing was started."
            ) from error
        stack.callback(started.close, timeout=STOP_S)
        logs = {name: of["log"] for name, of in workers.items()}
        yield Cluster(started.scheduler_address, certs, logs)


def _local_workers(
    count: int,
    certs: Path,
    folder: Path,
) -> dict[str, dict[str, Any]]:
    """Return the arguments of workers on this machine, each with its own results folder."""
    workers = {}
    for number in range(1, count + 1):
        name = f"local-{number}"
        words = _worker(name, str(folder / fleet_files.HOSTS / name), certs)
        workers[name] = {"argv": (*_DBBENCH, *words), "stdin": b"", "log": folder / f"{name}.log"}
    return workers


def _ssh_workers(
    options: HostOptions,
    certs: Path,
    folder: Path,
) -> dict[str, dict[str, Any]]:
    """Return the arguments of workers that get the certificates by ssh. Raises ProgramMissing,
    FleetInsecure, FileUnreadable.
    """
    if process.find("ssh") is None:
        raise ProgramMissing(
            "ssh is not installed", remedy="Start the workers by hand: dbbench fleet worker ADDRESS"
        )
    workers = {}
    content = b"".join(path.read_bytes() for path in security.files_of(certs))
    for host in filter(None, map(str.strip, (options.ssh or "").split(","))):
        name = security.valid_name(host.rpartition("@")[2])
        words = [*shlex.split(options.remote), *_worker(name, options.host_results, security.STDIN)]
        workers[name] = {
            "argv": tuple(ssh.command(host, words)),
            "stdin": content,
            "log": folder / f"{name}.log",
        }
    return workers


def _worker(name: str, results: str, certs: Path) -> list[str]:
    """Return the words of a worker's command without the address."""
    words = ["fleet", "worker", "--name", name, "--results", results, "--certs", str(certs)]
    return [*words, "--give-up", str(_GIVE_UP_S)]
