"""The CPUs of a trial's server and load generator: those of the plan, or separate ones if there are
at least 4.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import MachineTooSmall
from dbbench.machine import libc
from dbbench.machine.host.proc import text
from dbbench.model import EngineSpec
from dbbench.units import ranges

# with fewer CPUs, one for the load generator would be a third or half of the machine
APART_FROM: Final = 4
# one CPU in 4 is the load generator's: pgbench and sysbench need 10-25 % of a server's time
CLIENT_SHARE: Final = 4
_SYSTEM: Final = Path("/sys/devices/system")
_SET_MEMPOLICY: Final = {"x86_64": 238, "aarch64": 237}  # syscall numbers
# linux/mempolicy.h
_MPOL_DEFAULT = 0
_MPOL_BIND = 2
MOST: Final = 2**16  # a limit for CPU numbers in lists; kernels support at most 8192 CPUs


@dataclass(frozen=True)
class Cores:
    """CPU numbers. Without a request and with fewer than 4 CPUs, both use all of them."""

    server: frozenset[int]
    client: frozenset[int]
    numa_node: int | None = None  # the server's memory comes only from this node

    @property
    def common(self) -> frozenset[int]:
        return self.server & self.client


def chosen_cores(
    engine: EngineSpec,
    online: Collection[int],
    system: Path = _SYSTEM,
    alone: bool = False,
) -> Cores:
    """Return the CPUs of one trial, of the CPUs `online` that this process may use. `alone`: the
    load generator is on another host. A side that the plan does not set uses what the other
    leaves. Threads of one core stay together. Raises MachineTooSmall if the plan names others.
    """
    usable = frozenset(online)
    node = engine.numa_node
    of_node = _of_node(node, system) & usable if node is not None else usable
    server = _parse_cpus(engine.cpus_server, usable, "cpus_server")
    client = _parse_cpus(engine.cpus_client, usable, "cpus_client")
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
        begin = int(first)
        end = int(last or first)
        if end >= MOST:
            raise ValueError(f"{end} is not a possible CPU number")
        cpus.update(range(begin, end + 1))
    if not cpus:
        raise ValueError("the list of CPUs is empty")
    return frozenset(cpus)


def written_cores(cores: Collection[int]) -> str:
    """Format CPU numbers as "0-3,8"."""
    return ",".join(ranges(cores))


@contextlib.contextmanager
def on_cores(cores: Collection[int], numa_node: int | None = None) -> Iterator[None]:
    """Bind this thread, and for good what it starts, to these CPUs within the block. Raises
    OSError.
    """
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
    """Allocate memory of this thread and of what it starts only on that node (set_mempolicy(2));
    None: on any node.
    """
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise OSError(f"dbbench cannot bind memory to a NUMA node on {platform.machine()}")
    if node is None:
        libc.call("syscall", number, _MPOL_DEFAULT, None, 0)
        return
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    mask = (ctypes.c_ulong * (node // bits + 1))()
    mask[node // bits] = 1 << (node % bits)
    libc.call("syscall", number, _MPOL_BIND, mask, len(mask) * bits + 1)


def _parse_cpus(
    words: str | None,
    usable: frozenset[int],
    key: str,
) -> frozenset[int] | None:
    if words is None:
        return None
    named = parsed_cores(words)
    missing = named - usable
    if missing:
        text = f'{key} = "{words}": CPU {written_cores(missing)} is not available'
        raise MachineTooSmall(
            f"{text} (available: {written_cores(usable)})",
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
    count = max(1, len(usable) // CLIENT_SHARE)
    cpus = set[int]()
    for core in sorted(usable, reverse=True):
        if len(cpus) >= count:
            break
        siblings = text(system / f"cpu/cpu{core}/topology/thread_siblings_list")
        cpus |= (parsed_cores(siblings) if siblings else {core}) & usable
    return frozenset(cpus)
