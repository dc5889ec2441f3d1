"""What a run has left on the machine, told apart from what other runs and other people have."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

LOOPS = Path("/sys/block")


@dataclass
class Traces:
    """What could be left on the machine."""

    loops: set[str] = field(default_factory=set)
    mounts: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    groups: set[Path] = field(default_factory=set)  # control groups of ours

    @classmethod
    def now(cls) -> Traces:
        loops = {p.parent.parent.name for p in LOOPS.glob("loop*/loop/backing_file")}
        mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
        names = ("postgres", "mariadbd", "mysqld", "sysbench", "pgbench", "sadc", "iostat", "zfs-fuse")
        ours = {p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in names}
        return cls(loops, mounts, ours, set(Path("/sys/fs/cgroup").glob("**/dbbench-*/")))

    def beyond(self, before: Traces) -> dict[str, set[Any]]:
        """What is here now and was not before; {} when nothing is."""
        found = {name: getattr(self, name) - getattr(before, name) for name in vars(self)}
        return {name: more for name, more in found.items() if more}


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """After the block there is nothing more of ours on the machine than before (a killed trial has a moment for it)."""
    before = Traces.now()
    yield
    until = time.monotonic() + 2.0
    while (more := Traces.now().beyond(before)) and time.monotonic() < until:
        time.sleep(0.05)
    assert more == {}


def loops_of(folder: Path) -> list[str]:
    """Loop devices over files of the folder."""
    found = []
    for entry in LOOPS.glob("loop*/loop/backing_file"):
        try:
            if str(folder) in entry.read_text():
                found.append(entry.parent.parent.name)
        except OSError:  # it was let go just now
            continue
    return found


@contextlib.contextmanager
def namespaces_of(pid: int) -> Iterator[set[str]]:
    """The pid namespaces below a command that are not our own: all that its trials start lives in them. They are held
    while the block lasts: the kernel gives their numbers to others otherwise."""
    own, found = str(Path("/proc/self/ns/pid").readlink()), set[str]()
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(pid).children(recursive=True)
    with contextlib.ExitStack() as held:
        for process in below:
            with contextlib.suppress(OSError):
                fd = os.open(f"/proc/{process.pid}/ns/pid", os.O_RDONLY)
                held.callback(os.close, fd)
                found.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        yield found - {own}


def living_in(namespaces: Collection[str]) -> Iterator[str]:
    """Processes of those namespaces. One that has ended and waits for process 1 to notice holds nothing of ours."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str((entry / "ns/pid").readlink()) in namespaces:
                told = (entry / "stat").read_text().rpartition(")")[2].split()
                if told[:2] == ["Z", "1"]:
                    continue
                yield f"{entry.name} {(entry / 'comm').read_text().strip()} state {told[0]} parent {told[1]}"
        except OSError:
            continue


def naming(folder: Path) -> Iterator[str]:
    """Processes with the folder in their command line, but this one and what runs it."""
    mine = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    for process in psutil.process_iter(["pid", "cmdline"]):
        if process.info["pid"] not in mine and any(str(folder) in word for word in process.info["cmdline"] or ()):
            yield " ".join(process.info["cmdline"])


def left_of(folder: Path, namespaces: Collection[str] = (), within_s: float = 0.0) -> list[str]:
    """Loop devices, mounts and processes of a run in that folder that are still there after so many seconds."""
    until = time.monotonic() + within_s
    while True:
        loops = loops_of(folder)
        table = Path("/proc/self/mountinfo").read_text()
        mounts = [line for line in table.split("\n") if any(f"/dev/{loop} " in line for loop in loops)]
        left = [*loops, *mounts, *living_in(namespaces), *naming(folder)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.01)
