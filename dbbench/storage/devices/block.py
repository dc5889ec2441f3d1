"""Kind `block`: a real disk or partition, checked, locked and held, so that the checked device is
the formatted one.

It is opened with O_EXCL, checked through its descriptor, opened again through that descriptor
and locked (flock(2), which udev and util-linux respect). O_EXCL is kept until the device is
released, except while the kernel itself holds the device for a filesystem or a layer of the
trial (`hold`). Changing a symbolic link meanwhile has no effect.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import DbbenchError, DeviceInUse, DeviceUnusable, UnmountFailed, collect_errors
from dbbench.model import DeviceFacts
from dbbench.results.fileio import try_lock
from dbbench.storage.devices import guard, hold, naming, sysfs
from dbbench.storage.devices.configured import ETC
from dbbench.storage.devices.guard import Permit
from dbbench.storage.devices.hold import afterwards
from dbbench.storage.devices.port import Device

# the kernel may still end the mount of a killed trial (median 90 ms), or udev looks at it
_SETTLE_S: Final = 2.0
# After umount, a copy of the mount in another namespace or a slow flush may still hold the device.
_FREE_S: Final = 30.0


@contextlib.contextmanager
def attach(
    path: Path,
    expected: str | None,
    permit: Permit,
    *,
    etc: Path = ETC,
) -> Iterator[Device]:
    """Attach a device exclusively within the block; then wait until it is free. `expected`: the
    plan's identity. Raises DeviceUnusable, DeviceInUse, DeviceNotEmpty; afterwards UnmountFailed
    if something holds it.
    """
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as held:
        # First the exclusive open, which the kernel grants to one; then all questions.
        held.enter_context(hold.holding(exclusive := _exclusive(path, permit, etc)))
        name = guard.kernel_name(exclusive)
        must_be(path, name, expected)
        fd = os.open(f"/proc/self/fd/{exclusive}", os.O_RDWR | os.O_CLOEXEC)
        # A device that something still holds afterwards is an error, not a leftover.
        stack.enter_context(afterwards(lambda: _wait_until_free(Path(f"/dev/{name}"))))
        stack.callback(os.close, fd)
        _lock(fd, path)
        guard.refuse(
            path,
            name,
            guard.found_on(exclusive, mine={exclusive, fd}, etc=etc),
            permit,
        )
        # Nothing else uses it, so what is read now stays true.
        size = sysfs.size_bytes(name)
        facts = DeviceFacts(
            "block",
            f"/dev/{name}",
            name,
            size,
            naming.serial(name),
            naming.model(name),
        )
        word = naming.identity_of(name)
        yield Device(
            Path(facts.path),
            fd,
            os.fstat(fd).st_rdev,
            facts,
            sysfs.leaves(name),
            identity=word,
        )
        # At the end of the block it must be as free as before.
        guard.must_be_alone(fd)


def number_of(path: Path) -> int | None:
    """Return the device number of a block device, or None if the path is not one."""
    try:
        if path.is_block_device():
            return path.stat().st_rdev
        return None
    except OSError:
        return None


def _exclusive(path: Path, permit: Permit, etc: Path) -> int:
    """Return a descriptor of the device with O_EXCL. A device that stays busy is refused with all
    reasons.
    """
    began = time.monotonic()
    while (fd := guard.open_device(path, os.O_RDWR | os.O_EXCL)) is None:
        if process.overdue(began, _SETTLE_S):
            reasons = guard.reasons(path, etc=etc)  # refuses a device that cannot even be read
            locked: list[DbbenchError] = []
            with path.open("rb") as plain, collect_errors(locked, DeviceInUse):
                _lock(plain.fileno(), path)
            reasons += [guard.Reason("in use", error.evidence) for error in locked]
            name = sysfs.name_at(path) or path.name
            guard.refuse(path, name, reasons or [guard.HELD], permit)
            raise DeviceInUse(f"{path} is still busy after {_SETTLE_S:.0f} s")
        time.sleep(0.05)
    return fd


def must_be(
    path: Path,
    name: str,
    expected: str | None,
    names: naming.DiskNames | None = None,
) -> None:
    """Raise DeviceUnusable if the disk has no medium, or another identity than the plan names.
    `names`: of all disks, if they were read before.
    """
    if sysfs.size_bytes(name) == 0:
        raise DeviceUnusable(f"{path} has no medium (size 0)")
    if expected and expected not in naming.names_of(name, names):
        raise DeviceUnusable(
            f"{path} is {naming.identity_of(name)}, but the plan requires {expected}"
        )


def _lock(fd: int, path: Path) -> None:
    """Lock a device; wait longer for udev than for others, and for a holder that cannot be seen."""
    # udev, and a run that looks for a free loop device, lock a device for an instant.
    if not process.wait_while(lambda: not try_lock(fd), _SETTLE_S):
        return

    def is_udev() -> bool:
        return not try_lock(fd) and guard.locked_by_udev(fd)

    process.wait_while(is_udev, guard.UDEV_S)
    if not try_lock(fd):
        raise DeviceInUse(
            f"{path} is locked (flock) by another run or a partitioning "
            f"program:{guard.locked_by(fd)}",
            remedy="Wait for that process or stop it. These commands show it: lslocks; fuser -v "
            f"{path}",
        )


def _wait_until_free(path: Path) -> None:
    """Wait until O_EXCL succeeds: a successful umount(2) does not mean that the filesystem is gone."""

    def is_busy() -> bool:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError as error:
            # any other error: the device was unplugged or renamed
            return error.errno == errno.EBUSY
        return False

    if process.wait_while(is_busy, _FREE_S, 0.02):
        lines = "".join(
            f"\n  {reason.text}" for reason in guard.reasons(path) if reason.kind == "in use"
        )
        raise UnmountFailed(f"{path} is still in use after {_FREE_S:.0f} s:{lines}")
