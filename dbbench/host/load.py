"""Was the machine ours? CPU time of processes that are not of this trial, and time stolen by the hypervisor.

Two readings, at the begin and the end of the window. Inside a trial's pid namespace /proc shows only the
trial; `namespaces.host_proc` is the machine's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.host.events import NONE, Events, events, warnings
from dbbench.host.proc import CpuTimes, ProcessTimes, cpu_times, processes, tree
from dbbench.host.sysfs import text
from dbbench.model import TrialWarning
from dbbench.namespaces import host_proc

# Below these a difference of two arms cannot come from it: 5 % of the machine, on a large one half a core.
FOREIGN_SHARE: Final = 0.05
FOREIGN_CORES: Final = 0.5
# 2 % of CPU time withheld is more than the 1 % that quiet virtual machines show.
STEAL_SHARE: Final = 0.02


@dataclass(frozen=True)
class LoadReading:
    """The machine at one moment. `foreign` and `ours` are by (pid, start): a reused pid is another process."""

    monotonic: float
    cpu: CpuTimes | None
    ours: Mapping[tuple[int, int], ProcessTimes]
    foreign: Mapping[tuple[int, int], ProcessTimes]
    kernel_s: float | None  # CPU time of kernel threads; None: not visible from here
    events: Events = NONE


@dataclass(frozen=True)
class ForeignProcess:
    """A process that is not ours; its own CPU seconds between two readings, without its children."""

    pid: int
    name: str
    cpu_s: float


@dataclass(frozen=True)
class HostLoad:
    """Between two readings. Shares are of all CPUs' time; None is not measurable."""

    seconds: float
    cpus: int | None
    foreign_cpu_s: float | None
    foreign_share: float | None
    steal_share: float | None
    iowait_share: float | None
    processes: tuple[ForeignProcess, ...]  # the busiest of those that are not ours, at most five
    events: Events = NONE


def reading(ours: tuple[int, ...] = (), proc: Path | None = None) -> LoadReading:
    """Read the machine now.

    Ours are, in a pid namespace of our own, all its processes, and the dbbench that started it; otherwise
    this process, the processes `ours` (a server, a load generator) and the descendants of both.
    """
    where = proc or host_proc()
    table = processes(where)
    mine = _of_our_namespace(table, where) or tree((os.getpid(), *ours), table)
    kernel = [process.all_s for process in table.values() if process.kernel]
    return LoadReading(
        time.monotonic(),
        cpu_times(where),
        {(p.pid, p.started): p for p in table.values() if p.pid in mine},
        {(p.pid, p.started): p for p in table.values() if p.pid not in mine and not p.kernel},
        sum(kernel) if kernel else None,
        events(where),
    )


def foreign_load(before: LoadReading, after: LoadReading) -> HostLoad:
    """What was not ours between two readings.

    With the whole process table in sight the time of all foreign processes is summed, each one's dead
    children included; it is exact, where /proc/stat counts by ticks. In a container that does not see
    the others it is busy time less our own, the kernel's threads included.
    """
    seconds = after.monotonic - before.monotonic
    busiest, counted = _busiest(before, after), after.events.since(before.events)
    if before.cpu is None or after.cpu is None or seconds <= 0:
        return HostLoad(seconds, None, None, None, None, None, busiest, counted)
    if after.kernel_s is not None:
        foreign = _grown(before.foreign, _still_foreign(before, after))
    else:
        busy = after.cpu.busy_s + after.cpu.guest_s - before.cpu.busy_s - before.cpu.guest_s
        foreign = max(0.0, busy - _grown(before.ours, after.ours))
    total = after.cpu.total_s - before.cpu.total_s
    return HostLoad(
        seconds,
        after.cpu.cpus,
        foreign,
        _share(foreign, seconds * after.cpu.cpus),
        _share(after.cpu.steal_s - before.cpu.steal_s, total),
        _share(after.cpu.iowait_s - before.cpu.iowait_s, total),
        busiest,
        counted,
    )


def load_warnings(load: HostLoad) -> tuple[TrialWarning, ...]:
    """W012, W015, W126, W130 and W131, all suspect, where the limits are passed."""
    found: list[TrialWarning] = []
    if load.foreign_share is not None and load.foreign_cpu_s is not None and load.cpus:
        cores = load.foreign_cpu_s / load.seconds
        if load.foreign_share >= FOREIGN_SHARE or cores >= FOREIGN_CORES:
            who = ", ".join(f"pid {p.pid} {p.name} {p.cpu_s:.1f} s" for p in load.processes[:1])
            said = f"background load {load.foreign_share:.0%} CPU ({who or 'processes not visible from here'})"
            found.append(TrialWarning("W012", f"{said} over {load.seconds:.0f} s", suspect=True))
    if load.steal_share is not None and load.steal_share >= STEAL_SHARE:
        said = f"steal {load.steal_share:.1%} of CPU time over {load.seconds:.0f} s"
        found.append(TrialWarning("W015", said, suspect=True))
    return (*found, *warnings(load.events, load.seconds))


def _of_our_namespace(table: Mapping[int, ProcessTimes], where: Path) -> set[int]:
    """Pids, as `where` counts them, of our pid namespace and of the dbbench above it; empty where `where`
    shows no other namespace than ours. Needs no right to look into others' processes."""
    try:
        me = int((where / "self").readlink().name)  # /proc/self is what this /proc calls the one who reads it
    except (OSError, ValueError):
        return set()
    if me == os.getpid():
        return set()
    init = me
    while init in table and _inner_pid(where, init) != 1:
        init = table[init].parent
    found = tree((init,), table)  # whoever loses its parent is adopted by the namespace's first process
    above = table[init].parent if init in table else 0
    while above in table and _is_dbbench(where, above):
        found.add(above)
        above = table[above].parent
    return found


def _inner_pid(where: Path, pid: int) -> int | None:
    """Its pid in its own namespace: the last of NSpid, proc(5)."""
    match = re.search(r"^NSpid:.*\s(\d+)$", text(where / str(pid) / "status") or "", re.MULTILINE)
    return int(match[1]) if match else None


def _is_dbbench(where: Path, pid: int) -> bool:
    try:
        return b"dbbench" in (where / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def _grown(before: Mapping[tuple[int, int], ProcessTimes], after: Mapping[tuple[int, int], ProcessTimes]) -> float:
    """CPU seconds that a whole set of processes used. A process that has ended is in its parent's `reaped_s`
    with all its life, so its time up to the first reading is taken off with the first sum."""
    grown = sum(p.all_s for p in after.values()) - sum(p.all_s for p in before.values())
    return max(grown, sum(own for _, own in _each(before, after)), 0.0)


def _each(
    before: Mapping[tuple[int, int], ProcessTimes], after: Mapping[tuple[int, int], ProcessTimes]
) -> list[tuple[ProcessTimes, float]]:
    """Each process that lives, with the CPU seconds it used itself."""
    return [(process, process.own_s - (before[key].own_s if key in before else 0.0)) for key, process in after.items()]


def _still_foreign(before: LoadReading, after: LoadReading) -> dict[tuple[int, int], ProcessTimes]:
    """Without what was ours at the first reading: one whose parent ended is no longer seen in our tree."""
    return {key: process for key, process in after.foreign.items() if key not in before.ours}


def _busiest(before: LoadReading, after: LoadReading) -> tuple[ForeignProcess, ...]:
    used = [pair for pair in _each(before.foreign, _still_foreign(before, after)) if pair[1] > 0]
    used.sort(key=lambda pair: -pair[1])
    return tuple(ForeignProcess(process.pid, process.name, own) for process, own in used[:5])


def _share(part: float, whole: float) -> float | None:
    return max(0.0, part) / whole if whole > 0 else None
