"""Disks that a killed test run has left in use."""

from pathlib import Path

import pytest

from dbbench import process
from dbbench.machine.host.proc import text
from tests.support.planted import Disk, detach, new_disk, release_leftovers

pytestmark = pytest.mark.needs("root", "losetup", "mkswap", "swapon")


def test_disks_of_a_killed_test_run_are_released(tmp_path: Path) -> None:
    """Those of a run that lives stay."""
    ended = tmp_path / "pytest-of-me/pytest-1"
    ended.mkdir(parents=True)
    # no process has a number above the largest
    (ended / ".lock").write_text(str(2**22 + 1))
    left = new_disk(ended / "disk")
    used_now = new_disk(tmp_path / "disk")
    try:
        process.run(["mkswap", "-q", left.path])
        process.run(["swapon", left.path])
        release_leftovers()
        assert str(left.path) not in Path("/proc/swaps").read_text()
        assert not process.wait_while(lambda: is_attached(left), 10)
        assert is_attached(used_now)
    finally:
        detach(used_now.path)


def is_attached(disk: Disk) -> bool:
    """Whether its file is still attached to its loop device."""
    return text(Path("/sys/block", disk.path.name, "loop/backing_file")) == str(disk.image)
