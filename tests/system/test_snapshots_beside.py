"""Snapshots while the load runs, in whole runs on real filesystems."""

from __future__ import annotations

from typing import Any

import pytest

PLAN = """
name = "snapped"
fs_setups = {setups}
blocks = 1
warmup = "1s"
measure = "8s"
repeat_suspect = false
[device]
size = "768MiB"
[snapshots]
every = "{every}"
keep = 2
[[engine]]
name = "{engine}"
settings = {{ {settings} }}
[[workload]]
name = "{workload}"
{parameters}
"""
TPCB = {"engine": "postgres", "settings": 'shared_buffers = "16MB"', "workload": "pgbench-tpcb", "every": "2s",
        "parameters": "scale = 1\nclients = 2"}  # fmt: skip
WRITES = {"engine": "mariadb", "settings": "", "workload": "sysbench-oltp-write-only", "every": "2s",
          "parameters": "tables = 1\ntable_size = 2000\nclients = 2"}  # fmt: skip
APPLY = {"engine": "postgres", "settings": 'shared_buffers = "16MB"', "workload": "archive-apply", "every": "1s",
         "parameters": 'scale = 1\nlog_bytes = "20MiB"\ninterval = "3s"'}  # fmt: skip


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "mkfs.ext4", "mkfs.xfs", "fs:btrfs", "fs:ext4", "fs:xfs",
                   "engine:postgres", "sadf")  # fmt: skip
def test_who_can_takes_them_and_who_cannot_is_told(dbbench: Any, nothing_left: None) -> None:
    """btrfs, and xfs by reflinks: each has its seconds and its server's answer, two are kept, nothing is left for the
    space to count; ext4 says why not, and its figures stand. The verdict names the difference."""
    plan = dbbench.plan(PLAN.format(setups='["btrfs", "xfs", "ext4"]', **TPCB))
    dbbench("run", plan, "--name", "r", "--progress", "none")
    trials = {trial["fs_setup"]: trial for trial in dbbench.trials().values()}
    assert {trial["error"] for trial in trials.values()} == {None}
    why = "neither ext4 nor a layer below it has snapshots; ext4 made so has no reflinks"
    assert trials["ext4"]["snapshots"]["note"] == why
    assert [w["text"] for w in trials["ext4"]["warnings"] if w["id"] == "W108"] == [why]
    assert trials["ext4"]["summary"]["tps"] > 0
    for name, how in (("xfs", "reflink"), ("btrfs", "btrfs")):
        facts = trials[name]["snapshots"]
        assert (facts["how"], facts["note"]) == (how, "")
        assert 1 <= len(facts["taken"]) <= 4
        for one in facts["taken"]:
            assert one["text"] == "pgbench_branches: 1 rows"
            assert 0 < one["snapshot_s"] + one["ready_s"] < one["until_s"] - one["at_s"] + 0.01
            assert one["at_s"] > 2.9  # the window begins at second 1
    assert [one["bytes"] is not None for one in facts["taken"]][-2:] == [True, True]
    assert trials["btrfs"]["space"]["free_bytes"] > 200 * 2**20
    assert "snapshot" in {argv[2] for argv in trials["btrfs"]["commands"] if argv[0].endswith("/btrfs")}
    shown = dbbench("show", "r", trials["btrfs"]["id"]).stdout
    assert f"snapshots by btrfs, every 2 s, 2 kept: {len(facts['taken'])} taken" in shown
    assert "snapshots beside the load differs: none against taken" in dbbench("compare", "r", "--json").stdout
    assert "Snapshots beside the load" in (dbbench.folder / "results/r/report.html").read_text()


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs", "engine:postgres", "sadf")
def test_of_a_standby_that_applies(dbbench: Any, nothing_left: None) -> None:
    """The second server is a standby too; the first one ends equal to its primary all the same."""
    dbbench("run", dbbench.plan(PLAN.format(setups='["btrfs"]', **APPLY)), "--name", "r", "--progress", "none")
    (trial,) = dbbench.trials().values()
    assert trial["error"] is None
    assert trial["snapshots"]["note"] == ""
    assert {one["text"] for one in trial["snapshots"]["taken"]} == {"pgbench_branches: 1 rows"}


@pytest.mark.soak
@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs", "engine:mariadb", "sadf")
def test_of_innodb(dbbench: Any, nothing_left: None) -> None:
    """Recovers from its snapshot as from a power cut, beside the load."""
    dbbench("run", dbbench.plan(PLAN.format(setups='["btrfs"]', **WRITES)), "--name", "r", "--progress", "none")
    (trial,) = dbbench.trials().values()
    assert trial["error"] is None and trial["snapshots"]["note"] == ""
    assert {one["text"] for one in trial["snapshots"]["taken"]} == {"sbtest1: 2000 rows"}
