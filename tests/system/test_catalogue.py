"""Every setup of the catalogue is made, mounted, filled, measured and removed.

Other families and layers are tested in other files. New setups of ext*, xfs or btrfs are
included automatically.
"""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.model import FsSetup, Mkfs
from dbbench.storage import filesystems
from dbbench.storage.devices import image, queue_attributes
from dbbench.storage.filesystems import btrfs, common, families, shape
from tests.support.setups import (
    ADDED,
    ALL,
    SIZE,
    attached,
    commit,
    fill,
    flushes,
    left,
    of_postgres,
    setup_named,
    shipped,
)

MIB: Final = 2**20
NAMES: Final = [
    name
    for name in (*ALL.setups, *ADDED)
    if not (setup := setup_named(name)).layers
    and setup.mkfs.family in ("ext2", "ext3", "ext4", "xfs", "btrfs")
]
# One setup for each family and each class of option; the others are made in `make test-all`.
CLASSES: Final = (
    "ext2",
    "ext3",
    "ext4",
    "ext4-nobarrier",
    "ext4-nojournal",
    "ext4-writeback",
    "ext4-bigalloc",
    "xfs",
    "xfs-16k",
    "xfs-noreflink",
    "xfs-allocsize",
    "btrfs",
    "btrfs-zstd",
    "btrfs-nodatacow",
    "btrfs-nocow-attr",
    "btrfs-raid1",
    "btrfs-nobarrier",
    "btrfs-xxhash",
    "btrfs-volumes",
    "btrfs-discard",
)
EVERY: Final = [
    pytest.param(name, marks=() if name in CLASSES else pytest.mark.long) for name in NAMES
]
# What the kernel shows of an option that it does not show as it was given. "": nothing at all.
SHOWN: Final = {
    "barrier=0": "nobarrier",
    "strictatime": "",
    "allocsize=64m": "allocsize=65536k",
    "compress=zlib": "compress=zlib:3",
    "compress=zstd": "compress=zstd:3",
    "compress-force=zstd": "compress-force=zstd:3",
    "space_cache=v1": "space_cache",
}
FLAGS: Final = {
    "ext2": {"no-journal"},
    "ext4-nojournal": {"no-journal"},
    "ext4-nobarrier": {"no-barrier"},
    "btrfs-nobarrier": {"no-barrier"},
}
IN_PLACE: Final = {"btrfs-nodatacow", "btrfs-nocow-attr"}  # of btrfs: these overwrite data
# What the family's own tool must read back from the device where the setup asks mkfs for it.
GEOMETRY: Final[dict[str, dict[str, object]]] = {
    "ext4-bigalloc": {"cluster_size": 65536},
    "ext4-nojournal": {"has_journal": False},
    "ext2": {"has_journal": False},
    "ext4": {"has_journal": True, "uninitialised_groups": 0, "block_size": 4096},
    "xfs-16k": {"block_size": 16384},
    "xfs-noreflink": {"reflink": False},
    "xfs": {"reflink": True, "agcount": 4},
    "btrfs": {
        "nodesize": 16384,
        "data_profile": "single",
        "metadata_profile": "DUP",
        "checksum": "crc32c",
    },
    "btrfs-nodesize-4k": {"nodesize": 4096},
    "btrfs-nodesize-32k": {"nodesize": 32768},
    "btrfs-metadata-single": {"metadata_profile": "single"},
    "btrfs-xxhash": {"checksum": "xxhash64"},
    "btrfs-sha256": {"checksum": "sha256"},
    "btrfs-blake2": {"checksum": "blake2"},
    "btrfs-raid0": {"data_profile": "RAID0", "metadata_profile": "RAID0", "devices": 2},
    "btrfs-raid1": {"data_profile": "RAID1", "metadata_profile": "RAID1", "devices": 2},
    "btrfs-raid10": {"data_profile": "RAID10", "metadata_profile": "RAID10", "devices": 4},
}


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", EVERY)
def test_every_setup_is_what_it_says(name: str, tmp_path: Path) -> None:
    """Made, mounted, read back, claimed rightly, in force on files, flushing as its class says,
    measured, and gone.
    """
    setup = shipped(name)
    flags = FLAGS.get(name, set())
    sector_bytes = filesystems.family_of(setup).sector_bytes(setup)
    with attached(tmp_path, setup.devices.min, sector_bytes) as device:
        made = filesystems.make(setup, device)
        assert {str(member.path) for member in device.each} <= set(made.argv[0])
        assert len(made.uuid) == 36
        assert made.geometry.items() >= GEOMETRY.get(name, {}).items()
        if sector_bytes:
            assert (
                str(made.geometry["sector_size"])
                == queue_attributes(device.leaves[0])["logical_block_size"]
            )
        with filesystems.mount(setup, device, tmp_path / "mnt") as fs:
            asked = {SHOWN.get(option, option) for option in fs.options_asked} - {"", "nodiscard"}
            assert {"rw", *asked} <= set(fs.options_effective)
            online = "discard" in str(setup.mount)
            assert online or not [
                option for option in fs.options_effective if option.startswith("discard")
            ]
            assert {flag.value for flag in fs.flags} == flags
            filesystems.check_promise(setup, fs)
            assert fs.tears is (setup.mkfs.family != "btrfs" or name in IN_PLACE)
            assert fs.read_ahead_kb
            datadir = filesystems.data_directory(setup, fs)
            filesystems.apply_attributes(setup, datadir)
            files = fill(datadir)
            filesystems.sync(fs.path)
            filesystems.verify_files(setup, files)
            before = flushes(device)
            commit(datadir / "log")
            flushed = flushes(device) - before
            assert flushed == 0 if "no-barrier" in flags else flushed >= 20
            assert shape.healthy(fs) is None
            space = shape.space(fs, 3 * MIB)
            assert space.disk_bytes and space.free_bytes
            assert space.disk_bytes + space.free_bytes <= len(device.each) * SIZE
            shrinks = families.compression(setup) is not None
            assert (space.compression_ratio or 0) > 2 if shrinks else not space.compression_ratio
        for member in device.each:
            os.close(os.open(member.path, os.O_RDONLY | os.O_EXCL))
    assert left(tmp_path) == []


@pytest.mark.needs("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs", "tune2fs")
@pytest.mark.parametrize(
    ("family", "mkfs", "tune", "said"),
    [
        ("ext4", ("-O", "no_such_feature"), (), "no_such_feature"),
        ("ext4", (), ("-o", "no_such_mode"), "no_such_mode"),
        ("xfs", ("-m", "nosuch=1"), (), "status 1: unknown option -m nosuch=1"),
        ("xfs", ("-b", "size=3000"), (), "3000"),
        ("btrfs", ("--csum", "md5"), (), "no checksum md5"),
        ("btrfs", ("-O", "no-such-feature"), (), "no-such-feature"),
        ("btrfs", ("-d", "raid10", "-m", "raid10"), (), "RAID10"),  # of one device
        ("xfs", (), ("-U", "generate"), "xfs cannot be tuned"),
    ],
)
def test_what_mkfs_here_does_not_know_is_reported_before_a_run(
    family: str,
    mkfs: tuple[str, ...],
    tune: tuple[str, ...],
    said: str,
) -> None:
    """In the program's or the kernel's own words, without root, and nothing is left of the
    attempt.
    """
    before = set(Path("/dev/shm").glob("dbbench-mkfs-*"))
    reason = filesystems.works(FsSetup(title="t", mkfs=Mkfs(family, mkfs, tune=tune)))
    assert said.lower() in str(reason).lower()
    assert "usage" not in str(reason).lower()  # mkfs.xfs prints it after the reason
    # also those of other tests, which are in use
    new = set(Path("/dev/shm").glob("dbbench-mkfs-*")) - before
    assert not process.wait_while(lambda: [path for path in new if path.exists()], 60)


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "tune2fs")
def test_a_default_of_the_superblock_is_read_from_the_kernel(tmp_path: Path) -> None:
    """Of a mode that no mount option names the mount table says nothing: the driver's own list
    does.
    """
    for name, mode in (
        ("ext4", "ordered"),
        ("ext4-writeback", "writeback"),
        ("ext4-writeback-default", "writeback"),
    ):
        setup = shipped(name)
        with attached(tmp_path, 1) as device:
            made = filesystems.make(setup, device)
            assert (
                "journal_data_writeback" in str(made.geometry["default_mount_options"])
            ) is bool(setup.mkfs.tune)
            with filesystems.mount(setup, device, tmp_path / "mnt") as fs:
                assert fs.tunables == {"has_journal": True, "data_mode": mode}


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs", "chattr")
def test_volumes_have_options_of_their_own(tmp_path: Path) -> None:
    """Data is compressed and copied on write, the log beside it neither: one filesystem, two
    subvolumes.
    """
    setup = shipped("btrfs-volumes")
    with attached(tmp_path, 1) as device:
        filesystems.make(setup, device)
        with filesystems.mount(setup, device, tmp_path / "mnt") as fs:
            datadir = filesystems.data_directory(setup, fs)
            wal = filesystems.log_directory(setup, {"data": fs})
            assert wal is not None and wal.is_dir() and datadir.stat().st_dev != wal.stat().st_dev
            assert datadir.stat().st_mode & 0o777 == 0o700
            (data,), (log,) = fill(datadir, 1), fill(wal, 1)
            filesystems.sync(fs.path)
            family = families.family_in(fs)
            assert family.has_compression([data]) and not family.has_compression([log])
            assert common.inode_flags(log) & image.NOCOW_FL
            assert not common.inode_flags(data) & image.NOCOW_FL
            assert fs.tears is False
            assert "compression=zstd" in fs.options_effective
            assert (shape.space(fs, MIB).compression_ratio or 0) > 1.5


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs")
def test_several_devices_are_mounted_without_a_scan_and_forgotten(tmp_path: Path) -> None:
    """The kernel knows the members from the mount alone, and has no name of them left when they are
    given back.
    """
    setup = shipped("btrfs-raid1")
    with attached(tmp_path, 2) as device:
        made = filesystems.make(setup, device)
        btrfs.FAMILY.forget(device.each)
        with filesystems.mount(setup, device, tmp_path / "mnt") as fs:
            assert btrfs.FAMILY.members(fs.path) == {member.path.name for member in device.each}
        assert not Path(f"/sys/fs/btrfs/{made.uuid}").exists()
        single = ALL.setup("btrfs")
        # a name that were still known would be taken for a member
        filesystems.make(single, device.each[1])
        with filesystems.mount(single, device.each[1], tmp_path / "mnt") as fs:
            assert btrfs.FAMILY.members(fs.path) == {device.each[1].path.name}


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs", "engine:postgres", "sadf")
def test_killed_at_a_random_step_several_devices_are_given_back(dbbench: Any) -> None:
    """SIGKILL in some phase of a trial on four devices: no mount, loop device or image of it stays,
    and it resumes.
    """
    dbbench.plan(of_postgres("btrfs-raid10", size="320MiB", count=4))
    phase = random.Random(os.urandom(4)).choice(
        ["mkfs", "mount", "restore", "settle", "warmup", "drain", "space"]
    )
    seen: list[str] = []

    def at(event: dict[str, Any]) -> bool:
        seen.append(str(event))
        return event["kind"] == "phase_begin" and event.get("phase") == phase

    def kill(pid: int) -> None:
        time.sleep(random.uniform(0, 0.3))
        os.kill(pid, signal.SIGKILL)

    status, _ = dbbench.run_and("plan.toml", at, kill)
    # On a busy machine the run may end before this process kills it in one of its last phases.
    assert status == -signal.SIGKILL or (status == 0 and phase in ("drain", "space")), (phase, seen)
    deadline = time.monotonic() + 60
    while left(dbbench.folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left(dbbench.folder) == [], phase
    trial = dbbench.trial()
    assert trial["status"] != "failed"
    assert len(trial["device"]["members"]) == 4
    assert trial["io"]["flushes"] >= trial["summary"]["transactions"]  # of all four disks
    assert left(dbbench.folder) == []
    assert list(dbbench.folder.rglob("*.img")) == []
