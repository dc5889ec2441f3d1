"""The write probe before a trial is short, writes only where it may, and leaves signatures intact."""

import time
from pathlib import Path

import pytest

from dbbench import process
from dbbench.storage import devices
from dbbench.storage.devices import canary
from dbbench.storage.devices.port import Device


@pytest.mark.needs("root", "mkfs.ext4", "blkid")
def test_a_device_is_probed_in_its_middle(loop_device: Device) -> None:
    """All three figures, in a moment; what `blkid` finds on the device is what it found before."""
    process.run(["mkfs.ext4", "-q", loop_device.argument], pass_fds=(loop_device.fd,))
    before = process.run(["blkid", "-p", "-o", "export", loop_device.path]).stdout
    began = time.monotonic()
    so_far = devices.io_counters(loop_device.leaves[0])
    found = canary.measure(loop_device)
    assert time.monotonic() - began < 120  # 0.5 s on an idle machine: every trial waits for it
    written = devices.io_counters(loop_device.leaves[0])
    assert so_far is not None and written is not None
    # what keeps it short, however slow the disk is
    assert written["write_bytes"] - so_far["write_bytes"] < 40 * 2**20
    assert set(found) == {"cpu_ms", "write_mb_per_s", "fdatasync_ms"}
    assert all(value > 0 for value in found.values())
    assert process.run(["blkid", "-p", "-o", "export", loop_device.path]).stdout == before


def test_a_directory_is_probed_by_a_file_that_is_gone_again(tmp_path: Path) -> None:
    """Nothing stays behind."""
    found = canary.measure(tmp_path)
    assert found["cpu_ms"] > 0
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_measured_is_left_out() -> None:
    """A directory without room or direct I/O gives the CPU's figure alone; never a zero."""
    assert set(canary.measure(Path("/proc"))) == {"cpu_ms"}
