"""A plan from a running server: the nearest fs setup, and text of the server that must stay a
comment.
"""

import dataclasses
from pathlib import Path
from typing import Final

import pytest

from dbbench import plan
from dbbench.machine.mounts import Mount
from dbbench.plan.proposal import RunningServer
from tests.support.plans import SHIPPED

FACTS: Final = RunningServer(
    "postgres",
    "15.18",
    Path("/run/postgresql/.s.PGSQL.5433"),
    "production-archive",
    {"shared_buffers": "4GB"},
    5 * 10**9,
    None,
)


def on(fstype: str, options: str) -> RunningServer:
    """The facts of a server whose data lies on such a mount."""
    mount = Mount(1, 0, "8:1", Path("/var/lib"), fstype, "/dev/sda1", tuple(options.split(",")))
    return dataclasses.replace(FACTS, mount=mount)


@pytest.mark.parametrize(
    ("fstype", "options", "setup", "told"),
    [
        ("ext4", "rw,relatime,discard", "ext4", ""),
        ("ext4", "rw,relatime,data=journal", "ext4-data-journal", ""),
        ("xfs", "rw,noatime,attr2,inode64", "xfs", ""),
        ("btrfs", "rw,relatime,compress=zstd:3,space_cache=v2,subvol=/@", "btrfs-zstd", ""),
        ("btrfs", "rw,relatime,space_cache=v2", "btrfs", ""),
        ("zfs", "rw,xattr", "zfs", "zfs get"),
        ("overlay", "rw", None, "no fs setup uses overlay"),
        (None, "", None, "cannot read the path"),
    ],
)
def test_the_baseline_is_the_nearest_setup(
    fstype: str | None,
    options: str,
    setup: str | None,
    told: str,
) -> None:
    """By the family and the mount options that matter; what only layers or mkfs could tell is not
    guessed. An unknown filesystem is never passed over: the plan says that the baseline is yours
    to name.
    """
    found, why = (on(fstype, options) if fstype else FACTS).nearest_setup(SHIPPED)
    assert found == setup or setup is None
    assert told in why and bool(told) == bool(why)


def test_the_plan_loads_and_names_the_copy(tmp_path: Path) -> None:
    """With the server's settings, a dataset of its size and the command that copies its data."""
    text = on("xfs", "rw").text(tmp_path / "live.toml", SHIPPED, 64 * 2**30)
    (tmp_path / "live.toml").write_text(text)
    read = plan.load(tmp_path / "live.toml", SHIPPED)
    assert (read.baseline, read.name, read.engine[0].settings) == (
        "xfs",
        "live",
        {"shared_buffers": "4GB"},
    )
    assert read.engine[0].profile == "production-archive"
    assert [arm.label for arm in read.fs_setups] == ["xfs", "ext4", "btrfs"]
    assert read.workload[0].parameters["scale"] == 5 * 10**9 // 15_700_000
    assert "pg_basebackup --host=/run/postgresql --port=5433 --pgdata=/srv/copy" in text


def test_names_of_a_server_stay_in_their_comment(tmp_path: Path) -> None:
    """Settings and versions with line breaks and quotes are no keys of the plan."""
    hostile = 'a"\nname = "owned"\n[evil]\n\x1b[31m'
    facts = dataclasses.replace(
        on("xfs", "rw"),
        settings={"work_mem": hostile, hostile: "1"},
        version=hostile,
    )
    text = facts.text(tmp_path / "live.toml", SHIPPED, None)
    (tmp_path / "live.toml").write_text(text)
    read = plan.load(tmp_path / "live.toml", SHIPPED)
    assert read.name == "live" and "\x1b" not in text
    assert set(read.engine[0].settings) <= {"work_mem"}
