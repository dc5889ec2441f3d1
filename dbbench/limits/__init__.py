"""What a server may use: memory by a control group, cores by affinity; and those of the load generator.

`confined` is one trial's. Both are set before the program starts, so that nothing of it escapes; both are read back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dbbench import process
from dbbench.errors import MemoryExceeded
from dbbench.journal import Journal
from dbbench.limits import cgroup, cores, readahead
from dbbench.limits.cgroup import Group, give_back
from dbbench.limits.cores import Cores
from dbbench.model import CoresFacts, EngineSpec
from dbbench.units import size_text

__all__ = ["Confined", "Cores", "Group", "Reading", "cgroup", "confined", "cores", "give_back", "readahead"]


@dataclass(frozen=True)
class Reading:
    """A control group at one moment; bytes, None: not told by this kernel."""

    version: int
    limit_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True)
class Confined:
    """The limits of one trial's server and load generator. `reason`: why memory is asked for and not limited."""

    cores: Cores
    memory: Group | None = None
    reason: str = ""
    asked: bool = False  # the plan named cores; else they are shared or split by our own rule

    def memory_read(self) -> Reading | None:
        """What the control group counts now; None where there is none."""
        group = self.memory
        return Reading(group.version, group.limit_bytes, group.peak_bytes) if group else None

    def facts(self, server: int | None, client: tuple[int, ...]) -> CoresFacts:
        """The cores of both as the kernel has them, by the pids of what runs now."""
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
    """Servers and load generators that are started in the block run within the limits.

    `name` is the run's; `at` a folder for a private mount; `alone`: the load generator is on another host. Without a
    cgroup the block runs all the same, and `reason` says why. MemoryExceeded at the end where the kernel has killed for
    want of memory, in place of the error by which the block noticed it. CoresMissing.
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
) -> tuple[Group | None, str]:
    if memory_bytes is None:
        return None, ""
    where = cgroup.hierarchy(at)
    if isinstance(where, str):
        return None, where
    try:
        own = f"dbbench-{name}-{journal.path.parent.stat().st_ino}"  # runs of other folders may have that name too
        return stack.enter_context(cgroup.limited(where, own, memory_bytes, journal)), ""
    except OSError as error:
        return None, f"the kernel refused a control group: {error}"


def _entering(group: Group | None, chosen: Cores) -> Callable[[], contextlib.AbstractContextManager[None]]:
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


def _refuse_killed(group: Group | None, seen_as: Exception | None) -> None:
    if group is None or not (kills := group.oom_kills):
        return
    limit = size_text(group.limit_bytes or 0)
    raise MemoryExceeded(
        f"the kernel killed {kills} of the server's processes: they needed more than the plan's memory, {limit}"
        + (f"\n  seen as: {str(seen_as).splitlines()[0]}" if seen_as else ""),
        effect="The trial does not count.",
        remedy="Give the plan more `memory`, or the server smaller caches and fewer clients.",
    ) from seen_as
