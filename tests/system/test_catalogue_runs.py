"""Runs with setups of the catalogue, through the command line."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.setups import (
    left,
    of_postgres,
    two_databases,
)

# One of each family and each tuning variant, with the classes of (PostgreSQL, MariaDB).
CARRIED: Final = {
    "ext2": ("no-journal", "no-journal"),
    "ext3": ("full", "full"),
    "ext4-nodoublewrite": ("torn-pages-possible", "torn-pages-possible"),
    "xfs-allocsize": ("full", "full"),
    "btrfs-tuned": ("full", "torn-pages-possible"),
    "btrfs-nocow-attr": ("full", "full"),
    "btrfs-volumes": ("full", "full"),
}
DATABASES: Final = pytest.mark.needs(
    "root",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "fs:xfs",
    "fs:btrfs",
    "engine:postgres",
    "engine:mariadb",
    "sysbench",
    "sadf",
)


@DATABASES
@pytest.mark.parametrize(
    "setups",
    [
        ("ext2", "ext3", "ext4-nodoublewrite", "btrfs-tuned"),
        pytest.param(tuple(CARRIED), marks=pytest.mark.long),
    ],
    ids=["each-class", "all"],
)
def test_each_family_and_each_tuning_carries_two_databases(
    setups: tuple[str, ...], dbbench: Any
) -> None:
    """One run: no trial fails, each has the class of its settings on its filesystem, and tuning is
    in the server.
    """
    dbbench("run", dbbench.plan(two_databases([*setups])), "--name", "r")
    assert left(dbbench.folder) == []
    trials = dbbench.trials().values()
    assert [(t["id"], t["error"]) for t in trials if t["status"] == "failed"] == []
    found = {(t["fs_setup"], t["engine"]): t for t in trials}
    assert {key: t["filesystem"]["durability_class"] for key, t in found.items()} == {
        (name, engine): CARRIED[name][number]
        for name in setups
        for number, engine in enumerate(("postgres", "mariadb"))
    }
    tuned = found["btrfs-tuned", "postgres"]["effective_settings"]
    assert (tuned["full_page_writes"], tuned["wal_init_zero"], tuned["wal_recycle"]) == (
        "off",
        "off",
        "off",
    )
    assert (
        found["ext4-nodoublewrite", "mariadb"]["effective_settings"]["innodb_doublewrite"] == "OFF"
    )
    said = dbbench("compare", "r", "--baseline", "ext3").stdout
    assert "torn-pages-possible (differs)" in said
    assert "is not ranked: its durability class is" in said


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")
def test_what_this_machine_cannot_make_is_skipped_by_name(dbbench: Any, tmp_path: Path) -> None:
    """The others are measured, and the reason stands in progress, result and verdict; a baseline is
    not skipped. What is measured here says of itself that it was left to be initialised beside
    the load.
    """
    file = tmp_path / "mine/fs_setups/ext4-odd.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        'title = "t"\nmkfs = { family = "ext4", options = ["-O", "no_such_feature"] }\n'
    )
    late = (
        'title = "t"\nmkfs = { family = "ext4", options = ["-E", "lazy_itable_init=1"] }\nmount '
        '= ["noatime"]\n'
    )
    file.with_name("ext4-late.toml").write_text(late)
    own = ("--path", str(tmp_path / "mine"))
    dbbench.plan(of_postgres("ext4-late", "ext4-odd"))
    done = dbbench("run", *own, "plan.toml", "--name", "r")
    (trial,) = dbbench.trials().values()
    assert (trial["fs_setup"], "W028" in {warning["id"] for warning in trial["warnings"]}) == (
        "ext4-late",
        True,
    )
    for said in (done.stdout, done.stderr, (dbbench.folder / "results/r/run.json").read_text()):
        assert "no_such_feature" in said and "ext4-odd" in said
    dbbench.plan(of_postgres("ext4-late", "ext4-odd", baseline="ext4-odd"), "other.toml")
    assert "E206" in dbbench("run", *own, "other.toml", status=2).stderr


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")
def test_a_setup_of_ones_own_is_one_file(dbbench: Any, tmp_path: Path) -> None:
    """The worked example of CONTRIBUTING, copied into a folder of one's own: shown, listed, and
    driven.
    """
    written = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    block = re.search(r"```toml\n(# fs_setups/([\w-]+)\.toml\n.*?)```", written, re.DOTALL)
    assert block is not None
    file = tmp_path / "mine/fs_setups" / f"{block[2]}.toml"
    file.parent.mkdir(parents=True)
    file.write_text(block[1])
    own = ("--path", str(tmp_path / "mine"))
    assert "mkfs.ext4 -q -I 512 -E lazy_itable_init=0" in dbbench("fs", *own, block[2]).stdout
    row = next(
        row
        for row in json.loads(dbbench("fs", *own, "--json").stdout)["fs_setups"]
        if row["name"] == block[2]
    )
    assert (row["works"], row["durability_class"]) == (True, "full")
    dbbench.plan(of_postgres(block[2]))
    dbbench("run", *own, "plan.toml", "--name", "r")
    (trial,) = dbbench.trials().values()
    assert trial["status"] != "failed"
    assert trial["filesystem"]["geometry"]["inode_size"] == 512
    assert "commit=30" in trial["filesystem"]["mount_options_effective"]
    assert trial["effective_settings"]["wal_recycle"] == "off"
    assert trial["settings"]["wal_recycle"]["origin"] == "fs_setup"
