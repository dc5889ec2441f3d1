"""What `machine` compares each second: (warning, subject) -> an opaque value, by plain reads of
/proc and /sys.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from dbbench.machine.host import proc as proc_files
from dbbench.machine.host.proc import (
    ProcessFamily,
    Task,
    below,
    content,
    cpu_turns,
    disk_counts,
    schedule_of,
)
from dbbench.machine.limits.cgroup import Groups
from dbbench.machine.mounts import Mount, mount_holding, parsed_mounts

Values = Mapping[tuple[str, str], str]
Key = TypeVar("Key")

# states of a process that a signal or a tracer has stopped (proc_pid_stat(5))
_STOPPED: Final = "Tt"
_CHUNK: Final = 65536
_SHORT: Final = 32  # two values with at most this many characters together are shown whole
_YOUNG_S: Final = 0.5  # a younger thread may still be choosing its CPUs
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_IN_FLIGHT: Final = 8  # index in /sys/block/DISK/stat (Documentation/block/stat.rst)
_OF_DISK: Final = re.compile(r"\d+:\d+ ")  # how a line about a disk begins in the limits of a group
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
        os.close(self._fd)

    def wait(self, seconds: float) -> None:
        """Return when the kernel announces a change of a mount in this namespace, at the latest
        after `seconds`. A superblock that is reconfigured through a mount of another namespace
        is not announced.
        """
        self._poll.poll(1000 * seconds)

    def table(self) -> tuple[Mount, ...]:
        return parsed_mounts(self._read().decode(errors="surrogateescape"))

    def values(self) -> Values:
        text = self._read()
        if text != self._text:
            self._text = text
            table = parsed_mounts(text.decode(errors="surrogateescape"))
            self._values = {}
            for path in self._paths:
                mount = mount_holding(path, table)
                value = "not mounted"
                if mount is not None:
                    value = ",".join((f"{mount.fstype} on {mount.device}", *mount.options))
                self._values["W132", str(path)] = value
        return self._values

    def _read(self) -> bytes:
        os.lseek(self._fd, 0, os.SEEK_SET)
        # the kernel returns at most a page per read
        return b"".join(iter(lambda: os.read(self._fd, _CHUNK), b""))


class SettingFiles:
    """The contents of settings in /sys and /proc that are files (W018)."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = {name: str(path) for name, path in paths.items() if path.is_file()}

    def values(self) -> Values:
        values = dict[tuple[str, str], str]()
        for name, path in self._paths.items():
            text = content(path)
            if text is not None:
                values["W018", name] = text
        return values


class Processes:
    """The processes below `roots`, which are this process and the server, once per second. Of the
    limits of their groups, those of other disks than `disks` ("7:2") are ignored.
    """

    def __init__(
        self,
        roots: tuple[int, ...],
        groups: Groups,
        proc: Path,
        disks: Collection[str] = (),
    ) -> None:
        self._roots = roots
        self._disks = disks
        self._groups = groups
        self._proc = proc
        self._family = ProcessFamily(proc)
        self._now: dict[int, Task] = {}
        self._threads: dict[int, list[Task]] = {}
        self._listed: dict[int, str] = {}  # pid -> its control groups, as /proc lists them
        self._scheduled: dict[tuple[int, int], dict[str, str]] = {}  # by thread id and start time

    def read(self) -> None:
        self._now = self._family.read(self._roots)
        self._threads = {}
        for pid, process in self._now.items():
            self._threads[pid] = proc_files.threads(process, self._proc)
        self._listed = {pid: self._groups_of(pid) for pid in self._now}

    def _groups_of(self, pid: int) -> str:
        """Return the control groups of a process. Of one that is ending these are the last ones,
        because the kernel lists it in the root of each version-1 hierarchy.
        """
        folder = f"{self._proc}/{pid}"
        last = self._listed.get(pid)
        now = content(f"{folder}/cgroup") or ""
        if last in (None, now):
            return now
        process = proc_files.task(folder)  # read again, after its control groups
        return last if process is None or process.exiting else now

    def list_idle(self) -> list[tuple[int, str, str]]:
        """Return the processes that do not run: pid, name and "stopped" or "frozen"."""
        frozen = {groups: self._groups.frozen(groups) for groups in set(self._listed.values())}
        idle = []
        for pid, process in self._now.items():
            if process.state in _STOPPED:
                idle.append((pid, process.name, "stopped"))
            elif frozen[self._listed[pid]]:
                idle.append((pid, process.name, "frozen"))
        return idle

    def list_rescheduling(self) -> list[str]:
        """Return changes in the scheduling of threads since the last call (W133), without this
        process, which changes its CPUs when it starts programs.
        """
        settled = (time.clock_gettime(time.CLOCK_BOOTTIME) - _YOUNG_S) * _TICKS
        before = self._scheduled
        changes = list[str]()
        self._scheduled = {}
        for pid, threads in self._threads.items():
            if pid == os.getpid():
                continue
            # A thread is compared only with itself: numbers are used again.
            for thread in threads:
                if thread.started > settled:
                    continue
                key = (thread.pid, thread.started)
                now = schedule_of(thread)
                self._scheduled[key] = now
                who = f"{thread.name} (pid {pid})"
                if thread.pid != pid:
                    who += f" thread {thread.pid}"
                for name, old, new in _changes(before.get(key, now), now):
                    changes.append(f"{name} of {who}: {_pair(old, new)}")
        return changes

    def values(self) -> Values:
        """Return the control groups of each process and their limits (W133), without this process,
        which enters groups when it starts programs.
        """
        values = dict[tuple[str, str], str]()
        limits = dict[str, str]()
        for pid, groups in self._listed.items():
            if pid == os.getpid():
                continue
            values["W133", f"control groups of {self._now[pid].name} (pid {pid})"] = groups
        for groups in set(values.values()):
            limits |= self._groups.limits(groups)
        return values | {("W133", path): self._of_trial(value) for path, value in limits.items()}

    def _of_trial(self, limit: str) -> str:
        lines = [
            line
            for line in limit.splitlines()
            if not _OF_DISK.match(line) or line.split()[0] in self._disks
        ]
        return "\n".join(lines)

    def steps(self, root: int) -> int | None:
        """Return how often threads of this process and its descendants were given a CPU so far;
        None while one of them runs or waits for a CPU, or if the kernel does not count it.
        """
        total = 0
        for pid in below((root,), self._now):
            for thread in self._threads[pid]:
                if thread.state == "R":
                    return None
                folder = f"{self._proc}/{pid}/task/{thread.pid}"
                total += cpu_turns(content(f"{folder}/schedstat")).times
        return total or None


def requests(disks: Iterable[str]) -> int | None:
    """Return how many requests of these disks have ended; None while one is pending, or if not
    reported.
    """
    total = 0
    for disk in disks:
        fields = disk_counts(f"/sys/class/block/{disk}") or ()
        if len(fields) <= _IN_FLIGHT or fields[_IN_FLIGHT]:
            return None
        total += sum(fields[place] for place in _COUNTED if place < len(fields))
    return total


def differences(before: Values, after: Values) -> list[tuple[str, str]]:
    """Return (warning, text) for each value that both readings have and that differs."""
    changes = _changes(before, after)
    return [(kind, f"{subject}: {_pair(old, new)}") for (kind, subject), old, new in changes]


def _changes(before: Mapping[Key, str], after: Mapping[Key, str]) -> Iterator[tuple[Key, str, str]]:
    """Yield key, old and new value for each that both have and that differs."""
    for key, new in after.items():
        old = before.get(key, new)
        if old != new:
            yield key, old, new


def _pair(before: str, after: str) -> str:
    return f"{_less(before, after)} -> {_less(after, before)}"


def _less(value: str, other: str) -> str:
    """Return a value for display next to another one: of a long list only what the other does not
    have.
    """
    separator = "\n" if "\n" in value + other else ","
    if len(value) + len(other) > _SHORT:
        words = value.split(separator)
        others = other.split(separator)
        value = separator.join(word for word in words if word not in others)
    return value.replace("\n", " ") or "(none)"
