import os
import random
from pathlib import Path
from typing import Final

import pytest

from dbbench import process
from dbbench.datasets import manifest, restore_copy
from dbbench.datasets.manifest import Golden, Manifest
from dbbench.errors import FilesystemFull
from dbbench.model import Dataset, FsSetup, Mkfs
from dbbench.process import User
from dbbench.storage import filesystems
from dbbench.storage.devices.port import Device

NOBODY: Final = User("nobody", 65534, 65534)
SIZE: Final = 48 * 2**20
# what a full filesystem has left: less than SIZE, more than its own metadata needs
MARGIN: Final = 24 * 2**20

EXT4: Final = FsSetup("ext4", Mkfs("ext4"), mount=("noatime",))
BTRFS: Final = FsSetup("btrfs", Mkfs("btrfs"), mount=("noatime",))
ZSTD: Final = FsSetup("btrfs-zstd", Mkfs("btrfs"), mount=("noatime", "compress-force=zstd"))
XFS: Final = FsSetup("xfs", Mkfs("xfs"), mount=("noatime",))


@pytest.fixture
def made(tmp_path: Path) -> Golden:
    """A golden copy of 48 MiB that does not compress, with an empty folder."""
    folder = tmp_path / "copy"
    data = folder / "data"
    (data / "base" / "1").mkdir(parents=True)
    (data / "pg_tblspc").mkdir()
    rng = random.Random(3)
    for number in range(6):
        (data / "base" / "1" / str(16384 + number)).write_bytes(rng.randbytes(SIZE // 6))
    for number in range(200):
        (data / "base" / "1" / f"{number}_vm").write_bytes(rng.randbytes(8192))
    (data / "postgresql.auto.conf").touch(0o600)
    entries = manifest.scan(data, 2)
    total = sum(entry.size for entry in entries)
    whole = Manifest("copy", Dataset("none"), total, 1.0, entries)
    manifest.save(folder, whole)
    return Golden(folder, whole)


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "setup",
    [
        pytest.param(
            setup, marks=pytest.mark.needs(f"mkfs.{setup.mkfs.family}", f"fs:{setup.mkfs.family}")
        )
        for setup in (EXT4, XFS, BTRFS, ZSTD)
    ],
    ids=lambda setup: setup.title,
)
def test_the_same_bytes_on_every_filesystem(
    setup: FsSetup,
    made: Golden,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """Names, bytes, modes and owners are there after the filesystem was mounted anew, read from the
    device.
    """
    filesystems.make(setup, loop_device)
    with filesystems.mount(setup, loop_device, tmp_path / "mnt") as fs:
        found = restore_copy(made, fs.path / "data", NOBODY)
    with filesystems.mount(setup, loop_device, tmp_path / "mnt") as fs:
        data = fs.path / "data"
        assert manifest.scan(data, 2) == made.manifest.entries
        process.run(["diff", "--recursive", "--no-dereference", made.data, data])
        owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in [data, *data.rglob("*")]}
        assert owners == {(NOBODY.uid, NOBODY.gid)}
        assert data.stat().st_mode & 0o777 == 0o700
    assert found.bytes == made.manifest.logical_bytes


def _fill(path: Path) -> None:
    """Leave MARGIN bytes free on the filesystem."""
    found = os.statvfs(path)
    with (path / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - MARGIN)
        os.fsync(file.fileno())


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_too_little_space_is_reported_before_anything_is_written(
    made: Golden,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """What is needed and what is free stand in the error, and the data directory stays empty."""
    filesystems.make(EXT4, loop_device)
    with filesystems.mount(EXT4, loop_device, tmp_path / "mnt") as fs:
        _fill(fs.path)
        with pytest.raises(
            FilesystemFull, match=rf"free before .* needs {made.manifest.logical_bytes // 2**20}"
        ):
            restore_copy(made, fs.path / "data", NOBODY)
        assert list((fs.path / "data").iterdir()) == []


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs")
def test_a_filesystem_that_gets_full_on_the_way_is_reported(
    made: Golden,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """Where nobody can know before (compression), the error in the middle is the same error, not a
    wrong copy.
    """
    filesystems.make(ZSTD, loop_device)
    with filesystems.mount(ZSTD, loop_device, tmp_path / "mnt") as fs:
        _fill(fs.path)
        with pytest.raises(FilesystemFull, match=r"free during the restore"):
            restore_copy(made, fs.path / "data", NOBODY)
