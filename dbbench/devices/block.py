"""Kind `block`: a real disk or partition, checked and locked so that what was checked is what is formatted.

mkfs.ext4, mkfs.xfs, mkfs.btrfs and wipefs open with O_EXCL themselves, so it cannot be held across mkfs. Instead
everything happens to one opened device: it is opened with O_EXCL, checked through its descriptor, opened again
through that descriptor and locked (flock(2), which udev and util-linux honour), and only then let go of O_EXCL.
A symlink that is swapped in the meantime hits nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.devices import guard, naming, sysfs
from dbbench.devices.ending import afterwards
from dbbench.devices.port import Device, Permit
from dbbench.errors import DeviceInUse, DeviceLocked, DeviceUnusable, NotRoot, UnmountFailed
from dbbench.model import DeviceFacts

_SETTLE_S: Final = 2.0  # the kernel may still be ending the mount of a trial that was killed (median 90 ms)
_FREE_S: Final = 30.0  # after umount a copy of the mount elsewhere, or a slow flush, may hold it


@contextlib.contextmanager
def attached(path: Path, expected: str | None, permit: Permit, *, fstab: Path = guard.FSTAB) -> Iterator[Device]:
    """A block device, ours until the block ends; then it waits until nobody holds it.

    `expected` is the identity that the plan names it by. Raises NotRoot, DeviceUnusable (not there, no block device,
    another identity than the plan's), DeviceLocked, DeviceInUse, DeviceNotEmpty; afterwards UnmountFailed where
    something still holds it.
    """
    if os.geteuid() != 0:
        raise NotRoot(f"{path} can only be formatted by root", effect=guard.UNTOUCHED, remedy="sudo dbbench ...")
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as checking:
            exclusive = _exclusive(path, permit, fstab)
            checking.callback(os.close, exclusive)
            name = guard.kernel_name(exclusive)
            _is_the_one(path, name, expected)
            fd = os.open(f"/proc/self/fd/{exclusive}", os.O_RDWR | os.O_CLOEXEC)
            stack.enter_context(afterwards(lambda: _wait_until_free(Path(f"/dev/{name}"))))
            stack.callback(os.close, fd)
            _lock(fd, path)
            guard.refuse(path, name, guard.found_on(exclusive, mine={exclusive, fd}, fstab=fstab), permit)
        number = os.fstat(fd).st_rdev
        facts = DeviceFacts(
            "block", f"/dev/{name}", name, sysfs.size_bytes(name), naming.serial(name), naming.model(name)
        )
        yield Device(Path(facts.path), fd, os.major(number), os.minor(number), facts, sysfs.leaves(name))


def _exclusive(path: Path, permit: Permit, fstab: Path) -> int:
    """A descriptor of the device with O_EXCL. A device that stays busy is refused with all reasons found."""
    until = time.monotonic() + _SETTLE_S
    while (fd := guard.opened(path, os.O_RDWR | os.O_EXCL)) is None:
        if time.monotonic() > until:
            found = guard.reasons(path, fstab=fstab) or [guard.held_exclusively()]
            guard.refuse(path, sysfs.name_of(path.stat().st_rdev) or path.name, found, permit)
            raise DeviceInUse(f"{path} was busy for {_SETTLE_S:.0f} s", effect=guard.UNTOUCHED)
        time.sleep(0.05)
    return fd


def _is_the_one(path: Path, name: str, expected: str | None) -> None:
    problem = ""
    if sysfs.size_bytes(name) == 0:
        problem = "has no medium (its size is 0)"
    elif expected and expected not in naming.names_of(name):
        problem = f"is {naming.identity_of(name)}, the plan asks for {expected}"
    if problem:
        raise DeviceUnusable(f"{path} {problem}", effect=guard.UNTOUCHED, remedy="dbbench doctor")


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DeviceLocked(
            f"{path} is locked (flock) by another run, or a program that partitions it:{guard.locked_by(fd)}",
            effect=guard.UNTOUCHED,
            remedy=f"Wait for it, or stop it; see  lslocks  and  fuser -v {path}.",
        ) from None


def _wait_until_free(path: Path) -> None:
    """umount(2) returning 0 does not mean that the filesystem is gone: wait until O_EXCL is to be had."""
    until = time.monotonic() + _FREE_S
    while True:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return  # unplugged, or renamed: not held by us
        if time.monotonic() > until:
            lines = "".join(f"\n  {reason.text}" for reason in guard.reasons(path) if reason.kind == "in use")
            raise UnmountFailed(f"{path} is still in use after {_FREE_S:.0f} s:{lines}")
        time.sleep(0.02)
