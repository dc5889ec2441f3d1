"""The scheduler and the workers that the coordinator starts itself: the scheduler in its own process,
workers in processes on this machine or through ssh.

dask's SSHCluster starts its scheduler through ssh too, and sends dask's configuration, of which the
private key would be a part, in the command line of a worker, which every account of the host can
read. Here the key goes through ssh's standard input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from distributed.deploy.spec import SpecCluster

from dbbench import process
from dbbench.errors import FleetUnreachable, ProgramMissing
from dbbench.fleet import daemons, fleet_files, security
from dbbench.fleet.task import STOP_S
from dbbench.machine import namespaces, threads
from dbbench.remote import ssh
from dbbench.results.fileio import open_log

_GIVE_UP_S: Final = 20  # a worker that has no scheduler for this time ends
_AGAIN_S: Final = 5.0  # between two looks at the workers


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
        workers = worker_commands(options, certs, folder)
        # Workers of this machine need no network; those of ssh reach it by name.
        listen = options.listen or f"tls://{socket.getfqdn()}"
        if options.local is not None:
            listen = "tls://127.0.0.1:0"
        secured = security.of(certs)
        scheduler = daemons.scheduler_options(listen, secured)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            started = SpecCluster(
                {}, {"cls": daemons.QuietScheduler, "options": scheduler}, security=secured
            )
        except RuntimeError as error:
            raise FleetUnreachable(
                f"the scheduler cannot listen on {listen}: {error}", effect="Nothing was started."
            ) from error
        stack.callback(started.close, timeout=STOP_S)
        # What the workers print is in their logs.
        address = started.scheduler_address
        logs = {name: folder / f"{name}.log" for name in workers}
        commands = [((*argv, address), logs[name]) for name, argv in workers.items()]
        content = b"".join(path.read_bytes() for path in security.files_of(certs))
        keeping = partial(_keep_running, commands, content)
        stack.enter_context(threads.beside("fleet workers", keeping, 2 * STOP_S))
        yield Cluster(address, certs, logs)


def worker_commands(
    options: HostOptions,
    certs: Path,
    folder: Path,
) -> dict[str, list[str]]:
    """Return the command of the worker of each host, without the address of the scheduler, which is
    its last word. Raises ProgramMissing, ImportRefused.
    """
    workers = {}
    # Each host of this machine has its own results folder.
    for number in range(1, (options.local or 0) + 1):
        name = f"local-{number}"
        words = _words(name, str(folder / fleet_files.HOSTS / name), certs)
        workers[name] = [sys.executable, "-m", "dbbench", *words]
    if options.ssh is not None and process.find("ssh") is None:
        raise ProgramMissing(
            "ssh is not installed", remedy="Start the workers by hand: dbbench fleet worker ADDRESS"
        )
    for host in filter(None, map(str.strip, (options.ssh or "").split(","))):
        name = security.valid_name(host.rpartition("@")[2])
        words = _words(name, options.host_results, security.STDIN)
        workers[name] = ssh.command(host, [*shlex.split(options.remote), *words])
    return workers


def _words(name: str, results: str, certs: Path) -> list[str]:
    words = ["fleet", "worker", "--name", name, "--results", results, "--certs", str(certs)]
    return [*words, "--give-up", str(_GIVE_UP_S)]


def _keep_running(
    commands: Sequence[tuple[Sequence[str], Path]],
    stdin: bytes,
    ended: threading.Event,
) -> None:
    """Start the workers, and each one again that ends before the fleet. This thread lives as long as
    the process, so that the kernel ends a worker on this machine with it.
    """
    with contextlib.ExitStack() as stack:
        running: dict[Path, process.Running] = {}
        while True:
            for argv, log in commands:
                if log not in running or running[log].poll() is not None:
                    running[log] = stack.enter_context(_start(argv, stdin, log))
            if ended.wait(_AGAIN_S):
                break
        # They stop at the same time.
        for worker in running.values():
            worker.popen.terminate()


@contextlib.contextmanager
def _start(argv: Sequence[str], stdin: bytes, log: Path) -> Iterator[process.Running]:
    env = {**process.kept_environment(), namespaces.PARENT: str(os.getpid())}
    with (
        open_log(log) as out,
        # The key is in memory only.
        os.fdopen(os.memfd_create("certificates"), "w+b") as certificates,
    ):
        certificates.write(stdin)
        certificates.seek(0)
        with process.running(
            argv,
            stdin=certificates,
            stdout=out.fileno(),
            env=env,
            grace_s=STOP_S,
            own_session=True,
            note=False,
        ) as worker:
            yield worker
