"""Operations after the load, with parts that do nothing: order, results, and what fails the
trial.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines.port import Server
from dbbench.errors import CommandFailed, FilesystemDamaged, Interrupted
from dbbench.metrics import summary
from dbbench.model import FsSetup, Layer, Mkfs, OperationFacts
from dbbench.operations import OPERATIONS, StoredDatabase, backup, maintenance, operate
from dbbench.operations.maintenance import of_filesystem
from dbbench.operations.steps import Operation
from dbbench.report.page.operations import operation_of
from dbbench.storage.filesystems.btrfs import parse_du
from dbbench.storage.filesystems.f2fs import damages
from dbbench.storage.filesystems.volumes import (
    devices_to_add,
    growing_of,
    layers_to_add,
    snapshots_of,
)
from dbbench.units import duration_text
from tests.support.plans import SHIPPED, flaws_of, plan, plan_of
from tests.support.stored import RecordingStorage

FIXTURES = Path(__file__).parents[1] / "fixtures/filesystems"
EXT4 = FsSetup("of the test", Mkfs("ext4"))


def test_snapshot_is_taken_while_the_server_runs(said: RecordingStorage) -> None:
    """Rows are acknowledged, then it is taken, then one more row comes; the second server is up
    beside the first, whose lock is not in the clone, because its pid is alive.
    """
    steps = [facts.name for facts in backup.snapshot(said.filled)]
    assert said.lines == [
        "first up",
        "rows",
        "snapshot",
        "later row",
        "mount",
        "second up",
        "query",
        "second down",
        "unmount",
        "first down",
        "roll back",
        "first up",
        "query",
        "first down",
        "drop",
    ]
    assert [step.removeprefix("snapshot: ") for step in steps] == [
        "create",
        "mount",
        "start a server",
        "query",
        "roll back",
        "drop",
    ]
    assert not (said.folder / "postmaster.pid").exists()
    assert {operation_of(step) for step in (*steps, "snapshot: x", "snapshot")} == {"snapshot"}


def test_copies_of_files_are_taken_of_a_stopped_server(said: RecordingStorage) -> None:
    """An inconsistent copy is never taken while the server writes."""
    said.atomic = False
    list(backup.snapshot(said.filled))
    assert said.lines[:4] == ["first up", "rows", "first down", "snapshot"]


@pytest.mark.parametrize(("rows", "least"), [(backup.ROWS - 1, 0), (backup.ROWS + 1, backup.LATER)])
def test_a_snapshot_without_its_rows_fails_the_trial(
    rows: int,
    least: int,
    said: RecordingStorage,
) -> None:
    """One acknowledged row is missing, or a later one exists: FilesystemDamaged, and the snapshot
    is removed.
    """
    said.rows = rows
    said.least = least
    with pytest.raises(FilesystemDamaged, match=f"{rows} rows"):
        operate(["snapshot"], said.filled)
    assert said.lines[-1] == "drop"


def test_what_is_lacking_is_reported(said: RecordingStorage) -> None:
    """No seconds, the reason, and nothing was touched. With the write-ahead log elsewhere a second
    server would write into the first one's.
    """
    (facts,) = operate(["snapshot"], dataclasses.replace(said.filled, log=Path("/log")))
    assert facts.seconds is None and "log is on another device" in facts.text
    said.reason = "no room in the pool"
    assert operate(["snapshot"], said.filled) == (
        OperationFacts("snapshot", None, text="no room in the pool"),
    )
    assert said.lines == []


def growing(error: BaseException) -> dict[str, Operation]:
    """Return the operations with a `grow` that has one step that succeeds, then ends with the
    error.
    """

    def operation(_: StoredDatabase) -> Iterator[OperationFacts]:
        yield OperationFacts("grow: add device", 1.0)
        raise error

    return {**OPERATIONS, "grow": operation}


def test_a_failed_operation_ends_them(said: RecordingStorage) -> None:
    """Earlier results stay, the failure is reported, and later operations are not tried."""
    assert operate(["grow", "snapshot"], said.filled, growing(CommandFailed("no such device"))) == (
        OperationFacts("grow: add device", 1.0),
        OperationFacts("grow", None, text="no such device", failed=True),
        OperationFacts("snapshot", None, text="not tried: grow failed before"),
    )
    assert said.lines == []


@pytest.mark.parametrize("error", [FilesystemDamaged("x"), Interrupted("x"), KeyboardInterrupt()])
def test_what_is_not_the_operations_own_affair_is_raised(
    error: BaseException, said: RecordingStorage
) -> None:
    """Damage fails the trial; being stopped is no result at all."""
    with pytest.raises(type(error)):
        operate(["grow"], said.filled, growing(error))


def test_growing_without_a_device_more(said: RecordingStorage) -> None:
    """Said, not failed: a plan may have arms that take all devices."""
    btrfs = dataclasses.replace(said.filled, setup=FsSetup("t", Mkfs("btrfs")))
    assert [facts.seconds for facts in maintenance.grow(btrfs)] == [None]


def test_what_grows_and_has_snapshots() -> None:
    """btrfs on LVM takes its own snapshots; ext4 on it those of the uppermost layer that can.
    Growing adds a device, or a mirror where the volume lies on mirrors; nothing where nothing
    can grow.
    """
    layers = (Layer("md"), Layer("lvm"), Layer("crypt"))

    def name(setup: FsSetup) -> str | None:
        snapshots = snapshots_of(setup)
        return snapshots.name if snapshots else None

    assert name(FsSetup("t", Mkfs("btrfs"), layers=layers)) == "btrfs"
    assert name(FsSetup("t", Mkfs("ext4"), layers=layers)) == "lvm"
    assert name(FsSetup("t", Mkfs("ext4"), layers=layers[:1])) is None
    assert growing_of(FsSetup("t", Mkfs("ext4"), layers=layers[:1])) is not None
    # dm-crypt on it would stay as small
    assert growing_of(FsSetup("t", Mkfs("ext4"), layers=layers)) is None
    assert name(EXT4) is growing_of(EXT4) is None
    setups = {name: SHIPPED.setup(name) for name in SHIPPED.setups}
    added = {name: devices_to_add(setup) for name, setup in setups.items()}
    assert {name for name, number in added.items() if number > 1} == {
        "ext4-lvm-striped-md1",
        "xfs-lvm-striped-md1",
    }
    assert (
        added["ext4-lvm-striped-md1"],
        added["ext4-lvm"],
        added["ext4-md10"],
        added["btrfs"],
    ) == (2, 1, 1, 1)
    assert added["ext4"] == added["ext4-crypt"] == 0
    assert layers_to_add(setups["ext4-lvm-striped-md1"]) == (Layer("md", level=1),)
    assert layers_to_add(setups["ext4-lvm"]) == layers_to_add(setups["btrfs"]) == ()
    encrypted = FsSetup("t", Mkfs("btrfs"), layers=(Layer("crypt"),))
    assert (layers_to_add(encrypted), devices_to_add(encrypted)) == ((Layer("crypt"),), 1)


def test_the_data_is_scanned_and_then_its_clone(said: RecordingStorage) -> None:
    """The snapshot is of the stopped data, and nothing of it is left; without snapshots the first
    step remains.
    """

    def read(name: str, _server: Server, _cold: str) -> OperationFacts:
        return OperationFacts(name, 2.0, 3_000_000)

    steps = list(maintenance.scan(said.filled, read))
    assert said.lines == [
        "first up",
        "first down",
        "snapshot",
        "mount",
        "second up",
        "second down",
        "unmount",
        "drop",
    ]
    assert summary.scan_summary(steps) == {"scan_mb_per_s": 1.5, "clone_scan_mb_per_s": 1.5}
    only = list(
        maintenance.scan(dataclasses.replace(said.filled, setup=FsSetup("t", Mkfs("xfs"))), read)
    )
    assert [facts.seconds for facts in only] == [2.0, None] and "has snapshots" in only[1].text
    assert summary.scan_summary(only) == {"scan_mb_per_s": 1.5, "clone_scan_mb_per_s": None}
    assert summary.scan_summary([]) == {}


def test_exclusive_bytes_of_btrfs_and_damage_of_f2fs() -> None:
    """What only the snapshot and its clone hold, added up. The checks that failed, whatever the
    exit status; nothing of a sound one.
    """
    found = [
        parse_du((FIXTURES / f"btrfs-du-{version}.txt").read_text())
        for version in ("6.2", "6.14", "7.3")
    ]
    assert found == [1048576, 0, 0]
    assert damages((FIXTURES / "fsck-f2fs.txt").read_text()) == ""
    assert "SIT valid block bitmap checking [Fail]" in damages(
        (FIXTURES / "fsck-f2fs-damaged.txt").read_text()
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (6.5e-05, "0.065 ms"),
        (0.0283, "28 ms"),
        (0.9999, "1000 ms"),
        (3.365, "3.37 s"),
        (72, "72 s"),
        (125, "2 min 5 s"),
        (7260, "2 h 1 min"),
        (0, "0 s"),
        (None, "–"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    """Readable from microseconds to hours."""
    assert duration_text(seconds) == text


TWO = {"count": 2}
DIRS = {"kind": "dir", "size": None, "paths": {"btrfs": "/mnt/a", "ext4": "/mnt/b"}}


@pytest.mark.parametrize(
    ("keys", "device", "flaw"),
    [
        ({"operations": ["fsk"]}, {}, 'did you mean "fsck"'),
        ({"operations": ["fsck", "fsck"]}, {}, "is listed twice"),
        ({"operations": ["grow"]}, {}, "one device more"),
        ({"operations": ["fsck"]}, DIRS, "of its own"),
        ({"age": {"fill": 1.5}}, {}, "less than 1"),
        ({"age": {"churn": -1}}, {}, "0 or more"),
        ({"age": {}}, DIRS, "of its own"),
        (
            {
                "operations": ["snapshot"],
                "workload": {"name": "pgbench-tpcb", "source": "x", "tablespace": "fast"},
            },
            {},
            'cannot be combined with "tablespace"',
        ),  # the rest of the cluster is elsewhere
        (
            {"operations": ["fsck", "snapshot", "clone", "grow"], "age": {"fill": 0.7, "churn": 1}},
            TWO,
            None,
        ),
        ({"operations": ["clone"]}, DIRS, None),  # copies of files in existing directories
    ],
)
def test_what_cannot_be_done_is_a_flaw_of_the_plan(
    keys: dict[str, Any],
    device: dict[str, Any],
    flaw: str | None,
    tmp_path: Path,
) -> None:
    """It is reported before anything is begun, with its line; None: it can be done."""
    text = plan(["btrfs", "ext4"], device={"size": "1GiB", **device}, **keys)
    if flaw is None:
        assert plan_of(tmp_path, text).operations
    else:
        assert flaw in flaws_of(tmp_path, text)


def test_what_has_no_program_is_not_possible_and_no_failure(said: RecordingStorage) -> None:
    """A backup of MySQL, a defragmentation of a family without a tool for it: no figure, and a
    reason.
    """
    said.engine = "mysql"
    (backup,) = operate(["base-backup"], said.filled)
    assert (backup.seconds, backup.failed) == (None, False) and "mysql" in backup.text
    other = dataclasses.replace(said.filled, fs=dataclasses.replace(said.filled.fs, family="f2fs"))
    step = of_filesystem(other)
    assert (step.seconds, step.failed) == (None, False) and "f2fs" in step.text
