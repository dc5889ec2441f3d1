"""Read /proc and /sys: small files, CPU times, scheduling of processes and threads; None for what
cannot be read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from dbbench.machine import libc

PROC: Final = Path("/proc")
BOOT_ID: Final = PROC / "sys/kernel/random/boot_id"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_EXITING: Final = 0x4  # PF_EXITING, include/linux/sched.h
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD
_READ_BYTES: Final = 65536
_LOOKING_SHARE: Final = 0.002  # of a core, for the list of all processes
# System call number of ioprio_get(2), which libc does not wrap; on other architectures the I/O
# priority is not read.
_IOPRIO_GET: Final = {"x86_64": 252, "aarch64": 31}.get(platform.machine())
_IOPRIO_WHO_PROCESS: Final = 1


@dataclass(frozen=True)
class CpuTimes:
    """Seconds since boot, summed over all CPUs (proc(5))."""

    busy_s: float  # user, nice, system, irq and softirq; without steal, iowait and guests
    steal_s: float
    guest_s: float
    total_s: float
    cpus: int


def cpu_times(proc: Path = PROC) -> CpuTimes | None:
    """Return the CPU time of the machine, or None if /proc/stat cannot be read."""
    try:
        lines = (proc / "stat").read_text().splitlines()
        user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice = (
            int(word) / _TICKS for word in lines[0].split()[1:11]
        )
    except (OSError, ValueError, IndexError):
        return None
    cpus = sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines)
    # user and nice include the guests
    total = user + nice + system + irq + softirq + idle + iowait + steal
    guests = guest + guest_nice
    return CpuTimes(
        user + nice + system + irq + softirq - guests,
        steal,
        guests,
        total,
        cpus,
    )


def vmstat(proc: Path = PROC) -> dict[str, int]:
    """Return the counters of /proc/vmstat by name. Raises OSError."""
    lines = (line.split() for line in (proc / "vmstat").read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}


class MovedBytes(NamedTuple):
    """Bytes that a process, and children that it has waited for, caused to be read from and written
    to any disk, and those of its write calls (proc_pid_io(5)). A write call dirties a whole
    folio of the page cache, and `written` counts all of it: up to 2 MiB for 8 KiB. It has none
    of what was removed before it reached a disk. `called` has none of asynchronous I/O.
    """

    read: int
    written: int
    called: int


def io_counts(pid: int | str, proc: Path = PROC) -> dict[str, int]:
    """Return the counts of proc_pid_io(5) by name; {} if the process has ended, or belongs to
    another user.
    """
    text = content(f"{proc}/{pid}/io") or ""
    counts = {}
    with contextlib.suppress(ValueError):
        for line in text.splitlines():
            name, value = line.split(": ")
            counts[name] = int(value)
        return counts
    return {}


def moved_bytes(pid: int, proc: Path = PROC) -> MovedBytes | None:
    """Return the bytes of a process, or None as `io_counts`."""
    counts = io_counts(pid, proc)
    if not counts:
        return None
    return MovedBytes(
        counts["read_bytes"],
        counts["write_bytes"] - counts["cancelled_write_bytes"],
        counts["wchar"],
    )


def text(path: Path) -> str | None:
    """Return the stripped content, or None."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Return the content as an integer, or None."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def disk_counts(folder: str | Path) -> list[int] | None:
    """Return the numbers of a disk's directory in /sys (Documentation/block/stat.rst), or None if
    it is gone.
    """
    return [int(word) for word in (content(f"{folder}/stat") or "").split()] or None


def chosen(path: Path) -> str | None:
    """Return "madvise" for "always [madvise] never"; the whole content if there are no brackets."""
    line = text(path)
    match = re.search(r"\[([^\]]+)\]", line or "")
    return match[1] if match else line


def common(paths: Iterable[Path]) -> str | None:
    """Return the distinct contents of files that should agree (one per CPU), joined by ", "; None
    without files.
    """
    contents = {content for content in map(text, paths) if content is not None}
    return ", ".join(sorted(contents)) or None


def content(path: str | Path) -> str | None:
    """Return the content of a small file, or None. The path may be a string: dozens of files are
    read each second during a measurement, and a Path object costs three times as much.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, _READ_BYTES).decode(errors="replace").rstrip("\n")
    except OSError:
        return None
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Task:
    """A process or one of its threads, from its line in proc_pid_stat(5)."""

    pid: int  # the thread id of a thread
    name: str
    state: str  # "R", "S", "D", "T" ...
    parent: int
    kernel: bool  # a thread of the kernel
    exiting: bool
    nice: str
    threads: int
    started: int  # ticks since boot; identifies a task together with the pid
    policy: str  # "0" is normal; "1/50" is policy 1 with the real-time priority 50
    own_s: float  # CPU time
    reaped_s: float  # CPU time of the terminated descendants that it has waited for

    @property
    def all_s(self) -> float:
        return self.own_s + self.reaped_s


def task(folder: str) -> Task | None:
    """Return the process or thread of this directory in /proc, or None if it is gone."""
    # a name may contain spaces and parentheses
    head, _, tail = (content(f"{folder}/stat") or "").rpartition(")")
    # The fields by their place, see proc_pid_stat(5).
    number, _, name = head.partition(" (")
    rest = tail.split()
    try:
        flags = int(rest[6])
        used = int(rest[11]) + int(rest[12])
        reaped = int(rest[13]) + int(rest[14])
        return Task(
            int(number),
            name,
            rest[0],
            int(rest[1]),
            bool(flags & _KERNEL_THREAD),
            bool(flags & _EXITING),
            rest[16],
            int(rest[17]),
            int(rest[19]),
            rest[38] if rest[37] == "0" else f"{rest[38]}/{rest[37]}",
            used / _TICKS,
            reaped / _TICKS,
        )
    except (IndexError, ValueError):
        return None


def tasks(proc: Path = PROC) -> dict[int, Task]:
    """Return the processes by pid. Raises OSError."""
    return _tasks_of(_list_names(proc), proc)


def _list_names(proc: Path) -> set[str]:
    # Names only: of 30,000 processes, Path objects and numbers cost more than the kernel does.
    return {name for name in os.listdir(proc) if name.isdigit()}  # noqa: PTH208


def _tasks_of(names: Iterable[str], proc: Path) -> dict[int, Task]:
    read = (task(f"{proc}/{name}") for name in names)
    return {process.pid: process for process in read if process is not None}


class ProcessFamily:
    """The processes below some of them, for readings of a measurement. On a host with very many
    processes, new ones are looked for less often: the listing may take 0.2 % of a core.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._foreign: set[str] = set()
        # pid -> start time; also of processes whose parent has since ended
        self._known: dict[int, int] = {}
        self._due = 0.0

    def read(self, roots: Iterable[int]) -> dict[int, Task]:
        """Return the roots and all processes below them. Raises OSError."""
        names = set(map(str, self._known))
        began = time.thread_time()
        looks = time.monotonic() >= self._due
        if looks:
            listed = _list_names(self._proc)
            self._foreign &= listed
            names = listed - self._foreign
            pause_s = (time.thread_time() - began) / _LOOKING_SHARE
            if pause_s > 1:  # readings are a second apart
                self._due = time.monotonic() + pause_s
        table = _tasks_of(names, self._proc)
        alive = []
        for pid, started in self._known.items():
            if pid in table and table[pid].started == started:
                alive.append(pid)
        ours = below((*roots, *alive), table)
        if looks:
            self._foreign.update(map(str, table.keys() - ours))
        self._known = {pid: table[pid].started for pid in ours}
        return {pid: table[pid] for pid in sorted(ours)}


def below(
    roots: Iterable[int],
    table: Mapping[int, Task],
    without: Collection[int] = (),
) -> set[int]:
    """Return the pids of existing roots and all processes below them, without the branches that
    begin in `without`.
    """
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    pids: set[int] = set()
    waiting = [pid for pid in roots if pid in table]
    while waiting:
        pid = waiting.pop()
        if pid not in pids and pid not in without:
            pids.add(pid)
            waiting.extend(children.get(pid, ()))
    return pids


def threads(process: Task, proc: Path = PROC) -> list[Task]:
    """Return the threads of a process; the process itself is the first one."""
    if process.threads <= 1:
        return [process]
    folder = f"{proc}/{process.pid}/task"
    names = list[str]()
    with contextlib.suppress(OSError):
        names = os.listdir(folder)  # noqa: PTH208 -- as above
    others = (task(f"{folder}/{name}") for name in names if name != str(process.pid))
    return [process, *(thread for thread in others if thread is not None)]


@functools.cache
def _list_cpus(cpus: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def schedule_of(thread: Task) -> dict[str, str]:
    """Return how a thread is scheduled now, as text by name; what cannot be read is omitted."""
    values = {"nice": thread.nice, "scheduling policy": thread.policy}
    with contextlib.suppress(OSError):
        values["CPUs"] = _list_cpus(frozenset(os.sched_getaffinity(thread.pid)))
    with contextlib.suppress(OSError):
        if _IOPRIO_GET is not None:
            values["I/O priority"] = str(
                libc.call("syscall", _IOPRIO_GET, _IOPRIO_WHO_PROCESS, thread.pid)
            )
    return values


class CpuTurns(NamedTuple):
    """Seconds of a thread on a CPU and waiting for one, and how often it was given one, since it
    started; 0 if this kernel does not count it.
    """

    on_cpu_s: float = 0.0
    queued_s: float = 0.0
    times: int = 0


def cpu_turns(schedstat: str | bytes | None) -> CpuTurns:
    """Return what a thread's file `schedstat` says."""
    words = (schedstat or "").split()
    if len(words) == 3 and words[2].isdigit():
        return CpuTurns(int(words[0]) / 1e9, int(words[1]) / 1e9, int(words[2]))
    return CpuTurns()
