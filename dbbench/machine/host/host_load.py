"""The load from outside between two readings: CPU time of processes that do not belong to the
trial, time stolen by the hypervisor, and events that are rare on a quiet machine (heat, a
dropped page cache, swapping).
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import string
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench.machine.host import proc as proc_files
from dbbench.machine.host.proc import CpuTimes, MovedBytes, Task, below, number, text
from dbbench.machine.namespaces import host_proc
from dbbench.model import TrialWarning
from dbbench.units import count, join_words, percent

CPUS: Final = Path("/sys/devices/system/cpu")
# A machine with enough memory occasionally swaps out idle pages, at a lower rate; pages that the
# load needs are swapped in and out all the time.
SWAPPED_BYTES_PER_S: Final = 1e6
# A foreign load below both limits cannot cause the difference between two arms. The second limit is
# the lower one on machines with more than 10 CPUs.
FOREIGN_SHARE: Final = 0.05
FOREIGN_CORES: Final = 0.5
NAMED_SHARE: Final = 0.1  # share of the foreign CPU time above which a warning names the process
# Quiet virtual machines show up to 1 %. From 2 to 3 % on, throughput changes by as much as it
# scatters (docs/method.md has the measurements).
STEAL_SHARE: Final = 0.02

_MODULE: Final = (b"-m", b"--preload")  # options before the name of a module (Python, dask)

ProcessKey = tuple[int, int]  # pid and start, because pids are reused
Tasks = Mapping[ProcessKey, Task]


@dataclass(frozen=True)
class LoadReading:
    """The machine at one moment."""

    monotonic: float
    cpu: CpuTimes | None
    ours: Tasks
    foreign: Tasks
    kernel: Tasks  # kernel threads; empty: not visible from here
    events: Mapping[str, int] = field(default_factory=dict)
    # Bytes that each process has read from and written to disks, as far as this user may read it.
    moved: Mapping[ProcessKey, MovedBytes] = field(default_factory=dict)
    # Processes of other runs of dbbench: pid -> pid of the dbbench that has started them.
    other_runs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignProcess:
    """A process that does not belong to the trial; its CPU seconds between two readings, without
    its children's. Another dbbench stands for all processes that it has started.
    """

    pid: int
    name: str
    cpu_s: float


@dataclass(frozen=True)
class HostLoad:
    """Load between two readings. Shares refer to the time of all CPUs; None means "not measurable"."""

    seconds: float
    cpus: int | None
    foreign_cpu_s: float | None
    foreign_share: float | None
    steal_share: float | None
    processes: tuple[ForeignProcess, ...]  # the busiest foreign ones, at most five
    events: Mapping[str, int] = field(default_factory=dict)
    ours_moved: MovedBytes | None = None
    foreign_moved: MovedBytes | None = None
    other_runs: tuple[int, ...] = ()  # pids of other runs of dbbench
    # CPU seconds of kernel threads by name: "jbd2", "kworker", "loop"
    kernel_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def other_runs_text(self) -> str:
        """Return " (at the same time: pid 8636 dbbench)", or "" if this is the only dbbench."""
        names = [f"pid {pid} dbbench" for pid in self.other_runs]
        if names:
            return f" (at the same time: {join_words(names)})"
        return ""


def reading(ours: tuple[int, ...] = (), proc: Path | None = None) -> LoadReading:
    """Read the load of the machine now. In a pid namespace of its own, the trial's processes are
    all in that namespace, plus the dbbench that started it; otherwise this process, the
    processes in `ours` (a server, a load generator) and the descendants of both.
    """
    where = proc or host_proc()
    table: dict[int, Task] = {}
    with contextlib.suppress(OSError):
        table = proc_files.tasks(where)
    # Which processes belong to the trial.
    own_pids = _of_our_namespace(table, where) or below((os.getpid(), *ours), table)
    of_trial = dict[ProcessKey, Task]()
    foreign = dict[ProcessKey, Task]()
    moved = dict[ProcessKey, MovedBytes]()
    # Kernel threads work for everybody, so they are kept apart.
    kernel = dict[ProcessKey, Task]()
    monotonic = time.monotonic()
    cpu = proc_files.cpu_times(where)
    for process in table.values():
        key = (process.pid, process.started)
        if process.kernel:
            kernel[key] = process
        if process.pid in own_pids:
            of_trial[key] = process
        elif not process.kernel:
            foreign[key] = process
        transferred = None if process.kernel else proc_files.moved_bytes(process.pid, where)
        if transferred:
            moved[key] = transferred
    return LoadReading(
        monotonic,
        cpu,
        of_trial,
        foreign,
        kernel,
        events(where),
        moved,
        _other_runs(table, own_pids, where),
    )


def events(proc: Path, cpus: Path = CPUS) -> dict[str, int]:
    """Return counts since boot: `throttled` (CPUs slowed down because of heat), `cache_drops`
    (writes to drop_caches that dropped the page cache), `swapped_pages` (in and out).
    """
    paths = cpus.glob("cpu*/thermal_throttle/*_throttle_count")
    counted: dict[str, int] = {}
    with contextlib.suppress(OSError):
        counted = proc_files.vmstat(proc)
    parts = {
        "throttled": list(map(number, paths)),
        "cache_drops": [counted.get("drop_pagecache")],
        "swapped_pages": [counted.get("pswpin"), counted.get("pswpout")],
    }
    totals = {}
    for name, parts_of in parts.items():
        values = [value for value in parts_of if value is not None]
        if values:
            totals[name] = sum(values)
    return totals


def _sum_moves(
    before: LoadReading,
    after: LoadReading,
    among: Iterable[ProcessKey],
) -> MovedBytes | None:
    """Return the bytes that these processes moved, None if unknown. Ended children count if a
    parent waited for them.
    """
    total: MovedBytes | None = None
    for key in among:
        new = after.moved.get(key)
        if new is None:
            continue
        old = before.moved.get(key, MovedBytes(0, 0, 0))
        total = total or MovedBytes(0, 0, 0)
        total = MovedBytes(
            total.read + max(0, new.read - old.read),
            total.written + max(0, new.written - old.written),
            total.called + max(0, new.called - old.called),
        )
    return total


def foreign_load(before: LoadReading, after: LoadReading) -> HostLoad:
    """Return the load between two readings that does not belong to the trial. If all processes are
    visible, this sums the time of the foreign ones; that is exact, whereas /proc/stat counts
    ticks. In a container that cannot see them it is the busy time minus the trial's own, with
    kernel threads.
    """
    seconds = after.monotonic - before.monotonic
    # Not what belonged to the trial at the first reading: if a parent ends, its children leave the
    # tree.
    foreign_now = {key: process for key, process in after.foreign.items() if key not in before.ours}
    # All processes of another dbbench are named after it.
    cpu_of: dict[tuple[int, str], float] = {}
    for process, cpu_s in _each(before.foreign, foreign_now):
        run = after.other_runs.get(process.pid)
        who = (process.pid, process.name) if run is None else (run, "dbbench")
        cpu_of[who] = cpu_of.get(who, 0.0) + cpu_s
    busiest = list[ForeignProcess]()
    for (pid, name), cpu_s in sorted(cpu_of.items(), key=lambda pair: -pair[1])[:5]:
        if cpu_s > 0:
            busiest.append(ForeignProcess(pid, name, cpu_s))
    other_runs = tuple(dict.fromkeys(after.other_runs.values()))
    # Events that both readings have counted.
    counted = {}
    for name, now in after.events.items():
        if name in before.events:
            counted[name] = now - before.events[name]
    moved = (_sum_moves(before, after, after.ours), _sum_moves(before, after, foreign_now))
    # Without the times of the CPUs, only the processes can be named.
    if before.cpu is None or after.cpu is None or seconds <= 0:
        return HostLoad(
            seconds,
            None,
            None,
            None,
            None,
            tuple(busiest),
            counted,
            *moved,
            other_runs,
        )
    # Kernel threads are visible only where all processes are.
    if after.kernel:
        foreign = _grown(before.foreign, foreign_now)
    else:
        busy = after.cpu.busy_s + after.cpu.guest_s - before.cpu.busy_s - before.cpu.guest_s
        foreign = max(0.0, busy - _grown(before.ours, after.ours))
    kernel_s: dict[str, float] = {}
    for process, cpu_s in _each(before.kernel, after.kernel):
        name, slash, _ = process.name.partition("/")
        name = name if slash else name.rstrip(string.digits + ".")
        kernel_s[name] = kernel_s.get(name, 0.0) + cpu_s
    total = after.cpu.total_s - before.cpu.total_s
    return HostLoad(
        seconds,
        after.cpu.cpus,
        foreign,
        _share(foreign, seconds * after.cpu.cpus),
        _share(after.cpu.steal_s - before.cpu.steal_s, total),
        tuple(busiest),
        counted,
        *moved,
        other_runs,
        kernel_s,
    )


def _busiest_text(busiest: tuple[ForeignProcess, ...], foreign_cpu_s: float) -> str:
    """Return the name of the busiest process, unless it used little: the time is then of many, or
    of ended ones.
    """
    if not busiest:
        return "the processes are not visible"
    first = busiest[0]
    if first.cpu_s < NAMED_SHARE * foreign_cpu_s:
        return f"no running process used more than {first.cpu_s:.1f} s of it"
    return f"pid {first.pid} {first.name}: {first.cpu_s:.1f} s"


def load_warnings(load: HostLoad) -> Iterator[TrialWarning]:
    """Yield W012, W015, W130 and W131 (all suspect) if their limits are exceeded."""
    time_text = f"in {load.seconds:.0f} s"
    if load.foreign_share is not None and load.foreign_cpu_s is not None and load.cpus:
        cores = load.foreign_cpu_s / load.seconds
        if load.foreign_share >= FOREIGN_SHARE or cores >= FOREIGN_CORES:
            text = f"other processes used {percent(load.foreign_share)} of the CPU time {time_text}"
            yield TrialWarning(
                "W012", f"{text} ({_busiest_text(load.processes, load.foreign_cpu_s)})"
            )
    # Time that another guest of the machine got.
    if load.steal_share is not None and load.steal_share >= STEAL_SHARE:
        text = f"the hypervisor took {percent(load.steal_share, 1)} of the CPU time {time_text}"
        yield TrialWarning("W015", text)
    throttled = load.events.get("throttled")
    if throttled:
        text = f"the CPUs were throttled {count(throttled, 'time')} {time_text}"
        yield TrialWarning("W015", text)
    # A page cache that was dropped makes the next reads cold.
    drops = load.events.get("cache_drops")
    if drops:
        text = f"the machine's page cache was dropped {count(drops, 'time')} {time_text}"
        yield TrialWarning("W130", text + load.other_runs_text)
    swapped = load.events.get("swapped_pages", 0) * mmap.PAGESIZE
    if load.seconds > 0 and swapped / load.seconds >= SWAPPED_BYTES_PER_S:
        yield TrialWarning("W131", f"{swapped / 1e6:.0f} MB were swapped {time_text}")


def _of_our_namespace(table: Mapping[int, Task], where: Path) -> set[int]:
    """Return this namespace's pids and those of the dbbench above it, as `where` numbers them; none
    without an outer one.
    """
    try:
        # `self` links to this process's pid in that /proc
        me = int((where / "self").readlink().name)
    except (OSError, ValueError):
        return set()
    if me == os.getpid():
        return set()
    init = me
    # The last entry of NSpid (proc(5)) is the pid in the process's own namespace.
    while init in table and not re.search(
        r"^NSpid:.*\s1$",
        text(where / str(init) / "status") or "",
        re.MULTILINE,
    ):
        init = table[init].parent
    members = below((init,), table)  # orphans are adopted by the namespace's first process
    above = table[init].parent if init in table else 0
    while above in table and _is_dbbench(where, above):
        members.add(above)
        above = table[above].parent
    return members


def _other_runs(table: Mapping[int, Task], own_pids: set[int], where: Path) -> dict[int, int]:
    """Return the processes of other runs of dbbench, each with the pid of the first dbbench above
    it. What has started this process is none of them.
    """
    above = set[int]()
    pid = os.getpid()
    while pid in table and pid not in above:
        above.add(pid)
        pid = table[pid].parent
    runs = {}
    for pid in table:
        if pid not in own_pids | above and _is_dbbench(where, pid):
            runs[pid] = table[pid].parent
    first = [pid for pid, parent in runs.items() if parent not in runs]
    return {member: run for run in first for member in below((run,), table)}


def _is_dbbench(where: Path, pid: int) -> bool:
    """Whether it runs dbbench, by its command or a module (`-m dbbench.run.worker`); another
    program's argument says nothing.
    """
    try:
        words = (where / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    by_command = any(word.endswith(b"/dbbench") for word in words[:2])
    modules = [word for flag, word in itertools.pairwise(words) if flag in _MODULE]
    return by_command or any(word.split(b".")[0] == b"dbbench" for word in modules)


def _grown(before: Tasks, after: Tasks) -> float:
    """Return the CPU seconds used between two readings. The whole life of a terminated process is
    in its parent's `reaped_s`, so its time up to the first reading is subtracted.
    """
    grown = sum(p.all_s for p in after.values()) - sum(p.all_s for p in before.values())
    return max(grown, sum(cpu_s for _, cpu_s in _each(before, after)), 0.0)


def _each(before: Tasks, after: Tasks) -> list[tuple[Task, float]]:
    used = []
    for key, process in after.items():
        earlier_s = before[key].own_s if key in before else 0.0
        used.append((process, process.own_s - earlier_s))
    return used


def _share(part: float, whole: float) -> float | None:
    if whole > 0:
        return max(0.0, part) / whole
    return None
