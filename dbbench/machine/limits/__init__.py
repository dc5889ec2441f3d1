"""Limits of a trial: memory by a control group, cores by affinity, for the server and the load generator.

`confined` applies to one trial. Both limits are set before a program starts, so that it cannot escape them, and both
are read back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dbbench import process
from dbbench.errors import MemoryExceeded
from dbbench.machine.limits import cgroup, cores
from dbbench.machine.limits.cgroup import MemoryGroup, give_back
from dbbench.machine.limits.cores import Cores
from dbbench.model import CoresFacts, EngineSpec
from dbbench.results.journal import Journal
from dbbench.units import size_text

__all__ = ["Confined", "Cores", "MemoryGroup", "MemoryReading", "cgroup", "confined", "cores", "give_back"]


@dataclass(frozen=True)
class MemoryReading:
    """A control group at one moment, in bytes; None: this kernel does not report it."""

    version: int
    limit_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True)
class Confined:
    """The limits of a trial's server and load generator. `reason`: why a requested memory limit is not in effect."""

    cores: Cores
    memory: MemoryGroup | None = None
    reason: str = ""
    asked: bool = False  # the plan named cores; else they are shared or split by our own rule

    def memory_read(self) -> MemoryReading | None:
        """Return the current counters of the control group, or None if there is none."""
        group = self.memory
        return MemoryReading(group.version, group.limit_bytes, group.peak_bytes) if group else None

    def facts(self, server: int | None, client: tuple[int, ...]) -> CoresFacts:
        """Return the cores of both as the kernel reports them for these pids."""
        return CoresFacts(
            server=None if server is None else _affinity(server),
            client=cores.written(self.cores.client) if not client else _affinity(client[0]),
            shared=0 if server is None else len(self.cores.shared),
            numa_node=self.cores.numa_node,
        )


@contextlib.contextmanager
def confined(
    engine: EngineSpec, memory_bytes: int | None, name: str, journal: Journal, at: Path | None, alone: bool = False
) -> Iterator[Confined]:
    """Run the servers and load generators that the block starts within the limits.

    `name` is that of the run; `at` is a directory for a private mount; `alone`: the load generator is on another host.
    Without a control group the block runs nevertheless, and `reason` explains why. Raises CoresMissing, and at the end
    MemoryExceeded if the kernel killed a process for lack of memory, instead of the error that this caused in the
    block.
    """
    chosen = cores.chosen(engine, os.sched_getaffinity(0), alone=alone)
    asked = any(key is not None for key in (engine.cpus_server, engine.cpus_client, engine.numa_node))
    give_back(journal)  # a killed trial's, in a hierarchy that only such a namespace sees
    with contextlib.ExitStack() as stack:
        group, reason = _group(stack, memory_bytes, name, journal, at)
        stack.enter_context(process.placing({"server": _entering(group, chosen), "client": _on(chosen)}))
        try:
            yield Confined(chosen, group, reason, asked)
        except Exception as error:
            _refuse_killed(group, error)
            raise
        _refuse_killed(group, None)


def _group(
    stack: contextlib.ExitStack, memory_bytes: int | None, name: str, journal: Journal, at: Path | None
) -> tuple[MemoryGroup | None, str]:
    if memory_bytes is None:
        return None, ""
    where = cgroup.hierarchy(at)
    if isinstance(where, str):
        return None, where
    try:
        group_name = f"dbbench-{name}-{journal.tag}"  # runs of other folders may have that name too
        return stack.enter_context(cgroup.limited(where, group_name, memory_bytes, journal)), ""
    except OSError as error:
        return None, f"the kernel refused a control group: {error}"


def _entering(group: MemoryGroup | None, chosen: Cores) -> Callable[[], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        with cores.on(chosen.server, chosen.numa_node), group.entered() if group else contextlib.nullcontext():
            yield

    return enter


def _on(chosen: Cores) -> Callable[[], contextlib.AbstractContextManager[None]]:
    return lambda: cores.on(chosen.client)


def _affinity(pid: int) -> str | None:
    try:
        return cores.written(os.sched_getaffinity(pid))
    except OSError:
        return None


def _refuse_killed(group: MemoryGroup | None, seen_as: Exception | None) -> None:
    if group is None or not (kills := group.oom_kills):
        return
    limit = size_text(group.limit_bytes or 0)
    raise MemoryExceeded(
        f"the kernel killed {kills} of the server's processes, which exceeded the memory limit ({limit})"
        + (f"\n  seen as: {str(seen_as).splitlines()[0]}" if seen_as else ""),
        effect="The trial does not count.",
        remedy="Increase `memory` in the plan, reduce the caches of the server, or use fewer clients.",
    ) from seen_as
