"""Control groups, version 2 or 1: a group with a memory limit for one server, and the groups of
other processes. The group counts the server's memory and its page cache. It outlives its
processes, so the journal records it first. The file is long because both versions, and systemd above
them, answer the same questions.

In version 2, systemd owns all groups but those below a unit with Delegate= (systemd.resource-control(5)):
groups are made below such a unit.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import DbbenchError
from dbbench.machine import host, namespaces
from dbbench.machine.host.proc import content, number, text
from dbbench.machine.mounts import Mount, mounts_of
from dbbench.results.journal import Journal

WHAT: Final = "cgroup"  # the kind of its entries in the journal
UNIT: Final = "unit"  # the kind of the entries of units of systemd
_GONE_S: Final = 5.0  # a group cannot be removed before the last of its processes has been reaped
_STEP_S: Final = 0.02
_SELF: Final = Path("/proc/self")
MEMORY = "memory"
IO = "io"
SYSTEMD: Final = Path("/run/systemd/system")  # exists while systemd is running: sd_booted(3)
_UNIT_S: Final = 60.0  # for the start of a unit, which takes milliseconds on an idle machine
# what systemd calls the keys of io.max
_IO_LIMITS: Final = {
    "rbps": "IOReadBandwidthMax",
    "wbps": "IOWriteBandwidthMax",
    "riops": "IOReadIOPSMax",
    "wiops": "IOWriteIOPSMax",
}
_V1_NAMES: Final = {MEMORY: "memory", IO: "blkio"}  # of these controllers
# Files that can slow down or stop the processes of a group: cgroups(7),
# Documentation/admin-guide/cgroup-v1 and -v2.
_V1: Final = (
    "cpu.shares",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.cfs_burst_us",
    "cpu.idle",
    "cpu.rt_period_us",
    "cpu.rt_runtime_us",
    "cpuset.cpus",
    "cpuset.mems",
    "cpuset.cpu_exclusive",
    "memory.limit_in_bytes",
    "memory.soft_limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.swappiness",
    "memory.kmem.limit_in_bytes",
    "pids.max",
    "blkio.weight",
    "blkio.bfq.weight",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
)
_V2: Final = (
    "cpu.max",
    "cpu.max.burst",
    "cpu.weight",
    "cpu.idle",
    "cpu.uclamp.min",
    "cpu.uclamp.max",
    "cpuset.cpus",
    "cpuset.mems",
    "cpuset.cpus.partition",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.swap.high",
    "memory.zswap.max",
    "pids.max",
    "io.max",
    "io.weight",
    "io.bfq.weight",
    "io.latency",
)


@dataclass(frozen=True)
class Hierarchy:
    """A hierarchy of groups with a controller. `home`: the group of this process."""

    version: int
    home: Path
    point: Path  # the root of the hierarchy
    controller: str = MEMORY


@dataclass(frozen=True)
class ControlGroup:
    """A group that dbbench made. In bytes; None: this kernel does not report it."""

    version: int
    path: Path
    home: Path

    @property
    def limit_bytes(self) -> int | None:
        """Return the limit, rounded by the kernel to whole pages."""
        return number(self.path / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))

    @property
    def peak_bytes(self) -> int | None:
        return number(
            self.path / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")
        )

    @property
    def oom_kills(self) -> int | None:
        lines = (
            text(self.path / ("memory.events" if self.version == 2 else "memory.oom_control")) or ""
        )
        return next(
            (int(line.split()[1]) for line in lines.splitlines() if line.startswith("oom_kill ")),
            None,
        )

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Move this process into the group within the block, so that what it starts is in it from
        its first page on.
        """
        _move(self.path)
        try:
            yield
        finally:
            _move(self.home)


def hierarchy(
    at: Path | None = None,
    process: Path = _SELF,
    controller: str = MEMORY,
) -> Hierarchy | str:
    """Return where a limit can be set, or why it cannot. `at`: where the hierarchy is mounted if it
    is not yet.
    """
    if os.geteuid() != 0:
        return "only root may make control groups"
    place = _find(process, controller)
    if place is None and at is not None:
        for fstype, data in (("cgroup2", ""), ("cgroup", _V1_NAMES[controller])):
            with contextlib.suppress(OSError):
                (at / fstype).mkdir(exist_ok=True)
                namespaces.mount("none", at / fstype, fstype, data=data)
        place = _find(process, controller)
    if place is None:
        return f"no control group hierarchy with the {controller} controller is mounted"
    version, point, home = place
    return Hierarchy(version, home, point, controller)


@functools.cache
def obstacle(controller: str = MEMORY) -> str:
    """Make a group with this controller and remove it; return why that failed, "" if it did not."""
    where = hierarchy(controller=controller)
    if isinstance(where, str):
        return where
    try:
        with namespaces.temporary_folder() as folder:
            journal = Journal(folder / "journal.jsonl")
            name = f"dbbench-check-{journal.tag}"
            with unit(journal), make_group(where, name, journal) as group:
                file = "memory.max" if controller == MEMORY else "io.max"
                # not in the cgroup.controllers of the parent, which a trial would notice too late
                if where.version == 2 and not (group.path / file).exists():
                    return f"{group.path} has no {file}"
    except OSError as error:
        return refusal(error)
    return ""


def refusal(error: OSError) -> str:
    """Return the error of a group that could not be made as a reason."""
    return f"the kernel refused a control group: {error}"


def usable_bytes(process: Path = _SELF) -> int | None:
    """Return the memory for this process and its page cache: the machine's, or its control groups'
    smallest limit.
    """
    sizes = [host.memory_bytes()]
    if place := _find(process, MEMORY):
        version, point, home = place
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        sizes += [number(group / name) for group in _up(home, point)]
    return min((size for size in sizes if size is not None), default=None)


@contextlib.contextmanager
def make_group(
    where: Hierarchy,
    name: str,
    journal: Journal,
    limit_bytes: int | None = None,
) -> Iterator[ControlGroup]:
    """Make a group, with a memory limit without swap; remove it at the end. Raises OSError if the
    kernel refuses.
    """
    with _parent(where, journal) as parent:
        path = parent / name
        journal.take(WHAT, path)
        try:
            path.mkdir(exist_ok=True)
            if limit_bytes is not None:
                _set(where, path, limit_bytes)
            yield ControlGroup(where.version, path, where.home)
        finally:
            if _remove(path):
                journal.release(WHAT, path)


def give_back(journal: Journal) -> list[str]:
    """Remove the groups left by a killed run, and return them; one that still has processes stays
    recorded.
    """
    gone = [path for path in journal.outstanding(WHAT) if _remove(Path(path))]
    for path in gone:
        journal.release(WHAT, path)
    return gone


def stop_units(journal: Journal) -> None:
    """Stop the unit left by a killed run, with all that runs in it."""
    for name in journal.outstanding(UNIT):
        _stop(name, journal)


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


def _is_of_groups(fstype: str, _device: str, _source: str) -> bool:
    return fstype in ("cgroup", "cgroup2")


def _find(process: Path, controller: str) -> tuple[int, Path, Path] | None:
    """Return version and root of the hierarchy with the controller, and the process's group in it;
    None without one.
    """
    for mount in mounts_of(process, _is_of_groups):
        two = (
            mount.fstype == "cgroup2"
            and controller in (text(mount.point / "cgroup.controllers") or "").split()
        )
        if two or (mount.fstype == "cgroup" and _V1_NAMES[controller] in mount.options):
            home = next(_groups_of(text(process / "cgroup") or "", [mount]), mount.point)
            return (2 if two else 1), mount.point, home
    return None


def _groups_of(listed: str, table: Sequence[Mount]) -> Iterator[Path]:
    """Yield the directories of the groups of a process with this /proc/PID/cgroup (cgroups(7)), as
    far as their hierarchies are in the table; the root of one in which its path is not visible,
    as in a container.
    """
    for line in listed.splitlines():
        _, controllers, path = line.split(":", 2)
        fstype, option = ("cgroup", controllers.split(",")[0]) if controllers else ("cgroup2", None)
        for mount in [
            mount for mount in table if mount.fstype == fstype and option in (None, *mount.options)
        ][:1]:
            folder = mount.point / path.lstrip("/")
            yield folder if folder.is_dir() else mount.point


@contextlib.contextmanager
def _parent(where: Hierarchy, journal: Journal) -> Iterator[Path]:
    """Yield where to make a group, with the controller. Version 1: inside this process's group,
    whose limits then apply too. Version 2 allows no processes in groups with controllers: next to
    it, below the same delegated unit; else in the run's unit; without systemd also next to it.
    """
    if where.version == 1:
        yield where.home
        return
    beside = where.home if where.home == where.point else where.home.parent
    if _is_delegated(beside, where.controller):
        _enable(beside, where.controller)
        yield beside
    elif SYSTEMD.is_dir():
        of_unit = _of_unit(where, _unit_of(journal))
        if not of_unit.is_dir():
            raise FileNotFoundError(f"systemd has not started {_unit_of(journal)}")
        yield of_unit
    else:
        with _enabling(where, beside):
            yield beside


def _is_delegated(group: Path, controller: str) -> bool:
    """Whether groups with this controller can be made below a group: it has only groups."""
    if not _is_of_its_unit(group) or text(group / "cgroup.procs"):
        return False
    return controller in _controllers(group)


def _is_of_its_unit(group: Path) -> bool:
    """Whether systemd leaves the groups below this one to the unit's programs."""
    try:
        return os.getxattr(group, "trusted.delegate") == b"1"
    except OSError:
        return False


def _controllers(group: Path, file: str = "cgroup.controllers") -> list[str]:
    return (text(group / file) or "").split()


def _enable(group: Path, controller: str) -> bool:
    """Give the groups in this one the controller; return whether they did not have it. Raises
    OSError.
    """
    if controller in _controllers(group, "cgroup.subtree_control"):
        return False
    (group / "cgroup.subtree_control").write_text(f"+{controller}")
    return True


@contextlib.contextmanager
def _enabling(where: Hierarchy, parent: Path) -> Iterator[None]:
    """Give the groups in `parent` the controller, from the root down, and take back what was given.
    A killed process leaves it, which limits nothing.
    """
    with contextlib.ExitStack() as stack:
        for level in _up(parent, where.point)[::-1]:
            if _enable(level, where.controller):
                stack.callback(_disable, level, where.controller)
        yield


def _disable(group: Path, controller: str) -> None:
    if any(group.glob("dbbench-*")):  # another run uses it meanwhile
        return
    with contextlib.suppress(OSError):
        (group / "cgroup.subtree_control").write_text(f"-{controller}")


def _up(group: Path, point: Path) -> list[Path]:
    """Return the group and those above it up to the root of the hierarchy."""
    return [above for above in (group, *group.parents) if above.is_relative_to(point)]


@contextlib.contextmanager
def unit(journal: Journal) -> Iterator[None]:
    """Keep a transient unit of systemd within the block, below which this run can make groups, if
    it needs one. Only for a process outside of a trial's namespaces, from which systemd cannot be
    asked. Raises OSError.
    """
    _leave_unit()
    where = _lacking_delegation()
    if where is None:
        yield
        return
    name = _unit_of(journal)
    journal.take(UNIT, name)
    try:
        _start(where, name)
        yield
    finally:
        _stop(name, journal)


def _leave_unit() -> None:
    """Move this process, if it is alone in a unit with Delegate=, into a group in it, as
    DelegateSubgroup= does since systemd 254: servers get groups below the unit then, so that its
    limits hold for all together. Raises OSError.
    """
    where = hierarchy()
    if not SYSTEMD.is_dir() or isinstance(where, str) or where.version != 2:
        return
    is_alone = text(where.home / "cgroup.procs") == str(os.getpid())
    if is_alone and _is_of_its_unit(where.home):
        group = where.home / "dbbench"
        group.mkdir(exist_ok=True)
        _move(group)


def _lacking_delegation() -> Hierarchy | None:
    """Return the hierarchy of a controller for which systemd must be asked; None if there is none."""
    if not SYSTEMD.is_dir():
        return None
    for controller in (MEMORY, IO):
        where = hierarchy(controller=controller)
        if isinstance(where, str) or where.version != 2:
            continue
        if not _is_delegated(where.home.parent, controller):
            return where
    return None


def _unit_of(journal: Journal) -> str:
    return f"dbbench-{journal.tag}.service"


def _slices(where: Hierarchy) -> list[str]:
    """Return the slices of this process, or system.slice if they end with a login."""
    home = where.home.relative_to(where.point).parts
    slices = list(itertools.takewhile(lambda part: part.endswith(".slice"), home))
    if slices and slices[0] != "user.slice":
        return slices
    return ["system.slice"]


def _of_unit(where: Hierarchy, name: str) -> Path:
    return where.point.joinpath(*_slices(where), name)


def _own_limits(where: Hierarchy) -> list[str]:
    """Return the limits of this process's unit, which would not hold in another one, as properties
    of systemd. Its CPUs are inherited.
    """
    limits = list[str]()
    usable = usable_bytes()
    if usable is not None and usable != host.memory_bytes():
        limits.append(f"MemoryMax={usable}")
    quota, _, period = (text(where.home / "cpu.max") or "max").partition(" ")
    if quota != "max":
        limits.append(f"CPUQuota={max(1, round(100 * int(quota) / int(period)))}%")
    for line in (text(where.home / "io.max") or "").splitlines():
        device, *rules = line.split()
        for rule in rules:
            name, _, rate = rule.partition("=")
            if rate != "max":
                limits.append(f"{_IO_LIMITS[name]}=/dev/block/{device} {rate}")
    return limits


def _start(where: Hierarchy, name: str) -> None:
    """Start a unit with all controllers, and with the limits of this process."""
    group = _of_unit(where, name)
    argv = ["systemd-run", "--quiet", "--collect", f"--unit={name}"]
    argv += [f"--slice={_slices(where)[-1]}", "--property=Delegate=yes"]
    argv += [f"--property={limit}" for limit in _own_limits(where)]
    # A group with processes cannot have groups with controllers in it.
    keeper = shlex.quote(str(group / "keeper"))
    script = f"mkdir {keeper} && echo 0 >{keeper}/cgroup.procs && exec sleep infinity"
    try:
        process.run([*argv, "--", "/bin/sh", "-c", script], timeout_s=_UNIT_S, note=False)
    except DbbenchError as error:
        raise OSError(error.evidence) from error
    process.wait_while(lambda: text(group / "cgroup.procs") != "", _UNIT_S, _STEP_S)
    for controller in {MEMORY, IO} & {*_controllers(group)}:
        _enable(group, controller)


def _stop(name: str, journal: Journal) -> None:
    """Stop a transient unit, which ends all that runs in it; what could not be stopped stays
    recorded.
    """
    with contextlib.suppress(DbbenchError):
        process.run(["systemctl", "stop", name], timeout_s=_UNIT_S, ok=(0, 5), note=False)
        journal.release(UNIT, name)


def _move(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")  # 0 means the writing process


def _remove(path: Path) -> bool:
    def is_left() -> bool:
        with contextlib.suppress(OSError):
            path.rmdir()
        return path.is_dir()

    return not process.wait_while(is_left, _GONE_S, _STEP_S)


class Groups:
    """Read the groups of processes, in the hierarchies that were mounted when it was made."""

    def __init__(self, table: Sequence[Mount]) -> None:
        self._mounts = [mount for mount in table if mount.fstype in ("cgroup", "cgroup2")]
        # directory -> its line about the time that it has been frozen
        self._frozen_us: dict[str, str | None] = {}
        self._of = functools.cache(
            lambda listed: [*dict.fromkeys(map(str, _groups_of(listed, self._mounts)))]
        )
        self._limits_of = functools.cache(self._list_limits)
        self._throttled: dict[str, str] = {}  # file -> its lines about used up quotas

    def frozen(self, listed: str) -> bool:
        """Whether a process with these groups (/proc/PID/cgroup) is frozen, by its group or by one
        above; since Linux 6.17, also whether it was since the last call.
        """
        return any([self._frozen(folder) for folder in self._of(listed)])

    def _frozen(self, folder: str) -> bool:
        counted = (content(f"{folder}/cgroup.stat.local") or "").splitlines()
        now = next((line for line in counted if line.startswith("frozen_usec ")), None)
        before, self._frozen_us[folder] = self._frozen_us.get(folder), now
        if before is not None and before != now:
            return True
        if content(f"{folder}/freezer.state") in ("FROZEN", "FREEZING"):
            return True
        return "frozen 1" in (content(f"{folder}/cgroup.events") or "").splitlines()

    def throttled(self, listed: str | None) -> bool:
        """Whether a quota of CPU time of these groups, or of one above, was used up since the last
        call.
        """
        before = self._throttled
        self._throttled = {}
        for folder in self._of(listed or ""):
            for group in (Path(folder), *Path(folder).parents):
                lines = (content(group / "cpu.stat") or "").splitlines()
                counts = [line for line in lines if line.startswith("nr_throttled ")]
                if counts:
                    self._throttled[str(group)] = counts[0]
        return any(before.get(group, now) != now for group, now in self._throttled.items())

    def limits(self, listed: str) -> dict[str, str]:
        """Return the limits that apply to a process with these groups: file -> content."""
        paths = dict.fromkeys(
            path for folder in self._of(listed) for path in self._limits_of(folder)
        )
        return {path: limit for path in paths if (limit := content(path)) is not None}

    def _list_limits(self, folder: str) -> tuple[str, ...]:
        """Return the existing files with the limits of this group and of those above it."""
        points = [mount.point for mount in self._mounts]
        groups = (
            group
            for group in (Path(folder), *Path(folder).parents)
            if any(map(group.is_relative_to, points))
        )
        files = (group / name for group in groups for name in (*_V1, *_V2))
        return tuple(str(file) for file in files if file.exists())
