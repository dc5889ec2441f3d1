"""/proc: CPU time of the machine and of its processes, in seconds. Cheap: plain reads, no process started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD, include/linux/sched.h


@dataclass(frozen=True)
class CpuTimes:
    """Seconds since boot over all CPUs (proc(5)). `busy_s` has neither steal, iowait nor guests in it."""

    user_s: float
    nice_s: float
    system_s: float
    irq_s: float
    idle_s: float
    iowait_s: float
    steal_s: float
    guest_s: float
    cpus: int

    @property
    def busy_s(self) -> float:
        return self.user_s + self.nice_s + self.system_s + self.irq_s

    @property
    def total_s(self) -> float:
        return self.busy_s + self.idle_s + self.iowait_s + self.steal_s + self.guest_s


@dataclass(frozen=True)
class ProcessTimes:
    """One process. `reaped_s` is the CPU time of its dead children that it has waited for, and theirs."""

    pid: int
    name: str
    parent: int
    started: int  # ticks since boot: with the pid an identity
    kernel: bool
    own_s: float
    reaped_s: float
    state: str = ""  # "R", "S", "D", "T" ... of proc_pid_stat(5)

    @property
    def all_s(self) -> float:
        return self.own_s + self.reaped_s


def cpu_times(proc: Path = PROC) -> CpuTimes | None:
    """The machine's CPU time; None where /proc/stat cannot be read."""
    try:
        lines = (proc / "stat").read_text().splitlines()
        user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice = (
            int(word) / _TICKS for word in lines[0].split()[1:11]
        )
    except (OSError, ValueError, IndexError):
        return None
    cpus = sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines)
    # The kernel counts a guest's time in user and nice as well.
    return CpuTimes(
        user - guest, nice - guest_nice, system, irq + softirq, idle, iowait, steal, guest + guest_nice, cpus
    )


def vmstat(proc: Path = PROC) -> dict[str, int]:
    """What the kernel's memory management counts since boot, by name (/proc/vmstat). OSError."""
    lines = (line.split() for line in (proc / "vmstat").read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}


def process_times(pid: int | str, proc: Path = PROC) -> ProcessTimes | None:
    """One process; None where it is gone or hidden."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
        head, _, tail = text.rpartition(")")  # a name may hold spaces and brackets
        number, _, name = head.partition(" (")
        rest = tail.split()
        own, reaped = int(rest[11]) + int(rest[12]), int(rest[13]) + int(rest[14])
        return ProcessTimes(
            int(number),
            name,
            int(rest[1]),
            int(rest[19]),
            bool(int(rest[6]) & _KERNEL_THREAD),
            own / _TICKS,
            reaped / _TICKS,
            rest[0],
        )
    except (OSError, ValueError, IndexError):
        return None


def processes(proc: Path = PROC) -> dict[int, ProcessTimes]:
    """Every process that this /proc shows, by pid."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(proc)  # noqa: PTH208 -- names only; Path objects cost three times as much
    found = (process_times(name, proc) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def tree(roots: Iterable[int], table: Mapping[int, ProcessTimes], without: Collection[int] = ()) -> set[int]:
    """The pids of `roots` and of all their descendants; branches that begin in `without` are left out."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in table]
    while waiting:
        pid = waiting.pop()
        if pid not in found and pid not in without:
            found.add(pid)
            waiting.extend(children.get(pid, []))
    return found
