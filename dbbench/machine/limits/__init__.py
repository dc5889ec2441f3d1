"""Limits of a trial: memory by a control group, cores by affinity, for the server and the load generator.

`confined` applies to one trial. Both limits are set before a program starts, so that it cannot escape them, and both
are read back.

The CPUs of both are those of the plan, or separate ones if there are at least 4.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import MachineTooSmall, MemoryExceeded
from dbbench.machine import libc
from dbbench.machine.host.proc import text
from dbbench.machine.limits import cgroup
from dbbench.machine.limits.cgroup import MemoryGroup, give_back
from dbbench.model import Cell, CoresFacts, EngineSpec
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
    asked: bool = False  # the plan names the cores; otherwise `chosen_cores` shares or splits them

    def memory_read(self) -> MemoryReading | None:
        """Return the current counters of the control group, or None if there is none."""
        group = self.memory
        return MemoryReading(group.version, group.limit_bytes, group.peak_bytes) if group else None

    def facts(self, server: int | None, client: tuple[int, ...]) -> CoresFacts:
        """Return the cores of both as the kernel reports them for these pids."""
        return CoresFacts(
            server=None if server is None else _affinity(server),
            client=written_cores(self.cores.client) if not client else _affinity(client[0]),
            shared=0 if server is None else len(self.cores.shared),
            numa_node=self.cores.numa_node,
        )


@contextlib.contextmanager
def confined(cell: Cell, name: str, journal: Journal, at: Path | None) -> Iterator[Confined]:
    """Run the servers and load generators that the block starts within the cell's limits.

    `name` is that of the run; `at` is a directory for a private mount. Without a control group the block runs
    nevertheless, and `reason` explains why. Raises MachineTooSmall, and at the end MemoryExceeded if the kernel killed
    a process for lack of memory, instead of the error that this caused in the block.
    """
    engine = cell.engine
    chosen = chosen_cores(engine, os.sched_getaffinity(0), alone=cell.client is not None)
    asked = any(key is not None for key in (engine.cpus_server, engine.cpus_client, engine.numa_node))
    give_back(journal)  # groups of a killed trial: the hierarchy may be mounted only in a trial's namespace
    with contextlib.ExitStack() as stack:
        group, reason = _group(stack, cell.memory_bytes, name, journal, at)
        stack.enter_context(
            process.placing({"server": _entering(group, chosen), "client": lambda: on_cores(chosen.client)})
        )
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
        group_name = f"dbbench-{name}-{journal.tag}"  # runs in other results folders may have the same name
        return stack.enter_context(cgroup.limited(where, group_name, memory_bytes, journal)), ""
    except OSError as error:
        return None, f"the kernel refused a control group: {error}"


def _entering(group: MemoryGroup | None, chosen: Cores) -> Callable[[], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        with on_cores(chosen.server, chosen.numa_node), group.entered() if group else contextlib.nullcontext():
            yield

    return enter


def _affinity(pid: int) -> str | None:
    try:
        return written_cores(os.sched_getaffinity(pid))
    except OSError:
        return None


def _refuse_killed(group: MemoryGroup | None, seen_as: Exception | None) -> None:
    if group is None or not (kills := group.oom_kills):
        return
    limit = size_text(group.limit_bytes or 0)
    raise MemoryExceeded(
        f"the kernel killed {kills} of the server's processes, which exceeded the memory limit ({limit})"
        + (f"\n  first symptom: {str(seen_as).splitlines()[0]}" if seen_as else ""),
        effect="The trial is marked failed.",
        remedy="Increase `memory` in the plan, reduce the caches of the server, or use fewer clients.",
    ) from seen_as


APART_FROM: Final = 4  # with fewer CPUs, one for the load generator would be a third or half of the machine
CLIENT_SHARE: Final = 4  # one CPU in 4 is the load generator's: pgbench and sysbench need 10-25 % of a server's time
_SYSTEM: Final = Path("/sys/devices/system")
_SET_MEMPOLICY: Final = {"x86_64": 238, "aarch64": 237}  # syscall numbers
_MPOL_DEFAULT, _MPOL_BIND = 0, 2  # linux/mempolicy.h

MOST: Final = 2**16  # a limit for CPU numbers in lists; kernels support at most 8192 CPUs


@dataclass(frozen=True)
class Cores:
    """CPU numbers. Without a request and with fewer than 4 CPUs, both use all of them."""

    server: frozenset[int]
    client: frozenset[int]
    numa_node: int | None = None  # the server's memory comes only from this node

    @property
    def shared(self) -> frozenset[int]:
        """Return the CPUs that both may use."""
        return self.server & self.client


def chosen_cores(engine: EngineSpec, online: Collection[int], system: Path = _SYSTEM, alone: bool = False) -> Cores:
    """Return the CPUs of one trial. Raises MachineTooSmall if the plan names others than those in `online`.

    `online`: the CPUs that this process may use; `alone`: the load generator is on another host and leaves all CPUs to
    the server. Whichever side the plan does not set uses what the other leaves. Threads of one core stay together.
    """
    usable, node = frozenset(online), engine.numa_node
    of_node = _of_node(node, system) & usable if node is not None else usable
    server = _named(engine.cpus_server, usable, "cpus_server")
    client = _named(engine.cpus_client, usable, "cpus_client")
    if server is None and client is None:
        if alone or len(usable) < APART_FROM or len(of_node) < 2:
            return Cores(of_node, usable, node)
        client = _clients(usable if node is None else (usable - of_node or usable), system)
    if server is None:
        server = (of_node - (client or frozenset())) or of_node
    if client is None:
        client = usable - server or usable
    return Cores(server, client, node)


def parsed_cores(words: str) -> frozenset[int]:
    """Parse the kernel's list format: "0-3,8". Raises ValueError."""
    cpus: set[int] = set()
    for word in words.split(","):
        first, _, last = word.strip().partition("-")
        begin, end = int(first), int(last or first)
        if end >= MOST:
            raise ValueError(f"{end} is not a possible CPU number")
        cpus.update(range(begin, end + 1))
    if not cpus:
        raise ValueError("the list of CPUs is empty")
    return frozenset(cpus)


def written_cores(cores: Collection[int]) -> str:
    """Format CPU numbers as "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(cores):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@contextlib.contextmanager
def on_cores(cores: Collection[int], numa_node: int | None = None) -> Iterator[None]:
    """Bind this thread, and for good what it starts, to these CPUs within the block. Raises OSError."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        if numa_node is not None:
            _bind(numa_node)
        yield
    finally:
        if numa_node is not None:
            _bind(None)
        os.sched_setaffinity(0, before)


def _bind(node: int | None) -> None:
    """Allocate memory of this thread and of what it starts only on that node (set_mempolicy(2)); None: on any node."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise OSError(f"dbbench cannot bind memory to a NUMA node on {platform.machine()}")
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    mask = (ctypes.c_ulong * (((node or 0) // bits) + 1))()
    if node is not None:
        mask[node // bits] = 1 << (node % bits)
    policy = _MPOL_DEFAULT if node is None else _MPOL_BIND
    if node is None:
        libc.call("syscall", number, policy, None, 0)
    else:
        libc.call("syscall", number, policy, mask, len(mask) * bits + 1)


def _named(words: str | None, usable: frozenset[int], key: str) -> frozenset[int] | None:
    if words is None:
        return None
    named = parsed_cores(words)
    if missing := named - usable:
        raise MachineTooSmall(
            f'{key} = "{words}": CPU {written_cores(missing)} is not available (available: {written_cores(usable)})',
            effect="Nothing was measured.",
            remedy=f"Correct {key} in the plan's [[engine]].",
        )
    return named


def _of_node(node: int, system: Path) -> frozenset[int]:
    listed = text(system / f"node/node{node}/cpulist")
    if not listed:
        raise MachineTooSmall(
            f"numa_node = {node}: this machine has no such node with CPUs",
            effect="Nothing was measured.",
            remedy="List the nodes with lscpu. Remove numa_node on a machine with one node.",
        )
    return parsed_cores(listed)


def _clients(usable: frozenset[int], system: Path) -> frozenset[int]:
    """Return the last quarter of the CPUs, with all threads of each core."""
    count, cpus = max(1, len(usable) // CLIENT_SHARE), set[int]()
    for core in sorted(usable, reverse=True):
        if len(cpus) >= count:
            break
        siblings = text(system / f"cpu/cpu{core}/topology/thread_siblings_list")
        cpus |= (parsed_cores(siblings) if siblings else {core}) & usable
    return frozenset(cpus)
