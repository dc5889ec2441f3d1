"""The leak check: what a run left on the machine, distinguished from resources of other runs and
users.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench.results.journal import tag_of
from dbbench.storage.devices import loop

GONE_S = 60.0  # a killed trial disappears in 0.1 s; this takes longer on a busy machine
PROGRAMS = ("postgres", "mariadbd", "mysqld", "sysbench", "pgbench", "sadc", "iostat")
CGROUPS = Path("/sys/fs/cgroup")
LOOPS = Path("/sys/block")
TOKEN = f"/nonexistent/dbbench-test-{uuid.uuid4().hex}"  # each test process has a different one


def sign() -> None:
    """Put the token into the environment of every process that is started from here. It is in PATH,
    which all of them inherit.
    """
    if TOKEN not in os.environ["PATH"]:
        os.environ["PATH"] += f":{TOKEN}"


@dataclass
class Traces:
    """What a test may leave behind: devices and mounts with files of its folder, and processes with
    its token.
    """

    loops: set[str] = field(default_factory=set)
    mounts: set[str] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    groups: set[Path] = field(default_factory=set)  # control groups of the folder's runs

    @classmethod
    def now(cls, folder: Path) -> Traces:
        loops = set(loops_of(folder))
        return cls(loops, set(mounts_of(folder, loops)), set(signed()), set(groups_of(folder)))

    def beyond(self, before: Traces) -> dict[str, set[Any]]:
        """Return what exists now and did not exist before; {} if there is nothing new."""
        more = {name: getattr(self, name) - getattr(before, name) for name in vars(self)}
        return {name: added for name, added in more.items() if added}


@contextlib.contextmanager
def leaving_nothing(folder: Path, within_s: float = GONE_S) -> Iterator[None]:
    """Assert that the block leaves nothing behind for that folder. A killed trial has a moment to
    disappear.

    Other processes, loop devices, mounts and control groups of the machine may come and go
    meanwhile.
    """
    before = Traces.now(folder)
    yield
    until = time.monotonic() + within_s
    while (more := Traces.now(folder).beyond(before)) and time.monotonic() < until:
        time.sleep(0.05)
    assert more == {}, f"left behind: {more}"


def signed() -> Iterator[str]:
    """Yield the servers, load generators and recorders that this test process has started, directly
    or not.
    """
    for process in started(["pid", "name"]):
        if process.info["name"] in PROGRAMS:
            yield f"{process.info['name']} (pid {process.info['pid']})"


def started(attributes: Collection[str]) -> Iterator[psutil.Process]:
    """Yield the processes that this test process has started, directly or not, with these
    attributes in `info`.
    """
    for process in psutil.process_iter([*attributes, "environ"]):
        if TOKEN in (process.info["environ"] or {}).get("PATH", ""):
            yield process


def below(pid: int, name: str) -> list[psutil.Process]:
    """Return the processes of that name that a process has started, directly or not, oldest first,
    without those that end in the meantime.
    """
    hits = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == name:
                hits.append(process)
    return sorted(hits, key=lambda process: process.create_time())


def groups_of(folder: Path) -> Iterator[Path]:
    """Yield the control groups of the runs below the folder: their names end with the tag of the
    run.
    """
    for run in folder.glob("**/results/*/"):
        yield from CGROUPS.glob(f"**/dbbench-*-{tag_of(run)}/")


def mounts_of(folder: Path, loops: Collection[str] = ()) -> list[str]:
    """Return the mount points below the folder, or of these loop devices."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    devices = {f"/dev/{loop}" for loop in loops}
    return [
        words[4]
        for words in lines
        if words[4].startswith(f"{folder}/") or devices.intersection(words)
    ]


def loops_of(folder: Path) -> list[str]:
    """Return the loop devices on files of the folder."""
    found = []
    for entry in LOOPS.glob("loop*/loop/backing_file"):
        try:
            if str(folder) in entry.read_text():
                found.append(entry.parent.parent.name)
        except OSError:  # it was detached in the meantime
            continue
    return found


def layers_of(folder: Path) -> list[str]:
    """Return arrays and volumes on loop devices on files of the folder, and names in /dev with the
    tag of its runs.
    """
    above: list[str] = []
    below = loops_of(folder)
    while below:
        holders = [path.name for path in (LOOPS / below.pop() / "holders").glob("*")]
        above += [name for name in holders if name not in above]
        below += holders
    tags = [tag_of(run) for run in (folder, *folder.glob("**/results/*/"))]
    names = [
        str(path) for pattern in ("dbbench*", "m*/dbbench*") for path in Path("/dev").glob(pattern)
    ]
    return [*map(_volume, above), *(name for name in names if any(tag in name for tag in tags))]


def _volume(block: str) -> str:
    """Return the name of a block device; for device mapper the name of the volume."""
    name = LOOPS / block / "dm/name"
    return name.read_text().strip() if name.exists() else block


@contextlib.contextmanager
def namespaces_of(pid: int) -> Iterator[set[str]]:
    """Yield the pid namespaces below a command other than that of this process; all processes of
    its trials are in them. They are kept open within the block, because the kernel reuses their
    numbers.
    """
    own = str(Path("/proc/self/ns/pid").readlink())
    found = set[str]()
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
    """Yield the processes of those namespaces, without zombies, which hold no resources."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str((entry / "ns/pid").readlink()) in namespaces:
                told = (entry / "stat").read_text().rpartition(")")[2].split()
                if told[:2] == ["Z", "1"]:
                    continue
                yield (
                    f"{entry.name} {(entry / 'comm').read_text().strip()} state {told[0]} parent "
                    f"{told[1]}"
                )
        except OSError:
            continue


def naming(folder: Path) -> Iterator[str]:
    """Yield the processes with the folder in their command line, except this one and its parents."""
    mine = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    for process in psutil.process_iter(["pid", "cmdline"]):
        if process.info["pid"] not in mine and any(
            str(folder) in word for word in process.info["cmdline"] or ()
        ):
            yield " ".join(process.info["cmdline"])


def left_of(
    folder: Path,
    namespaces: Collection[str] = (),
    within_s: float = 0.0,
) -> list[str]:
    """Return the loop devices, mounts and processes of a run in that folder that still exist after
    `within_s`.
    """
    until = time.monotonic() + within_s
    while True:
        loops = loops_of(folder)
        left = [*loops, *mounts_of(folder, loops), *living_in(namespaces), *naming(folder)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.01)


def a_loop_device_is_found(folder: Path, image: Path) -> None:
    """Assert that the leak check reports a loop device on `image`, a file of the folder, that
    outlives the block.
    """
    held: Any = loop.attach(image)
    try:
        with pytest.raises(AssertionError, match="loop"), leaving_nothing(folder, within_s=0.2):
            held.__enter__()
    finally:
        held.__exit__(None, None, None)
