"""Whole trials whose write-ahead log lies on a filesystem of its own."""

from __future__ import annotations

import gzip

import pytest

from tests.conftest import engine_bin
from tests.system.conftest import Dbbench

PLAN = """\
name = "wal"
fs_setups = [{arms}]
blocks = 1
warmup = 1
measure = 3
repeat_suspect = false
[device]
size = "{size}"
[device.wal]
fs_setup = "ext4-nobarrier"
size = "{size}"
[engine]
name = "{engine}"
{more}
[workload]
name = "{workload}"
clients = 2
{dataset}
"""
POSTGRES = {
    "engine": "postgres",
    "more": "",
    "size": "400MiB",
    "arms": '"ext4", { use = "xfs", wal = false, label = "beside" }',
    "workload": "pgbench-tpcb",
    "dataset": "scale = 1",
}
SYSBENCH = {
    "size": "800MiB",
    "arms": '"ext4"',
    "workload": "sysbench-oltp-write-only",
    "dataset": "tables = 1\ntable_size = 1000",
}


def driven(dbbench: Dbbench, **words: str) -> dict[str, dict[str, object]]:
    """The trials of the plan, by arm."""
    dbbench("run", dbbench.plan(PLAN.format(**words)), "--name", "r")
    return {str(trial["fs_setup"]): trial for trial in dbbench.trials().values()}


@pytest.mark.needs("root", "engine:postgres", "mkfs.xfs", "fs:xfs")
@pytest.mark.usefixtures("nothing_left")
def test_postgres_writes_its_log_elsewhere(dbbench: Dbbench) -> None:
    """Both filesystems are made and read back; the class is of both; bytes are counted on both, by themselves too."""
    trials = driven(dbbench, **POSTGRES)
    assert set(trials) == {"ext4+wal:ext4-nobarrier", "beside"}
    there, here = (_parts(trials[arm]) for arm in ("ext4+wal:ext4-nobarrier", "beside"))
    assert all(trial["status"] != "failed" for trial in trials.values())
    fs, log = there["filesystem"], there["filesystem"]["wal"]
    assert (fs["family"], log["family"], "nobarrier" in log["mount_options_effective"]) == ("ext4", "ext4", True)
    assert (log["durability_class"], fs["durability_class"]) == ("no-barrier", "no-barrier")
    assert log["mkfs"] and there["device"]["wal"]["name"] not in ("", there["device"]["name"])
    # What is committed goes to the log alone; no checkpoint writes data in a window of 3 s.
    assert there["io"]["wal"]["write_bytes"] > 0.5 * there["io"]["write_bytes"] > 0
    assert (here["filesystem"]["wal"], here["io"]["wal"], here["filesystem"]["durability_class"]) == (
        None,
        None,
        "full",
    )
    folder = dbbench.folder / "results/r/trials"
    with gzip.open(next(folder.glob("ext4+wal*/series.csv.gz")), "rt") as series:
        assert "log_w_kb_per_s" in series.readline()
    shown = dbbench("show", "r", next(name for name in dbbench.trials() if "+wal" in name)).stdout
    assert "log on ext4, durability class no-barrier" in shown
    assert "pgbench-tpcb" in dbbench("compare", "r").stdout


@pytest.mark.parametrize("engine", [
    pytest.param("mariadb", marks=pytest.mark.needs("root", "engine:mariadb", "mkfs.xfs", "fs:xfs")),
    pytest.param("mysql", marks=pytest.mark.needs("root", "engine:mysql", "mkfs.xfs", "fs:xfs")),
])  # fmt: skip
@pytest.mark.usefixtures("nothing_left")
def test_innodb_writes_redo_and_binary_log_elsewhere(dbbench: Dbbench, engine: str) -> None:
    """The servers' own variables name the place, and what is committed is written there."""
    bin_ = f'bin = "{engine_bin(engine)}"\n' if engine == "mysql" else ""
    trial = _parts(driven(dbbench, engine=engine, more=f"{bin_}settings = {{ log_bin = true }}", **SYSBENCH)
                   ["ext4+wal:ext4-nobarrier"])  # fmt: skip
    assert trial["status"] != "failed", trial["error"]
    effective = trial["effective_settings"]
    assert (effective["innodb_log_group_home_dir"], effective["log_bin_basename"]) == (
        "/run/dbbench/wal/wal", "/run/dbbench/wal/wal/binlog",
    )  # fmt: skip
    assert trial["io"]["wal"]["write_bytes"] > 10**5
    assert trial["checked"].startswith("CHECK TABLE")


def _parts(trial: dict[str, object]) -> dict[str, dict[str, object]]:
    return trial  # type: ignore[return-value]


@pytest.mark.parametrize("engine", [
    pytest.param("mariadb", marks=pytest.mark.needs("root", "engine:mariadb")),
    pytest.param("mysql", marks=[pytest.mark.needs("root", "engine:mysql"), pytest.mark.soak]),
])  # fmt: skip
@pytest.mark.usefixtures("nothing_left")
def test_innodb_on_a_bare_device_is_the_floor(dbbench: Dbbench, engine: str) -> None:
    """Its tables lie on the device: read cold from it, written to by a checkpoint, checked; no filesystem is made."""
    more = f'bin = "{engine_bin(engine)}"' if engine == "mysql" else ""
    words = {**SYSBENCH, "engine": engine, "more": more, "arms": '"raw"', "size": "1100MiB"}
    trial = _parts(driven(dbbench, **words)["raw+wal:ext4-nobarrier"])
    assert trial["status"] != "failed", trial["error"]
    effective = trial["effective_settings"]
    assert effective["innodb_data_file_path"].startswith("ibdata1:") and effective["innodb_data_file_path"].endswith(
        "raw"
    )
    assert (trial["filesystem"]["family"], trial["filesystem"]["mkfs"]) == ("raw", [])
    assert trial["cache"]["proved"], trial["cache"]["reason"]
    assert trial["cache"]["sample_read_bytes"] >= trial["cache"]["sample_bytes"] > 0
    assert trial["drain"]["write_bytes"] > 0
    assert 10**6 < trial["space"]["logical_bytes"] < 400 * 2**20 and trial["space"]["disk_bytes"] is None
    assert trial["checked"].startswith("CHECK TABLE")
