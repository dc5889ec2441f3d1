"""Options that a plan adds to an fs setup: what they replace, what follows from them, and what is
refused.
"""

import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, plain
from dbbench.plan import expand, load, narrow
from dbbench.plan.labels import split_fs
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.promise import of_setup
from dbbench.storage import filesystems
from dbbench.storage.filesystems.added_options import change, group, merge, unknown
from tests.support.plans import SHIPPED

TABLE = Path(__file__).parents[1] / "fixtures" / "added_options.txt"
ROWS = [line.split(" | ") for line in TABLE.read_text().splitlines()[1:]]
SHORT = {
    "EXT": "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
    "ZPOOL": "zpool create -f -o cachefile=none -o failmode=continue -m none",
}

DISK = next((path.name for path in Path("/dev").glob("*") if path.is_block_device()), "no/disk")


def _plan(tmp_path: Path, *entries: str, device: str = 'size = "1GiB"') -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(
        f'name = "added"\nfs_setups = [{", ".join(entries)}]\n[device]\n{device}\n'
        '[engine]\nname = "postgres"\n[workload]\nname = "pgbench-tpcb"\n'
    )
    return path


@pytest.mark.parametrize(("name", "entry", "mkfs", "mount", "durability"), ROWS)
def test_added_options_give_what_a_file_gave(
    name: str,
    entry: str,
    mkfs: str,
    mount: str,
    durability: str,
) -> None:
    """The same mkfs command, mount options and class as the setup that the catalogue had for it."""
    assert name not in SHIPPED.setups
    table = tomllib.loads(f"arm = {{ {entry} }}")["arm"]
    setup = SHIPPED.setup_of(TypeAdapter(Arm).validate_python(table))
    made = filesystems.commands(
        setup,
        tuple(f"D{number}" for number in range(setup.devices.min)),
        "AT",
    )
    for short, words in SHORT.items():
        mkfs = mkfs.replace(short, words)
    assert " ".join(made[0]) == mkfs
    assert mount == "-" or made[1][made[1].index("-o") + 1] == mount
    assert of_setup(setup) == durability


@pytest.mark.parametrize(
    ("own", "added", "expected"),
    [
        ("noatime", "relatime", "relatime"),
        ("noatime", "strictatime,commit=60", "strictatime,commit=60"),
        ("noatime,barrier=0", "barrier", "noatime,barrier"),
        ("noatime,barrier=0", "nobarrier", "noatime,nobarrier"),
        ("noatime,data=writeback", "data=journal", "noatime,data=journal"),
        ("noatime,compress=zstd", "compress-force=lzo", "noatime,compress-force=lzo"),
        ("noatime,nodatacow", "datacow", "noatime,datacow"),
        ("noatime,ssd,nobarrier", "nossd", "noatime,nossd,nobarrier"),
        (
            "atime=off,recordsize=8K",
            "relatime=on,recordsize=16K",
            "atime=off,recordsize=16K,relatime=on",
        ),
    ],
)
def test_an_option_takes_the_place_of_the_one_of_its_group(
    own: str,
    added: str,
    expected: str,
) -> None:
    """The kernel gets each property once, so that the order of the words does not decide. Names
    with and without "no" are one group; a property of ZFS has a value, and is not the option of
    mount(8).
    """
    assert (group("nodiscard"), group("relatime"), group("relatime=on")) == (
        "discard",
        "atime",
        "relatime",
    )
    assert merge(own.split(","), added.split(",")) == tuple(expected.split(","))


@pytest.mark.parametrize(
    ("base", "added", "expected"),
    [
        ("xfs-64k", ["-m", "reflink=0"], "-b size=64k -m reflink=0"),
        ("xfs-64k", ["-b", "size=4k"], "-b size=4k"),
        ("btrfs-raid1", ["-m", "raid1c3"], "-d raid1 -m raid1c3"),
        ("btrfs-raid1", ["--csum=sha256", "-n4096"], "-d raid1 -m raid1 --csum sha256 -n 4096"),
        ("zfs", ["-o", "ashift=9"], "-o ashift=9"),
        ("zfs", ["-o", "autotrim=on"], "-o ashift=12 -o autotrim=on"),
    ],
)
def test_mkfs_gets_each_value_once(
    base: str,
    added: list[str],
    expected: str,
) -> None:
    """mkfs.xfs refuses a value that is given twice, and mke2fs uses only the last -O."""
    assert " ".join(SHIPPED.setup_of(Arm(base, mkfs=tuple(added))).mkfs.options) == expected


def test_features_are_replaced_one_by_one() -> None:
    """`none` begins anew."""
    own = SHIPPED.setup_of(Arm("ext4", mkfs=("-O", "^has_journal,quota")))
    once = change(own, "x", (), ("-O", "has_journal,fast_commit"), {})
    assert once.mkfs.options == ("-O", "has_journal,quota,fast_commit")
    assert change(once, "x", (), ("-O", "none,extent"), {}).mkfs.options == ("-O", "none,extent")


def test_tuning_is_added_by_engine() -> None:
    """The class follows the server's settings too."""
    tuning = {"postgres": {"full_page_writes": False}, "mysql": {"innodb_doublewrite": "OFF"}}
    arm = Arm("btrfs-nodatacow", tuning=tuning)
    setup = SHIPPED.setup_of(arm)
    assert setup.tuning == arm.tuning
    assert of_setup(setup) == "torn-pages-possible"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            '{ use = "btrfs-nodatacow", mount = ["compress=zstd:9"] }',
            '"nodatacow" and compression with zstd exclude',
        ),
        (
            '{ use = "btrfs-nocow-attr", mount = ["compress"] }',
            '"+C" and compression with zlib exclude',
        ),
        ('{ use = "ext2", mount = ["data=journal"] }', '"data=journal" needs a journal'),
        (
            '{ use = "ext4", mount = ["commit=9"], mkfs = ["-O", "^has_journal"] }',
            '"commit=9" needs a journal',
        ),
        (
            '{ use = "zfs-volumes", mount = ["recordsize=8K"] }',
            'no effect: the volume "data" of the setup sets it',
        ),
        ('{ use = "zfs", mount = ["noatime"] }', '"noatime" is not a property of ZFS'),
        (
            '{ use = "raw", mount = ["sync"] }',
            "there is no filesystem to which options could be added",
        ),
        ('{ use = "ext4", mount = ["noatime", "relatime"] }', '"noatime" contradicts "relatime"'),
        (
            '{ use = "ext4", mount = ["commit=60,discard"] }',
            '"commit=60,discard" is not one mount option',
        ),
        (
            '{ use = "ext4", mount = ["remount"] }',
            "dbbench decides where and how a filesystem is mounted",
        ),
        (
            '{ use = "ext4", mkfs = ["-J", "device=sdb1"] }',
            "dbbench decides on which device a filesystem is made",
        ),
        ('{ use = "btrfs", mkfs = ["/dev/sdb"] }', '"/dev/sdb" is not possible'),
        ('{ use = "btrfs", mkfs = ["-d", "raid0", "sdb"] }', '"sdb" is not possible'),
        (f'{{ use = "btrfs", mkfs = ["-K", "{DISK}"] }}', f'"{DISK}" is not possible'),
        (
            '{ use = "xfs", mkfs = ["-l", "size=64m,logdev=sdb"] }',
            "dbbench decides on which device",
        ),
        ('{ use = "ext4", mounts = ["sync"] }', 'unknown key "mounts"; did you mean "mount"?'),
        ('{ use = "ext4", mount = "commit=60" }', '"mount" must be a list'),
        (
            '{ use = "ext4", tuning = { full_page_writes = false } }',
            '"full_page_writes" is not a key of this table; known: postgres, ',
        ),
        ('{ use = "ext4", label = "a b", mount = ["commit=60"] }', 'invalid label "a b"'),
        (
            '{ use = "ext4", label = "ext4", mount = ["commit=60"] }, "ext4"',
            '"ext4" is listed twice',
        ),
        (
            '{ use = "ext4", mount = ["sync"] }, { use = "ext4", mount = ["sync"] }',
            '"ext4:sync" is listed twice',
        ),
    ],
)
def test_entries_that_cannot_be(entry: str, told: str, tmp_path: Path) -> None:
    """Each error names the entry and its line."""
    with pytest.raises(PlanInvalid, match=r"plan\.toml:\d+") as caught:
        load(_plan(tmp_path, entry), SHIPPED)
    assert told in caught.value.evidence


def test_options_need_a_filesystem_of_ones_own(tmp_path: Path) -> None:
    """Nothing is made or mounted in an existing directory; settings of the server have an effect
    there.
    """
    device = 'kind = "dir"\npaths = { a = "/tmp" }'
    tuned = '{ use = "ext4", label = "a", tuning.postgres = { fsync = false } }'
    assert load(_plan(tmp_path, tuned, device=device), SHIPPED).fs_setups[0].tuning
    with pytest.raises(PlanInvalid, match='"mount" has no effect with kind = "dir"'):
        load(
            _plan(tmp_path, '{ use = "ext4", label = "a", mount = ["sync"] }', device=device),
            SHIPPED,
        )


def test_a_record_has_base_label_and_options(tmp_path: Path) -> None:
    """The cell has the effective options; its name cannot be taken for that of the base."""
    given = load(
        _plan(
            tmp_path,
            '"ext4"',
            '{ use = "ext4", label = "slow", mount = ["commit=60", "sync"] }',
        ),
        SHIPPED,
    )
    recorded = plain(given)["fs_setups"][1]
    assert (recorded["use"], recorded["label"], recorded["mount"]) == (
        "ext4",
        "slow",
        ["commit=60", "sync"],
    )
    cells = {cell.arm: cell.setup for cell in expand(given, SHIPPED).cells}
    assert cells["slow"].mount == ("noatime", "commit=60", "sync")
    assert (cells["ext4"].name, cells["slow"].name) == ("ext4", "ext4:commit=60+sync")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("xfs,ext4", [("xfs", ()), ("ext4", ())]),
        (
            "ext4:commit=60,data=writeback,xfs",
            [("ext4", ("commit=60", "data=writeback")), ("xfs", ())],
        ),
        ("ext4:compress=zstd:3", [("ext4", ("compress=zstd:3",))]),
        ("a:b,a:b:sync", [("a:b", ()), ("a:b", ("sync",))]),
        ("foo:sync,xfs", [("foo:sync", ()), ("xfs", ())]),
        ("xfs,foo", [("xfs", ()), ("foo", ())]),
    ],
)
def test_the_command_line_splits_setups_from_options(
    words: str, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    """A comma separates both; a word that is no setup, after options, is another option."""
    assert split_fs(words.split(","), lambda name: name in ("xfs", "ext4", "a:b")) == expected


def test_the_command_line_adds_an_arm(tmp_path: Path) -> None:
    """It is what a table in the plan would be, beside the arms that are named."""
    given = load(_plan(tmp_path, '"ext4"', '"xfs"'), SHIPPED)
    few = narrow(given, Narrowing(fs=["ext4", "ext4:commit=60", "relatime"]))
    added = '{ use = "ext4", mount = ["commit=60", "relatime"] }'
    assert few.fs_setups == load(_plan(tmp_path, '"ext4"', added), SHIPPED).fs_setups
    with pytest.raises(
        UnknownName, match='"xsf" is not listed in fs_setups of the plan; did you mean "xfs"'
    ):
        narrow(given, Narrowing(fs=["ext4:commit=60", "xsf"]))
    assert few.fs_setups[1].label == "ext4:commit=60+relatime"
    assert few.baseline == "ext4"
    there = load(
        _plan(tmp_path, '"ext4"', device='kind = "dir"\npaths = { ext4 = "/tmp" }'), SHIPPED
    )
    with pytest.raises(PlanInvalid, match='options of "ext4" have no effect with kind = "dir"'):
        narrow(there, Narrowing(fs=["ext4:sync"]))


@pytest.mark.needs("root")
def test_the_kernel_is_asked_about_mount_options() -> None:
    """It knows names and values without a device; those of the mount itself are no option of a
    filesystem.
    """
    assert unknown("ext4", ("noatime", "nodev", "commit=60", "data=writeback", "nodiscard")) is None
    assert "foo=60" in str(unknown("ext4", ("noatime", "foo=60")))
    assert "data=foo" in str(unknown("ext4", ("data=foo",)))
