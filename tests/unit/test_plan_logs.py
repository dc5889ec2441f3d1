"""Logs on separate devices: their arms, and the lists and logs that do not fit together."""

from pathlib import Path

import pytest

from dbbench.errors import UnknownName
from dbbench.plan import expand, narrow, preview
from dbbench.plan.catalog import catalog
from dbbench.plan.narrowing import Narrowing
from tests.support.plan_texts import SWEPT
from tests.support.plans import SHIPPED, flaws_of, plan_of

LOG = """\
name = "log"
baseline = "xfs"
fs_setups = ["ext4", "xfs", { use = "xfs", wal = false, label = "xfs-alone" }, { use = "btrfs", label = "mine" }]
[device]
size = "4GiB"
[device.wal]
fs_setup = "ext4"
size = "1GiB"
[engine]
name = "postgres"
[workload]
name = "pgbench-tpcb"
"""


def test_arms_are_named_by_both_filesystems(tmp_path: Path) -> None:
    """`xfs+wal:ext4` where no label was given, and --fs xfs means it; an arm may keep its log
    beside the data. The preview has the commands of both filesystems, and the bytes of both
    images.
    """
    plan = plan_of(tmp_path, LOG)
    assert [arm.label for arm in plan.fs_setups] == [
        "ext4+wal:ext4",
        "xfs+wal:ext4",
        "xfs-alone",
        "mine",
    ]
    assert plan.baseline == "xfs+wal:ext4"
    found = {
        cell.arm: cell.wal_setup.name if cell.wal_setup else None
        for cell in expand(plan, SHIPPED).cells
    }
    assert found == {
        "ext4+wal:ext4": "ext4",
        "xfs+wal:ext4": "ext4",
        "xfs-alone": None,
        "mine": "ext4",
    }
    assert [arm.label for arm in narrow(plan, Narrowing(fs=["xfs", "mine"])).fs_setups] == [
        "xfs+wal:ext4",
        "mine",
    ]
    with pytest.raises(UnknownName, match="did you mean"):
        narrow(plan, Narrowing(fs=["xsf+wal:ext4"]))
    look = preview(plan, expand(plan, SHIPPED))
    said = [" ".join(argv) for arm, argv in look.commands if arm == "xfs+wal:ext4"]
    assert [line.split()[0] for line in said] == ["mkfs.xfs", "mount", "mkfs.ext4", "mount"]
    assert said[2].split()[-1] == "LOOP-WAL" and said[3].endswith("LOOP-WAL /run/dbbench/wal")
    assert len([arm for arm, _ in look.commands if arm == "xfs-alone"]) == 2
    assert look.disk_bytes > 5 * 2**30


RAW = (
    LOG.replace('["ext4",', '["raw",')
    .replace('name = "postgres"', 'name = "mariadb"')
    .replace("pgbench-tpcb", "scan")
)


@pytest.mark.parametrize(
    ("text", "old", "new", "told"),
    [
        (SWEPT, "clients = [1, 8]", "clients = []", 'plan.toml:10  "clients" is an empty list'),
        (SWEPT, "clients = [1, 8]", "clients = [1, 8, 1]", 'plan.toml:10  "clients" lists 1 twice'),
        (
            SWEPT,
            "clients = [1, 8]",
            "clients = [1,\n  0]",
            'plan.toml:11  "clients" must be at least 1',
        ),
        (
            SWEPT,
            "clients = [1, 8]",
            'clients = [1, "two"]',
            'plan.toml:10  "clients" must be a whole number',
        ),
        (
            SWEPT,
            "clients = [1, 8]",
            "clients = [[1], 8]",
            'plan.toml:10  "clients" must be one integer, not a list',
        ),
        (
            SWEPT,
            "scale = 2",
            "scale = [1, 0]",
            'plan.toml:8  "scale" of the dataset must be 1 or more',
        ),
        (SWEPT, '["512MiB", "1GiB"]', "[]", 'plan.toml:4  "memory" is an empty list'),
        (
            SWEPT,
            '["512MiB", "1GiB"]',
            '["1GiB", "1024MiB"]',
            'plan.toml:4  "memory" lists 1073741824 twice',
        ),
        (SWEPT, '["512MiB", "1GiB"]', '["1GiB", "much"]', 'plan.toml:4  "memory" must be a size'),
        (
            SWEPT,
            "/17/bin",
            "/15/bin",
            "plan.toml:7  \"bin\" lists '/usr/lib/postgresql/15/bin' twice",
        ),
        (SWEPT, "blocks = 2", "device.limit = 5", 'plan.toml:3  "limit" must be a table'),
        (
            SWEPT,
            "blocks = 2",
            "device.limit = {}",
            'plan.toml:3  "limit" requires "iops", "mb_per_s", or a delay above 0',
        ),
        (
            SWEPT,
            "blocks = 2",
            "device.limit = { iops = 500, burst_iops = 400, burst_s = 30 }",
            'plan.toml:3  "limit" requires "iops", a larger "burst_iops", and "burst_s"',
        ),
        (
            SWEPT,
            "blocks = 2",
            "device.vm_dirty_ratio = [5, 20]",
            'plan.toml:3  unknown key "vm_dirty_ratio": a trial does not change what other programs',
        ),
        (
            SWEPT,
            "blocks = 2",
            "device.limit = { iops = [500, 500] }",
            'plan.toml:3  "limit" lists a level twice',
        ),
        (
            SWEPT,
            "blocks = 2",
            "device.limit = { iops = [500, 900], price = [1, 2, 3] }",
            'plan.toml:3  "limit" has lists of different lengths',
        ),
        (
            SWEPT,
            "blocks = 2",
            "device.limit = { iops = 1 }",
            'plan.toml:3  "iops" must be 10 or more',
        ),
        (
            SWEPT,
            "blocks = 2",
            'device = { kind = "dir", limit = { iops = 99 } }',
            'plan.toml:3  "limit" has no effect with kind =',
        ),
        (SWEPT, "blocks = 2", "blocks = [2, 3]", 'plan.toml:3  "blocks" must be'),
        (LOG, 'fs_setup = "ext4"', 'fs_setup = "ext5"', 'unknown fs setup "ext5"'),
        (LOG, 'fs_setup = "ext4"', "", '"fs_setup" is missing'),
        (LOG, 'size = "1GiB"', 'size = "100MiB"', "320 MiB or more"),
        (LOG, 'size = "1GiB"', 'path = "/dev/sdb"', '"path" has no effect with kind = "loop"'),
        (
            LOG,
            'size = "4GiB"',
            'kind = "block"\npath = "/dev/sda"',
            '"wal" requires path = "/dev/disk/by-id/..."',
        ),
        (
            LOG,
            'size = "4GiB"',
            'kind = "dir"\npaths = { ext4 = "/a" }',
            '"wal" has no effect with kind = "dir"',
        ),
        (
            LOG,
            '[device.wal]\nfs_setup = "ext4"\nsize = "1GiB"\n',
            "",
            '"wal" has no effect without [device.wal]',
        ),
        (
            LOG,
            'baseline = "xfs"',
            'operations = ["fsck", "snapshot"]',
            'cannot be combined with operation "snapshot"',
        ),
        (LOG, 'label = "xfs-alone"', 'label = "mine"', '"mine" is listed twice'),
        (LOG, 'baseline = "xfs"', 'baseline = "xsf"', 'fs_setups has no baseline "xsf"'),
        (
            RAW,
            'name = "mariadb"',
            'name = "postgres"',
            'engine "postgres", which requires a filesystem',
        ),
        (
            RAW,
            '["raw",',
            '[{ use = "raw", wal = false },',
            '"raw" requires [device.wal] for the remaining files',
        ),
        (RAW, 'baseline = "xfs"', 'operations = ["fsck"]', '"operations" requires a filesystem'),
        (RAW, "[device]", "[age]\n[device]", '"age" requires a filesystem'),
        (RAW, 'fs_setup = "ext4"', 'fs_setup = "raw"', "cannot be combined with [device.wal]"),
    ],
)
def test_lists_and_logs_that_do_not_fit(
    tmp_path: Path,
    text: str,
    old: str,
    new: str,
    told: str,
) -> None:
    """Empty lists, duplicates and wrong values; what cannot be made, PostgreSQL on a bare device,
    and what only a filesystem has: errors of the plan, with their lines.
    """
    assert old in text
    assert told in flaws_of(tmp_path, text.replace(old, new))


def test_a_log_lies_on_one_device_and_in_one_place(tmp_path: Path) -> None:
    """A setup of several devices cannot hold it; one with a volume for the log has it already."""
    (tmp_path / "fs_setups").mkdir()
    own = tmp_path / "fs_setups"
    (own / "raid.toml").write_text(
        'title = "x"\nmkfs = { family = "btrfs" }\ndevices = { min = 2, max = 2 }\n'
    )
    (own / "sub.toml").write_text('title = "x"\nmkfs = { family = "btrfs" }\nvolumes.wal = {}\n')
    known = catalog([tmp_path])
    text = LOG.replace('fs_setup = "ext4"', 'fs_setup = "raid"').replace('["ext4",', '["sub",')
    flaws = flaws_of(tmp_path, text, known)
    assert 'fs_setup = "raid" requires 2 devices or more, but the log has one' in flaws
    assert "it already has a volume for the log" in flaws
    assert "has volumes" in flaws_of(
        tmp_path,
        LOG.replace('fs_setup = "ext4"', 'fs_setup = "sub"'),
        known,
    )


def test_an_arm_without_a_filesystem(tmp_path: Path) -> None:
    """InnoDB's tables on the bare device: what must be files lies on the log's filesystem."""
    plan = plan_of(tmp_path, RAW)
    look = preview(plan, expand(plan, SHIPPED))
    assert [argv[0] for arm, argv in look.commands if arm == "raw+wal:ext4"] == [
        "dd",
        "mkfs.ext4",
        "mount",
    ]
    assert {cell.arm: cell.raw for cell in expand(plan, SHIPPED).cells}["raw+wal:ext4"]
