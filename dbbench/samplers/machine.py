"""machine: whether only the trial used the machine, and whether its settings stayed the same. Read once per second.

It compares each second with the previous one: mount options (W132; the kernel also announces changes), the scheduling
of the trial's processes and their control groups (W133), settings of the host and the block layer (W018) and the
system clock (W023). W127 reports a program's write to the node of a disk or to the image. W129 covers processes that
are stopped or frozen, a server that makes no progress although it is queried every second, and a thread of dbbench that
is seconds late: then the trial's process was stopped, or the whole (virtual) machine was.

There are no columns; `machine.jsonl` contains the findings and exists only if there are any.

What is compared are mappings of (warning, subject) to an opaque value. All are plain reads of /proc and /sys, because
they happen during a measurement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from dbbench.machine import host, threads
from dbbench.machine.host import proc as proc_files
from dbbench.machine.host.proc import PROC, Scheduled, Task, below, content, described, scheduled, times_run
from dbbench.machine.limits.cgroup import Groups
from dbbench.machine.namespaces import Mount
from dbbench.machine.namespaces import mount_holding as holding
from dbbench.machine.namespaces import parsed_mounts as parsed
from dbbench.metrics.series import Series, both_clocks
from dbbench.model import TrialWarning
from dbbench.samplers.sampler import Sampled, Sampling
from dbbench.storage.devices.used import WriteWatch
from dbbench.units import iso

_EVERY_S: Final = 1.0
_MOUNTS_EVERY_S: Final = 0.25  # for changes that the kernel does not announce
_LATE_S: Final = 3.0  # delay of a reading that load alone does not cause on a machine that can still measure
_STILL: Final = 2  # consecutive seconds without a step; in a single one, dbbench's own query may have been late
_STEP_S: Final = 0.25  # more than chrony's slewing (0.1 s per second) and the time between reading the two clocks
_SHOWN: Final = 3  # findings of one kind that a warning lists
_STANDING: Final = "W129"
KINDS: Final = ("W018", "W023", "W127", _STANDING, "W132", "W133")  # each makes the trial suspect


@dataclass(frozen=True)
class Disturbance:
    """A deviation: a warning's ID, its description, and its duration in seconds (W129)."""

    utc: float
    id: str
    text: str
    lasted_s: float = 0.0


def programs() -> tuple[str, ...]:
    """Return (): /proc and /sys are sufficient."""
    return ()


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling]:
    """Watch the machine within the block."""
    looking = Machine(target, raw / "machine.jsonl")
    try:
        with threads.beside("machine", looking.work):
            yield looking
    finally:
        looking.close()


class Machine:
    """Watches the machine and keeps the findings. Seconds in UTC."""

    def __init__(
        self,
        target: Sampled,
        log: Path,
        proc: Path = PROC,
        clocks: Callable[[], tuple[float, float]] = both_clocks,
    ) -> None:
        self._server = target.server.pid if target.server is not None else None
        self._disks, self._log, self._clocks = target.disks, log, clocks
        self._mounts = Mounts(target.mounts)
        roots = (os.getpid(),) if self._server is None else (os.getpid(), self._server)
        self._processes = Processes(roots, Groups(self._mounts.table()), proc)
        self._files = SettingFiles({**host.watched(), **host.block_files(target.disks, target.mounts)})
        self._writes = WriteWatch(target.disks)
        self._found: list[Disturbance] = []
        self._began = clocks()
        self._turn = self._began  # both clocks at the last reading
        self._values: Values = {}
        self._options: Values = {}
        self._still = 0  # consecutive seconds without a step of the server
        self._progress: tuple[int | None, int | None] = (None, None)  # steps of the server, completed disk requests
        self._warnings: tuple[TrialWarning, ...] = ()

    def close(self) -> None:
        """Stop watching."""
        self._mounts.close()
        self._writes.close()

    def work(self, ended: Event) -> None:
        """Read once per second until `ended` is set, and the mounts whenever one has changed."""
        self.look()
        due = self._turn[1] + _EVERY_S
        while not ended.is_set():
            self._mounts.wait(max(0.0, min(_MOUNTS_EVERY_S, due - time.monotonic())))
            self.look_at_mounts()
            if time.monotonic() >= due:
                self.look()
                due = max(due, self._turn[1] - _EVERY_S) + _EVERY_S

    def series(self, begin_utc: float, seconds: int) -> Series:
        """Return no columns; the warnings refer to these seconds."""
        end_utc = begin_utc + seconds
        of_load = [
            dataclasses.replace(finding, utc=min(finding.utc, end_utc - 0.001))
            for finding in self._found
            if begin_utc <= finding.utc < end_utc + _EVERY_S  # a change is noticed up to a second later
        ]
        kinds = {finding.id for finding in of_load}
        self._warnings = tuple(warning(kind, of_load, begin_utc) for kind in KINDS if kind in kinds)
        return Series(seconds)

    def warnings(self) -> tuple[TrialWarning, ...]:
        """Return warnings of KINDS for the last call of `series`."""
        return self._warnings

    def look(self) -> None:
        """Read everything once."""
        late_s = self._look_at_clocks()
        self.look_at_mounts()
        self._processes.read()
        stopped = self._processes.stopped()
        for pid, name, how in stopped:
            self._note(_STANDING, f"{name} (pid {pid}) {how}", _EVERY_S)
        self._look_at_progress(bool(stopped), _EVERY_S + late_s)
        for text in self._processes.rescheduled():
            self._note("W133", text)
        for path in self._writes.written():
            self._note("W127", f"another process wrote to {path}")
        values = {**self._files.values(), **self._processes.values()}
        for kind, text in changed(self._values, values):
            self._note(kind, text)
        self._values = values

    def look_at_mounts(self) -> None:
        """Read the mounts once."""
        options = self._mounts.values()
        if options is not self._options:
            for kind, text in changed(self._options, options):
                self._note(kind, text)
            self._options = options

    def _look_at_clocks(self) -> float:
        """Return by how many seconds this reading is late."""
        before, self._turn = self._turn, self._clocks()
        if abs(step := stepped(before, self._turn)) > _STEP_S:
            self._note("W023", f"the system clock was set by {step:+.1f} s")
        late_s = self._turn[1] - before[1] - _EVERY_S
        if late_s >= _LATE_S:
            self._note(_STANDING, f"dbbench, or the machine (pid {os.getpid()}) stopped", late_s, ago_s=late_s)
        return max(0.0, late_s)

    def _look_at_progress(self, stopped: bool, seconds: float) -> None:
        """Note W129 if no thread of the server has run since the last reading while no disk request ended or was
        pending.

        The sampler `counters` queries the server every second.
        """
        if self._server is None:
            return
        before, self._progress = self._progress, (self._processes.steps(self._server), requests(self._disks))
        moved = None in self._progress or before != self._progress
        self._still = 0 if moved or stopped else self._still + 1
        if self._still >= _STILL:
            lasted = seconds * (_STILL if self._still == _STILL else 1)
            self._note(_STANDING, f"the server (pid {self._server}) made no progress", lasted)

    def _note(self, kind: str, text: str, lasted_s: float = 0.0, ago_s: float = 0.0) -> None:
        utc = self._began[0] + self._clocks()[1] - self._began[1] - ago_s  # monotonic: not affected if the clock is set
        self._found.append(Disturbance(utc, kind, text, lasted_s))
        line = {"utc": iso(utc), "id": kind, "what": text, **({"seconds": round(lasted_s, 3)} if lasted_s else {})}
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:  # the warning needs no file
            log.write(json.dumps(line) + "\n")


def stepped(before: tuple[float, float], now: tuple[float, float]) -> float:
    """Return by how many seconds the system clock moved relative to the monotonic clock between two readings
    of both."""
    return (now[0] - before[0]) - (now[1] - before[1])


def warning(kind: str, findings: list[Disturbance], begin_utc: float) -> TrialWarning:
    """Return the findings of one kind as a warning: the duration for stopped processes, the time for changes."""
    same_kind = [finding for finding in findings if finding.id == kind]
    first = min(int(finding.utc - begin_utc) for finding in same_kind)
    if kind == _STANDING:
        lasted = Counter[str]()
        for finding in same_kind:
            lasted[finding.text] += round(finding.lasted_s)
        texts = [f"{text} for about {count} s" for text, count in lasted.most_common()]
    else:
        texts = [f"{finding.text} (second {int(finding.utc - begin_utc)})" for finding in same_kind]
    more = f" and {len(texts) - _SHOWN} others" if len(texts) > _SHOWN else ""
    return TrialWarning(kind, "; ".join(texts[:_SHOWN]) + more, second=first)


Values = Mapping[tuple[str, str], str]

_STOPPED: Final = "Tt"  # states of a process that a signal or a tracer has stopped (proc_pid_stat(5))
_CHUNK: Final = 65536
_SHORT: Final = 32  # two values with at most this many characters together are shown whole
_YOUNG_S: Final = 0.5  # a younger thread may still be choosing its CPUs
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_IN_FLIGHT: Final = 8  # index in /sys/block/DISK/stat (Documentation/block/stat.rst)
_COUNTED: Final = (0, 4, 11, 15)  # indexes of the completed reads, writes, discards and flushes


class Mounts:
    """The options of the mounts that contain these paths, of mount and superblock together."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [path.resolve() for path in paths]
        self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI | select.POLLERR)
        self._text = b""
        self._values: dict[tuple[str, str], str] = {}

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def wait(self, seconds: float) -> None:
        """Return when the kernel announces a change of a mount in this namespace, at the latest after `seconds`.

        A superblock that is reconfigured through a mount of another namespace is not announced.
        """
        self._poll.poll(1000 * seconds)

    def table(self) -> tuple[Mount, ...]:
        """Return all mounts."""
        return parsed(self._read().decode(errors="surrogateescape"))

    def values(self) -> Values:
        """Return the current options (W132). If a path's mount is gone, the mount above it applies."""
        text = self._read()
        if text != self._text:
            self._text = text
            table = parsed(text.decode(errors="surrogateescape"))
            self._values = {("W132", str(path)): _described(holding(path, table)) for path in self._paths}
        return self._values

    def _read(self) -> bytes:
        os.lseek(self._fd, 0, os.SEEK_SET)
        chunks = []
        while chunk := os.read(self._fd, _CHUNK):  # the kernel returns at most a page per read
            chunks.append(chunk)
        return b"".join(chunks)


class SettingFiles:
    """The contents of settings in /sys and /proc that are files (W018)."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = {name: str(path) for name, path in paths.items() if path.is_file()}

    def values(self) -> Values:
        """Return the current contents; unreadable files are omitted."""
        read = {name: content(path) for name, path in self._paths.items()}
        return {("W018", name): text for name, text in read.items() if text is not None}


class Processes:
    """The processes below `roots`, which are this process and the server, once per second."""

    def __init__(self, roots: tuple[int, ...], groups: Groups, proc: Path) -> None:
        self._roots, self._groups, self._proc = roots, groups, proc
        self._ours: dict[int, int] = {}  # pid -> start time; also of processes whose parent has since ended
        self._foreign: set[int] = set()
        self._now: dict[int, Task] = {}
        self._threads: dict[int, list[Task]] = {}
        self._listed: dict[int, str] = {}  # pid -> its control groups, as /proc lists them
        self._scheduled: dict[tuple[int, int], Scheduled] = {}  # by thread id and start time

    def read(self) -> None:
        """Read the table of processes."""
        table = proc_files.tasks(self._proc, self._foreign)
        alive = [pid for pid, started in self._ours.items() if pid in table and table[pid].started == started]
        self._now = {pid: table[pid] for pid in sorted(below((*self._roots, *alive), table.values()))}
        self._ours = {pid: process.started for pid, process in self._now.items()}
        self._foreign |= table.keys() - self._now.keys()
        self._threads = {pid: proc_files.threads(process, self._proc) for pid, process in self._now.items()}
        self._listed = {pid: self._groups_of(pid) for pid in self._now}

    def _groups_of(self, pid: int) -> str:
        """Return the control groups of a process. Of one that is ending these are the last ones, because the kernel
        lists it in the root of each version-1 hierarchy."""
        folder = f"{self._proc}/{pid}"
        last, now = self._listed.get(pid), content(f"{folder}/cgroup") or ""
        if last in (None, now):
            return now
        process = proc_files.task(folder)  # read again, after its control groups
        return last if process is None or process.exiting else now

    def stopped(self) -> list[tuple[int, str, str]]:
        """Return the processes that do not run: pid, name and "stopped" or "frozen"."""
        frozen = {listed: self._groups.frozen(listed) for listed in set(self._listed.values())}
        stopped = []
        for pid, process in self._now.items():
            if process.state in _STOPPED:
                stopped.append((pid, process.name, "stopped"))
            elif frozen[self._listed[pid]]:
                stopped.append((pid, process.name, "frozen"))
        return stopped

    def rescheduled(self) -> list[str]:
        """Return changes in the scheduling of threads since the last call (W133).

        This process is excluded: it changes its CPUs briefly when it starts programs.
        """
        settled = (time.clock_gettime(time.CLOCK_BOOTTIME) - _YOUNG_S) * _TICKS
        before, changes = self._scheduled, list[str]()
        self._scheduled = {}
        for pid, tasks in self._threads.items():
            for thread in tasks if pid != os.getpid() else ():
                if thread.started > settled:
                    continue
                key = (thread.pid, thread.started)
                self._scheduled[key] = now = scheduled(thread)
                if before.get(key, now) != now:
                    who = f"{thread.name} (pid {pid})" + (f" thread {thread.pid}" if thread.pid != pid else "")
                    old = described(before[key])
                    changes += [f"{name} of {who}: {_pair(old[name], value)}" for name, value in described(now).items()
                              if old.get(name, value) != value]  # fmt: skip
        return changes

    def values(self) -> Values:
        """Return the control groups of each process and their limits (W133).

        This process is excluded: it enters groups when it starts programs.
        """
        other_processes = {pid: listed for pid, listed in self._listed.items() if pid != os.getpid()}
        values = {
            ("W133", f"control groups of {self._now[pid].name} (pid {pid})"): text
            for pid, text in other_processes.items()
        }
        for listed in set(other_processes.values()):
            values.update({("W133", path): value for path, value in self._groups.limits(listed).items()})
        return values

    def steps(self, root: int) -> int | None:
        """Return how often threads of this process and its descendants were given a CPU so far.

        None while one of them runs or waits for a CPU, or if the kernel does not count it.
        """
        total = 0
        for pid in below((root,), self._now.values()):
            for thread in self._threads[pid]:
                if thread.state == "R":
                    return None
                total += times_run(f"{self._proc}/{pid}/task/{thread.pid}")
        return total or None


def requests(disks: Iterable[str]) -> int | None:
    """Return how many requests of these disks have ended; None while one is pending, or if the kernel does not report
    it."""
    total = 0
    for disk in disks:
        fields = [int(word) for word in (content(f"/sys/class/block/{disk}/stat") or "").split()]
        if len(fields) <= _IN_FLIGHT or fields[_IN_FLIGHT]:
            return None
        total += sum(fields[place] for place in _COUNTED if place < len(fields))
    return total


def changed(before: Values, after: Values) -> list[tuple[str, str]]:
    """Return (warning, text) for each value that both readings have and that differs."""
    return [
        (key[0], f"{key[1]}: {_pair(before[key], value)}")
        for key, value in after.items()
        if key in before and before[key] != value
    ]


def _pair(before: str, after: str) -> str:
    return f"{_less(before, after)} -> {_less(after, before)}"


def _less(value: str, other: str) -> str:
    """Return a value for display next to another one: of a long list only what the other does not have."""
    separator = "\n" if "\n" in value + other else ","
    if len(value) + len(other) > _SHORT:
        words, others = value.split(separator), other.split(separator)
        value = separator.join(word for word in words if word not in others)
    return value.replace("\n", " ") or "(none)"


def _described(mount: Mount | None) -> str:
    return "not mounted" if mount is None else ",".join((f"{mount.fstype} on {mount.device}", *mount.options))
