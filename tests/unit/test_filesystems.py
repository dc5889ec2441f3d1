"""Families of filesystems: commands, parsers on recorded output of the real tools, flags."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import packages
from dbbench.errors import AnswerUnknown, SetupNotInForce
from dbbench.model import Durability, FsSetup, Mkfs, Volume
from dbbench.plan import catalog
from dbbench.storage import filesystems
from dbbench.storage.filesystems import btrfs, ext, f2fs, families, shape, xfs
from dbbench.storage.filesystems.formatted import Formatted
from tests.support.setups import setup_of

FIXTURES = Path(__file__).parent.parent / "fixtures/filesystems"
EXT4 = ext.FAMILIES[-1]
SHIPPED = sorted(catalog.catalog().setups)


def recorded(name: str) -> str:
    """What a tool printed."""
    return (FIXTURES / name).read_text()


def test_the_catalogue_has_the_setups_that_are_promised() -> None:
    """The setups that plans and documents name are there."""
    assert {
        "ext4",
        "ext4-nobarrier",
        "ext4-writeback",
        "ext3",
        "xfs",
        "xfs-64k",
        "btrfs",
        "btrfs-lzo",
        "btrfs-zstd",
        "btrfs-nodatacow",
        "btrfs-nobarrier",
        "btrfs-nocow-attr",
    } <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_setup_is_complete(name: str) -> None:
    """Its family is known, it has a title, leaves out access times, and a package has each program
    that it needs. Several devices are for a layer, a pool or btrfs; ext and xfs take one.
    """
    setup = catalog.catalog().setup(name)
    assert setup.mkfs.family in families.FAMILIES
    assert setup.title
    able = setup.layers or setup.mkfs.family in ("btrfs", "zfs", "raw")
    assert 1 <= setup.devices.min <= setup.devices.max and (able or setup.devices.max == 1)
    if setup.mkfs.family != "raw":  # nothing is mounted, nothing is needed
        assert {"noatime", "atime=off"} & set(setup.mount)
        assert all(map(packages.package_of, families.FAMILIES[setup.mkfs.family].programs(setup)))


@pytest.mark.parametrize("name", SHIPPED)
def test_no_setup_discards(name: str) -> None:
    """Neither mkfs nor the mounted filesystem gives blocks of the image back."""
    setup = catalog.catalog().setup(name)
    family = families.FAMILIES[setup.mkfs.family]
    if not isinstance(family, Formatted):
        words = [word for argv in family.commands(setup, ("/dev/x",), "/m") for word in argv]
        # off unless it is asked for
        assert any("autotrim" in word for word in words) == name.endswith("-autotrim")
        return
    argv = family.mkfs_argv(setup, ("/dev/x",))
    # f2fs
    assert "-K" in argv or any("nodiscard" in word for word in argv) or argv[:5][-2:] == ["-t", "0"]
    said = family.mount_options(setup)
    # the explicit variants, which are left alone
    assert "nodiscard" in said or name.endswith("-discard")


def test_extended_options_of_ext_are_one_word() -> None:
    """mke2fs uses only the last -E, so dbbench's and the setup's are joined; those of the setup
    win.
    """
    argv = EXT4.mkfs_argv(
        setup_of("ext4", mkfs=("-O", "^has_journal", "-E", "stride=16,lazy_itable_init=1")),
        ("/dev/x",),
    )
    assert argv.count("-E") == 1
    words = argv[argv.index("-E") + 1].split(",")
    assert words[:3] == ["lazy_itable_init=0", "lazy_journal_init=0", "nodiscard"]
    assert words[3:] == ["stride=16", "lazy_itable_init=1"]
    assert argv[-1] == "/dev/x"
    assert argv[1:4] == ["-q", "-O", "^has_journal"]


def test_geometry_of_f2fs() -> None:
    """Blocks, segments and what is kept for cleaning, from dump.f2fs."""
    assert f2fs.parse_dump(recorded("dump.f2fs.txt")) == {
        "block_size": 4096,
        "blocks": 102400,
        "sector_size": 512,
        "segment_bytes": 2 * 2**20,
        "segments": 192,
        "segments_per_section": 1,
        "overprovisioned_segments": 44,
        "features": "",
    }


@pytest.mark.parametrize(
    ("options", "dropped"),
    [
        ("rw,lazytime,flush_merge,barrier,fsync_mode=posix", False),
        ("rw,barrier,fsync_mode=strict", False),
        ("rw,nobarrier,fsync_mode=posix", True),
        ("rw,barrier,fsync_mode=nobarrier", True),
        ("rw,barrier,checkpoint=disable:0,fsync_mode=posix", True),
    ],
)
def test_f2fs_flushes_unless_an_option_says_otherwise(options: str, dropped: bool) -> None:
    """The kernel shows `barrier` and `nobarrier`; fsync_mode and checkpoints can drop what they
    promise.
    """
    assert f2fs.FAMILY.flags(tuple(options.split(",")), {}) == (
        (Durability.NO_BARRIER,) if dropped else ()
    )


@pytest.mark.parametrize("version", ["1.47.0", "1.47.2"])
def test_geometry_of_ext(version: str) -> None:
    """Sizes, journal and groups whose inode tables are not yet written, from dumpe2fs, which prints
    kibibytes with a small letter, mebibytes with a large one.
    """
    printed = recorded(f"dumpe2fs-ext4-{version}.txt")
    found = ext.parse_dumpe2fs(printed)
    assert (found["block_size"], found["blocks"], found["journal_bytes"]) == (
        4096,
        262144,
        32 * 2**20,
    )
    assert (found["has_journal"], found["groups"], found["uninitialised_groups"]) == (True, 8, 0)
    small = re.sub(r"(Total journal size: +)\S+", r"\g<1>4096k", printed)
    assert ext.parse_dumpe2fs(small)["journal_bytes"] == 4096 * 1024
    lazy = ext.parse_dumpe2fs(recorded("dumpe2fs-lazy-nojournal.txt"))
    assert (lazy["has_journal"], lazy["uninitialised_groups"]) == (
        False,
        8,
    ) and "journal_bytes" not in lazy


@pytest.mark.parametrize(
    ("version", "newer", "features"),
    [
        ("6.1.0", False, "crc finobt sparse bigtime inobtcount"),
        ("6.13.0", True, "crc finobt sparse rmapbt reflink bigtime inobtcount nrext64"),
        (
            "7.2.0",
            True,
            "crc finobt sparse rmapbt reflink bigtime inobtcount nrext64 exchange parent",
        ),
    ],
)
def test_geometry_of_xfs(version: str, newer: bool, features: str) -> None:
    """Allocation groups, log and features, from xfs_info; the newer ones make reverse mappings and
    reflinks.
    """
    found = xfs.parse_xfs_info(recorded(f"xfs_info-{version}.txt"))
    assert (found["agcount"], found["ag_bytes"], found["log_bytes"]) == (
        4,
        65536 * 4096,
        16384 * 4096,
    )
    assert (found["reflink"], found["rmapbt"], found["crc"]) == (newer, newer, True)
    assert found["features"] == features


@pytest.mark.parametrize("version", ["6.2", "6.14", "7.3"])
def test_geometry_of_btrfs(version: str) -> None:
    """Node size, checksum and features from dump-super, profiles from the chunk tree; the
    compression ratio from compsize's total, not from its rounded percentages.
    """
    found = btrfs.parse_super(recorded(f"btrfs-dump-super-{version}.txt"))
    assert (found["nodesize"], found["sector_size"], found["checksum"]) == (16384, 4096, "crc32c")
    assert "NO_HOLES" in str(found["features"]).split()
    assert len(str(found["uuid"])) == 36
    assert btrfs.parse_chunks(recorded(f"btrfs-dump-tree-chunk-{version}.txt")) == {
        "data_profile": "single",
        "system_profile": "DUP",
        "metadata_profile": "DUP",
    }
    assert btrfs.parse_compsize(recorded("compsize.txt")) == pytest.approx(25165824 / 4849664)


@pytest.mark.parametrize(
    ("parse", "name", "cut"),
    [
        (ext.parse_dumpe2fs, "dumpe2fs-ext4-1.47.2.txt", "Total journal size: "),
        (ext.parse_dumpe2fs, "dumpe2fs-ext4-1.47.2.txt", "Group "),
        (xfs.parse_xfs_info, "xfs_info-7.2.0.txt", "reflink="),
        (btrfs.parse_super, "btrfs-dump-super-7.3.txt", "incompat_flags"),
        (btrfs.parse_chunks, "btrfs-dump-tree-chunk-7.3.txt", "METADATA|"),
        (btrfs.parse_compsize, "compsize.txt", "TOTAL "),
    ],
)
def test_a_tool_that_leaves_a_line_out_is_not_understood(
    parse: Callable[[str], object],
    name: str,
    cut: str,
) -> None:
    """What a version no longer prints is an error that names the tool, never a fact that is
    silently missing.
    """
    with pytest.raises(AnswerUnknown, match="could not be parsed"):
        parse(recorded(name).replace(cut, "another "))


@pytest.mark.parametrize(
    ("options", "algorithm"),
    [
        ("noatime,compress=zstd:3", "zstd"),
        ("compress=lzo,compress-force=zlib", "zlib"),
        ("compress", "zlib"),
        ("compress=none", None),
        ("noatime,nodatacow", None),
        ("compress=zstd:-5", "zstd"),
        ("compress=lzo,compression=zstd", "zstd"),  # a property of the data volume
    ],
)
def test_the_algorithm_is_the_last_that_is_named(options: str, algorithm: str | None) -> None:
    """As the kernel reads its options."""
    assert btrfs.FAMILY.compresses(tuple(options.split(","))) == algorithm


@pytest.mark.parametrize(
    ("family", "options", "mode", "expected"),
    [
        ("ext4", "-O bigalloc -C 16384", "ordered", 16384),
        ("ext4", "-O bigalloc,fast_commit -C 16k", "ordered", 16384),
        ("ext4", "-O bigalloc -C 16384", "journal", 0),
        ("ext4", "-C 16384", "ordered", 0),
        ("ext4", "-b 65536", "ordered", 65536),
        ("xfs", "-b size=16k", None, 16384),
        ("xfs", "", None, 0),
        ("btrfs", "-b 16384", None, 0),  # the size of the filesystem
    ],
)
def test_the_unit_of_direct_writes_is_what_mkfs_was_asked_for(
    family: str,
    options: str,
    mode: str | None,
    expected: int,
) -> None:
    """A block, or a cluster of ext4 with bigalloc; 0: not known, or no direct I/O."""
    setup = setup_of(family, mkfs=tuple(options.split()))
    module = filesystems.FAMILIES[family]
    assert isinstance(module, Formatted)
    assert module.unit_bytes(setup, {} if mode is None else {"data_mode": mode}) == expected


def test_traits_are_what_the_options_say() -> None:
    """Copy-on-write, compression and snapshots for `dbbench fs`; an attribute or a property may be
    that of the data volume. Compression lets the device deliver less than nearly all of a
    sample: what the best one leaves of it.
    """
    volumes = {"data": Volume(("compression=zstd",)), "wal": Volume()}
    zstd = FsSetup(title="t", mkfs=Mkfs("btrfs"), volumes=volumes)
    nocow = FsSetup(title="t", mkfs=Mkfs("btrfs"), volumes={"data": Volume((), ("+C",))})
    for setup, traits in (
        (setup_of("btrfs", "compress=lzo"), (True, "lzo")),
        (setup_of("btrfs", attributes=("+C",)), (False, None)),
        (setup_of("xfs"), (False, None)),
        (zstd, (True, "zstd")),
        (nocow, (False, None)),
    ):
        assert (families.copies_on_write(setup), families.compression(setup)) == traits
    family = filesystems.family_of(zstd)
    assert family.tears_pages_of(nocow, 8192) and not family.tears_pages_of(zstd, 8192)
    assert shape.least_read_share(mounted_with("xfs")) == 0.9
    assert shape.least_read_share(mounted_with("btrfs", "compress=zstd:3")) == pytest.approx(
        0.9 / 32
    )


def mounted_with(
    family: str, *effective: str, flags: tuple[Durability, ...] = ()
) -> filesystems.Mounted:
    """A mounted filesystem of which the kernel shows these options."""
    return filesystems.Mounted(Path("/mnt"), family, (), effective, None, flags, tears=True)


def test_a_promise_that_is_not_the_kernels_is_an_error() -> None:
    """To promise less than is effective is as wrong as to promise more."""
    without = mounted_with("ext4", "rw", "nobarrier", flags=(Durability.NO_BARRIER,))
    with pytest.raises(
        SetupNotInForce, match=r"promises the durability class 'full'.*'no-barrier'.*nobarrier"
    ):
        filesystems.check_promise(setup_of("ext4"), without)
    promised = setup_of("ext4", "barrier=0")
    with pytest.raises(SetupNotInForce):
        filesystems.check_promise(promised, mounted_with("ext4", "rw"))
    filesystems.check_promise(promised, without)
