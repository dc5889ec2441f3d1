"""The scheduler and the workers that the coordinator starts itself: on this machine, or on others
by ssh. Those that die are started again; those of another coordinator are used.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import FleetUnreachable, ProgramMissing
from dbbench.fleet import fleet_files, security
from dbbench.fleet.connection import Connection
from dbbench.machine import namespaces
from dbbench.remote import ssh
from dbbench.results.fileio import own_file, writing

_START_S: Final = 60.0  # time limit for the start of workers
_GIVE_UP_S: Final = 60  # a worker that has no scheduler for this time ends
_AGAIN_S: Final = 5.0  # seconds between two starts of the same process
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
    detach: bool

    @property
    def ends_with_coordinator(self) -> bool:
        return self.local is not None and not self.detach


@dataclass(frozen=True)
class Daemon:
    """A scheduler or worker, which runs as long as the fleet does."""

    name: str
    argv: tuple[str, ...]
    log: Path
    stdin: bytes = field(default=b"", repr=False)


class Upkeep:
    """Starts missing daemons and restarts dead ones. A second one of a name ends by itself: it
    finds a lock or a used port. All end with the block of `stack`, and if `tied`, also when this
    process is killed.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        scheduler: Daemon,
        workers: dict[str, Daemon],
        tied: bool,
        check: Callable[[], None],
    ) -> None:
        self._stack = stack
        self._scheduler = scheduler
        self._workers = workers
        self._check = check
        self._env = {
            **process.kept_environment(),
            **({namespaces.PARENT: str(os.getpid())} if tied else {}),
        }
        self._started: dict[str, tuple[process.Running, float]] = {}

    def __call__(self, connection: Connection) -> None:
        self._check()
        hosts = connection.hosts()
        if not hosts:
            self._start(self._scheduler)
        for host in self._workers.keys() - hosts.keys():
            self._start(self._workers[host])

    def end(self) -> None:
        """Ask all to end at once; the end of the block waits for each."""
        for running, _ in self._started.values():
            if running.poll() is None:
                running.popen.terminate()

    def _start(self, daemon: Daemon) -> None:
        if daemon.name in self._started:
            running, since = self._started[daemon.name]
            if running.poll() is None or time.monotonic() - since < _AGAIN_S:
                return
        with (
            writing(daemon.log),
            os.fdopen(own_file(daemon.log, os.O_WRONLY | os.O_APPEND, 0o644), "ab") as log,
            os.fdopen(os.memfd_create("stdin"), "w+b") as stdin,  # keys are in memory only
        ):
            stdin.write(daemon.stdin)
            stdin.seek(0)
            running = self._stack.enter_context(
                process.running(
                    daemon.argv,
                    stdin=stdin,
                    stdout=log.fileno(),
                    env=self._env,
                    own_session=True,
                    note=False,
                )
            )
        self._started[daemon.name] = running, time.monotonic()


@contextlib.contextmanager
def connect(
    options: HostOptions, folder: Path, before: str | None, check: Callable[[], None]
) -> Iterator[tuple[Connection, list[str], str]]:
    """Yield the connection, the hosts that dbbench starts itself, and their scheduler's address;
    what was started ends with the block. `folder` has the coordinator's files, `before` is the
    address of an earlier scheduler (None: the fleet is new). `check` is called regularly, and
    may end the block by an error. Raises FleetUnreachable.
    """
    if options.scheduler is not None:
        connection = Connection(options.scheduler, options.certs, lambda _: check())
        connection.connect()  # reports an unreachable scheduler at once
        with contextlib.closing(connection):
            yield connection, [], ""
        return
    with contextlib.ExitStack() as stack:
        certs = options.certs
        if certs is None:
            certs = security.folder_of_fleet(folder)
            stack.callback(shutil.rmtree, security.make(certs), ignore_errors=True)
        security.files_of(certs)  # reports missing certificates before anything starts
        if options.local is not None:
            address = before if before and security.is_loopback(before) else free_address()
            workers = local_workers(options.local, address, certs, folder)
        else:
            listen = security.whole(options.listen or f"tls://{socket.getfqdn()}")
            address = before or listen
            workers = ssh_workers(options, address, certs, folder)
        argv = (*_DBBENCH, "fleet", "scheduler", "--listen", address, "--certs", str(certs))
        scheduler = Daemon("scheduler", argv, folder / "scheduler.log")
        upkeep = Upkeep(stack, scheduler, workers, options.ends_with_coordinator, check)
        connection = Connection(address, certs, upkeep)
        stack.callback(upkeep.end)
        stack.callback(connection.close)
        missing = set(workers) - connection.wait_for_hosts(
            lambda hosts: hosts >= set(workers), _START_S
        )
        if missing and before is None:
            raise FleetUnreachable(
                f"no worker started on {', '.join(sorted(missing))}",
                effect="Nothing was started.",
                remedy=f"See {', '.join(str(workers[name].log) for name in sorted(missing))}.",
            )
        yield connection, sorted(workers), address


def local_workers(count: int, address: str, certs: Path, folder: Path) -> dict[str, Daemon]:
    """Return workers on this machine, each a host with its own results folder."""
    workers = {}
    for name in (f"local-{number}" for number in range(1, count + 1)):
        words = _worker(address, name, str(folder / fleet_files.HOSTS / name), certs)
        workers[name] = Daemon(name, (*_DBBENCH, *words), folder / f"{name}.log")
    return workers


def ssh_workers(options: HostOptions, address: str, certs: Path, folder: Path) -> dict[str, Daemon]:
    """Return workers that get the certificates by ssh. Raises ProgramMissing, FleetInsecure,
    FileUnreadable.
    """
    if process.find("ssh") is None:
        raise ProgramMissing(
            "ssh is not installed", remedy="Start the workers by hand: dbbench fleet worker ADDRESS"
        )
    workers = {}
    content = b"".join(path.read_bytes() for path in security.files_of(certs))
    for host in filter(None, map(str.strip, (options.ssh or "").split(","))):
        name = host.rpartition("@")[2]
        words = [
            *shlex.split(options.remote),
            *_worker(address, name, options.host_results, security.STDIN),
        ]
        workers[name] = Daemon(
            name, tuple(ssh.command(host, words)), folder / f"{name}.log", content
        )
    return workers


def _worker(address: str, name: str, results: str, certs: Path) -> list[str]:
    return [
        "fleet",
        "worker",
        address,
        "--name",
        name,
        "--results",
        results,
        "--give-up",
        str(_GIVE_UP_S),
        "--certs",
        str(certs),
    ]


def free_address() -> str:
    """Return a loopback address with a free port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tls://127.0.0.1:{probe.getsockname()[1]}"
