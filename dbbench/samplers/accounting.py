"""Who used the CPU, and what reached the disks, between two moments of a trial.

CPU per transaction = (system total - client - dbbench) / transactions: the server and the kernel workers of
filesystem, loop device and block layer, which are in nobody's process tree, are what is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dbbench.devices import counters
from dbbench.host.proc import PROC, CpuTimes, ProcessTimes, cpu_times, processes, tree


@dataclass(frozen=True)
class _CpuReading:
    monotonic: float
    cpu: CpuTimes | None
    processes: dict[int, ProcessTimes]


class CpuClock:
    """CPU seconds from its making to `difference`.

    `client` and `server` are the first processes of the load generator and of the server (when it is known);
    dbbench is this process and its other children, the samplers. A load that runs within this process has no
    `client`: its time is dbbench's.
    """

    def __init__(self, client: Sequence[int] = (), server: int | None = None, *, proc: Path = PROC) -> None:
        self._client = tuple(client)
        self._server = (server,) if server is not None else ()
        self._proc = proc
        self._before = self._read()

    def difference(self) -> dict[str, float | None]:
        """Seconds since the making: `seconds`, `cpus`; `system_cpu_s` (user, nice, system, irq, softirq),
        `steal_s`, `iowait_s`, `guest_s`; `client_cpu_s`, `server_cpu_s`, `dbbench_cpu_s`. None: not known.

        A client that has ended and was waited for by this process counts to its end.
        """
        before, after = self._before, self._read()
        me = os.getpid()
        found: dict[str, float | None] = {"seconds": after.monotonic - before.monotonic}
        found.update(_system(before.cpu, after.cpu))
        found["client_cpu_s"] = self._client_s(before, after, me)
        found["server_cpu_s"] = _tree_s(self._server, before, after)
        found["dbbench_cpu_s"] = self._own_s(before, after, me)
        return found

    def _own_s(self, before: _CpuReading, after: _CpuReading, me: int) -> float | None:
        apart = {*self._client, *self._server}
        all_s = _tree_s((me,), before, after, apart)
        mine_before, mine_after = before.processes.get(me), after.processes.get(me)
        if all_s is None or mine_before is None or mine_after is None:
            return None
        if all(pid in after.processes for pid in self._client):
            return all_s
        return all_s - (mine_after.reaped_s - mine_before.reaped_s)  # that is the client's, who has ended

    def _client_s(self, before: _CpuReading, after: _CpuReading, me: int) -> float | None:
        """None where a client has ended and somebody else has taken its CPU time."""
        if not self._client:
            return 0.0
        gone = [pid for pid in self._client if pid not in after.processes]
        alive = _tree_s(tuple(pid for pid in self._client if pid not in gone), before, after)
        if not gone:
            return alive
        mine_before, mine_after = before.processes.get(me), after.processes.get(me)
        if mine_before is None or mine_after is None or any(pid not in before.processes for pid in gone):
            return None
        # In our children's time is the whole life of those that ended: their time up to `before` is off.
        reaped = mine_after.reaped_s - mine_before.reaped_s
        lived = sum(before.processes[pid].all_s for pid in tree(gone, before.processes))
        return (alive or 0.0) + reaped - lived if reaped >= lived else None

    def _read(self) -> _CpuReading:
        return _CpuReading(time.monotonic(), cpu_times(self._proc), processes(self._proc))


def cpu_ms_per_tx(difference: Mapping[str, float | None], transactions: int) -> float | None:
    """(system total - client - dbbench) / transactions, in ms; None where a part is not known."""
    system, client, own = (difference.get(f"{who}_cpu_s") for who in ("system", "client", "dbbench"))
    if system is None or client is None or own is None or transactions <= 0:
        return None
    return max(0.0, system - client - own) / transactions * 1000


def _system(before: CpuTimes | None, after: CpuTimes | None) -> dict[str, float | None]:
    if before is None or after is None:
        return dict.fromkeys(("cpus", "system_cpu_s", "steal_s", "iowait_s", "guest_s"))
    return {
        "cpus": after.cpus,
        "system_cpu_s": after.busy_s - before.busy_s,
        "steal_s": after.steal_s - before.steal_s,
        "iowait_s": max(0.0, after.iowait_s - before.iowait_s),  # the kernel lets it go back at times, proc(5)
        "guest_s": after.guest_s - before.guest_s,
    }


def _tree_s(
    roots: Sequence[int], before: _CpuReading, after: _CpuReading, without: Collection[int] = ()
) -> float | None:
    """CPU seconds of process trees, dead children that were waited for included; None without a root.

    What a root has inherited of a branch in `without` is not told apart: those are alive in the window.
    """
    present = [pid for pid in roots if pid in after.processes]
    if not present:
        return None
    total = 0.0
    for pid in tree(present, after.processes, without):
        old = before.processes.get(pid)
        same = old is not None and old.started == after.processes[pid].started
        total += after.processes[pid].all_s - (old.all_s if same and old is not None else 0.0)
    return total


class DiskClock:
    """Bytes and flush requests of whole disks (kernel names) from its making to `difference`.

    Loop numbers are reused and keep their counters, so only differences mean anything.
    """

    def __init__(self, disks: Sequence[str]) -> None:
        self._disks = tuple(disks)
        self._before = self._read()

    def difference(self) -> dict[str, int | None]:
        """`read_bytes`, `write_bytes`, `flushes`; None where they cannot be read or are not counted."""
        after = self._read()
        return {
            name: None if old is None or (new := after[name]) is None else new - old
            for name, old in self._before.items()
        }

    def _read(self) -> dict[str, int | None]:
        found = [one for disk in self._disks if (one := counters.io_counters(disk)) is not None]
        known = bool(found) and len(found) == len(self._disks)
        return {
            "read_bytes": sum(one.read_bytes for one in found) if known else None,
            "write_bytes": sum(one.write_bytes for one in found) if known else None,
            "flushes": counters.flushes(self._disks),
        }
