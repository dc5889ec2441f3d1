"""A throttled device is called so; unequal settings of the block layer are found and named."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")

PLAN = """
name = "device"
fs_setups = [{setups}]
blocks = 1
seed = 1
warmup = "1s"
measure = "{measure}s"
repeat_suspect = false
[device]
size = "512MiB"
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
scale = 1
clients = 4
"""
TWO = '"ext4", { use = "ext4", label = "ext4-b" }'
BLKIO = Path("/sys/fs/cgroup/blkio")


@contextlib.contextmanager
def throttled(iops: int) -> Iterator[None]:
    """This process, and what it starts, gets so many writes a second from any loop device."""
    if not (BLKIO / "blkio.throttle.write_iops_device").exists():
        pytest.skip("needs the blkio controller of cgroup v1 with throttling")
    group = BLKIO / "dbbench-test-throttle"
    group.mkdir(exist_ok=True)
    home = BLKIO / re.findall(r"^\d+:blkio:/(.*)$", Path("/proc/self/cgroup").read_text(), re.M)[0]
    try:
        for disk in Path("/sys/block").glob("loop*"):
            (group / "blkio.throttle.write_iops_device").write_text(f"{(disk / 'dev').read_text().strip()} {iops}")
        (group / "cgroup.procs").write_text("0")
        yield
    finally:
        (home / "cgroup.procs").write_text("0")
        group.rmdir()


def rows(dbbench: Any) -> list[dict[str, Any]]:
    """What `compare` says."""
    found = json.loads(dbbench("compare", "r", "--json").stdout)["rows"]
    assert isinstance(found, list)
    return found


@pytest.mark.needs("fio")
def test_throttled_device_is_called_so_and_never_the_same(dbbench: Any) -> None:
    """Both arms flat at the ceiling: the verdict is device-limited, each trial carries W042."""
    dbbench.plan(PLAN.format(setups=TWO, measure=5))
    with throttled(300):
        dbbench("run", "plan.toml", "--name", "r")
    trials = dbbench.trials().values()
    ceilings = {row["name"]: row["iops"] for t in trials for row in t["ceiling"]["rows"]}
    assert 200 < ceilings["write_8k"] < 400
    assert ceilings["read_8k"] > 1000
    assert [t["ceiling"]["limited"] for t in trials if "W042" not in {w["id"] for w in t["warnings"]}] == []
    assert all("writes stood at" in t["ceiling"]["limited"] for t in trials)
    other = next(row for row in rows(dbbench) if row["fs_setup"] == "ext4-b")
    assert other["verdict"] == "device-limited"
    assert "device-limited" in dbbench("compare", "r").stdout
    assert "stood flat at the ceiling" in Path(dbbench.folder, "results/r/report.html").read_text()


@pytest.mark.needs("fio")
def test_free_device_is_not_called_limited(dbbench: Any) -> None:
    """The ceiling stands beside the throughput; a loop file's own scatter is no limit that somebody set."""
    dbbench.plan(PLAN.format(setups='"ext4"', measure=3))
    dbbench("run", "plan.toml", "--name", "r")
    (trial,) = dbbench.trials().values()
    assert [row["name"] for row in trial["ceiling"]["rows"]][:2] == ["write_8k_fdatasync", "write_16k_fdatasync"]
    assert 0 < trial["ceiling"]["tps_share"] < 20
    assert trial["ceiling"]["limited"] == ""


def test_settings_of_the_block_layer_that_change_in_the_run_are_named(dbbench: Any) -> None:
    """Read-ahead and queue length set in mid-trial: that trial is suspect, the next too where it gets the same loop
    device, and the two arms are told apart by it in the verdict and first in the environment."""
    dbbench.plan(PLAN.format(setups=TWO, measure=3))
    image = str(dbbench.folder)
    touched: dict[Path, str] = {}

    def set_both(_pid: int) -> None:
        for disk in Path("/sys/block").glob("loop*"):
            backing = disk / "loop/backing_file"
            if backing.exists() and image in backing.read_text():
                for name, value in (("read_ahead_kb", "16"), ("nr_requests", "64")):
                    touched[disk / "queue" / name] = (disk / "queue" / name).read_text()
                    (disk / "queue" / name).write_text(value)

    try:
        dbbench.run_and("plan.toml", dbbench.in_window, set_both)
        first, second = sorted(dbbench.trials().values(), key=lambda t: t["position"])
        told = [w["text"] for w in first["warnings"] if w["id"] == "W018"]
        assert touched and re.search(r"disk: read_ahead_kb: \d+ -> 16; disk: nr_requests: \d+ -> 64", told[0])
        assert first["status"] == "suspect"
        if second["host_state"]["disk: read_ahead_kb"] == "16":  # loop numbers are reused and keep what was set
            assert any("-> 16; disk: nr_requests" in w["text"] for w in second["warnings"] if w["id"] == "W018")
            notes = " ".join(note for row in rows(dbbench) for note in row["notes"])
            assert "disk: read_ahead_kb differs" in notes
            page = Path(dbbench.folder, "results/r/report.html").read_text()
            assert page.index("disk: read_ahead_kb") < page.index("mount options effective")
    finally:
        for path, value in touched.items():
            path.write_text(value)


def test_online_discard_in_one_arm_is_named(dbbench: Any) -> None:
    """An arm that discards pays for what the other does not: said beside the ratio."""
    (dbbench.folder / "mine/fs_setups").mkdir(parents=True)
    setup = 'title = "ext4 with discard"\nmkfs = { family = "ext4" }\nmount = ["noatime", "discard"]\n'
    (dbbench.folder / "mine/fs_setups/ext4-discard.toml").write_text(setup)
    dbbench.plan(PLAN.format(setups='"ext4", "ext4-discard"', measure=2))
    dbbench("--path", "mine", "run", "plan.toml", "--name", "r")
    notes = [note for row in rows(dbbench) for note in row["notes"] if row["fs_setup"] == "ext4-discard"]
    assert "online discard differs: on against off" in notes
