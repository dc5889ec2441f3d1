"""`dbbench doctor --plan` names the disks that a run would refuse, and changes nothing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.errors import DeviceUnusable
from dbbench.storage.devices import guard
from tests.support.plans import plan


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres")
def test_a_disk_that_a_run_would_refuse_is_named(
    dbbench: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By where it is mounted, also if it may not be opened; once it is unmounted by what it may
    contain; and if it is another than the plan names.
    """

    def refuse(path: Any, *_flags: Any) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

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
            with (
                monkeypatch.context() as refused,
                pytest.raises(DeviceUnusable, match=f"is mounted at {there}"),
            ):
                refused.setattr(os, "open", refuse)
                guard.open_device(Path(device), os.O_RDONLY)
        finally:
            process.run(["umount", there])
        unmounted = dbbench("doctor", "--plan", "plan.toml", status=2).stdout
        dbbench.plan(plan(device={"kind": "block", "path": device, "identity": "another-disk"}))
        another = dbbench("plan", "plan.toml", status=5).stdout
    finally:
        process.run(["losetup", "--detach", device])
    assert f"is mounted at {there}" in " ".join(mounted.split())
    assert f"in use      device {device}" in mounted
    unmounted = " ".join(unmounted.split())
    assert "may contain data:" in unmounted and "ext4 (uuid" in unmounted and "--wipe" in unmounted
    assert f"is mounted at {there}" not in unmounted
    assert "the plan requires another-disk" in " ".join(another.split())
