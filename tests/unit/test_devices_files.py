"""Images and directories as devices: what dbbench makes in them, refuses and removes."""

import os
from pathlib import Path
from typing import Any

import pytest

from dbbench.errors import DeviceInUse, DeviceUnusable, DiskTooSmall
from dbbench.model import DeviceSpec
from dbbench.storage import devices
from dbbench.storage.devices import DiskSet, directory, image
from dbbench.storage.devices.port import Device
from tests.support.files import write_file
from tests.support.permit import Permit


def test_an_image_is_written_in_full_and_private(tmp_path: Path) -> None:
    """Every block is written, the size is whole MiB, other users cannot read the file, and progress
    ends at 1. The facts tell a hole from written bytes: else a discard would go unseen.
    """
    told: list[float] = []
    image.make_image(tmp_path / "image", 5 * 2**20 - 7, told.append)
    assert (
        (tmp_path / "image").stat().st_size
        == 5 * 2**20
        <= image.allocation(tmp_path / "image")[0] * 512
    )
    assert (tmp_path / "image").stat().st_mode & 0o777 == 0o600
    assert told == sorted(told) and told[-1] == 1.0
    assert (tmp_path / "image").read_bytes().count(bytes(4096)) == 0
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**20)
    assert image.allocation(tmp_path / "sparse") == (0, 0)


def test_an_image_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    """Too little disk is reported before anything is written, an interruption removes what was."""

    def interrupted(_share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(DiskTooSmall):
        image.make_image(tmp_path / "image", 2**60)
    with pytest.raises(KeyboardInterrupt):
        image.make_image(tmp_path / "image", 2**23, interrupted)
    assert list(tmp_path.iterdir()) == []


def in_directory(path: Path, arm: str = "ext4") -> Device:
    """Use the directory as a target, leaving data behind; the device that it was."""
    with directory.attach(DeviceSpec(kind="dir", paths={arm: str(path)}), arm) as device:
        assert device.path.is_dir()
        write_file(device.path / "data/file", "x")
    return device


def test_a_directory_gets_a_folder_of_ours_that_goes_again(tmp_path: Path) -> None:
    """Work is done in a subfolder; the directory is as empty afterwards as before, lost+found
    included.
    """
    (tmp_path / "lost+found").mkdir()
    device = in_directory(tmp_path)
    assert device.path == tmp_path / "dbbench-ext4" and device.fd == -1
    assert device.st_rdev == tmp_path.stat().st_dev
    assert [path.name for path in tmp_path.iterdir()] == ["lost+found"]


@pytest.mark.parametrize(
    "path", ["/", "/usr/share", "/etc", "/var/lib", "/tmp", "/proc/self", "/nowhere/at/all", "link"]
)
def test_system_directories_are_refused(path: str, here: Path) -> None:
    """A plan that names the system's folders is a mistake; what counts is where the name leads."""
    (here / "link").symlink_to("/usr/share")
    with pytest.raises(DeviceUnusable):
        in_directory(here / path)


def test_a_directory_with_anything_else_is_refused(tmp_path: Path) -> None:
    """Also one whose content only looks like that of dbbench: without the marker it belongs to
    another user. An arm without a directory is refused too.
    """
    (tmp_path / "dbbench-ext4").mkdir()
    with pytest.raises(DeviceUnusable, match="not empty: dbbench-ext4"):
        in_directory(tmp_path)
    assert (tmp_path / "dbbench-ext4").is_dir()
    spec = DeviceSpec(kind="dir", paths={"ext4": "/srv/x"})
    with pytest.raises(DeviceUnusable, match="'btrfs'"), directory.attach(spec, "btrfs"):
        pass


@pytest.mark.parametrize("kind", ["loop", "block"])
def test_a_plan_without_a_device_is_refused(kind: Any) -> None:
    """A plan's rules exclude it, but the plan in a run's folder may have been edited."""
    with (
        pytest.raises(DeviceUnusable),
        devices.attach({"data": DiskSet(DeviceSpec(kind=kind))}, Permit()),
    ):
        pass


def test_what_a_killed_run_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    """The marker's lock tells the two apart."""
    write_file(tmp_path / "dbbench-xfs" / directory.MARKER)
    in_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []
    spec = DeviceSpec(kind="dir", paths={"xfs": str(tmp_path), "ext4": str(tmp_path)})
    with directory.attach(spec, "xfs") as living:
        with (
            pytest.raises(DeviceInUse, match=rf"locked by process {os.getpid()} \("),
            directory.attach(spec, "ext4"),
        ):
            pass
        assert living.path.is_dir()


def test_devices_that_a_plan_gives_are_counted_as_a_setup_gets_them() -> None:
    """Of kind dir each arm has a directory of its own: they are not several devices of one
    setup.
    """
    assert DeviceSpec(count=4).device_count == 4
    assert DeviceSpec(kind="block", path="/dev/a").device_count == 1
    assert DeviceSpec(kind="block", paths=("/dev/a", "/dev/b")).device_count == 2
    assert DeviceSpec(kind="dir", paths={"ext4": "/a", "btrfs-raid0": "/b"}).device_count == 1
