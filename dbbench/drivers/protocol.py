"""The interface of a load generator: one module per tool."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbbench.engines import ENGINES
from dbbench.engines.port import Server
from dbbench.errors import FileUnreadable
from dbbench.machine import namespaces
from dbbench.machine.pagecache import empty_and_prove
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Clock
from dbbench.model import CacheFacts, Cell
from dbbench.model.base import data_folder
from dbbench.process import User
from dbbench.remote import Client


@dataclass(frozen=True)
class Live:
    """The last second as the tool printed it, only for progress. None: not printed yet, or never."""

    second: float
    tps: float | None
    p95_ms: float | None


@dataclass(frozen=True)
class LoadTask:
    """The load of a trial: `cell.window` is how long it runs, `cell.parameters` its size (clients,
    threads, rate).
    """

    server: Server
    cell: Cell
    seed: int
    clock: Clock
    raw: Path  # directory of the trial for the tool's output
    scratch: Path  # directory for large logs, in memory and not on the device under test
    # Empties the caches of the load's own files while it has none of them open, with proof.
    cold: Callable[[Sequence[Path]], CacheFacts] = empty_and_prove


class Load(Protocol):
    """A running load generator."""

    @property
    def pids(self) -> tuple[int, ...]: ...  # pids of the tool's processes, for CPU accounting

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Block until `second` of the load's clock (0 = start of warm-up), calling `watch` once per
        second. Raises DriverFailed or EngineDied as soon as the tool or the server has ended.
        """

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Block until the tool has ended by itself. Its exit status is not sufficient; see
        `outcome`.
        """

    def outcome(self) -> Outcome:
        """Parse the results when the server has stopped. Raises DriverFailed or NoProgress for
        invalid ones.
        """


class Driver(Protocol):
    """A kind of load generator. Satisfied by a module or an object."""

    def driving(self, task: LoadTask) -> AbstractContextManager[Load]:
        """Start the load; at the end of the block the tool has ended."""


class Away(Protocol):
    """A load generator that can also run on another host. Satisfied by a module."""

    def driving_from(self, client: Client, task: LoadTask) -> AbstractContextManager[Load]:
        """Like `Driver.driving`, on the client's host, which returns logs to `scratch` after the
        server's end.
        """


def client_account(server: Server) -> User | None:
    """Return the server's account, for programs that interpret a user's script; None: not in a
    trial's namespaces.
    """
    if namespaces.mounts_are_private():
        return ENGINES[server.engine].account()
    return None


def path_for_client(file: Path) -> str:
    """Return the path of a script for a client: in a trial that of a copy, which the client's
    account can reach.
    """
    if not namespaces.mounts_are_private():
        return str(file)
    folder = namespaces.RUNTIME / "scripts"
    folder.mkdir(0o755, exist_ok=True)
    if file.parent != folder:  # a user's own script is there already
        shutil.copyfile(file, folder / file.name)
    return str(folder / file.name)


def locate(script: str) -> Path:
    """Return a workload's script: an absolute path, or one of dbbench's workloads. Raises
    FileUnreadable.
    """
    path = data_folder() / "workloads" / script  # an absolute `script` replaces the directory
    if not path.is_file():
        raise FileUnreadable(
            f"the script {script} is neither a built-in one nor a file",
            effect="No load was started.",
            remedy="Name a script of the driver, or a file next to the workload's TOML file.",
        )
    return path.resolve()
