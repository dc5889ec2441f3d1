"""Operations after the load, on real filesystems with real servers: times, leftovers, failures."""

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.engines import ENGINES
from dbbench.engines.port import Server
from dbbench.errors import FilesystemDamaged
from dbbench.model import FsSetup, Mkfs, OperationFacts, Volume
from dbbench.operations import StoredDatabase, operate
from dbbench.storage import filesystems
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common
from dbbench.storage.filesystems.volumes import formatted_of
from tests.support import servers
from tests.support.leftovers import loops_of, mounts_of
from tests.support.plans import plan

MIB = 2**20
PATTERN = os.urandom(64 * 1024)
SMALL = {"postgres": {"shared_buffers": "16MB"}, "mariadb": {"innodb_log_file_size": 16 * MIB}}
FAMILIES = [
    pytest.param(name, marks=pytest.mark.needs("root", f"mkfs.{name}", fsck, f"fs:{name}"))
    for name, fsck in (("ext4", "e2fsck"), ("xfs", "xfs_repair"), ("btrfs", "btrfs"))
]
SERVERS = [pytest.param(name, marks=pytest.mark.needs(f"engine:{name}")) for name in SMALL]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that servers can get through, on the disk below."""
    with tempfile.TemporaryDirectory(prefix="dbbench-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(autouse=True)
def nothing_of_it_left(tmp_path: Path, folder: Path) -> Iterator[None]:
    """No loop device of a test's image and no mount in its folders outlives it."""
    yield
    assert [
        left for place in (tmp_path, folder) for left in (*loops_of(place), *mounts_of(place))
    ] == []


Filling = Callable[..., contextlib.AbstractContextManager[StoredDatabase]]


@pytest.fixture
def filled(loop_device: Device, folder: Path) -> Filling:
    """A filesystem with an empty data directory, or one that a server has made."""

    @contextlib.contextmanager
    def made(
        setup: FsSetup,
        engine: str = "",
        device: Device = loop_device,
    ) -> Iterator[StoredDatabase]:
        filesystems.make(setup, device)
        with filesystems.mount(setup, device, folder / "mnt") as fs:
            datadir = filesystems.data_directory(setup, fs)
            filesystems.apply_attributes(setup, datadir)
            serving, second = (server(engine, folder / name) for name in ("one", "two"))
            if engine:
                ENGINES[engine].create(datadir, servers.place(engine, folder / "one"))
            else:
                (datadir / "t").write_bytes(PATTERN)
            own = functools.partial(serving, datadir)
            yield StoredDatabase(setup, device, fs, datadir, folder / "room", own, second)

    return made


def server(
    engine: str, folder: Path
) -> Callable[[Path], contextlib.AbstractContextManager[Server]]:
    """A starter of small servers."""

    def serving(datadir: Path) -> contextlib.AbstractContextManager[Server]:
        folder.mkdir(exist_ok=True)
        return servers.serving(engine, datadir, servers.place(engine, folder), **SMALL[engine])

    return serving


def plainly(family: str, **more: Any) -> FsSetup:
    """A family as it is made by default."""
    return FsSetup("of the test", Mkfs(family), **more)


def named(facts: tuple[OperationFacts, ...]) -> dict[str, OperationFacts]:
    """Steps by name; no step failed."""
    assert [one for one in facts if one.failed] == []
    return {one.name: one for one in facts}


@pytest.mark.parametrize("family", FAMILIES)
def test_sound_filesystems_pass(family: str, filled: Filling) -> None:
    """Each check has its time and its words; the filesystem is mounted again as it was, with its
    files.
    """
    with filled(plainly(family, mount=("noatime",))) as one:
        before = common.mount_of(one.fs.path)
        steps = named(operate(["fsck"], one))
        after = common.mount_of(one.fs.path)
        assert (before.point, before.options) == (after.point, after.options)
        assert (one.datadir / "t").read_bytes() == PATTERN
    wanted = {"ext4": ["e2fsck -fn"], "xfs": ["xfs_repair -n"], "btrfs": ["scrub", "btrfs check"]}[
        family
    ]
    assert list(steps) == [f"fsck: {name}" for name in wanted]
    assert all(
        step.seconds is not None and step.seconds > 0.001 and step.text for step in steps.values()
    )


@pytest.mark.needs("root", "mkfs.ext4", "debugfs", "fs:ext4")
def test_damage_of_ext4_is_found(filled: Filling) -> None:
    """An inode that was cleared under a name fails the trial."""
    with filled(plainly("ext4")) as one:
        _while_unmounted(one, ["debugfs", "-w", "-R", "clri /data/t", one.volume.path])
        with pytest.raises(FilesystemDamaged, match="e2fsck found errors"):
            operate(["fsck"], one)


@pytest.mark.needs("root", "mkfs.xfs", "xfs_db", "xfs_repair", "fs:xfs")
def test_damage_of_xfs_is_found(filled: Filling) -> None:
    """A wrong count of links fails the trial."""
    with filled(plainly("xfs")) as one:
        inode = (one.datadir / "t").stat().st_ino
        change = [
            "xfs_db",
            "-x",
            "-c",
            f"inode {inode}",
            "-c",
            "write -d core.nlinkv2 77",
            one.volume.path,
        ]
        _while_unmounted(one, change)
        with pytest.raises(FilesystemDamaged, match="xfs_repair found errors"):
            operate(["fsck"], one)


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs")
def test_damage_of_btrfs_is_found(filled: Filling, image: Path) -> None:
    """One changed byte of a file's content fails the trial: scrub holds it against its checksum."""
    with filled(plainly("btrfs")) as one:
        filesystems.sync(one.fs.path)
        at = image.read_bytes().find(PATTERN)
        assert at > 0
        formatted_of(one.setup).unmount(one.fs.path, one.volume)
        os.pwrite(one.volume.fd, bytes([PATTERN[0] ^ 1]), at)
        os.fsync(one.volume.fd)
        formatted_of(one.setup).mount(one.setup, one.volume, one.fs.path)
        with pytest.raises(FilesystemDamaged, match=r"scrub found errors.*csum_errors"):
            operate(["fsck"], one)


def _while_unmounted(one: StoredDatabase, argv: list[str | Path]) -> None:
    formatted_of(one.setup).unmount(one.fs.path, one.volume)
    process.run(argv)
    formatted_of(one.setup).mount(one.setup, one.volume, one.fs.path)


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs")
@pytest.mark.parametrize("layout", ["directory", "subvolume"])
@pytest.mark.parametrize("engine", SERVERS)
def test_snapshot_of_a_running_server(
    engine: str,
    layout: str,
    filled: Filling,
) -> None:
    """btrfs, data in the top level or in a subvolume: taken, recovered from, rolled back to,
    dropped, all gone.
    """
    volumes = {"data": Volume()} if layout == "subvolume" else {}
    with filled(plainly("btrfs", volumes=volumes), engine) as one:
        before = _subvolumes(one.fs.path)
        steps = named(operate(["snapshot"], one))
        assert _subvolumes(one.fs.path) == before == ({"data"} if volumes else set())
        with one.serving() as server:
            assert server.alive()
    assert [name.removeprefix("snapshot: ") for name in steps] == [
        "create",
        "mount",
        "start a server",
        "query",
        "roll back",
        "drop",
    ]
    taken = steps["snapshot: query"].bytes
    # what the second server wrote; sharing the rest
    assert taken is not None and 0 < taken < 64 * MIB


@pytest.mark.needs("root", "mkfs.xfs", "fs:xfs")
@pytest.mark.parametrize("engine", SERVERS)
def test_reflinks_take_next_to_nothing(engine: str, filled: Filling) -> None:
    """xfs: both copies hold the rows from before; the one by reflink takes less than a tenth of the
    plain one.
    """
    with filled(plainly("xfs"), engine) as one:
        steps = named(operate(["clone"], one))
        assert sorted(path.name for path in one.fs.path.iterdir()) == ["data"]
    by_link, by_copy = (steps[f"clone by {how}: create"].bytes for how in ("reflink", "copy"))
    assert by_link is not None and by_copy is not None
    assert by_link < 0.1 * by_copy
    assert by_copy > 10 * MIB


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres")
def test_ext4_has_the_plain_copy_alone(filled: Filling) -> None:
    """What there is not is reported with its reason, and is no failure."""
    with filled(plainly("ext4"), "postgres") as one:
        steps = named(operate(["snapshot", "clone", "grow"], one))
    assert {name for name, step in steps.items() if step.seconds is None} == {
        "snapshot",
        "clone by reflink",
        "grow",
    }
    assert steps["clone by copy: query"].text == "16384 rows, all of them acknowledged before"


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "chattr", "fs:btrfs", "engine:postgres")
def test_reflinks_of_files_without_copy_on_write(filled: Filling) -> None:
    """With +C on the data the copy has it too; the kernel shares blocks between equals only."""
    with filled(plainly("btrfs", attributes=("+C",)), "postgres") as one:
        steps = named(operate(["clone"], one))
        filesystems.verify_files(one.setup, [one.datadir / "PG_VERSION"])
    assert steps["clone by reflink: create"].seconds is not None


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres")
def test_no_room_for_a_copy(filled: Filling) -> None:
    """A filesystem that is too full for a second set of bytes is left as it is."""
    with filled(plainly("ext4"), "postgres") as one:
        free = os.statvfs(one.fs.path).f_bavail * os.statvfs(one.fs.path).f_frsize
        fd = os.open(one.fs.path / "ballast", os.O_WRONLY | os.O_CREAT)
        os.posix_fallocate(fd, 0, free - 30 * MIB)
        os.close(fd)
        steps = named(operate(["clone"], one))
    assert "is free" in steps["clone by copy"].text


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs")
def test_another_device(
    filled: Filling,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """btrfs: after the balance data lies on both devices; both are let go of at the end."""
    second = tmp_path / "second"
    second.touch()
    os.truncate(second, 512 * MIB)
    with (
        loop.attach(second) as spare,
        filled(plainly("btrfs"), device=replace(loop_device, spare=spare)) as one,
    ):
        for number in range(3):
            (one.datadir / f"t{number}").write_bytes(os.urandom(24 * MIB))
        before = _allocated(one.fs.path)
        steps = named(operate(["grow", "fsck"], one))
        after = _allocated(one.fs.path)
    assert list(before) == [str(loop_device.path)]
    assert set(after) == {str(loop_device.path), str(spare.path)}
    assert all(after.values())
    assert steps["grow: add device"].text == "2 devices"
    assert "relocate" in steps["grow: rebalance"].text and "larger" in steps["grow: rebalance"].text


def _subvolumes(at: Path) -> set[str]:
    said = process.run(["btrfs", "subvolume", "list", at]).stdout
    return {line.split(" path ")[1] for line in said.splitlines()}


def _allocated(at: Path) -> dict[str, int]:
    """Bytes of chunks on each device."""
    said = process.run(["btrfs", "filesystem", "show", "--raw", at]).stdout
    rows = [line.split() for line in said.splitlines() if line.strip().startswith("devid")]
    return {row[7]: int(row[5]) for row in rows}


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "fs:btrfs", "engine:postgres", "sadf")
def test_a_trial_with_a_past_and_operations(dbbench: Any) -> None:
    """The plan's own words: ageing before the restore, operations after the load, in result, `show`
    and page.
    """
    server = {"name": "postgres", "settings": {"shared_buffers": "32MB"}}
    text = plan(
        "btrfs",
        server,
        {"name": "pgbench-select-only", "scale": 1},
        warmup="0s",
        measure="4s",
        operations=["fsck", "snapshot", "clone", "grow"],
        age={"fill": 0.3, "churn": 0.5},
        device={"size": "576MiB", "count": 2},
    )
    trial = dbbench.trial(text, "--progress", "none")
    phases = [phase["name"] for phase in trial["phases"]]
    assert phases.index("age") == phases.index("restore") - 1
    assert phases[-1] == "operations"
    assert trial["age"]["filled"] == pytest.approx(0.35, abs=0.07)
    assert len(trial["age"]["after"]) > len(trial["age"]["before"])
    words = {step["name"].split(":")[0] for step in trial["operations"]}
    assert words == {"fsck", "snapshot", "clone by reflink", "clone by copy", "grow"}
    assert not [step for step in trial["operations"] if step["failed"] or step["seconds"] is None]
    assert "W030" not in {warning["id"] for warning in trial["warnings"]}
    shown = dbbench("show", "r", trial["id"]).stdout
    assert "aged by seed 1" in shown and "snapshot: start a server" in shown
    page = (dbbench.folder / "results/r/report.html").read_text()
    assert "clone by reflink: create" in page and "mean free extent after ageing" in page
