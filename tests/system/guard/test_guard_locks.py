"""Who has a device for a moment is waited for, and who keeps it is named."""

import fcntl
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from dbbench import process
from dbbench.errors import DeviceInUse, UnmountFailed
from dbbench.machine import namespaces
from dbbench.storage import devices
from dbbench.storage.devices import guard, hold, loop
from tests.support.permit import Permit
from tests.support.planted import LOCK, OPEN, Disk, attached, beside

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")


@pytest.mark.parametrize("doing", ["fcntl.flock(f, fcntl.LOCK_EX)", "None"])
def test_udev_may_take_its_time(disk: Disk, doing: str) -> None:
    """It locks and reads a disk that dbbench itself has closed. On a slow machine that takes longer
    than another program gets.
    """
    script = (
        "import fcntl, sys, time; open('/proc/self/comm', 'w').write('(udev-worker)'); "
        f"f = open(sys.argv[1], 'rb'); {doing}; print(1, flush=True); time.sleep(4)"
    )
    with beside(sys.executable, "-c", script, disk.path):
        began = time.monotonic()
        with attached(disk):
            assert time.monotonic() - began > 2


def test_a_locked_device_is_left_alone(disk: Disk) -> None:
    """udev, sfdisk and mkfs lock a disk while they work on it."""
    with disk.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DeviceInUse, match="flock"), attached(disk):
            pass


def test_a_lock_of_an_instant_is_waited_for(disk: Disk) -> None:
    """udev holds one after each change of a device."""
    other = disk.path.open("rb")
    fcntl.flock(other, fcntl.LOCK_SH)
    timer = threading.Timer(0.3, other.close)
    timer.start()
    with attached(disk):
        timer.join()


def test_an_open_of_a_moment_is_waited_for(disk: Disk) -> None:
    """Programs that list disks open each of them."""
    with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDONLY)) as reader:
        timer = threading.Timer(1.0, reader.kill)
        timer.start()
        with attached(disk):
            timer.join()


@pytest.mark.usefixtures("impatient")
def test_who_holds_the_lock_is_named(disk: Disk) -> None:
    """Of a device and of a loop device's image: process, name and command, from within a trial's
    namespaces too.
    """
    with beside(sys.executable, "-c", LOCK, disk.path) as holder:
        with pytest.raises(DeviceInUse) as refused, attached(disk):
            pass
        script = (
            "import os, sys; from dbbench.machine import namespaces; from "
            "dbbench.storage.devices import guard\n"
        )
        script += (
            "def work():\n    print(guard.locked_by(os.open(sys.argv[1], os.O_RDONLY)))\n    "
            "return 0\n"
        )
        script += "sys.exit(namespaces.isolate(work))\n"
        env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        within = process.run([sys.executable, "-c", script, disk.path], env=env).stdout
    named = (
        f"locked by process {holder.pid} ({Path(sys.executable).name[:15]}): {sys.executable} -c "
        "import fcntl"
    )
    assert named in refused.value.evidence
    assert named in within
    (image := disk.folder / "image").write_bytes(bytes(2**20))
    with (
        beside(sys.executable, "-c", LOCK, image) as holder,
        pytest.raises(DeviceInUse) as refused,
        loop.attach(image),
    ):
        pass
    assert f"\n  locked by process {holder.pid} (" in refused.value.evidence


@pytest.mark.usefixtures("impatient")
def test_a_device_that_stays_busy_is_reported(disk: Disk) -> None:
    """umount that did not happen is an error of its own, with who holds it; an earlier error stays
    the first.
    """
    (point := disk.folder / "mnt").mkdir()
    with pytest.raises(UnmountFailed, match=f"is mounted at {point}"), attached(disk) as device:
        with hold.lend():
            process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        hold.release(device.fd)
        namespaces.mount(device.path, point, "ext4")
    namespaces.unmount(point)
    assert not process.wait_while(
        lambda: [why for why in guard.reasons(disk.path) if why.kind == "in use"], 30
    )
    word = devices.identity(disk.path)
    with pytest.raises(ZeroDivisionError) as first, attached(disk, Permit(word)) as device:
        hold.release(device.fd)
        namespaces.mount(device.path, point, "ext4")
        _ = 1 / 0
    assert "E307" in first.value.__notes__[0]
    namespaces.unmount(point)
