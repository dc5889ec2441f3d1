"""Limits of disks by the block layer: IOPS and bytes per second, of reads and of writes separately.

Version 1 of the control groups limits a disk in the root group, to which write-back and the
threads of filesystems belong, and in the group of this process. Version 2 has no limits in the
root: it limits groups, but not what kernel threads write.
Documentation/admin-guide/cgroup-v1/blkio-controller.rst and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError, KernelLacks
from dbbench.machine import threads
from dbbench.machine.host.proc import text
from dbbench.machine.limits import cgroup
from dbbench.machine.limits.cgroup import IO, ControlGroup, Hierarchy
from dbbench.model import DeviceLimit
from dbbench.results.journal import Journal

WHAT: Final = "throttle"  # the kind of its entries in the journal: "MAJOR:MINOR IOPS BYTES"
UNITS: Final = ("iops", "bps")
# of the error in a run, after the check before it
_LATE: Final = "Completed trials are kept. The device may have been overwritten."
Rates = tuple[int, int]  # IOPS and bytes per second; 0: not limited


@contextlib.contextmanager
def limit_disks(
    disks: Sequence[str],
    limit: DeviceLimit,
    journal: Journal,
    at: Path | None,
) -> Iterator[str]:
    """Limit disks ("7:2") within the block; yield by what. Raises KernelLacks."""
    where = cgroup.hierarchy(at, controller=IO)
    if isinstance(where, str):
        raise refusal(where, _LATE)
    # Rules of a killed trial would add to these.
    give_back(journal)
    with contextlib.ExitStack() as stack:
        try:
            groups = _root(where)
            if where.version == 2:
                group = stack.enter_context(
                    cgroup.make_group(where, f"dbbench-io-{journal.tag}", journal)
                )
                stack.enter_context(group.enter())  # everything that this process starts is in it
                groups = [group.path]
            else:  # these rules do not end with a group
                for disk in disks:
                    stack.callback(give_back, journal)
                    for rates in _stages(limit):
                        path = " ".join(map(str, (disk, *rates)))
                        journal.take(WHAT, path)
            stack.enter_context(_enforcing(where.version, groups, disks, limit))
        except OSError as error:
            raise refusal(str(error), _LATE) from error
        yield f"cgroup v{where.version}"


@contextlib.contextmanager
def limit_group(
    group: ControlGroup,
    disks: Sequence[str],
    limit: DeviceLimit,
) -> Iterator[None]:
    """Limit the disks for a further group within the block, which version 2 would not limit. Raises
    KernelLacks.
    """
    groups = [group.path] if group.version == 2 else []
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_enforcing(2, groups, disks, limit))
        except OSError as error:
            raise refusal(str(error), _LATE) from error
        yield


def _stages(limit: DeviceLimit) -> list[Rates]:
    """Return the rates in the order in which they apply: those of the burst, if any, and the others."""
    bytes_s = round((limit.mb_per_s or 0) * 1e6)
    rates = [(limit.iops or 0, bytes_s)]
    if limit.burst_iops:
        rates.insert(0, (limit.burst_iops, bytes_s))
    return rates


@contextlib.contextmanager
def _enforcing(
    version: int,
    groups: Sequence[Path],
    disks: Sequence[str],
    limit: DeviceLimit,
) -> Iterator[None]:
    """Set the limits of groups; a burst ends within the block. Raises KernelLacks and OSError."""
    first, *later = _stages(limit)
    over = threading.Event()

    def end_burst() -> None:
        if later and not over.wait(limit.burst_s):
            for group in groups:
                _enforce(version, group, disks, later[0])

    for group in groups:
        _enforce(version, group, disks, first)
    helper = threads.Helper("end of the burst", end_burst)
    helper.start()
    try:
        yield
    finally:
        over.set()
        helper.join()
    helper.check()


def _enforce(
    version: int,
    group: Path,
    disks: Sequence[str],
    rates: Rates,
) -> None:
    """Set the limits of a group and read them back. Raises KernelLacks and OSError."""
    for disk in disks:
        _set(version, group, disk, rates)
        actual = _read(version, group, disk)
        if actual != rates:
            text = f"the limit of device {disk} in {group} is {actual}, not {rates}"
            raise refusal(text, _LATE)


def give_back(journal: Journal) -> None:
    """Remove the limits that a killed run left on disks, unless they have been changed since."""
    taken = journal.outstanding(WHAT)
    where = cgroup.hierarchy(controller=IO) if taken else ""
    if isinstance(where, str):
        return
    for path in taken:
        disk, iops, bps = path.split()
        for group in _root(where):
            if _read(1, group, disk) == (int(iops), int(bps)):
                with contextlib.suppress(OSError):  # the disk no longer exists
                    _set(1, group, disk, (0, 0))
        journal.release(WHAT, path)


def obstacle() -> str:
    """Return why no limit can be set on this machine; "" if none is known. Version 2 is tried."""
    where = cgroup.hierarchy(controller=IO)
    if isinstance(where, str):  # a trial mounts it in a namespace of its own, if the kernel has it
        controllers = text(Path("/proc/cgroups")) or ""
        if "blkio" in controllers.split():
            return ""
        return where
    if where.version == 2:
        return cgroup.obstacle(IO)
    procs = where.point / "cgroup.procs"
    if os.access(procs, os.W_OK):
        return ""
    return f"{where.point} is not writable"


_NEEDED: Final = (
    "Remove it from [device], or run on another host: rates require the controller io or blkio of "
    "the control groups, delays dm-delay. `dbbench doctor` tries both."
)


def refusal(
    reason: str,
    effect: str = "Nothing was changed.",
    remedy: str = _NEEDED,
) -> DbbenchError:
    """Return the error of a limit that cannot be enforced."""
    return KernelLacks(
        f"limit in [device] cannot be enforced: {reason}",
        effect=effect,
        remedy=remedy,
    )


def _root(where: Hierarchy) -> list[Path]:
    """Return the groups of version 1 that together have all I/O of this process and of the kernel."""
    if where.version == 1:
        return list(dict.fromkeys((where.point, where.home)))
    return []


def _set(version: int, group: Path, disk: str, rates: Rates) -> None:
    named = dict(zip(UNITS, rates, strict=True))
    if version == 2:
        rules = [f"{side}{unit}={rate or 'max'}" for unit, rate in named.items() for side in "rw"]
        (group / "io.max").write_text(f"{disk} {' '.join(rules)}")
        return
    for unit, rate in named.items():
        for side in ("read", "write"):
            file = group / f"blkio.throttle.{side}_{unit}_device"
            file.write_text(f"{disk} {rate}")


def _read(version: int, group: Path, disk: str) -> Rates | None:
    """Return the rates of a disk; None if those of reads and writes differ."""
    if version == 2:
        rules = dict(rule.split("=") for rule in _rule(group / "io.max", disk))
        both = [[rules.get(f"{side}{unit}", "max") for side in "rw"] for unit in UNITS]
    else:
        files = [
            [group / f"blkio.throttle.{side}_{unit}_device" for side in ("read", "write")]
            for unit in UNITS
        ]
        both = [[" ".join(_rule(file, disk)) or "max" for file in of] for of in files]
    if any(read != write for read, write in both):
        return None
    iops, bps = (0 if rate == "max" else int(rate) for rate, _ in both)
    return iops, bps


def _rule(file: Path, disk: str) -> Iterable[str]:
    lines = [line.split() for line in (text(file) or "").splitlines()]
    return next((words[1:] for words in lines if words and words[0] == disk), ())
