"""The name of a device may be swapped at any moment; what was checked is what is written."""

import threading
from pathlib import Path

import pytest

from dbbench import process
from dbbench.errors import DeviceInUse, DeviceNotEmpty, DeviceUnusable
from dbbench.storage import devices
from dbbench.storage.devices import block, hold
from tests.support.permit import Permit
from tests.support.planted import Disk, attached, mkfs, uuid_of

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")


def test_a_swapped_name_hits_nothing(
    disk: Disk,
    victim: Disk,
    tmp_path: Path,
) -> None:
    """What was checked is what is formatted, wherever the name leads by then."""
    (link := tmp_path / "link").symlink_to(disk.path)
    before = victim.digest()
    with block.attach(link, None, Permit()) as device:
        link.unlink()
        link.symlink_to(victim.path)
        with hold.lend():
            process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
    assert victim.digest() == before
    assert uuid_of(disk)


def test_the_plan_may_name_another_disk(disk: Disk) -> None:
    """An identity in the plan must fit; that it fits permits nothing."""
    with (
        pytest.raises(DeviceUnusable, match="the plan requires S5GX"),
        attached(disk, identity="S5GX"),
    ):
        pass
    with attached(disk, identity=devices.identity(disk.path)):
        pass
    mkfs(disk)
    with pytest.raises(DeviceNotEmpty), attached(disk, identity=devices.identity(disk.path)):
        pass


def test_a_name_swapped_at_any_moment_hits_what_was_checked(
    disk: Disk,
    victim: Disk,
    tmp_path: Path,
) -> None:
    """A name that alternates between two disks a thousand times a second: mkfs gets the checked
    descriptor.
    """
    mkfs(victim)
    before = victim.digest()
    link = tmp_path / "link"
    ended = threading.Event()

    def swap() -> None:
        for number in range(10**9):
            if ended.is_set():
                return
            other = tmp_path / "other"
            other.symlink_to(disk.path if number % 2 else victim.path)
            other.rename(link)

    thread = threading.Thread(target=swap)
    thread.start()
    made = 0
    try:
        # 12 times, and until the name has led to the disk at the right moments
        for tried in range(200):
            if tried >= 12 and made:
                break
            try:
                with (
                    block.attach(link, None, Permit(devices.identity(disk.path))) as device,
                    hold.lend(),
                ):
                    process.run(["mkfs.ext4", "-q", "-F", device.argument], pass_fds=(device.fd,))
                    made += 1
            except (DeviceInUse, DeviceNotEmpty, DeviceUnusable):
                pass  # the name led to the other just then, or nowhere
    finally:
        ended.set()
        thread.join()
    assert victim.digest() == before
    assert made
