"""Complete trials whose write-ahead log is on a separate filesystem."""

from typing import Any

import pytest

from dbbench import process
from tests.support.plans import installed, plan
from tests.system.conftest import Dbbench

TPCB = {"name": "pgbench-tpcb", "clients": 2, "scale": 1}
SYSBENCH = {"name": "sysbench-oltp-write-only", "clients": 2, "tables": 1, "table_size": 1000}


def driven(dbbench: Dbbench, size: str, **cells: Any) -> dict[str, dict[str, Any]]:
    """The trials of such cells with a log on a device of its own, by arm."""
    device = {"size": size, "wal": {"fs_setup": "ext4-nobarrier", "size": size}}
    dbbench("run", dbbench.plan(plan(**cells, device=device, warmup=1)), "--name", "r")
    return {str(trial["fs_setup"]): trial for trial in dbbench.trials().values()}


@pytest.mark.needs("root", "engine:postgres", "mkfs.xfs", "fs:xfs")
@pytest.mark.usefixtures("nothing_left")
def test_postgres_writes_its_log_elsewhere(dbbench: Dbbench) -> None:
    """Both filesystems are made and read back; the class is of both; bytes are counted on both, by
    themselves too.
    """
    trials = driven(
        dbbench,
        "400MiB",
        fs=["ext4", {"use": "xfs", "wal": False, "label": "beside"}],
        workload=TPCB,
    )
    assert set(trials) == {"ext4+wal:ext4-nobarrier", "beside"}
    there, here = (trials[arm] for arm in ("ext4+wal:ext4-nobarrier", "beside"))
    assert all(trial["status"] != "failed" for trial in trials.values())
    fs = there["filesystem"]
    log = there["filesystem"]["wal"]
    assert (fs["family"], log["family"], "nobarrier" in log["mount_options_effective"]) == (
        "ext4",
        "ext4",
        True,
    )
    assert (log["durability_class"], fs["durability_class"]) == ("no-barrier", "no-barrier")
    assert log["mkfs"] and there["device"]["wal"]["name"] not in ("", there["device"]["name"])
    # What is committed goes to the log alone; no checkpoint writes data in a window of 3 s.
    assert there["io"]["wal"]["write_bytes"] > 0.5 * there["io"]["write_bytes"] > 0
    assert (
        here["filesystem"]["wal"],
        here["io"]["wal"],
        here["filesystem"]["durability_class"],
    ) == (
        None,
        None,
        "full",
    )
    assert "log_w_kb_per_s" in dbbench.series(there)[0]
    shown = dbbench("show", "r", there["id"]).stdout
    assert "log on ext4, durability class no-barrier" in shown
    assert "pgbench-tpcb" in dbbench("compare", "r").stdout


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(
            "mariadb", marks=pytest.mark.needs("root", "engine:mariadb", "mkfs.xfs", "fs:xfs")
        ),
        pytest.param(
            "mysql", marks=pytest.mark.needs("root", "engine:mysql", "mkfs.xfs", "fs:xfs")
        ),
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_innodb_writes_redo_and_binary_log_elsewhere(dbbench: Dbbench, engine: str) -> None:
    """The servers' own variables name the place, and what is committed is written there."""
    trial = driven(dbbench, "800MiB", engine=installed(engine), workload=SYSBENCH)[
        "ext4+wal:ext4-nobarrier"
    ]
    assert trial["status"] != "failed", trial["error"]
    assert trial["profile"] == "production"  # the default
    counts = {fact["count"]: fact for fact in trial["work"]}
    assert counts["binlog_bytes"]["counted"] > counts["binlog_bytes"]["least"] > 0
    assert trial["growth"]["log_bytes"] > 0  # it is examined before it is removed
    effective = trial["effective_settings"]
    assert (effective["innodb_log_group_home_dir"], effective["log_bin_basename"]) == (
        "/run/dbbench/wal/wal",
        "/run/dbbench/wal/wal/binlog",
    )
    # A commit writes a block of 4096 bytes or more. A busy machine makes few, and the reading may
    # begin late.
    assert trial["io"]["wal"]["write_bytes"] > 1000 * trial["summary"]["transactions"] > 0
    assert trial["checked"].startswith("CHECK TABLE")


@pytest.mark.needs("root", "engine:mariadb")
@pytest.mark.usefixtures("nothing_left")
def test_a_binary_log_is_flushed_counted_and_removed(dbbench: Dbbench) -> None:
    """In the data directory, by default: its flushes are required, its bytes counted; the space is
    without it.
    """
    trial = dbbench.trial(plan(engine="mariadb", workload=SYSBENCH, device={"size": "1GiB"}))
    assert trial["status"] != "failed", trial["error"]
    assert (trial["effective_settings"]["log_bin"], trial["effective_settings"]["sync_binlog"]) == (
        "ON",
        "1",
    )
    counts = {fact["count"]: fact for fact in trial["work"]}
    assert counts["binlog_bytes"]["counted"] > counts["binlog_bytes"]["least"] > 0
    # A commit waits for two flushes, which may serve both clients. A busy machine makes too few
    # commits for a bound.
    assert 2 * counts["flushes"]["counted"] >= counts["flushes"]["claimed"] > 0
    logs = [file for file in trial["growth"]["largest"] if file["path"].startswith("data/binlog.")]
    assert logs and logs[0]["grown_bytes"] >= counts["binlog_bytes"]["least"]
    shown = dbbench("show", "r", trial["id"]).stdout
    assert "production profile: log_bin = ON, sync_binlog = 1, binlog_format = ROW" in shown
    assert "grown during the load: tables" in shown


@pytest.mark.long
@pytest.mark.parametrize("profile", ["production-archive", "production-slot", "standalone"])
@pytest.mark.needs("root", "engine:postgres")
@pytest.mark.usefixtures("nothing_left")
def test_postgres_archives_or_keeps_its_log(profile: str, dbbench: Dbbench) -> None:
    """The archive has segments; the slot is there; huge pages are what the server got."""
    engine = {"name": "postgres", "profile": profile}
    trial = dbbench.trial(plan(engine=engine, workload=TPCB, device={"size": "1GiB"}))
    assert trial["status"] != "failed", trial["error"]
    effective = trial["effective_settings"]
    assert trial["profile"] == profile
    assert effective["archive_mode"] == ("on" if profile == "production-archive" else "off")
    assert (effective.get("dbbench.replication_slot") == "on") is (profile == "production-slot")
    assert effective["huge_pages_status"] in ("on", "off")
    assert effective["huge_pages"] == ("off" if profile == "standalone" else "try")


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("mariadb", marks=pytest.mark.needs("root", "engine:mariadb")),
        pytest.param("mysql", marks=[pytest.mark.needs("root", "engine:mysql"), pytest.mark.soak]),
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_innodb_on_a_bare_device_is_the_floor(dbbench: Dbbench, engine: str) -> None:
    """Its tables lie on the device: read cold from it, written to by a checkpoint, checked; no
    filesystem is made.
    """
    if engine == "mariadb" and " 10.11.7-" in process.run(["mariadbd", "--version"]).stdout:
        pytest.skip("MariaDB 10.11.7 does not start with its tables on a device")
    trial = driven(dbbench, "1100MiB", fs="raw", engine=installed(engine), workload=SYSBENCH)[
        "raw+wal:ext4-nobarrier"
    ]
    assert trial["status"] != "failed", trial["error"]
    effective = trial["effective_settings"]
    assert effective["innodb_data_file_path"].startswith("ibdata1:") and effective[
        "innodb_data_file_path"
    ].endswith("raw")
    assert (trial["filesystem"]["family"], trial["filesystem"]["mkfs"]) == ("raw", [])
    assert trial["cache"]["proved"], trial["cache"]["reason"]
    assert trial["cache"]["sample_read_bytes"] >= trial["cache"]["sample_bytes"] > 0
    assert trial["drain"]["write_bytes"] > 0
    assert (
        10**6 < trial["space"]["logical_bytes"] < 400 * 2**20
        and trial["space"]["disk_bytes"] is None
    )
    assert trial["checked"].startswith("CHECK TABLE")
