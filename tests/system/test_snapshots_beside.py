"""Snapshots during the load, in complete runs on real filesystems."""

from typing import Any

import pytest

from tests.support.plans import plan

POSTGRES = {"name": "postgres", "settings": {"shared_buffers": "16MB"}}
TPCB = {"name": "pgbench-tpcb", "scale": 1, "clients": 2, "rate": 200}
WRITES = {"name": "sysbench-oltp-write-only", "tables": 1, "table_size": 2000, "clients": 2}
APPLY = {"name": "archive-apply", "scale": 1, "log_bytes": "20MiB", "interval": "3s"}
# The smallest table answers: both begin with one page and grow with old rows of updates.
SMALLEST = {"pgbench_branches: 1 rows", "pgbench_tellers: 10 rows"}


def snapped(every: str, **cells: Any) -> str:
    """A plan whose trials take snapshots while the load runs."""
    return plan(
        **cells, measure="6s", device={"size": "768MiB"}, snapshots={"every": every, "keep": 2}
    )


@pytest.mark.needs(
    "root",
    "mkfs.btrfs",
    "btrfs",
    "mkfs.ext4",
    "mkfs.xfs",
    "fs:btrfs",
    "fs:ext4",
    "fs:xfs",
    "engine:postgres",
    "sadf",
)
def test_users_who_can_take_them_do_and_others_get_the_reason(
    dbbench: Any, nothing_left: None
) -> None:
    """btrfs, and xfs by reflinks: each has its seconds and its server's answer, two are kept,
    nothing is left for the space to count; ext4 says why not, and its figures stand. The verdict
    names the difference.
    """
    text = snapped("2s", fs=["btrfs", "xfs", "ext4"], engine=POSTGRES, workload=TPCB)
    dbbench("run", dbbench.plan(text), "--name", "r", "--progress", "none")
    trials = {trial["fs_setup"]: trial for trial in dbbench.trials().values()}
    assert {trial["error"] for trial in trials.values()} == {None}
    why = (
        "neither ext4 nor a layer below it has snapshots; ext4 with these options does not "
        "support reflinks"
    )
    assert trials["ext4"]["snapshots"]["note"] == why
    assert [w["text"] for w in trials["ext4"]["warnings"] if w["id"] == "W108"] == [why]
    assert trials["ext4"]["summary"]["tps"] > 0
    for name, how in (("xfs", "reflink"), ("btrfs", "btrfs")):
        facts = trials[name]["snapshots"]
        assert (facts["how"], facts["note"]) == (how, "")
        assert 1 <= len(facts["taken"]) <= 4
        for one in facts["taken"]:
            assert one["text"] in SMALLEST
            assert 0 < one["snapshot_s"] + one["ready_s"] < one["until_s"] - one["at_s"] + 0.01
            assert one["at_s"] > 2.9  # the window begins at second 1
    assert all(one["bytes"] is not None for one in facts["taken"][-2:])
    assert trials["btrfs"]["space"]["free_bytes"] > 200 * 2**20
    assert "snapshot" in {
        argv[2] for argv in trials["btrfs"]["commands"] if argv[0].endswith("/btrfs")
    }
    shown = dbbench("show", "r", trials["btrfs"]["id"]).stdout
    assert f"snapshots by btrfs, every 2 s, 2 kept: {len(facts['taken'])} taken" in shown
    assert (
        "snapshots during the load differs (none; baseline: taken)"
        in dbbench("compare", "r", "--json").stdout
    )
    assert "Snapshots during the load" in (dbbench.folder / "results/r/report.html").read_text()


@pytest.mark.long
@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs", "engine:postgres", "sadf")
def test_of_a_standby_that_applies(dbbench: Any, nothing_left: None) -> None:
    """The second server is a standby too; the first one ends equal to its primary all the same."""
    text = snapped("1s", fs="btrfs", engine=POSTGRES, workload=APPLY)
    trial = dbbench.trial(text, "--progress", "none")
    assert trial["error"] is None
    assert trial["snapshots"]["note"] == ""
    assert {one["text"] for one in trial["snapshots"]["taken"]} <= SMALLEST and trial["snapshots"][
        "taken"
    ]


@pytest.mark.soak
@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs", "engine:mariadb", "sadf")
def test_of_innodb(dbbench: Any, nothing_left: None) -> None:
    """InnoDB recovers from a snapshot taken during the load, as after a power loss."""
    text = snapped("2s", fs="btrfs", engine="mariadb", workload=WRITES)
    trial = dbbench.trial(text, "--progress", "none")
    assert trial["error"] is None and trial["snapshots"]["note"] == ""
    assert {one["text"] for one in trial["snapshots"]["taken"]} == {"sbtest1: 2000 rows"}
