"""Who uses a device: mounts and open files of all processes, from a small /proc."""

import os
from pathlib import Path

import pytest

from dbbench.storage.devices import used
from dbbench.storage.devices.used import Target
from tests.support.files import write_file

SDB = os.makedev(8, 16)
SDC = os.makedev(8, 32)
MOUNT = "36 35 8:16 / {point} rw,relatime shared:1 - ext4 /dev/sdb rw"


def target(name: str, number: int) -> Target:
    """A device that is no loop device."""
    return Target(name, frozenset({number}), frozenset())


def add_process(proc: Path, pid: str, namespace: str, *points: str) -> None:
    """Add a process with its mount namespace, and the places where sdb is mounted there."""
    lines = "".join(MOUNT.format(point=point) + "\n" for point in points)
    write_file(proc / pid / "mountinfo", lines)
    write_file(proc / pid / "comm", f"program{pid}\n")
    (proc / pid / "ns").mkdir()
    (proc / pid / "fd").mkdir()
    (proc / pid / "ns/mnt").symlink_to(f"mnt:[{namespace}]")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Processes 1 and 2 share the namespace of this process, 3 and 4 have their own."""
    add_process(tmp_path, "1", "100", "/srv")
    add_process(tmp_path, "2", "100", "/srv")
    add_process(tmp_path, "3", "103", "/srv", "/private")
    add_process(tmp_path, "4", "104", "/srv", "/private")
    (tmp_path / "self").symlink_to("1")
    return tmp_path


def test_a_mount_is_listed_once_however_many_namespaces_have_a_copy(proc: Path) -> None:
    """Every service of systemd may have a namespace with copies of all mounts. A mount that only
    other namespaces have is listed with a process of the first, and their number.
    """
    assert used.mounts_of_each([target("sdb", SDB)], proc)["sdb"] == [
        "/dev/sdb is mounted at /srv",
        "/dev/sdb is mounted at /private in the mount namespace of process 3 (program3) and of 1 "
        "other",
    ]
    assert used.mounts_of_each([target("sdc", SDC)], proc)["sdc"] == []


def test_the_mount_table_of_a_namespace_is_read_once(proc: Path) -> None:
    """A process in a namespace that is already known needs no table: it may not be readable."""
    (proc / "2/mountinfo").unlink()
    (proc / "2/mountinfo").mkdir()
    assert len(used.mounts_of_each([target("sdb", SDB)], proc)["sdb"]) == 2


def test_an_open_file_is_found_for_each_device_in_one_walk(proc: Path, tmp_path: Path) -> None:
    """Of two loop devices, each is in use by the process that has its image open; a third by none."""
    images = [write_file(tmp_path / name, "") for name in ("a", "b", "c")]
    for pid, image in (("3", images[0]), ("4", images[1]), ("1", images[1])):
        (proc / pid / "fd/7").symlink_to(image)
    devices = [
        Target(path.name, frozenset(), frozenset({(path.stat().st_dev, path.stat().st_ino)}))
        for path in images
    ]
    openers, unreadable = used._openers(devices, proc, mine={7})
    assert openers == {
        "a": ["opened by process 3 (program3)"],
        "b": ["opened by process 4 (program4)"],  # descriptor 7 of process 1 is this one's own
        "c": [],
    }
    assert unreadable == []
