"""Limits of a trial: memory by a control group, cores by affinity, and its disks. All are set
before a program starts, so that it cannot escape them, and all are read back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dbbench import process
from dbbench.errors import EngineDied
from dbbench.machine.cores import Cores, chosen_cores, on_cores, written_cores
from dbbench.machine.limits import cgroup, throttle
from dbbench.machine.limits.cgroup import ControlGroup
from dbbench.model import Cell, CoresFacts
from dbbench.results.journal import Journal
from dbbench.units import size_text

__all__ = [
    "Confined",
    "ControlGroup",
    "MemoryReading",
    "cgroup",
    "confine",
    "give_back",
    "preparing",
    "throttle",
]


@dataclass(frozen=True)
class MemoryReading:
    """A control group at one moment, in bytes; None: this kernel does not report it."""

    version: int
    limit_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True)
class Confined:
    """The limits of a trial's server and load generator. `reason`: why a requested memory limit is
    not in effect.
    """

    cores: Cores
    memory: ControlGroup | None = None
    reason: str = ""
    asked: bool = False  # the plan names the cores; otherwise `chosen_cores` shares or splits them

    def memory_read(self) -> MemoryReading | None:
        group = self.memory
        if group:
            return MemoryReading(group.version, group.limit_bytes, group.peak_bytes)
        return None

    def facts(self, server: int | None, client: tuple[int, ...]) -> CoresFacts:
        return CoresFacts(
            server=None if server is None else _affinity(server),
            client=written_cores(self.cores.client) if not client else _affinity(client[0]),
            shared=0 if server is None else len(self.cores.common),
            numa_node=self.cores.numa_node,
        )


@contextlib.contextmanager
def confine(
    cell: Cell,
    name: str,
    journal: Journal,
    at: Path | None,
    disks: Sequence[str] = (),
) -> Iterator[Confined]:
    """Run the servers and load generators of the block within the cell's limits. `at`: a directory
    for a private mount; `disks`: as "7:2". Without a control group for memory the block runs
    nevertheless, and `reason` explains why. Raises MachineTooSmall, KernelLacks if the disks
    cannot be limited, and at the end EngineDied, instead of the block's own error, if the kernel
    killed a process for lack of memory.
    """
    # Which cores the server and the load generator get.
    engine = cell.engine
    chosen = chosen_cores(engine, os.sched_getaffinity(0), alone=cell.client is not None)
    asked = any(
        key is not None for key in (engine.cpus_server, engine.cpus_client, engine.numa_node)
    )
    # groups of a killed trial: the hierarchy may be mounted only in a trial's namespace
    give_back(journal)
    limit = cell.limit if cell.limit is not None and cell.limit.throttles else None
    with contextlib.ExitStack() as stack:
        if limit is not None:
            stack.enter_context(throttle.limit_disks(disks, limit, journal, at))
        group, reason = _group(stack, cell.memory_bytes, name, journal, at)
        if limit is not None and group is not None:
            stack.enter_context(throttle.limit_group(group, disks, limit))
        # Programs join the group and their cores when they start, by their role.
        places = {
            "server": lambda: _entering(group, chosen),
            "client": lambda: on_cores(chosen.client),
        }
        stack.enter_context(process.placing(places))
        # What the kernel killed explains every other error.
        try:
            yield Confined(chosen, group, reason, asked)
        except Exception as error:
            _check_oom(group, error)
            raise
        _check_oom(group, None)


@contextlib.contextmanager
def preparing(cells: Sequence[Cell], journal: Journal) -> Iterator[None]:
    """Make it possible within the block that trials of these cells limit memory and disks. What
    does not succeed is reported by each trial.
    """
    cgroup.stop_units(journal)  # of a killed run
    with contextlib.ExitStack() as stack:
        if any(cell.memory_bytes is not None or cell.limit is not None for cell in cells):
            with contextlib.suppress(OSError):
                stack.enter_context(cgroup.unit(journal))
        yield


def give_back(journal: Journal) -> None:
    """Remove the groups and the limits of disks that a killed run left."""
    cgroup.give_back(journal)
    throttle.give_back(journal)


def _group(
    stack: contextlib.ExitStack,
    memory_bytes: int | None,
    name: str,
    journal: Journal,
    at: Path | None,
) -> tuple[ControlGroup | None, str]:
    if memory_bytes is None:
        return None, ""
    where = cgroup.hierarchy(at)
    if isinstance(where, str):
        return None, where
    try:
        # runs in other results folders may have the same name
        group_name = f"dbbench-{name}-{journal.tag}"
        return stack.enter_context(cgroup.make_group(where, group_name, journal, memory_bytes)), ""
    except OSError as error:
        return None, cgroup.refusal(error)


@contextlib.contextmanager
def _entering(group: ControlGroup | None, chosen: Cores) -> Iterator[None]:
    with (
        on_cores(chosen.server, chosen.numa_node),
        group.enter() if group else contextlib.nullcontext(),
    ):
        yield


def _affinity(pid: int) -> str | None:
    try:
        return written_cores(os.sched_getaffinity(pid))
    except OSError:
        return None


def _check_oom(group: ControlGroup | None, seen_as: Exception | None) -> None:
    if group is None or not (kills := group.oom_kills):
        return
    limit = size_text(group.limit_bytes or 0)
    raise EngineDied(
        f"the kernel killed {kills} of the server's processes, which exceeded the memory limit "
        f"({limit})" + (f"\n  first symptom: {str(seen_as).splitlines()[0]}" if seen_as else ""),
        effect="The trial is marked failed.",
        remedy="Increase `memory` in the plan, reduce the caches of the server, or use fewer "
        "clients.",
    ) from seen_as
