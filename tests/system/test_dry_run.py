"""`dbbench doctor --plan` names the disks that a run would refuse, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from tests.support.plans import plan


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres")
def test_a_disk_that_a_run_would_refuse_is_named(dbbench: Any, tmp_path: Path) -> None:
    """By where it is mounted; once it is unmounted by what it may contain, and if it is another than the plan names."""
    (there := tmp_path / "there").mkdir()
    with (image := tmp_path / "disk.img").open("wb") as file:
        file.truncate(512 * 2**20)
    process.run(["mkfs.ext4", "-q", image])
    device = process.run(["losetup", "--find", "--show", image]).stdout.strip()
    try:
        dbbench.plan(plan(device={"kind": "block", "path": device}))
        process.run(["mount", device, there])
        try:
            mounted = dbbench("doctor", "--plan", "plan.toml", status=2).stdout
        finally:
            process.run(["umount", there])
        unmounted = dbbench("doctor", "--plan", "plan.toml", status=2).stdout
        dbbench.plan(plan(device={"kind": "block", "path": device, "identity": "another-disk"}))
        another = dbbench("plan", "plan.toml", status=5).stdout
    finally:
        process.run(["losetup", "--detach", device])
    assert f"is mounted at {there}" in " ".join(mounted.split())
    unmounted = " ".join(unmounted.split())
    assert "may contain data:" in unmounted and "ext4 (uuid" in unmounted and "--wipe" in unmounted
    assert "is mounted at" not in unmounted
    assert "the plan requires another-disk" in " ".join(another.split())
