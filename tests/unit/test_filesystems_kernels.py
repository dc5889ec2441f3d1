"""What this kernel and these tools can make of a setup, and the commands that make it."""

from pathlib import Path

import pytest

from dbbench.errors import KernelLacks
from dbbench.model import FsSetup, Mkfs, Volume
from dbbench.storage import filesystems
from dbbench.storage.filesystems import btrfs, ext, families, xfs
from dbbench.storage.filesystems.common import PAGE_BYTES
from tests.support.files import write_file
from tests.support.setups import setup_of

EXT4 = ext.FAMILIES[-1]
LARGE = 4 * PAGE_BYTES  # a size of blocks


@pytest.mark.starts_processes  # mkfs and modprobe that do nothing
def test_a_setup_says_why_it_cannot_work_here(programs: Path, tmp_path: Path) -> None:
    """Unknown family, missing programs with their package, a kernel without it."""
    write_file(tmp_path / "proc/filesystems", "nodev\tproc\n\text4\n")
    (programs / "apt-get").touch(0o755)
    assert "unknown family 'vfat'" in str(filesystems.works(setup_of("vfat")))
    assert filesystems.install(setup_of("xfs")) == ("xfsprogs",)
    reasons = str(filesystems.works(setup_of("xfs"), tmp_path))
    assert (
        "not installed: apt-get install xfsprogs" in reasons and "this kernel has no xfs" in reasons
    )
    for name in (
        *families.FAMILIES["xfs"].programs(setup_of("xfs")),
        *EXT4.programs(setup_of("ext4")),
        "mount",
    ):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    assert str(filesystems.works(setup_of("xfs"), tmp_path)).startswith("this kernel has no xfs")
    assert filesystems.works(setup_of("ext4"), tmp_path) is None


def test_commands_are_what_a_person_would_type() -> None:
    """mkfs gets all devices; mount gets the first, and the others as options. tune2fs runs between
    mkfs and mount, chattr after it; volumes are subvolumes with properties and attributes.
    """
    setup = setup_of("btrfs", "noatime", mkfs=("-d", "raid1"))
    mkfs, mount = filesystems.commands(setup, ("/dev/a", "/dev/b", "/dev/c"), "/m")
    assert mkfs[-3:] == ("/dev/a", "/dev/b", "/dev/c")
    assert mount[-3:] == ("noatime,nodiscard,device=/dev/b,device=/dev/c", "/dev/a", "/m")
    tuned = FsSetup(
        title="t",
        mkfs=Mkfs("ext4", tune=("-o", "journal_data_writeback")),
        attributes=("+A",),
    )
    words = [" ".join(argv) for argv in filesystems.commands(tuned, ("/dev/a",), "/m")]
    assert words[1] == "tune2fs -o journal_data_writeback /dev/a"
    assert words[3:] == ["mkdir /m/data", "chattr +A /m/data"]
    assert "tune2fs" in EXT4.programs(tuned)
    volumes = {"data": Volume(("compression=zstd",)), "wal": Volume((), ("+C",))}
    setup = FsSetup(title="t", mkfs=Mkfs("btrfs"), volumes=volumes)
    assert [" ".join(argv) for argv in btrfs.FAMILY.volume_commands(setup, Path("/m"))] == [
        "btrfs subvolume create /m/data",
        "btrfs property set /m/data compression zstd",
        "btrfs subvolume create /m/wal",
        "chattr +C /m/wal",
    ]
    assert btrfs.FAMILY.programs(setup) == ("mkfs.btrfs", "btrfs", "chattr")


@pytest.mark.parametrize(
    ("release", "lack"),
    [
        (
            "6.1.0-28-amd64",
            f"{LARGE} bytes, above the page size of {PAGE_BYTES}, need Linux 6.12; this is "
            "6.1.0-28-amd64",
        ),
        ("6.12.9", "None"),
    ],
)
def test_blocks_of_xfs_above_the_page_size_need_a_kernel_for_them(
    release: str,
    lack: str,
    tmp_path: Path,
) -> None:
    """From 6.12 on. A machine with large pages needs no large blocks."""
    write_file(tmp_path / "proc/sys/kernel/osrelease", f"{release}\n")
    assert lack in str(xfs.FAMILY.lacks(setup_of("xfs", mkfs=("-b", f"size={LARGE}")), tmp_path))
    assert xfs.FAMILY.lacks(setup_of("xfs", mkfs=("-b", f"size={PAGE_BYTES}")), tmp_path) is None
    assert xfs.FAMILY.lacks(setup_of("xfs", mkfs=("-m", "reflink=0")), tmp_path) is None


@pytest.mark.skipif(PAGE_BYTES != 4096, reason="needs a page size of 4096")
@pytest.mark.parametrize(
    ("option", "sector_bytes"),
    [("size=16k", 16384), ("size=64k", 16384), ("size=8k", 8192), ("size=4096", 0), ("", 0)],
)
def test_a_loop_device_below_large_blocks_has_large_sectors(option: str, sector_bytes: int) -> None:
    """As large as the blocks, but not larger than InnoDB's pages; below small blocks they are the
    driver's.
    """
    assert (
        xfs.FAMILY.sector_bytes(setup_of("xfs", mkfs=("-b", option) if option else ()))
        == sector_bytes
    )
    assert EXT4.sector_bytes(setup_of("ext4", mkfs=("-b", "16384"))) == 0


def test_blocks_of_ext4_above_the_page_size_need_a_kernel_with_this_feature(tmp_path: Path) -> None:
    """mkfs then needs an option that says so."""
    large, small = (setup_of("ext4", mkfs=("-b", str(size))) for size in (LARGE, PAGE_BYTES))
    needed = f"{LARGE} bytes, above the page size of {PAGE_BYTES}, need ext4 of Linux 6.19"
    assert needed in str(EXT4.lacks(large, tmp_path))
    assert EXT4.lacks(small, tmp_path) is None
    write_file(tmp_path / "sys/fs/ext4/features/blocksize_gt_pagesize", "supported")
    assert EXT4.lacks(large, tmp_path) is None
    assert "-F" in filesystems.commands(large, ("/dev/a",), "/m")[0]
    assert "-F" not in filesystems.commands(small, ("/dev/a",), "/m")[0]


def test_a_checksum_that_the_kernel_does_not_know_is_named(tmp_path: Path) -> None:
    """By what its btrfs lists; without a list nothing speaks against it."""
    blake = setup_of("btrfs", mkfs=("--csum", "blake2"))
    assert btrfs.FAMILY.lacks(blake, tmp_path) is None
    write_file(tmp_path / "sys/fs/btrfs/features/supported_checksums", "crc32c xxhash64\n")
    assert "no checksum blake2 (it has crc32c, xxhash64)" in str(
        btrfs.FAMILY.lacks(blake, tmp_path)
    )
    assert btrfs.FAMILY.lacks(setup_of("btrfs", mkfs=("--csum", "xxhash")), tmp_path) is None


def test_what_the_driver_says_of_journal_and_mode(tmp_path: Path) -> None:
    """From the ext4 driver's own list; a kernel with an ext2 driver of its own has none, and no
    journal.
    """
    options = write_file(tmp_path / "fs/ext4/loop7/options", "rw\ndata=writeback\n")
    assert EXT4.live("loop7", tmp_path) == {"has_journal": True, "data_mode": "writeback"}
    options.write_text("rw\nbarrier\n")
    assert EXT4.live("loop7", tmp_path)["has_journal"] is False
    table = write_file(tmp_path / "self/mountinfo", "95 27 7:8 / /m rw - ext2 /dev/loop8 rw\n")
    assert EXT4.live("loop8", tmp_path) == {"has_journal": False}
    table.write_text("95 27 7:8 / /m rw - ext4 /dev/loop8 rw\n")
    with pytest.raises(KernelLacks):
        EXT4.live("loop8", tmp_path)
