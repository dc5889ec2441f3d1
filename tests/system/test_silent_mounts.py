"""A filesystem of another owner that does not answer, with an open file and a loop device on it."""

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import plan
from tests.support.planted import detach, new_disk
from tests.support.silent_fuse import silent_mount

pytestmark = pytest.mark.needs("root", "losetup", "fs:fuse", "python:mfusepy", "mkfs.ext4")
CACHED_S = 1.5
ENDS_S = 60.0  # then the filesystem answers again, so that a command that waits for it ends


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The loop device on the file of a filesystem that no longer answers."""
    with silent_mount(tmp_path) as at:
        attach = ["losetup", "--find", "--show", str(at / "file")]
        name = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        try:
            with (at / "file").open("rb"):
                (tmp_path / "silent").touch()
                # Until then the kernel answers from its cache.
                time.sleep(CACHED_S)
                yield Path(name).name
        finally:
            (tmp_path / "silent").unlink(missing_ok=True)
            detach(name)


def ended(dbbench: Any, *words: str, status: int | None = 0) -> str:
    """Run a command, and return what it printed, if it ended while the filesystem was silent."""
    answer = dbbench.folder / "silent"
    timer = threading.Timer(ENDS_S, answer.unlink)
    timer.start()
    try:
        done = dbbench(*words, status=status)
        assert answer.exists(), "it waited for the filesystem"
    finally:
        timer.cancel()
    return str(done.stdout)


def test_doctor_lists_its_loop_device(silent: str, dbbench: Any) -> None:
    """It is in use; the other devices are listed as always."""
    lines = ended(dbbench, "doctor").splitlines()
    line = next(line for line in lines if f"/dev/{silent} " in line)
    assert "in use" in line
    assert line.endswith("the filesystem of its file does not answer")


def test_plan_accepts_another_disk(silent: str, dbbench: Any, tmp_path: Path) -> None:
    """The file cannot be that of the plan's disk, whose filesystem answers."""
    disk = new_disk(tmp_path / "disk")
    files = {"name": "small-files", "files": 100}
    try:
        dbbench.plan(plan("ext4", "files", files, device={"kind": "block", "path": str(disk.path)}))
        printed = ended(dbbench, "plan", "plan.toml")
    finally:
        detach(disk.path)
    assert printed.startswith("test: 1 setup")


def test_a_run_on_an_image_ends(silent: str, dbbench: Any) -> None:
    """Each trial asks the filesystems about its loop device, and ends although one never answers."""
    dbbench.plan(plan("ext4", "files", {"name": "small-files", "files": 100}))
    assert "small-files" in ended(dbbench, "run", "plan.toml", "--quick", "--progress", "none")
