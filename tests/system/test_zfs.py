"""ZFS pools made with OpenZFS: properties, cold cache, durability, removal."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.errors import FilesystemDamaged, MakeFailed, UnmountFailed
from dbbench.machine import pagecache
from dbbench.results.journal import Journal
from dbbench.storage import filesystems
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import Device, as_one
from dbbench.storage.filesystems import common, shape, zfs
from dbbench.storage.filesystems.family import Mounted, Stored
from dbbench.storage.filesystems.zfs import driver, properties
from tests.support.plans import SMALL, plan
from tests.support.private_mounts import apart
from tests.support.setups import ADDED, ALL, commit, flushes, setup_named, shipped

pytestmark = [pytest.mark.needs("root"), pytest.mark.long]

MIB = 2**20
NAMES = [name for name in (*ALL.setups, *ADDED) if setup_named(name).mkfs.family == "zfs"]


@pytest.fixture
def private() -> Iterator[None]:
    """Run the test with private mounts, like a trial."""
    with apart():
        yield


@contextlib.contextmanager
def disks(folder: Path, count: int) -> Iterator[Device]:
    """Loop devices of 320 MiB as one device."""
    with contextlib.ExitStack() as stack:
        members = []
        for number in range(count):
            image = folder / f"disk{number}"
            image.touch(0o600)
            os.truncate(image, 320 * MIB)
            members.append(stack.enter_context(loop.attach(image)))
        yield as_one(tuple(members))


@contextlib.contextmanager
def mounted(
    name: str,
    device: Device,
    at: Path,
    journal: Journal | None = None,
) -> Iterator[Mounted]:
    """A shipped setup, made and mounted."""
    setup = shipped(name)
    filesystems.make(setup, device, journal)
    with filesystems.mount(setup, device, at, journal) as fs:
        yield fs


def fill(folder: Path, mib: int) -> list[Path]:
    """Two files of which the first half of each MiB shrinks when it is compressed."""
    files = [folder / "a", folder / "b"]
    for file in files:
        with file.open("wb") as out:
            for _mib in range(mib // 2):
                out.write(b"the same row again " * (MIB // 38) + os.urandom(MIB - MIB // 38 * 19))
    return files


@pytest.mark.parametrize("name", NAMES)
def test_every_setup_is_what_it_says(
    name: str,
    private: None,
    tmp_path: Path,
) -> None:
    """Made, mounted, read back, claimed rightly, in force on files, cold with both proofs,
    flushing, and gone.
    """
    setup = shipped(name)
    journal = Journal(tmp_path / "journal")
    with disks(tmp_path, setup.devices.min) as device:
        made = filesystems.make(setup, device, journal)
        assert made.argv[0][-1] == str(device.each[-1].path)
        assert (made.geometry["ashift"], made.geometry["topology"]) == (12, setup.mkfs.topology)
        assert made.uuid.isdigit()
        assert len(journal.outstanding("pool")) == 1
        with filesystems.mount(setup, device, tmp_path / "mnt", journal) as fs:
            filesystems.check_promise(setup, fs)
            asked = {"recordsize": "131072", **properties.pairs(setup.mount)}
            if "data" in setup.volumes:
                asked |= properties.pairs(setup.volumes["data"].options)
            assert properties.differences(asked, properties.pairs(fs.options_effective)) == []
            assert not fs.tears
            assert (fs.tears_pages_of(16384) is not None) is ("-8k" in name or "redundant" in name)
            datadir = filesystems.data_directory(setup, fs)
            files = fill(datadir, 24)
            filesystems.verify_files(setup, files)
            compressing = zfs.FAMILY.compresses(setup.mount)
            space = shape.space(fs, 24 * MIB)
            assert space.disk_bytes and space.free_bytes
            assert (space.disk_bytes < 20 * MIB) is bool(compressing)
            assert (
                1.5 < (space.compression_ratio or 0) < 2.1
                if compressing
                else not space.compression_ratio
            )
            proof = pagecache.empty_and_prove(
                files,
                1,
                device.leaves,
                filesystems.FAMILIES["zfs"].emptying(setup, device, fs),
                least_share=shape.least_read_share(fs),
            )
            assert proof.reason == ""
            assert "export and import" in proof.method
            assert proof.before_bytes or name == "zfs-metadata"  # OpenZFS keeps no data then
            assert proof.sample_bytes == 24 * MIB
            before = flushes(device)
            commit(datadir / "log")
            assert flushes(device) - before >= 20 or filesystems.promises(setup)
            assert shape.healthy(fs) is None
        for member in device.each:
            assert process.run(["wipefs", "-n", member.path]).stdout == ""
            os.close(os.open(member.path, os.O_RDONLY | os.O_EXCL))
    assert journal.outstanding("pool") == []
    assert str(tmp_path) not in Path("/proc/thread-self/mountinfo").read_text()


def test_a_pool_of_another_user_is_not_touched(private: None, tmp_path: Path) -> None:
    """Beside a pool that is in use another one is made, opened and ended; the first one knows
    nothing of it.
    """
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with disks(tmp_path / "one", 1) as first, mounted("zfs", first, tmp_path / "mnt") as fs:
        (fs.path / "kept").write_bytes(b"kept")
        with (
            apart(),
            disks(tmp_path / "two", 1) as second,
            mounted("zfs", second, tmp_path / "mnt2"),
        ):
            assert (tmp_path / "mnt2").is_mount()
        listed = process.run(["zpool", "list", "-H", "-o", "name"]).stdout.split()
        assert fs.pool is not None
        assert listed == [fs.pool.name]
        fs.pool.reopen()
        assert (fs.path / "kept").read_bytes() == b"kept"


def test_what_zpool_refuses_is_an_error(private: None, tmp_path: Path) -> None:
    """zpool's own words are the evidence, and no pool stays behind."""
    setup = dataclasses.replace(shipped("zfs"), mount=("recordsize=12K",))
    with disks(tmp_path, 1) as device, pytest.raises(MakeFailed, match="recordsize"):
        filesystems.make(setup, device)


def test_who_holds_the_pool_is_reported(
    private: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An export that fails names the process; when it has let go, the export succeeds."""
    with disks(tmp_path, 1) as device, mounted("zfs", device, tmp_path / "mnt") as fs:
        assert fs.pool is not None
        held = os.open(fs.path / "held", os.O_CREAT | os.O_RDWR)
        with (
            monkeypatch.context() as soon,
            pytest.raises(UnmountFailed, match=rf"pid {os.getpid()} .*held"),
        ):
            # not for the export at the end, which may take longer
            soon.setattr(common, "BUSY_S", 0.2)
            fs.pool.export(fs.path)
        os.close(held)


def test_the_pools_own_cache_is_limited(private: None, tmp_path: Path) -> None:
    """While the pool is open; what the kernel had before is put back."""
    setup = shipped("zfs")
    parameter = driver.MODULE / "parameters/zfs_arc_max"
    with disks(tmp_path, 1) as device:
        filesystems.make(setup, device)
        before = parameter.read_text()
        with filesystems.mount(setup, device, tmp_path / "mnt", None, 80 * MIB) as fs:
            assert 79 * MIB < int(fs.tunables["arc_max_bytes"]) < 81 * MIB
        assert parameter.read_text() == before


def test_the_journal_alone_ends_a_pool(private: None, tmp_path: Path) -> None:
    """What a killed run has left is ended by its name, and once only."""
    journal = Journal(tmp_path / "journal")
    with disks(tmp_path, 1) as device:
        # kept: without it the pool would be exported
        opened = mounted("zfs", device, tmp_path / "mnt", journal)
        fs = opened.__enter__()
        assert fs.pool is not None
        assert zfs.FAMILY.give_back(journal) == [fs.pool.name]
        assert zfs.FAMILY.give_back(journal) == []


@contextlib.contextmanager
def filled(name: str, folder: Path, count: int) -> Iterator[Stored]:
    """A setup on `count` of the devices, with one more as the spare, and a file in its data
    directory.
    """
    setup = shipped(name)
    with disks(folder, count + 1) as several:
        device = dataclasses.replace(as_one(several.each[:count]), spare=several.each[count])
        with mounted(name, device, folder / "mnt") as fs:
            datadir = filesystems.data_directory(setup, fs)
            (datadir / "a").write_bytes(os.urandom(8 * MIB))
            (folder / "room").mkdir()
            yield Stored(setup, device, fs, datadir, folder / "room")


def test_snapshot_clone_and_rollback(private: None, tmp_path: Path) -> None:
    """The clone has the snapshot's bytes and takes its own; the rollback brings back what was
    overwritten, also where the newer bytes were read just before; nothing is left of either.
    """
    with filled("zfs-16k", tmp_path, 1) as found:
        old = (found.datadir / "a").read_bytes()
        file = found.datadir / "a"
        assert zfs.FAMILY.snapshots.lacks(found) is None
        zfs.FAMILY.snapshots.snapshot(found)
        file.write_bytes(os.urandom(8 * MIB))
        (found.datadir / "later").touch()
        assert file.read_bytes() != old
        with zfs.FAMILY.snapshots.clone(found) as copy:
            assert (copy / "a").read_bytes() == old
            (copy / "mine").write_bytes(os.urandom(MIB))
            assert 8 * MIB < (zfs.FAMILY.snapshots.taken_bytes(found) or 0) < 20 * MIB
        zfs.FAMILY.snapshots.rollback(found)
        assert file.read_bytes() == old
        assert not (found.datadir / "later").exists()
        zfs.FAMILY.snapshots.drop(found)
        zfs.FAMILY.snapshots.drop(found)
        assert zfs.FAMILY.snapshots.taken_bytes(found) == 0


def test_scrub_finds_a_damaged_record(private: None, tmp_path: Path) -> None:
    """Nothing to say of a sound pool; bytes that were changed below it are found by their
    checksums.
    """
    with filled("zfs", tmp_path, 1) as found:
        (check,) = zfs.FAMILY.checks
        assert "no errors" in check.run(found)
        assert found.fs.pool is not None
        found.fs.pool.sync()
        content = (found.datadir / "a").read_bytes()[:4096]
        image = (tmp_path / "disk0").read_bytes()
        os.pwrite(found.volume.fd, bytes(4096), image.index(content))
        os.fsync(found.volume.fd)
        found.fs.pool.reopen()
        with pytest.raises(FilesystemDamaged, match="errors"):
            check.run(found)


@pytest.mark.parametrize(("name", "count", "grows"), [("zfs", 1, True), ("zfs-mirror", 2, False)])
def test_another_device_joins(
    name: str,
    count: int,
    grows: bool,
    private: None,
    tmp_path: Path,
) -> None:
    """A stripe becomes larger, a mirror gets one more side; the pool is imported with it and leaves
    it clean.
    """
    with filled(name, tmp_path, count) as found:
        spare = found.volume.spare
        fs = found.fs
        assert spare is not None and fs.pool is not None
        before = sum(fs.pool.used_and_free())
        assert zfs.FAMILY.growing.add(found, spare) == f"{count + 1} devices"
        assert zfs.FAMILY.growing.rebalance(found)
        fs.pool.sync()
        assert (sum(fs.pool.used_and_free()) > 1.5 * before) is grows
        fs.pool.reopen()
        assert (found.datadir / "a").stat().st_size == 8 * MIB
        path = spare.path
    assert b"dbbench" not in (tmp_path / f"disk{count}").read_bytes()[: 2 * MIB], path


def test_every_fsync_is_a_flush(private: None, tmp_path: Path) -> None:
    """Of a file that stays open, and of one that is written, closed and opened again."""
    each = 20
    with disks(tmp_path, 1) as device, mounted("zfs-8k", device, tmp_path / "mnt") as fs:
        before = flushes(device)
        for _number in range(each):
            (fs.path / "file").write_bytes(os.urandom(8192))
            with (fs.path / "file").open("rb") as again:
                os.fsync(again.fileno())
        reopened = flushes(device) - before
        with (fs.path / "file").open("wb", buffering=0) as held:
            for _number in range(each):
                held.write(os.urandom(8192))
                os.fsync(held.fileno())
        assert flushes(device) - before - reopened >= each
        assert reopened >= each


@pytest.mark.needs("engine:postgres", "engine:mariadb", "sysbench", "sadf")
def test_short_trials_of_two_engines(dbbench: Any, nothing_left: None) -> None:
    """PostgreSQL and MariaDB through the command line: good, cold, flushed, with the driver's
    name.
    """
    shipped("zfs-8k")
    tpcb = {"name": "pgbench-tpcb", "engines": ["postgres"], "scale": 1, "clients": 2, "threads": 2}
    sysbench = {
        "name": "sysbench-oltp-read-write",
        "engines": ["mariadb"],
        **SMALL["sysbench-oltp-read-write"],
    }
    text = plan(
        "zfs-8k",
        ["postgres", "mariadb"],
        [tpcb, sysbench],
        measure="4s",
        device={"size": "1GiB"},
    )
    dbbench("run", dbbench.plan(text), "--name", "r")
    trials = dbbench.trials()
    assert [(t["engine"], t["error"]) for t in trials.values() if t["status"] == "failed"] == []
    for trial in trials.values():
        fs = trial["filesystem"]
        assert (fs["family"], fs["durability_class"], fs["geometry"]["recordsize"]) == (
            "zfs",
            "full",
            8192,
        )
        assert fs["tunables"]["driver"].startswith("OpenZFS")
        assert fs["tunables"]["arc_max_bytes"] > 0
        assert trial["cache"]["proved"]
        assert float(trial["io"]["flushes_note"].split()[0]) > 0.3
        assert any(argv[0].endswith("zpool") for argv in trial["commands"])
    assert {t["effective_settings"].get("innodb_flush_method") for t in trials.values()} == {
        None,
        "O_DIRECT",
    }


@pytest.mark.needs("engine:postgres", "sadf")
def test_nothing_is_left_of_a_run_that_is_killed(dbbench: Any, nothing_left: None) -> None:
    """SIGKILL in the window leaves no mount, pool or loop device; the same command resumes and ends
    well.
    """
    shipped("zfs-8k")
    dbbench.plan(plan("zfs-8k", measure="6s"))
    status, _ = dbbench.run_and(
        "plan.toml",
        dbbench.in_window,
        lambda pid: os.kill(pid, signal.SIGKILL),
    )
    assert status == -signal.SIGKILL
    trial = dbbench.trial()
    assert trial["status"] != "failed"
    assert not [
        name for name in process.run(["zpool", "list", "-H"]).stdout.split() if "dbbench" in name
    ]
