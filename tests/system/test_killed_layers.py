"""A run with layers on disks that is killed goes on by the same command, and leaves nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.storage import devices
from dbbench.storage.devices import sysfs
from tests.support.plans import plan
from tests.support.planted import Disk, detach, new_disk

SIZE: Final = 256 * 2**20
# fs setup -> number of its disks
SETUPS: Final = {
    "ext4-md1": pytest.param("ext4-md1", 2, marks=pytest.mark.needs("mdadm", "kernel:raid1")),
    "ext4-lvm": pytest.param("ext4-lvm", 1, marks=pytest.mark.needs("lvcreate", "kernel:dm-mod")),
    "ext4-crypt": pytest.param(
        "ext4-crypt",
        1,
        marks=pytest.mark.needs("cryptsetup", "kernel:dm-crypt"),
    ),
    "delay": pytest.param("ext4", 1, marks=pytest.mark.needs("dmsetup", "kernel:dm-delay")),
}
pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Disk]]:
    """Yield two disks of a user, with an old filesystem's data."""
    made = [new_disk(tmp_path / name, SIZE) for name in ("one", "two")]
    for disk in made:
        with disk.path.open("r+b") as file:
            file.write(b"old data")
    yield made
    for disk in made:
        detach(disk.path)


@pytest.mark.parametrize(("setup", "number"), SETUPS.values(), ids=SETUPS)
def test_a_killed_run_with_layers_is_resumed(
    setup: str,
    number: int,
    disks: list[Disk],
    dbbench: Any,
) -> None:
    """SIGKILL in the window leaves the layers, which hold the disks. The same command, without
    --wipe, releases them and runs the trial; afterwards nothing is on the disks.
    """
    used = disks[:number]
    device = {"kind": "block", "paths": [str(disk.path) for disk in used], "condition": "none"}
    if setup == "ext4":
        device["limit"] = {"flush_ms": 20}
    work = {"name": "fio-randwrite", "file_size": "8MiB", "clients": 1}
    dbbench.plan(plan(setup, engine="files", workload=work, device=device))
    wipe = [word for disk in used for word in ("--wipe", devices.identity(disk.path))]
    status, _ = dbbench.run_and(
        "plan.toml", dbbench.in_window, lambda pid: os.kill(pid, signal.SIGKILL), *wipe
    )
    assert status == -signal.SIGKILL
    held = [sysfs.holders(disk.path.name) for disk in used]
    assert all(held)

    dbbench("run", "plan.toml", "--name", "r")
    assert [trial["error"] for trial in dbbench.trials().values()] == [None]
    assert [sysfs.holders(disk.path.name) for disk in used] == [[]] * number
    assert "nothing to remove" in dbbench("clean").stdout
