"""CPU use and disk traffic between two moments of a trial. CPU time of a load = system total - client - dbbench: the
server and the kernel workers of filesystem, loop device and block layer, which are in no process tree."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from dbbench.machine.host.proc import (
    PROC,
    CpuTimes,
    Task,
    below,
    content,
    cpu_times,
    io_counts,
    tasks,
    threads,
    times_run,
)
from dbbench.storage.devices import sysfs

_EVERY_S: Final = 1.0
_FLAGS: Final = re.compile(r"^flags:\s*([0-7]+)", re.MULTILINE)
_LOOKS: Final = 2  # readings in which the open files are listed: thousands of descriptors would disturb each second


@dataclass(frozen=True)
class _CpuReading:
    monotonic: float
    cpu: CpuTimes | None
    processes: dict[int, Task]


class CpuClock:
    """CPU seconds from its creation to `difference`. `client` and `server`: first processes of load generator and
    server; dbbench is this process and its other children, and a load within this process, which has no `client`."""

    def __init__(self, client: Sequence[int] = (), server: int | None = None, *, proc: Path = PROC) -> None:
        self._client = tuple(client)
        self._server = (server,) if server is not None else ()
        self._proc = proc
        self._before = self._read()

    def difference(self) -> dict[str, float | None]:
        """Return seconds since the creation, None for what is not known: `seconds`, `cpus`; `system_cpu_s` (user, nice,
        system, irq, softirq), `steal_s`, `iowait_s`, `guest_s`; `client_cpu_s` (up to the end of a client that this
        process has waited for), `server_cpu_s`, `dbbench_cpu_s`."""
        before, after = self._before, self._read()
        me = os.getpid()
        spent: dict[str, float | None] = {"seconds": after.monotonic - before.monotonic}
        spent.update(_system(before.cpu, after.cpu))
        spent["client_cpu_s"] = self._client_s(before, after, me)
        spent["server_cpu_s"] = _tree_s(self._server, before, after)
        spent["dbbench_cpu_s"] = self._own_s(before, after, me)
        return spent

    def _own_s(self, before: _CpuReading, after: _CpuReading, me: int) -> float | None:
        apart = {*self._client, *self._server}
        all_s = _tree_s((me,), before, after, apart)
        mine_before, mine_after = before.processes.get(me), after.processes.get(me)
        if all_s is None or mine_before is None or mine_after is None:
            return None
        if all(pid in after.processes for pid in self._client):
            return all_s
        return all_s - (mine_after.reaped_s - mine_before.reaped_s)  # without the time of the client that has ended

    def _client_s(self, before: _CpuReading, after: _CpuReading, me: int) -> float | None:
        if not self._client:
            return 0.0
        gone = [pid for pid in self._client if pid not in after.processes]
        alive = _tree_s(tuple(pid for pid in self._client if pid not in gone), before, after)
        if not gone:
            return alive
        mine_before, mine_after = before.processes.get(me), after.processes.get(me)
        if mine_before is None or mine_after is None or any(pid not in before.processes for pid in gone):
            return None
        # The time of reaped children includes their whole life, so their time up to `before` is subtracted.
        reaped = mine_after.reaped_s - mine_before.reaped_s
        lived = sum(before.processes[pid].all_s for pid in below(gone, before.processes))
        return (alive or 0.0) + reaped - lived if reaped >= lived else None

    def _read(self) -> _CpuReading:
        return _CpuReading(time.monotonic(), cpu_times(self._proc), tasks(self._proc))


def cpu_ms(difference: Mapping[str, float | None]) -> float | None:
    """Return system total - client - dbbench in ms, or None if a part is not known."""
    system, client, dbbench_s = (difference.get(f"{who}_cpu_s") for who in ("system", "client", "dbbench"))
    if system is None or client is None or dbbench_s is None:
        return None
    return max(0.0, system - client - dbbench_s) * 1000


def _system(before: CpuTimes | None, after: CpuTimes | None) -> dict[str, float | None]:
    if before is None or after is None:
        return dict.fromkeys(("cpus", "system_cpu_s", "steal_s", "iowait_s", "guest_s"))
    return {
        "cpus": after.cpus,
        "system_cpu_s": after.busy_s - before.busy_s,
        "steal_s": after.steal_s - before.steal_s,
        "iowait_s": max(0.0, after.iowait_s - before.iowait_s),  # the kernel's value can decrease, see proc(5)
        "guest_s": after.guest_s - before.guest_s,
    }


def _tree_s(
    roots: Sequence[int], before: _CpuReading, after: _CpuReading, without: Collection[int] = ()
) -> float | None:
    """Return CPU seconds of process trees with reaped children, or None without a root. Time that a root inherited from
    a branch in `without` is not separated: those processes are alive in the window."""
    present = [pid for pid in roots if pid in after.processes]
    if not present:
        return None
    total = 0.0
    for pid in below(present, after.processes, without):
        old = before.processes.get(pid)
        same = old is not None and old.started == after.processes[pid].started
        total += after.processes[pid].all_s - (old.all_s if same and old is not None else 0.0)
    return total


class IoClock:
    """Bytes read and written since its creation by this process and its ended children (all their life,
    proc_pid_io(5))."""

    def __init__(self, *, proc: Path = PROC) -> None:
        self._proc, self._before = proc, io_counts("self", proc)

    def difference(self) -> dict[str, int | None]:
        """Return `read_bytes` and `write_bytes`, the larger of the bytes of system calls and those from or to the disk
        (asynchronous I/O has no calls); None if not counted."""
        after = io_counts("self", self._proc)
        if not self._before or not after:
            return {"read_bytes": None, "write_bytes": None}
        grown = {name: value - self._before.get(name, 0) for name, value in after.items()}
        return {
            "read_bytes": max(grown["rchar"], grown["read_bytes"]),
            "write_bytes": max(grown["wchar"], grown["write_bytes"]),
        }


class TaskClock:
    """Context switches of load generator and server, and the server's memory, read once a second by `work`: threads
    that have ended, as those of the load do with the window, are in no table."""

    def __init__(
        self, client: Sequence[int] = (), server: int | None = None, *, places: Sequence[Path] = (), proc: Path = PROC
    ) -> None:
        self._server = () if server is None else (server,)
        self._roots, self._proc = (*client, *self._server), proc
        self._places = [os.path.realpath(place) for place in places]
        self._outside: list[set[str]] = []  # open files outside of `places`, in each of the first readings
        self._foreign: set[int] = set()
        self._switches: dict[tuple[int, int], int] | None = None  # by thread id and start time, at the last reading
        self._at = 0.0
        self._counted, self._seconds = 0, 0.0
        self.server_bytes: int | None = None  # the largest of all readings

    def work(self, ended: Event) -> None:
        """Read once a second until `ended` is set. Raises OSError if /proc cannot be read."""
        while self._roots:
            self.read()
            if ended.wait(_EVERY_S):
                return

    def read(self) -> None:
        """Read all threads once, and the memory of each process of the server."""
        table = tasks(self._proc, self._foreign)
        ours = below(self._roots, table)
        self._foreign |= table.keys() - ours
        at, switches = time.monotonic(), dict[tuple[int, int], int]()
        for pid in ours:
            for thread in threads(table[pid], self._proc):
                switches[thread.pid, thread.started] = times_run(f"{self._proc}/{pid}/task/{thread.pid}")
        if self._switches is not None and set(self._roots) <= ours and any(switches.values()):
            self._counted += sum(max(0, count - self._switches.get(key, 0)) for key, count in switches.items())
            self._seconds += at - self._at
        self._switches, self._at = switches, at
        if self._places and len(self._outside) < _LOOKS:
            pids = below(self._server, table) if self._server else ours
            self._outside.append(files_elsewhere(pids, self._places, bool(self._server), self._proc))
        if (memory := _memory_bytes(below(self._server, table), self._proc)) is not None:
            self.server_bytes = max(memory, self.server_bytes or 0)

    def elsewhere(self) -> set[str]:
        """Return the files outside of `places` that were open in the first readings; a program that starts opens others
        for a moment."""
        return set.intersection(*self._outside) if len(self._outside) == _LOOKS else set()

    def switches_per_s(self) -> float | None:
        """Return context switches a second; None if not counted, or without two readings with all processes."""
        return self._counted / self._seconds if self._seconds else None


def files_elsewhere(pids: Collection[int], places: Sequence[str], only_written: bool, proc: Path = PROC) -> set[str]:
    """Return the regular files outside of these directories that the processes have open, or have open for writing,
    without deleted ones, which are temporary or only in memory."""
    files = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # the process has ended
            for entry in os.scandir(f"{proc}/{pid}/fd"):
                with contextlib.suppress(OSError):
                    file = str(Path(entry.path).readlink())
                    inside = any(f"{file}/".startswith(f"{place}/") for place in places)
                    if inside or file.endswith(" (deleted)") or not stat.S_ISREG(entry.stat().st_mode):
                        continue
                    # proc_pid_fdinfo(5): flags in octal
                    flags = _FLAGS.search(content(f"{proc}/{pid}/fdinfo/{entry.name}") or "")
                    if not only_written or (flags and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY):
                        files.add(file)
    return files


def _memory_bytes(server: Collection[int], proc: Path) -> int | None:
    """Return these processes' private pages and the most that one of them shares, without mapped files; the
    proportional set size would be the same, but walks all page tables while the server runs."""
    private = shared = huge = 0
    for pid in server:
        lines = (line.split() for line in (content(f"{proc}/{pid}/status") or "").splitlines())
        kb = {words[0]: int(words[1]) for words in lines if len(words) == 3 and words[2] == "kB"}
        private += kb.get("RssAnon:", 0)
        shared, huge = max(shared, kb.get("RssShmem:", 0)), max(huge, kb.get("HugetlbPages:", 0))
    return 1024 * (private + shared + huge) or None


class DiskClock:
    """Counters of whole disks (kernel names) since its creation: loop numbers are reused and keep their counters."""

    def __init__(self, disks: Sequence[str]) -> None:
        self._disks = tuple(disks)
        self._before = self._read()

    def difference(self) -> dict[str, int | None]:
        """Return `read_bytes`, `write_bytes`, `read_operations`, `write_operations` (requests that the disk completed,
        after merging) and `flushes`; None if not counted."""
        after = self._read()
        return {
            name: None if old is None or (new := after[name]) is None else new - old
            for name, old in self._before.items()
        }

    def _read(self) -> dict[str, int | None]:
        counters = [disk_counters for disk in self._disks if (disk_counters := sysfs.io_counters(disk)) is not None]
        complete = bool(counters) and len(counters) == len(self._disks)
        moved: dict[str, int | None] = {
            name: sum(getattr(disk_counters, name) for disk_counters in counters) if complete else None
            for name in sysfs.IoCounters._fields
        }
        return {**moved, "flushes": sysfs.flushes(self._disks)}
