"""The host: what it is (`facts`, `versions`), what may change (`state`, `changed`), and whether other processes used it
during a measurement (`reading`, `foreign_load`, `load_warnings`).

Facts about the machine, read once per run. A missing file or program never raises an exception here.

The load from outside is the CPU time of processes that do not belong to the trial, time stolen by the hypervisor, and
events that are rare on a quiet machine (heat, a dropped page cache, swapping). There are two readings, at the beginning
and at the end of the window. In a trial's pid namespace /proc shows only the trial; `namespaces.host_proc` shows the
whole machine.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import mmap
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing
from dbbench.machine import libc
from dbbench.machine.host.proc import (
    CpuTimes,
    MovedBytes,
    ProcessTimes,
    cpu_times,
    moved_bytes,
    number,
    processes,
    text,
    tree,
    vmstat,
)
from dbbench.machine.host.tunables import block_files, block_layer, changed, state, watched
from dbbench.machine.namespaces import host_proc
from dbbench.model import TrialWarning
from dbbench.process import find, run
from dbbench.units import count, percent

__all__ = [
    "ForeignProcess",
    "HostLoad",
    "LoadReading",
    "block_files",
    "block_layer",
    "changed",
    "facts",
    "foreign_load",
    "load_warnings",
    "memory_bytes",
    "reading",
    "state",
    "versions",
    "virtualisation",
    "watched",
    "without_io_uring",
]
# CPU flags by which databases and filesystems choose their code for checksums and compression.
_FLAGS: Final = ("sse4_2", "pclmulqdq", "vpclmulqdq", "avx", "avx2", "avx512f", "sha_ni", "aes", "crc32", "sha2")

# Program -> arguments that print its version.
_TOOLS: Final[dict[str, tuple[str, ...]]] = {
    "sysbench": ("--version",),
    "pgbench": ("--version",),
    "sadf": ("-V",),
    "iostat": ("-V",),
    "fio": ("--version",),
    "mkfs.ext4": ("-V",),
    "mkfs.xfs": ("-V",),
    "mkfs.btrfs": ("--version",),
    "compsize": ("--version",),
}
# psycopg2 has another name where a distribution built it.
_PACKAGES: Final = (
    "psycopg2-binary", "psycopg2", "mysql-connector-python", "pydantic", "numpy", "scipy", "plotly", "jinja2",
)  # fmt: skip
# Errors of a program that gives no answer. An interruption of dbbench is not one of them.
_NO_ANSWER: Final = (CommandFailed, DeadlinePassed, ProgramMissing)
_IO_URING_SETUP: Final = 425  # the system call's number on every architecture
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+[\w.-]*")


def facts(root: Path = Path("/")) -> dict[str, Any]:
    """Return the facts for the environment table: scalars, `cpu_flags` as a list, None for what is not known.

    Includes `state()` at the beginning of the run.
    """
    uname = os.uname()
    return {
        "hostname": uname.nodename,
        "kernel": uname.release,
        "kernel_version": uname.version,
        "architecture": uname.machine,
        "distribution": _distribution(),
        **_cpu(root),
        "numa_nodes": len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        "memory_bytes": memory_bytes(root),
        "virtualisation": virtualisation(root),
        "second_kernel": second_kernel(root),
        "vendor": text(root / "sys/class/dmi/id/sys_vendor"),
        "product": text(root / "sys/class/dmi/id/product_name"),
        "clocksource": text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        **state(root),
    }


def versions() -> dict[str, str]:
    """Return the versions of the programs and Python packages that a run may use; missing ones are omitted."""
    versions_by_program = {"python": platform.python_version()}
    for program, arguments in _TOOLS.items():
        if find(program) and (version := _printed_version(program, arguments)):
            versions_by_program[program] = version
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions_by_program[package] = importlib.metadata.version(package)
    return versions_by_program


def virtualisation(root: Path = Path("/")) -> str | None:
    """Return "kvm", "vmware", "xen", "none" (bare metal), or None if it cannot be determined."""
    if find("systemd-detect-virt"):
        with contextlib.suppress(*_NO_ANSWER):
            # Status 1 means "none". --vm ignores containers, which do not withhold CPU time.
            printed = run(["systemd-detect-virt", "--vm"], timeout_s=10, ok=(0, 1), note=False).stdout.strip()
            if printed:
                return printed
    if hypervisor := text(root / "sys/hypervisor/type"):
        return hypervisor
    cpuinfo = text(root / "proc/cpuinfo") or ""
    return "unknown hypervisor" if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE) else None


def second_kernel(root: Path = Path("/")) -> str | None:
    """Return a note about numbers from user-mode Linux (`dbbench rehearse`), or None on any other kernel."""
    cpuinfo = text(root / "proc/cpuinfo") or ""
    return f"user-mode Linux {os.uname().release}, not comparable" if "User Mode Linux" in cpuinfo else None


def without_io_uring(root: Path = Path("/")) -> str | None:
    """Return why the kernel refuses io_uring to a server, which is not root, or None if it does not."""
    if (disabled := text(root / "proc/sys/kernel/io_uring_disabled")) in ("1", "2"):
        return f"the kernel refuses io_uring: sysctl kernel.io_uring_disabled is {disabled}; 0 permits it"
    try:
        libc.call("syscall", _IO_URING_SETUP, 1, None)
    except OSError as error:
        if error.errno != errno.EFAULT:  # EFAULT is about the null pointer: the call itself is permitted
            return f"the kernel refuses io_uring ({error.strerror}), for example by a seccomp profile"
    return None


def _cpu(root: Path) -> dict[str, Any]:
    cpuinfo = text(root / "proc/cpuinfo") or ""
    topology = list((root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology"))
    ids = [(text(path / "physical_package_id"), text(path / "core_id")) for path in topology]
    cores = len(set(ids)) or None
    return {
        "cpu_model": _field(cpuinfo, "model name") or _field(cpuinfo, "CPU part"),
        "microcode": _field(cpuinfo, "microcode"),
        "cpu_sockets": len({package for package, _ in ids}) or None,
        "cpu_cores": cores,
        "cpu_threads": os.cpu_count(),
        "cpu_threads_per_core": round(len(ids) / cores) if cores else None,
        "cpu_flags": _flags(cpuinfo),
    }


def _flags(cpuinfo: str) -> list[str] | None:
    words = _field(cpuinfo, "flags") or _field(cpuinfo, "Features")
    return None if words is None else [flag for flag in _FLAGS if flag in words.split()]


def _field(cpuinfo: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else None


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of the machine's memory."""
    match = re.search(r"^MemTotal:\s+(\d+) kB$", text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _printed_version(program: str, arguments: tuple[str, ...]) -> str | None:
    with contextlib.suppress(*_NO_ANSWER):
        done = run([program, *arguments], timeout_s=10, ok=range(256), note=False)
        match = _VERSION.search(done.stdout) or _VERSION.search(done.stderr)
        return match[0] if match else None
    return None


CPUS: Final = Path("/sys/devices/system/cpu")
# A machine with enough memory occasionally swaps out idle pages, at a lower rate; pages that the load needs are swapped
# in and out all the time.
SWAPPED_BYTES_PER_S: Final = 1e6


@dataclass(frozen=True)
class Events:
    """Event counts since boot or between two moments; None for what is not counted."""

    throttled: int | None = None  # how often a CPU was slowed down because of its heat
    cache_drops: int | None = None  # writes to /proc/sys/vm/drop_caches that dropped the page cache
    swapped_pages: int | None = None  # swapped in and swapped out

    def since(self, before: Events) -> Events:
        """Return the difference to an earlier reading."""
        return Events(
            _less(self.throttled, before.throttled),
            _less(self.cache_drops, before.cache_drops),
            _less(self.swapped_pages, before.swapped_pages),
        )


NO_EVENTS: Final = Events()


def events(proc: Path) -> Events:
    """Read the counters of all processors (thermal_throttle of x86) and of /proc/vmstat."""
    throttled = [
        count for path in CPUS.glob("cpu*/thermal_throttle/*_throttle_count") if (count := number(path)) is not None
    ]
    counted: dict[str, int] = {}
    with contextlib.suppress(OSError):
        counted = vmstat(proc)
    swapped = [counted[name] for name in ("pswpin", "pswpout") if name in counted]
    return Events(
        sum(throttled) if throttled else None, counted.get("drop_pagecache"), sum(swapped) if swapped else None
    )


def warnings(found: Events, seconds: float) -> Iterator[TrialWarning]:
    """Yield W015, W130 and W131 (all suspect) for the events of that many seconds."""
    if found.throttled:
        text = f"the CPUs were throttled {count(found.throttled, 'time')} in {seconds:.0f} s"
        yield TrialWarning("W015", text)
    if found.cache_drops:
        text = f"the machine's page cache was dropped {count(found.cache_drops, 'time')} in {seconds:.0f} s"
        yield TrialWarning("W130", text)
    swapped = (found.swapped_pages or 0) * mmap.PAGESIZE
    if seconds > 0 and swapped / seconds >= SWAPPED_BYTES_PER_S:
        yield TrialWarning("W131", f"{swapped / 1e6:.0f} MB were swapped in {seconds:.0f} s")


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _moved(before: LoadReading, after: LoadReading, among: Iterable[tuple[int, int]]) -> MovedBytes | None:
    """Return the bytes that these processes moved between two readings; None if it is known of none of them.

    What ended children moved is in their parent's account if it has waited for them, with their whole life; otherwise
    it is lost.
    """
    each = [(before.moved.get(key, MovedBytes(0, 0, 0)), after.moved[key]) for key in among if key in after.moved]
    grown = [[max(0, new - old) for old, new in zip(*pair, strict=True)] for pair in each]
    return MovedBytes(*map(sum, zip(*grown, strict=True))) if grown else None


# A foreign load below both limits cannot cause the difference between two arms. The second limit is the lower one on
# machines with more than 10 CPUs.
FOREIGN_SHARE: Final = 0.05
FOREIGN_CORES: Final = 0.5
NAMED_SHARE: Final = 0.1  # share of the foreign CPU time above which a warning names the process
# Quiet virtual machines show up to 1 %. From 2 to 3 % on, throughput changes by as much as it scatters
# (docs/method.md has the measurements).
STEAL_SHARE: Final = 0.02


@dataclass(frozen=True)
class LoadReading:
    """The machine at one moment. `foreign` and `ours` use (pid, start) as keys because pids are reused."""

    monotonic: float
    cpu: CpuTimes | None
    ours: Mapping[tuple[int, int], ProcessTimes]
    foreign: Mapping[tuple[int, int], ProcessTimes]
    kernel_s: float | None  # CPU time of kernel threads; None: not visible from here
    events: Events = NO_EVENTS
    # Bytes that each process has read from and written to disks, as far as this user may read it.
    moved: Mapping[tuple[int, int], MovedBytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignProcess:
    """A process that does not belong to the trial; its CPU seconds between two readings, without its children's."""

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
    iowait_share: float | None
    processes: tuple[ForeignProcess, ...]  # the busiest foreign ones, at most five
    events: Events = NO_EVENTS
    ours_moved: MovedBytes | None = None
    foreign_moved: MovedBytes | None = None


def reading(ours: tuple[int, ...] = (), proc: Path | None = None) -> LoadReading:
    """Read the load of the machine now.

    In a pid namespace of its own, the trial's processes are all in that namespace, plus the dbbench that started it;
    otherwise this process, the processes in `ours` (a server, a load generator) and the descendants of both.
    """
    where = proc or host_proc()
    table = processes(where)
    own_pids = _of_our_namespace(table, where) or tree((os.getpid(), *ours), table)
    kernel = [process.all_s for process in table.values() if process.kernel]
    others = [process.pid for process in table.values() if process.pid not in own_pids and not process.kernel]
    return LoadReading(
        time.monotonic(),
        cpu_times(where),
        {(p.pid, p.started): p for p in table.values() if p.pid in own_pids},
        {(pid, table[pid].started): table[pid] for pid in others},
        sum(kernel) if kernel else None,
        events(where),
        {
            (p.pid, p.started): size
            for p in table.values()
            if not p.kernel and (size := moved_bytes(p.pid, where)) is not None
        },
    )


def foreign_load(before: LoadReading, after: LoadReading) -> HostLoad:
    """Return the load between two readings that does not belong to the trial.

    If all processes are visible, this sums the time of all foreign processes including their terminated children; that
    is exact, whereas /proc/stat counts ticks. In a container that cannot see the others it is the busy time minus the
    trial's own, so it includes kernel threads.
    """
    seconds = after.monotonic - before.monotonic
    busiest, counted = _busiest(before, after), after.events.since(before.events)
    moved = (_moved(before, after, after.ours), _moved(before, after, _still_foreign(before, after)))
    if before.cpu is None or after.cpu is None or seconds <= 0:
        return HostLoad(seconds, None, None, None, None, None, busiest, counted, *moved)
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
        *moved,
    )


def _busiest_text(busiest: tuple[ForeignProcess, ...], foreign_cpu_s: float) -> str:
    """Return the name of the busiest process, unless it used little: the time is then of many, or of ended ones."""
    if not busiest:
        return "the processes are not visible"
    first = busiest[0]
    if first.cpu_s < NAMED_SHARE * foreign_cpu_s:
        return f"no running process used more than {first.cpu_s:.1f} s of it"
    return f"pid {first.pid} {first.name}: {first.cpu_s:.1f} s"


def load_warnings(load: HostLoad) -> tuple[TrialWarning, ...]:
    """Return W012, W015, W130 and W131 (all suspect) if their limits are exceeded."""
    warnings_of_load: list[TrialWarning] = []
    if load.foreign_share is not None and load.foreign_cpu_s is not None and load.cpus:
        cores = load.foreign_cpu_s / load.seconds
        if load.foreign_share >= FOREIGN_SHARE or cores >= FOREIGN_CORES:
            text = f"other processes used {percent(load.foreign_share)} of the CPU time in {load.seconds:.0f} s"
            text += f" ({_busiest_text(load.processes, load.foreign_cpu_s)})"
            warnings_of_load.append(TrialWarning("W012", text))
    if load.steal_share is not None and load.steal_share >= STEAL_SHARE:
        text = f"the hypervisor took {percent(load.steal_share, 1)} of the CPU time in {load.seconds:.0f} s"
        warnings_of_load.append(TrialWarning("W015", text))
    return (*warnings_of_load, *warnings(load.events, load.seconds))


def _of_our_namespace(table: Mapping[int, ProcessTimes], where: Path) -> set[int]:
    """Return the pids, as `where` numbers them, of this pid namespace and of the dbbench above it.

    The set is empty if `where` shows only this namespace. Needs no permission to inspect other users' processes.
    """
    try:
        me = int((where / "self").readlink().name)  # `self` links to this process's pid in that /proc
    except (OSError, ValueError):
        return set()
    if me == os.getpid():
        return set()
    init = me
    while init in table and _inner_pid(where, init) != 1:
        init = table[init].parent
    members = tree((init,), table)  # orphans are adopted by the namespace's first process
    above = table[init].parent if init in table else 0
    while above in table and _is_dbbench(where, above):
        members.add(above)
        above = table[above].parent
    return members


def _inner_pid(where: Path, pid: int) -> int | None:
    """Return the pid in the process's own namespace: the last entry of NSpid, proc(5)."""
    match = re.search(r"^NSpid:.*\s(\d+)$", text(where / str(pid) / "status") or "", re.MULTILINE)
    return int(match[1]) if match else None


def _is_dbbench(where: Path, pid: int) -> bool:
    """Whether the process runs dbbench: its command, or one of its modules (`-m dbbench.run.worker`).

    A directory of that name in a command line says nothing: a shell or an editor may have been started from a checkout.
    """
    try:
        words = (where / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(b"/dbbench") for word in words[:2]) or any(
        word == b"dbbench" or word.startswith(b"dbbench.") for word in words
    )


def _grown(before: Mapping[tuple[int, int], ProcessTimes], after: Mapping[tuple[int, int], ProcessTimes]) -> float:
    """Return the CPU seconds that a set of processes used between two readings.

    The whole life of a terminated process is in its parent's `reaped_s`, so its time up to the first reading is
    subtracted.
    """
    grown = sum(p.all_s for p in after.values()) - sum(p.all_s for p in before.values())
    return max(grown, sum(cpu_s for _, cpu_s in _each(before, after)), 0.0)


def _each(
    before: Mapping[tuple[int, int], ProcessTimes], after: Mapping[tuple[int, int], ProcessTimes]
) -> list[tuple[ProcessTimes, float]]:
    """Return each living process with the CPU seconds that it used itself."""
    return [(process, process.own_s - (before[key].own_s if key in before else 0.0)) for key, process in after.items()]


def _still_foreign(before: LoadReading, after: LoadReading) -> dict[tuple[int, int], ProcessTimes]:
    """Remove processes that belonged to the trial at the first reading; if the parent ended, they are no longer in the
    tree."""
    return {key: process for key, process in after.foreign.items() if key not in before.ours}


def _busiest(before: LoadReading, after: LoadReading) -> tuple[ForeignProcess, ...]:
    used = [pair for pair in _each(before.foreign, _still_foreign(before, after)) if pair[1] > 0]
    used.sort(key=lambda pair: -pair[1])
    return tuple(ForeignProcess(process.pid, process.name, cpu_s) for process, cpu_s in used[:5])


def _share(part: float, whole: float) -> float | None:
    return max(0.0, part) / whole if whole > 0 else None
