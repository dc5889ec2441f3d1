"""`dbbench doctor --plan` before a run: a disk that is in use is named, and nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.storage.devices.port import Device
from tests.support.plans import plan


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres")
def test_a_mounted_disk_is_named(loop_device: Device, dbbench: Any, tmp_path: Path) -> None:
    """By where it is mounted; once it is unmounted, it is not named."""
    device = process.run(["losetup", "--noheadings", "--output=NAME", "--associated", loop_device.facts.image]).stdout
    dbbench.plan(plan(device={"kind": "block", "path": device.strip()}))
    process.run(["mkfs.ext4", "-q", "-F", device.strip()])
    (there := tmp_path / "there").mkdir()
    process.run(["mount", device.strip(), there])
    try:
        said = dbbench("doctor", "--plan", "plan.toml", status=2).stdout
    finally:
        process.run(["umount", there])
    assert f"is mounted at {there}" in " ".join(said.split())
