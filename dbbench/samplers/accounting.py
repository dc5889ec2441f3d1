"""CPU use and disk traffic between two moments of a trial. CPU time of a load = system total -
client - dbbench: the server and the kernel workers of filesystem, loop device and block layer,
which are in no process tree.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple

from dbbench.machine.host import proc as proc_files
from dbbench.machine.host.proc import (
    PROC,
    CpuTimes,
    CpuTurns,
    ProcessFamily,
    Task,
    below,
    content,
    cpu_turns,
    io_counts,
    tasks,
)
from dbbench.storage.devices import sysfs
from dbbench.storage.devices.used import is_for_writing

_EVERY_S: Final = 1.0
# readings in which the open files are listed: thousands of descriptors would disturb each second
_LOOKS: Final = 4
# of them, in which a file is open: a program that starts opens others for a moment
_SEEN: Final = 2


class CpuClock:
    """CPU seconds from its creation to `difference`. `client` and `server`: first processes of load
    generator and server; dbbench is this process and its other children, and a load within this
    process, which has no `client`.
    """

    def __init__(
        self,
        client: Sequence[int] = (),
        server: int | None = None,
        *,
        proc: Path = PROC,
    ) -> None:
        self._client = tuple(client)
        self._apart = {*client, *(() if server is None else (server,))}
        self._proc = proc
        self._before = self._read()

    def difference(self) -> dict[str, float | None]:
        """Return seconds since the creation, None for what is not known: `seconds`, `cpus`;
        `system_cpu_s` (user, nice, system, irq, softirq); `client_cpu_s` (up to the end of a
        client that this process has waited for) and `dbbench_cpu_s`.
        """
        began, cpu_before, before = self._before
        now, cpu, after = self._read()
        client_s, own_s = self._split(before, after)
        system_s = None
        if cpu and cpu_before:
            system_s = cpu.busy_s - cpu_before.busy_s
        return {
            "seconds": now - began,
            "cpus": cpu.cpus if cpu else None,
            "system_cpu_s": system_s,
            "client_cpu_s": client_s,
            "dbbench_cpu_s": own_s,
        }

    def _split(
        self, before: Mapping[int, Task], after: Mapping[int, Task]
    ) -> tuple[float | None, float]:
        """Return the time of the client and of dbbench. A client that has ended is in what this
        process has reaped, with its whole life, so its time up to `before` is subtracted.
        """
        # The load is a branch of this process and is subtracted from it.
        me = os.getpid()
        client_s = _tree_s(self._client, before, after)
        own_s = _tree_s((me,), before, after, self._apart)
        gone = [pid for pid in self._client if pid not in after]
        if not gone:
            return client_s, own_s
        reaped_s = after[me].reaped_s - before[me].reaped_s
        lived_s = sum(before[pid].all_s for pid in below(gone, before))
        if reaped_s < lived_s:
            return None, own_s - reaped_s
        return client_s + reaped_s - lived_s, own_s - reaped_s

    def _read(self) -> tuple[float, CpuTimes | None, dict[int, Task]]:
        return time.monotonic(), proc_files.cpu_times(self._proc), tasks(self._proc)


def cpu_ms(difference: Mapping[str, float | None]) -> float | None:
    """Return system total - client - dbbench in ms, or None if a part is not known."""
    system_s = difference.get("system_cpu_s")
    client_s = difference.get("client_cpu_s")
    dbbench_s = difference.get("dbbench_cpu_s")
    if system_s is None or client_s is None or dbbench_s is None:
        return None
    return max(0.0, system_s - client_s - dbbench_s) * 1000


def _tree_s(
    roots: Sequence[int],
    before: Mapping[int, Task],
    after: Mapping[int, Task],
    without: Collection[int] = (),
) -> float:
    """Return CPU seconds of process trees with reaped children. Time that a root inherited from a
    branch in `without` is not separated: those processes are alive in the window.
    """
    total = 0.0
    for pid in below(roots, after, without):
        total += after[pid].all_s
        old = before.get(pid)
        if old and old.started == after[pid].started:
            total -= old.all_s
    return total


class DiskBytes(NamedTuple):
    """Bytes that ended children caused to be read from any disk, and to be written to one: those of
    a page or folio when it becomes dirty. `cancelled`: removed before they reached it.
    """

    read: int
    dirtied: int
    cancelled: int


class IoClock:
    """Bytes read and written since its creation by this process and its ended children (all their
    life, proc_pid_io(5)).
    """

    def __init__(self, *, proc: Path = PROC) -> None:
        self._proc = proc
        self._before = io_counts("self", proc)
        self._children = _blocks()

    def difference(self) -> dict[str, int | None]:
        """Return `read_bytes` and `write_bytes`, the larger of the bytes of system calls and those
        from or to the disk (asynchronous I/O has no calls); None if not counted.
        """
        grown = self._grown()
        if grown is None:
            return {"read_bytes": None, "write_bytes": None}
        return {
            "read_bytes": max(grown["rchar"], grown["read_bytes"]),
            "write_bytes": max(grown["wchar"], grown["write_bytes"]),
        }

    def stored(self) -> DiskBytes | None:
        """Return what a disk transferred for the children; None if not counted."""
        grown = self._grown()
        if grown is None:
            return None
        read_before, written_before = self._children
        read, written = _blocks()
        return DiskBytes(
            512 * (read - read_before),
            512 * (written - written_before),
            grown["cancelled_write_bytes"],
        )

    def _grown(self) -> dict[str, int] | None:
        after = io_counts("self", self._proc)
        if not self._before or not after:
            return None
        grown = {}
        for name, value in after.items():
            grown[name] = value - self._before.get(name, 0)
        return grown


def _blocks() -> tuple[int, int]:
    """Return the blocks of 512 bytes that ended children have read and written (getrusage(2))."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_inblock, usage.ru_oublock


class TaskClock:
    """Context switches of load generator and server, and the server's memory, read once a second by
    `work`: threads that have ended, as those of the load do with the window, are in no table.
    """

    def __init__(
        self,
        client: Sequence[int] = (),
        server: int | None = None,
        *,
        places: Sequence[Path] = (),
        proc: Path = PROC,
    ) -> None:
        self._server = () if server is None else (server,)
        self._client = tuple(client)
        self._roots = (*client, *self._server)
        self._proc = proc
        self._places = [os.path.realpath(place) for place in places]
        # open files outside of `places`, with the number of looks in which they were open
        self._outside = Counter[str]()
        self._looks = 0
        self._family = ProcessFamily(proc)
        # by thread id and start time, at the last reading
        self._turns: dict[tuple[int, int], CpuTurns] | None = None
        self._monotonic = 0.0
        self._counted = 0
        self._client_s = {"cpu": 0.0, "queue": 0.0}
        self._seconds = 0.0
        self.server_bytes: int | None = None  # the largest of all readings

    def work(self, ended: Event) -> None:
        """Read once a second until `ended` is set. Raises OSError if /proc cannot be read."""
        while self._roots:
            self.read(time.monotonic())
            if ended.wait(_EVERY_S):
                return

    def read(self, monotonic: float) -> None:
        """Read all threads once, and the memory of each process of the server, at this time."""
        ours = self._family.read(self._roots)

        # Context switches and CPU time, unless a process is missing.
        turns = dict[tuple[int, int], CpuTurns]()
        client = below(self._client, ours)
        of_client = set[tuple[int, int]]()
        for pid, process in ours.items():
            for thread in proc_files.threads(process, self._proc):
                key = (thread.pid, thread.started)
                turns[key] = cpu_turns(content(f"{self._proc}/{pid}/task/{thread.pid}/schedstat"))
                if pid in client:
                    of_client.add(key)
        is_counted = any(turn.times for turn in turns.values())
        if self._turns is not None and set(self._roots) <= ours.keys() and is_counted:
            for key, now in turns.items():
                before = self._turns.get(key, CpuTurns())
                self._counted += max(0, now.times - before.times)
                if key in of_client:
                    self._client_s["cpu"] += now.on_cpu_s - before.on_cpu_s
                    self._client_s["queue"] += now.queued_s - before.queued_s
            self._seconds += monotonic - self._monotonic
        self._turns = turns
        self._monotonic = monotonic

        # Open files and memory: of the server, if there is one.
        server = below(self._server, ours)
        if self._places and self._looks < _LOOKS:
            self._outside.update(self._look(server if self._server else ours))
            self._looks += 1
        memory = _memory_bytes(server, self._proc)
        if memory is not None:
            self.server_bytes = max(memory, self.server_bytes or 0)

    def elsewhere(self) -> set[str]:
        """Return the files outside of `places` that were open in two of the first readings (on a busy
        machine, a load begins only after the first of them), or that the server has open now: a
        load may have ended before the second one.
        """
        often = {file for file, times in self._outside.items() if times >= _SEEN}
        if self._places and self._server:
            often |= self._look(self._family.read(self._server))
        return often

    def _look(self, pids: Collection[int]) -> set[str]:
        return files_elsewhere(pids, self._places, bool(self._server), self._proc)

    def client_threads(self) -> dict[str, float]:
        """Return how many threads of the load generator had a CPU ("cpu") or waited for one ("queue"),
        on average; {} if not counted.
        """
        if not self._seconds or not self._client:
            return {}
        return {name: spent_s / self._seconds for name, spent_s in self._client_s.items()}

    def switches_per_s(self) -> float | None:
        """Return context switches a second; None if not counted, or without two readings with all
        processes.
        """
        if self._seconds:
            return self._counted / self._seconds
        return None


def files_elsewhere(
    pids: Collection[int],
    places: Sequence[str],
    only_written: bool,
    proc: Path = PROC,
) -> set[str]:
    """Return the regular files outside of these directories that the processes have open, or have
    open for writing, without deleted ones, which are temporary or only in memory.
    """
    folders = tuple(f"{place}/" for place in places)
    files = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # the process has ended
            for entry in os.scandir(f"{proc}/{pid}/fd"):
                with contextlib.suppress(OSError):
                    file = str(Path(entry.path).readlink())
                    if f"{file}/".startswith(folders) or file.endswith(" (deleted)"):
                        continue
                    if not stat.S_ISREG(entry.stat().st_mode):
                        continue
                    if not only_written or is_for_writing(proc / str(pid) / "fdinfo" / entry.name):
                        files.add(file)
    return files


def _memory_bytes(server: Collection[int], proc: Path) -> int | None:
    """Return these processes' private pages and the most that one of them shares, without mapped
    files; the proportional set size would be the same, but walks all page tables while the
    server runs.
    """
    private = shared = huge = 0
    for pid in server:
        kb = dict[str, int]()
        for line in (content(f"{proc}/{pid}/status") or "").splitlines():
            words = line.split()
            if len(words) == 3 and words[2] == "kB":
                kb[words[0]] = int(words[1])
        private += kb.get("RssAnon:", 0)
        shared = max(shared, kb.get("RssShmem:", 0))
        huge = max(huge, kb.get("HugetlbPages:", 0))
    return 1024 * (private + shared + huge) or None


class DiskClock:
    """Counters of whole disks (kernel names) since its creation: loop numbers are reused and keep
    their counters.
    """

    def __init__(self, disks: Sequence[str]) -> None:
        self.disks = tuple(disks)
        self._before = self._read()

    def difference(self) -> dict[str, int | None]:
        """Return `read_bytes`, `write_bytes`, `read_operations`, `write_operations` (requests that
        the disk completed, after merging) and `flushes`; None if not counted.
        """
        grown = dict[str, int | None]()
        for name, new in self._read().items():
            old = self._before[name]
            grown[name] = None if old is None or new is None else new - old
        return grown

    def _read(self) -> dict[str, int | None]:
        sums: dict[str, int | None] = dict.fromkeys(sysfs.COUNTED, 0 if self.disks else None)
        for disk in self.disks:
            counters = sysfs.io_counters(disk) or {}
            for name, total in sums.items():
                counter = counters.get(name)
                if total is None or counter is None:
                    sums[name] = None
                else:
                    sums[name] = total + counter
        return {**sums, "flushes": sysfs.flushes(self.disks)}
