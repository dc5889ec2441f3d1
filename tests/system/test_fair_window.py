"""Differences within the window are reported: checkpoints, dirty limits, read-ahead."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")


TPCB = {"name": "pgbench-tpcb", "scale": 4, "clients": 4}
COPY = {"name": "copy-in", "tables": 1, "file_bytes": "64MiB"}
SCAN = {"name": "scan", "tables": 1, "table_bytes": "16MiB"}


def windows(
    *fs: Any, workload: Any = TPCB, measure: int = 4, size: str = "512MiB", **keys: Any
) -> str:
    """A plan of one block."""
    return plan(
        [*fs] or "ext4",
        "postgres",
        workload,
        measure=f"{measure}s",
        device={"size": size},
        seed=1,
        **keys,
    )


def notes(dbbench: Any, arm: str) -> list[str]:
    """What `compare` notes of an arm."""
    return [note for row in dbbench.compared() if row["fs_setup"] == arm for note in row["notes"]]


def test_a_checkpoint_more_and_discard_in_one_arm_are_named(dbbench: Any) -> None:
    """An arm whose log is small has checkpoints that the other is spared: counted by cause, and
    noted. Both write the same amount, however long it takes. What it pays for online discard is
    noted too.
    """
    (dbbench.folder / "mine/fs_setups").mkdir(parents=True)
    tuning = 'tuning.postgres = { max_wal_size = "32MB", min_wal_size = "32MB" }\n'
    setup = (
        f'title = "small log"\nmkfs = {{ family = "ext4" }}\nmount = ["noatime", "discard"]\n'
        f"{tuning}"
    )
    (dbbench.folder / "mine/fs_setups/small-log.toml").write_text(setup)
    dbbench(
        "--path",
        "mine",
        "run",
        dbbench.plan(windows("ext4", "small-log", workload=COPY)),
        "--name",
        "r",
    )
    found = {t["fs_setup"]: t["checkpoints"] for t in dbbench.trials().values()}
    assert found["ext4"]["ended"] == 0
    assert found["small-log"]["by_cause"].get("wal", 0) >= 1
    told = notes(dbbench, "small-log")
    assert any(
        re.match(r"number of checkpoints in the window differs \([1-9]", note) for note in told
    )
    assert "online discard differs (on; baseline: off)" in told


@pytest.mark.needs("mkfs.btrfs", "fs:btrfs")
def test_equal_readahead_and_checkpoints_by_the_logs_size(dbbench: Any) -> None:
    """Read back from the mounts: one value for all, where each has another by itself. `checkpoints
    = "log"` sets both limits of the server.
    """
    keys = {"equal_readahead": "512KiB", "checkpoints": "log"}
    dbbench.plan(windows("ext4", "btrfs", workload=SCAN, size="640MiB", **keys))
    dbbench("run", "plan.toml", "--name", "r")
    trials = dbbench.trials().values()
    settings = [trial["effective_settings"] for trial in trials]
    assert {(each["max_wal_size"], each["checkpoint_timeout"]) for each in settings} == {
        ("128MB", "1d")
    }
    assert {t["fs_setup"]: t["filesystem"]["read_ahead_kb"] for t in trials} == {
        "ext4": 512,
        "btrfs": 512,
    }
    # for example swap of other tests
    changed = [w["text"] for t in trials for w in t["warnings"] if w["id"] == "W018"]
    assert [text for text in changed if "read_ahead" in text] == []
    assert not any("read-ahead" in note for note in notes(dbbench, "btrfs"))


@pytest.mark.soak
def test_dirty_limits_that_change_between_trials_are_named(dbbench: Any) -> None:
    """A low vm.dirty_bytes makes the load write early what the other arm may owe: W018, and the
    arm's notes.

    Long only in that it changes a setting of the whole machine: nothing else may measure
    meanwhile.
    """
    limit = Path("/proc/sys/vm/dirty_bytes")
    ratio = Path("/proc/sys/vm/dirty_ratio")
    before = ratio.read_text()
    dbbench.plan(windows("ext4", {"use": "ext4", "label": "ext4-b"}, measure=3))
    try:
        dbbench.run_and("plan.toml", dbbench.in_window, lambda _: limit.write_text(str(16 * 2**20)))
    finally:
        ratio.write_text(before)  # which takes dirty_bytes back to 0
    first, second = sorted(dbbench.trials().values(), key=lambda t: t["position"])
    assert any(
        "vm_dirty_bytes: 0 -> 16777216" in w["text"] for w in first["warnings"] if w["id"] == "W018"
    )
    assert any(
        "vm_dirty_bytes: 0 -> 16777216" in w["text"]
        for w in second["warnings"]
        if w["id"] == "W018"
    )
    assert any(
        "vm_dirty_bytes differs" in note
        for arm in ("ext4", "ext4-b")
        for note in notes(dbbench, arm)
    )


@pytest.mark.soak
def test_checkpoints_of_the_series_stand_where_the_servers_log_has_them(dbbench: Any) -> None:
    """A saw-toothed run of five minutes with checkpoints by the log's size: each one's begin in the
    series is in the second that the server's own log names, or the next.
    """
    trial = dbbench.trial(
        windows(checkpoints="log", measure=300, size="4GiB", workload={**TPCB, "scale": 40})
    )
    rows = dbbench.series(trial)
    log = dbbench.folder / "results/r/trials" / trial["id"] / "raw/server.log"
    begun = [int(row["second"]) for row in rows if float(row["checkpoints_begun_per_s"] or 0) > 0.5]
    anchor = _utc(trial["anchor_utc"][:-1])
    said = re.findall(
        r"^(\S+ \S+) UTC \[\d+\] LOG:  checkpoint starting: wal",
        log.read_text(),
        re.M,
    )
    logged = [second for line in said if 0 <= (second := _utc(line) - anchor) < len(rows) - 1]
    assert len(begun) >= 3
    assert trial["checkpoints"]["by_cause"]["wal"] >= 3
    assert len(logged) == len(begun)
    assert all(-1 <= found - second <= 1.5 for found, second in zip(begun, logged, strict=True))


def _utc(text: str) -> float:
    from datetime import UTC, datetime

    return datetime.fromisoformat(text.replace(" ", "T")).replace(tzinfo=UTC).timestamp()
