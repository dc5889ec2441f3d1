"""ZFS without a pool: recorded tool output, properties, drivers, commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbbench.errors import ZfsUnavailable
from dbbench.model import Durability, FsSetup, Mkfs, Volume
from dbbench.plan import catalog
from dbbench.results.journal import Journal
from dbbench.storage import filesystems
from dbbench.storage.filesystems import zfs
from dbbench.storage.filesystems.port import Mounted
from dbbench.storage.filesystems.zfs import driver, pool
from dbbench.storage.filesystems.zfs.driver import ZfsDriver

FIXTURES = Path(__file__).parents[1] / "fixtures/zfs"
FUSE = ZfsDriver(False, "23")
NEW = ZfsDriver(True, "2.4.4-1")
OLD = ZfsDriver(True, "0.8.6-1")


def text(name: str) -> str:
    """Real output of the tools, of zfs-fuse 0.7.0 or OpenZFS 2.4.4."""
    return (FIXTURES / f"{name}.txt").read_text()


def setup_of(*mount: str, topology: str = "stripe", **volumes: str) -> FsSetup:
    """A setup of ZFS with these properties; volumes with one each."""
    parts = {name: Volume(options=(option,)) for name, option in volumes.items()}
    mkfs = Mkfs("zfs", ("-o", "ashift=12"), topology)  # type: ignore[arg-type]
    return FsSetup("t", mkfs, name="t", mount=mount, volumes=parts)  # type: ignore[arg-type]


# --- what the tools print --------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "version"), [("fuse", 23), ("native", 5000)])
def test_a_label_says_whose_it_is(by: str, version: int) -> None:
    """Name, GUID, version and the disk's real ashift, of either driver."""
    found = driver.parse_label(text(f"zdb-label-{by}"))
    assert str(found["name"]).startswith("dbbench-")
    assert isinstance(found["pool_guid"], int) and found["pool_guid"] > 10**15
    assert (found["version"], found["ashift"]) == (version, 12)
    assert driver.parse_label("failed to unpack label 0\n") == {}


def test_properties_are_read_and_shown() -> None:
    """Sizes as numbers, in the order of the table; what a driver has not is left out."""
    fuse, native = (driver.parse_get(text(f"zfs-get-{by}")) for by in ("fuse", "native"))
    assert driver.shown(fuse)["recordsize"] == driver.shown(native)["recordsize"] == 8192
    assert "sync" not in driver.shown(fuse)
    assert driver.shown(native)["sync"] == "standard"
    assert {"compression=zstd", "atime=off", "redundant_metadata=all"} <= set(driver.effective(native))


def test_what_is_not_as_asked_is_named() -> None:
    """ "8K" is 8192; another value and a missing property are differences."""
    found = {"recordsize": "8192", "compression": "off"}
    assert driver.differences({"recordsize": "8K", "compression": "off"}, found) == []
    assert driver.differences({"recordsize": "16K"}, found) == ["recordsize is 8192, expected 16K"]
    assert driver.differences({"sync": "always"}, found) == ["sync is missing, expected always"]


def test_a_scrub_is_sound_or_says_what_is_wrong() -> None:
    """Of both drivers; what a second copy repaired counts as damage of the device."""
    assert zfs.damages(text("zpool-status-fuse")) == zfs.damages(text("zpool-status-native")) == ""
    assert "checksum 2" in zfs.damages(text("zpool-status-damaged-fuse"))
    assert "with 1 errors" in zfs.damages(text("zpool-status-damaged-fuse"))
    repaired = zfs.damages(text("zpool-status-repaired-native"))
    assert "repaired 32K" in repaired and "loop0: read 0, write 0, checksum 7" in repaired
    assert zfs.damages("  scan: none requested\n") == "none requested"


def test_what_a_snapshot_takes_is_counted() -> None:
    """What only a snapshot holds, and its clone's own data; datasets and other snapshots are not in it."""
    assert zfs.parse_taken(text("zfs-taken-native")) == 2187264
    several = text("zfs-taken-fuse")
    assert zfs.parse_taken(several, "1") == 6488064 + 1155072
    assert zfs.parse_taken(several, "2") == 4358144 + 2228224


def test_arcstats_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three columns after two lines; nothing where the kernel has none."""
    monkeypatch.setattr(driver, "ARCSTATS", FIXTURES / "arcstats-native.txt")
    assert driver.arcstats()["hits"] == 12874
    assert "data_size" in driver.arcstats()
    monkeypatch.setattr(driver, "ARCSTATS", tmp_path / "none")
    assert driver.arcstats() == {}


# --- what properties mean --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "live", "flags"),
    [
        (("sync=standard",), {}, set()),
        (("sync=always",), {}, set()),
        (("sync=disabled",), {}, {Durability.ASYNC_COMMIT}),
        (("logbias=throughput",), {}, {Durability.REPORTED_UNSAFE}),
        (("logbias=latency",), {}, set()),
        ((), {"zil_nocacheflush": 1}, {Durability.ASYNC_COMMIT}),
        ((), {"zfs_nocacheflush": 1}, {Durability.NO_BARRIER}),
        ((), {"zfs_nocacheflush": 0, "zil_nocacheflush": 0}, set()),
    ],
)
def test_flags(options: tuple[str, ...], live: dict[str, int], flags: set[Durability]) -> None:
    """A log without waiting loses only commits; omitted flushes may lose the pool."""
    assert set(driver.flags(options, dict(live))) == flags


@pytest.mark.parametrize(
    ("options", "tears_8k", "tears_16k"),
    [
        (("recordsize=4K",), True, True),
        (("recordsize=8192",), False, True),
        (("recordsize=16K",), False, False),
        (("recordsize=128K",), False, False),
        ((), False, False),
        (("recordsize=8K", "recordsize=1M"), False, False),
    ],
)
def test_a_page_larger_than_a_record_tears(options: tuple[str, ...], tears_8k: bool, tears_16k: bool) -> None:
    """PostgreSQL's 8 KiB and InnoDB's 16 KiB on each record size."""
    record = driver.record_bytes(options)
    fs = Mounted(Path("/x"), "zfs", (), options, None, (), driver.tears(options), record_bytes=record)
    assert (fs.tears_pages_of(8192), fs.tears_pages_of(16384)) == (tears_8k, tears_16k)


def test_compression_is_named() -> None:
    """The algorithm, the last word winning; off is none."""
    assert driver.compresses(("compression=off",)) is driver.compresses(()) is None
    assert driver.compresses(("compression=off", "compression=lz4")) == "lz4"
    assert driver.compresses(("compression=on",)) == "lzjb"


# --- drivers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in catalog.catalog().setups if n.startswith("zfs")])
def test_a_setup_says_if_it_needs_openzfs(name: str) -> None:
    """What zfs-fuse does not know is declared in the setup's file, and nothing else is."""
    setup = catalog.catalog().setup(name)
    assert (FUSE.lacks(setup) is not None) is ("zfs" in setup.needs.kernel)
    assert NEW.lacks(setup) is None


@pytest.mark.parametrize(
    ("by", "setup", "lack"),
    [
        (FUSE, setup_of("compression=lz4"), "compression=lz4"),
        (FUSE, setup_of("compression=zstd-9"), "compression=zstd-9"),
        (FUSE, setup_of("compression=gzip-9", "logbias=throughput"), None),
        (FUSE, setup_of("sync=standard"), "sync=standard"),
        (FUSE, setup_of("xattr=sa"), "xattr=sa"),
        (FUSE, setup_of("xattr=on"), None),
        (FUSE, setup_of("recordsize=1M"), "recordsize=1M"),
        (FUSE, setup_of("recordsize=8K", data="compression=lz4"), "compression=lz4"),
        (OLD, setup_of("compression=lz4", "sync=disabled"), None),
        (OLD, setup_of("compression=zstd"), "OpenZFS 2.0 or later"),
        (OLD, setup_of("direct=always"), "OpenZFS 2.3 or later"),
        (NEW, setup_of("direct=always", "compression=zstd"), None),
        (ZfsDriver(True, ""), setup_of("compression=zstd"), None),
    ],
)
def test_what_a_driver_cannot_do_is_named(by: ZfsDriver, setup: FsSetup, lack: str | None) -> None:
    """With the version that it takes; a module that is not loaded yet is not judged."""
    found = by.lacks(setup)
    assert found is None if lack is None else lack in str(found)


def test_why_a_setup_cannot_work_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither driver: both are named, and the package. zfs-fuse alone: what it lacks."""
    monkeypatch.setattr(driver, "found", lambda: None)
    monkeypatch.setattr(driver.process, "find", lambda name: None)
    plain, native = setup_of("recordsize=8K"), setup_of("compression=zstd")
    assert driver.works(plain) == "this kernel has no zfs and zfs-fuse is not installed: apt-get install zfs-fuse"
    assert str(driver.works(native)).endswith("apt-get install zfs-dkms zfsutils-linux")
    assert filesystems.install(plain) == ("zfs-fuse",)
    monkeypatch.setattr(driver, "found", lambda: FUSE)
    assert driver.works(plain) is None
    assert "compression=zstd needs OpenZFS in the kernel" in str(driver.works(native))
    monkeypatch.setattr(driver, "found", lambda: NEW)
    assert driver.works(native) is None
    assert (str(FUSE), str(NEW)) == ("zfs-fuse (pool version 23)", "OpenZFS 2.4.4-1")


def test_zfs_fuse_wants_private_mounts() -> None:
    """Its paths are those of everybody outside of a trial."""
    with pytest.raises(ZfsUnavailable, match="namespace of its own"), pool._rooms():
        pytest.fail("mounted over the system's folders")


@pytest.mark.parametrize(("asked", "given_mib"), [(None, 100), (0, 16), (50 * 2**20, 50), (2**40, 100)])
def test_the_cache_of_zfs_fuse_has_its_bounds(asked: int | None, given_mib: int) -> None:
    """Debian's size, or what a small memory leaves; never less than the program takes."""
    assert pool.Daemon((), asked).arc_bytes == given_mib * 2**20


def test_the_kernels_arc_is_limited_and_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both parameters are as before afterwards, also when only the journal knows of them."""
    least, most = (tmp_path / "parameters" / name for name in ("zfs_arc_min", "zfs_arc_max"))
    least.parent.mkdir()
    monkeypatch.setattr(driver, "MODULE", tmp_path)
    monkeypatch.setattr(driver, "arcstats", lambda: {"c_max": 2**28})
    journal = Journal(tmp_path / "journal")

    def reset() -> None:
        least.write_text("1000\n")
        most.write_text("0\n")

    reset()
    with driver.arc_limited(2**28, journal):
        assert (least.read_text(), most.read_text()) == (str(2**25), str(2**28))
        assert len(journal.outstanding(driver.ARC_JOURNALLED)) == 2
    assert (least.read_text(), most.read_text(), journal.outstanding(driver.ARC_JOURNALLED)) == ("1000", "0", [])
    with pytest.raises(ZfsUnavailable, match="limits the ARC"), driver.arc_limited(2**27, journal):
        pytest.fail("the kernel did not take it")
    reset()
    killed = driver.arc_limited(2**28, journal)
    killed.__enter__()
    assert driver.arc_given_back(journal) == ["zfs_arc_min 1000", "zfs_arc_max 0"]
    assert (least.read_text(), most.read_text(), driver.arc_given_back(journal)) == ("1000", "0", [])
    journal.note("take", what=driver.ARC_JOURNALLED, path=f"{tmp_path}/else=1")
    assert driver.arc_given_back(journal) == []
    assert not (tmp_path / "else").exists()


def test_a_journalled_pool_without_a_module_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """zfs-fuse's pools end with its process; the journal is closed without asking anybody."""
    monkeypatch.setattr(driver, "MODULE", tmp_path / "none")
    journal = Journal(tmp_path / "journal")
    journal.note("take", what="pool", path=f"dbbench-{journal.tag}1")
    assert pool.give_back(journal) == []
    assert journal.outstanding("pool") == []


# --- what is typed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "vdevs"),
    [("stripe", "a b c"), ("mirror", "mirror a b c"), ("log", "a b log c")],
)
def test_the_commands_of_a_pool(topology: str, vdevs: str) -> None:
    """zpool create with the pool's words, the dataset's properties and the devices; then volumes and the mount."""
    setup = setup_of("recordsize=8K", topology=topology, wal="recordsize=128K")
    create, volume, mount = (" ".join(argv) for argv in zfs.FAMILY.commands(setup, ("a", "b", "c"), "/mnt"))
    assert create.startswith("zpool create -f -o cachefile=none -o failmode=continue -m none -o ashift=12 ")
    assert create.endswith(f"-O recordsize=8K dbbench {vdevs}")
    assert volume == "zfs create -o recordsize=128K dbbench/wal"
    assert mount == "zfs set mountpoint=/mnt dbbench"


def test_a_pools_name_is_its_own() -> None:
    """All names differ, so that the name in a journal never means another user's pool."""
    names = {pool.new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("dbbench-") for name in names)
