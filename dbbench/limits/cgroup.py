"""A memory limit that the kernel enforces: a control group of its own for one server, of version 2 or 1.

The group counts the server's memory and the page cache that it fills, so that a dataset larger than the limit is
read from the disk on a machine of any size. It outlives its processes: the journal has it before it is made.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import namespaces
from dbbench.host.sysfs import number, text
from dbbench.journal import Journal
from dbbench.mounts import Mount, mounts_of

WHAT: Final = "cgroup"  # in the journal
_GONE_S: Final = 5.0  # a group is busy until the last of its processes has been reaped
_STEP_S: Final = 0.02
_SELF: Final = Path("/proc/self")


@dataclass(frozen=True)
class Hierarchy:
    """Where groups with a memory limit can be made. `home`: the group that this process is in."""

    version: int
    home: Path
    parent: Path  # new groups are made in it


@dataclass(frozen=True)
class Group:
    """A group of ours. Bytes; None is "not told by this kernel"."""

    version: int
    path: Path
    home: Path

    @property
    def limit_bytes(self) -> int | None:
        """As the kernel has it: rounded to whole pages."""
        return number(self.path / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))

    @property
    def peak_bytes(self) -> int | None:
        return number(self.path / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"))

    @property
    def oom_kills(self) -> int | None:
        """How many of its processes the kernel has killed because the limit left no room."""
        return _field(self.path / ("memory.events" if self.version == 2 else "memory.oom_control"), "oom_kill")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This process is in the group while the block lasts: what it starts there stays there, from its first
        page on. The few pages that it needs itself meanwhile stay charged to the group."""
        _move(self.path)
        try:
            yield
        finally:
            _move(self.home)


def hierarchy(at: Path | None = None, process: Path = _SELF) -> Hierarchy | str:
    """Where a limit can be set here, or why it cannot. `at`: a folder of a private mount namespace, where the
    hierarchy is mounted if nobody else has done so."""
    if os.geteuid() != 0:
        return "only root may make control groups"
    found = _mounted(process)
    if found is None and at is not None:
        found = _mount_privately(at, process)
    if found is None:
        return "no control group hierarchy with the memory controller is mounted"
    version, point = found
    home = _home(point, version, process)
    return Hierarchy(version, home, _parent(point, home, version))


@contextlib.contextmanager
def limited(where: Hierarchy, name: str, limit_bytes: int, journal: Journal) -> Iterator[Group]:
    """A group `name` with that limit and without swap; removed at the end. OSError where the kernel refuses."""
    path = where.parent / name
    journal.note("take", what=WHAT, path=str(path))
    try:
        path.mkdir(exist_ok=True)
        _set(where, path, limit_bytes)
        yield Group(where.version, path, where.home)
    finally:
        if _removed(path):
            journal.note("give_back", what=WHAT, path=str(path))


def give_back(journal: Journal) -> list[str]:
    """Remove the groups that a killed run has left; which they were. One that still has processes stays noted."""
    gone = [path for path in journal.outstanding(WHAT) if _removed(Path(path))]
    for path in gone:
        journal.note("give_back", what=WHAT, path=path)
    return gone


def _set(where: Hierarchy, path: Path, limit_bytes: int) -> None:
    if where.version == 2:
        (path / "memory.max").write_text(str(limit_bytes))
        optional = {"memory.swap.max": "0"}
    else:
        (path / "memory.limit_in_bytes").write_text(str(limit_bytes))
        optional = {"memory.swappiness": "0", "memory.memsw.limit_in_bytes": str(limit_bytes)}
    for file, value in optional.items():
        with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
            (path / file).write_text(value)


def _mounted(process: Path) -> tuple[int, Path] | None:
    for mount in mounts_of(process):
        if (version := _version(mount)) is not None:
            return version, mount.point
    return None


def _version(mount: Mount) -> int | None:
    """Of a mount that has the memory controller; None of any other."""
    if mount.fstype == "cgroup2" and "memory" in (text(mount.point / "cgroup.controllers") or "").split():
        return 2
    return 1 if mount.fstype == "cgroup" and "memory" in mount.options else None


def _mount_privately(at: Path, process: Path) -> tuple[int, Path] | None:
    for fstype, data in (("cgroup2", ""), ("cgroup", "memory")):
        point = at / fstype
        with contextlib.suppress(OSError):
            point.mkdir(exist_ok=True)
            namespaces.mount("none", point, fstype, data=data)
    return _mounted(process)


def _home(point: Path, version: int, process: Path) -> Path:
    """The group of this process (cgroups(7)); the mount's root where its path is not to be seen from here."""
    for line in (text(process / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if (version == 2 and not controllers) or (version == 1 and "memory" in controllers.split(",")):
            home = point / path.lstrip("/")
            return home if home.is_dir() else point
    return point


def _parent(point: Path, home: Path, version: int) -> Path:
    """Version 1: in our own group, so that a limit on us holds for the server too. Version 2 allows no processes
    beside groups with controllers: beside our own group, whose parent has only groups in it."""
    parent = home if version == 1 or home == point else home.parent
    if version == 2:
        with contextlib.suppress(OSError):  # most often it is on; where it is refused, memory.max is missing
            (parent / "cgroup.subtree_control").write_text("+memory")
    return parent


def _move(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")  # 0: who writes


def _removed(path: Path) -> bool:
    until = time.monotonic() + _GONE_S
    while path.is_dir():
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(_STEP_S)
    return True


def _field(path: Path, name: str) -> int | None:
    for line in (text(path) or "").splitlines():
        word, _, value = line.partition(" ")
        if word == name and value.isdigit():
            return int(value)
    return None
