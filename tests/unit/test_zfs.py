"""ZFS without a pool: recorded tool output, properties, versions, commands."""

import re
from pathlib import Path

import pytest

from dbbench.errors import MakeFailed
from dbbench.model import Durability, FsSetup, Mkfs, Volume
from dbbench.results.journal import Journal
from dbbench.storage import filesystems
from dbbench.storage.filesystems import zfs
from dbbench.storage.filesystems.family import Mounted
from dbbench.storage.filesystems.zfs import driver, pool, properties
from tests.support.plans import SHIPPED

FIXTURES = Path(__file__).parents[1] / "fixtures/zfs"
NEW = "2.4.4-1"
OLD = "0.8.6-1"


def text(name: str) -> str:
    """Real output of the tools of OpenZFS 2.4.4, or of an early ZFS without feature flags."""
    return (FIXTURES / f"{name}.txt").read_text()


def setup_of(*mount: str, topology: str = "stripe", **volumes: str) -> FsSetup:
    """A setup of ZFS with these properties; volumes with one each."""
    parts = {name: Volume(options=(option,)) for name, option in volumes.items()}
    mkfs = Mkfs("zfs", ("-o", "ashift=12"), topology)  # type: ignore[arg-type]
    return FsSetup("t", mkfs, name="t", mount=mount, volumes=parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("by", "version"), [("early", 23), ("native", 5000)])
def test_a_label_says_whose_it_is(by: str, version: int) -> None:
    """Name, GUID, version and the disk's real ashift."""
    found = properties.parse_label(text(f"zdb-label-{by}"))
    assert str(found["name"]).startswith("dbbench-")
    assert isinstance(found["pool_guid"], int) and found["pool_guid"] > 10**15
    assert (found["version"], found["ashift"]) == (version, 12)
    assert properties.parse_label("failed to unpack label 0\n") == {}


def test_properties_are_read_shown_and_compared() -> None:
    """Sizes as numbers, in the order of the table; what a version has not is left out. "8K" is
    8192; another value and a missing property are differences. Of the compressions the last word
    wins; off is none.
    """
    early, native = (properties.parse_get(text(f"zfs-get-{by}")) for by in ("early", "native"))
    assert properties.shown(early)["recordsize"] == properties.shown(native)["recordsize"] == 8192
    assert "sync" not in properties.shown(early)
    assert properties.shown(native)["sync"] == "standard"
    assert {"compression=zstd", "atime=off", "redundant_metadata=all"} <= set(
        properties.effective(native)
    )
    found = {"recordsize": "8192", "compression": "off"}
    assert properties.differences({"recordsize": "8K", "compression": "off"}, found) == []
    assert properties.differences({"recordsize": "16K"}, found) == [
        "recordsize is 8192, expected 16K"
    ]
    assert properties.differences({"sync": "always"}, found) == ["sync is missing, expected always"]
    assert zfs.FAMILY.compresses(("compression=off",)) is zfs.FAMILY.compresses(()) is None
    assert zfs.FAMILY.compresses(("compression=off", "compression=lz4")) == "lz4"
    assert zfs.FAMILY.compresses(("compression=on",)) == "lz4"


def test_a_scrub_and_what_a_snapshot_takes() -> None:
    """A scrub is sound or says what is wrong; what a second copy repaired counts as damage of the
    device. What only a snapshot holds, and its clone's own data, are counted; datasets and other
    snapshots are not.
    """
    assert zfs.damages(text("zpool-status-early")) == zfs.damages(text("zpool-status-native")) == ""
    assert "checksum 2" in zfs.damages(text("zpool-status-damaged-early"))
    assert "with 1 errors" in zfs.damages(text("zpool-status-damaged-early"))
    repaired = zfs.damages(text("zpool-status-repaired-native"))
    assert "repaired 32K" in repaired and "loop0: read 0, write 0, checksum 7" in repaired
    assert zfs.damages("  scan: none requested\n") == "none requested"
    assert zfs.parse_bytes(text("zfs-taken-native")) == 2187264
    several = text("zfs-taken-early")
    assert zfs.parse_bytes(several, "1") == 6488064 + 1155072
    assert zfs.parse_bytes(several, "2") == 4358144 + 2228224


@pytest.mark.parametrize(
    ("options", "live", "flags"),
    [
        (("sync=standard",), {}, set()),
        (("sync=always",), {}, set()),
        (("logbias=latency",), {}, set()),
        (("sync=disabled",), {}, {Durability.ASYNC_COMMIT}),
        (("logbias=throughput",), {}, {Durability.REPORTED_UNSAFE}),
        ((), {"zil_nocacheflush": 1}, {Durability.ASYNC_COMMIT}),
        ((), {"zfs_nocacheflush": 1}, {Durability.NO_BARRIER}),
        ((), {"zfs_nocacheflush": 0, "zil_nocacheflush": 0}, set()),
    ],
)
def test_flags(
    options: tuple[str, ...],
    live: dict[str, int],
    flags: set[Durability],
) -> None:
    """A log without waiting loses only commits; omitted flushes may lose the pool."""
    assert set(properties.flags(options, dict(live))) == flags


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
def test_a_page_larger_than_a_record_tears(
    options: tuple[str, ...],
    tears_8k: bool,
    tears_16k: bool,
) -> None:
    """PostgreSQL's 8 KiB and InnoDB's 16 KiB on each record size."""
    record = properties.record_bytes(options)
    fs = Mounted(
        Path("/x"),
        "zfs",
        (),
        options,
        None,
        (),
        properties.tears(options),
        record_bytes=record,
    )
    for page, tears in ((8192, tears_8k), (16384, tears_16k)):
        assert fs.tears_pages_of(page) == (Durability.TORN_PAGES if tears else None)


@pytest.mark.parametrize(
    ("version", "setup", "lack"),
    [
        (OLD, setup_of("compression=lz4", "sync=disabled"), None),
        (OLD, setup_of("compression=zstd"), "OpenZFS 2.0 or later"),
        (OLD, setup_of("direct=always"), "OpenZFS 2.3 or later"),
        (
            OLD,
            setup_of("recordsize=8K", data="compression=zstd-9"),
            "compression=zstd-9 needs OpenZFS 2.0",
        ),
        (NEW, setup_of("direct=always", "compression=zstd"), None),
        *((NEW, SHIPPED.setup(name), None) for name in SHIPPED.setups if name.startswith("zfs")),
    ],
)
def test_what_a_version_cannot_do_is_named(
    version: str,
    setup: FsSetup,
    lack: str | None,
) -> None:
    """With the version that it takes; a new one makes every shipped setup."""
    found = properties.lacks(setup, version)
    assert found is None if lack is None else lack in str(found)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What the module shows in /sys and, as `arcstats`, in /proc; nothing is there yet."""
    monkeypatch.setattr(driver, "MODULE", tmp_path / "module")
    monkeypatch.setattr(driver, "ARCSTATS", tmp_path / "module/arcstats")
    return tmp_path / "module"


def test_a_module_that_is_not_loaded_is_not_judged(
    module: Path,
    programs: Path,
    tmp_path: Path,
) -> None:
    """Its version is not known yet. A kernel without the module is named, with the package."""
    (programs / "apt-get").touch(0o755)
    module.mkdir()
    assert zfs.FAMILY.lacks(setup_of("compression=zstd")) is None
    (module / "version").write_text(f"{OLD}\n")
    assert "needs OpenZFS 2.0" in str(zfs.FAMILY.lacks(setup_of("compression=zstd")))
    assert "this kernel has no zfs: apt-get install zfs-dkms" in filesystems.obstacles(
        setup_of(), tmp_path
    )


def test_the_kernels_arc_is_limited_and_given_back(module: Path, tmp_path: Path) -> None:
    """Both parameters are as before afterwards, also when only the journal knows of them. The
    kernel's own count has three columns after two lines.
    """
    least, most = (module / "parameters" / name for name in ("zfs_arc_min", "zfs_arc_max"))
    least.parent.mkdir(parents=True)
    assert driver.arcstats() == {}  # the kernel has none
    recorded = (FIXTURES / "arcstats-native.txt").read_text()
    (module / "arcstats").write_text(recorded)
    assert driver.arcstats()["hits"] == 12874 and "data_size" in driver.arcstats()
    (module / "arcstats").write_text(
        re.sub(r"^(c_max +4 +)\d+$", rf"\g<1>{2**28}", recorded, flags=re.MULTILINE)
    )
    journal = Journal(tmp_path / "journal")

    def reset() -> None:
        least.write_text("1000\n")
        most.write_text("0\n")

    reset()
    with driver.limit_arc(2**28, journal):
        assert (least.read_text(), most.read_text()) == (str(2**25), str(2**28))
        assert len(journal.outstanding(driver.ARC_JOURNALLED)) == 2
    assert (least.read_text(), most.read_text(), journal.outstanding(driver.ARC_JOURNALLED)) == (
        "1000",
        "0",
        [],
    )
    with pytest.raises(MakeFailed, match="limits the ARC"), driver.limit_arc(2**27, journal):
        pytest.fail("the kernel did not take it")
    reset()
    killed = driver.limit_arc(2**28, journal)
    killed.__enter__()
    assert driver.arc_given_back(journal) == ["zfs_arc_min 1000", "zfs_arc_max 0"]
    assert (least.read_text(), most.read_text(), driver.arc_given_back(journal)) == (
        "1000",
        "0",
        [],
    )
    journal.note("take", what=driver.ARC_JOURNALLED, path=f"{tmp_path}/else=1")
    assert driver.arc_given_back(journal) == []
    assert not (tmp_path / "else").exists()


@pytest.mark.parametrize(
    ("topology", "vdevs"), [("stripe", "a b c"), ("mirror", "mirror a b c"), ("log", "a b log c")]
)
def test_the_commands_of_a_pool(topology: str, vdevs: str) -> None:
    """zpool create with the pool's words, the dataset's properties and the devices; then volumes
    and the mount.
    """
    setup = setup_of("recordsize=8K", topology=topology, wal="recordsize=128K")
    create, volume, mount = (
        " ".join(argv) for argv in zfs.FAMILY.commands(setup, ("a", "b", "c"), "/mnt")
    )
    assert create.startswith(
        "zpool create -f -o cachefile=none -o failmode=continue -m none -o ashift=12 "
    )
    assert create.endswith(f"-O recordsize=8K dbbench {vdevs}")
    assert volume == "zfs create -o recordsize=128K dbbench/wal"
    assert mount == "zfs set mountpoint=/mnt dbbench"


@pytest.mark.usefixtures("module")
def test_a_pools_name_is_its_own(tmp_path: Path) -> None:
    """All names differ, so that the name in a journal never means another user's pool. A pool in
    the journal has ended with the kernel that had it: without the module the journal is closed
    without asking anybody.
    """
    names = {pool.new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("dbbench-") for name in names)
    journal = Journal(tmp_path / "journal")
    journal.note("take", what="pool", path=f"dbbench-{journal.tag}1")
    assert pool.give_back(journal) == []
    assert journal.outstanding("pool") == []
