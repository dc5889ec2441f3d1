"""Workers and a scheduler that the coordinator starts itself: on this machine, or on others by ssh.

Those that die are restarted; those of another coordinator are used.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import ProgramMissing
from dbbench.fleet import ledger, security
from dbbench.fleet.transport import Transport
from dbbench.machine import namespaces
from dbbench.results.fileio import own_file, writing

GIVE_UP_S: Final = 60.0  # a worker that has no scheduler for this time ends
_AGAIN_S: Final = 5.0  # seconds between two starts of the same process
DBBENCH: Final = (sys.executable, "-m", "dbbench")


@dataclass(frozen=True)
class FleetProgram:
    """A daemon that runs as long as the fleet does."""

    name: str
    argv: tuple[str, ...]
    log: Path
    stdin: bytes = field(default=b"", repr=False)


class Upkeep:
    """Starts missing daemons and restarts dead ones. A second instance ends by itself: it finds a lock or a
    used port."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        scheduler: FleetProgram,
        workers: Mapping[str, FleetProgram],
        tied: bool = False,
    ) -> None:
        """`tied`: kill them when this process is killed."""
        self._stack, self._scheduler, self._workers = stack, scheduler, workers
        self._env = {**process.kept_environment(), **({namespaces.PARENT: str(os.getpid())} if tied else {})}
        self._running: dict[str, process.Running] = {}
        self._started: dict[str, float] = {}

    def __call__(self, engine: Transport) -> None:
        there = engine.hosts()
        if not there:
            self._see(self._scheduler)
        for host, program in self._workers.items():
            if host not in there:
                self._see(program)

    def _see(self, program: FleetProgram) -> None:
        running = self._running.get(program.name)
        if running is not None and running.poll() is None:
            return
        now = time.monotonic()
        if now - self._started.get(program.name, -_AGAIN_S) < _AGAIN_S:
            return
        self._started[program.name] = now
        with (
            writing(program.log),
            os.fdopen(own_file(program.log, os.O_WRONLY | os.O_APPEND, 0o644), "ab") as log,
            os.fdopen(os.memfd_create("stdin"), "w+b") as stdin,  # keys are in memory only
        ):
            stdin.write(program.stdin)
            stdin.seek(0)
            self._running[program.name] = self._stack.enter_context(
                process.running(program.argv, stdin=stdin, stdout=log.fileno(), env=self._env, own_session=True,
                                note=False)
            )  # fmt: skip


def scheduler(address: str, certs: Path, folder: Path) -> FleetProgram:
    """Return the scheduler at `address`."""
    argv = (*DBBENCH, "fleet", "scheduler", "--listen", address, "--certs", str(certs))
    return FleetProgram("scheduler", argv, folder / "scheduler.log")


def local(address: str, reach: Reach, certs: Path, folder: Path) -> dict[str, FleetProgram]:
    """Return workers on this machine, each a host with its own results folder."""
    workers = {}
    for name in (f"local-{number}" for number in range(1, (reach.local or 0) + 1)):
        words = _worker(address, name, str(folder / ledger.HOSTS / name), certs)
        workers[name] = FleetProgram(name, (*DBBENCH, *words), folder / f"{name}.log")
    return workers


@dataclass(frozen=True)
class Reach:
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
    def ends(self) -> bool:
        """Whether hosts on this machine end with this command."""
        return self.local is not None and not self.detach


def by_ssh(address: str, reach: Reach, certs: Path, folder: Path) -> dict[str, FleetProgram]:
    """Return workers on other machines, which get the certificates through ssh. Raises ProgramMissing without ssh,
    FleetInsecure, FileUnreadable."""
    if process.find("ssh") is None:
        raise ProgramMissing("ssh is not installed", remedy="Start the workers by hand: dbbench fleet worker ADDRESS")
    workers, content = {}, b"".join(path.read_bytes() for path in security.files_of(certs))
    for host in filter(None, map(str.strip, (reach.ssh or "").split(","))):
        name = host.rpartition("@")[2]
        words = [*shlex.split(reach.remote), *_worker(address, name, reach.host_results, security.STDIN)]
        argv = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", host, shlex.join(words))
        workers[name] = FleetProgram(name, argv, folder / f"{name}.log", content)
    return workers


def _worker(address: str, name: str, results: str, certs: Path) -> list[str]:
    return ["fleet", "worker", address, "--name", name, "--results", results, "--give-up", f"{GIVE_UP_S:.0f}",
            "--certs", str(certs)]  # fmt: skip


def free_address() -> str:
    """Return a loopback address with a free port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tls://127.0.0.1:{probe.getsockname()[1]}"


def own_address() -> str:
    """Return the address at which hosts reach a scheduler on this machine."""
    return security.whole(f"tls://{socket.getfqdn()}")


def waited(engine: Transport, wanted: Callable[[set[str]], bool], seconds: float) -> set[str]:
    """Return the available hosts as soon as `wanted` is true for them, or after so many seconds."""
    until = time.monotonic() + seconds
    while not wanted(present := set(engine.hosts())) and time.monotonic() < until:
        engine.answers(0.5)
    return present
