"""Bytes that change on a disk: each filesystem and each server notices what its checksums protect."""

import pytest

from dbbench.labs.harm.flips import flip_bytes
from dbbench.model import HarmCount
from tests.support.labs import lab_of
from tests.support.setups import shipped

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]
KINDS = ("table", "index", "log", "metadata")


def words(counts: list[HarmCount], rounds: int) -> dict[str, set[str]]:
    """Return the outcomes of each kind of block; all attempts are counted."""
    found: dict[str, set[str]] = {}
    for count in counts:
        found.setdefault(count.column.removeprefix("flip in "), set()).add(count.word)
        assert count.word == "untried" or (count.of == rounds and count.detail), count
    assert all(
        sum(c.count for c in counts if c.column == f"flip in {kind}") in (0, rounds)
        for kind in KINDS
    )
    return found


@pytest.mark.needs("mkfs.ext4", "engine:postgres")
def test_ext4_leaves_pages_to_the_database() -> None:
    """PostgreSQL notices a changed table only by its checksums, and nobody notices a lost end of
    its log.
    """
    with lab_of("ext4") as (lab, base):
        before = {
            path: path.stat().st_mtime_ns for images in base.images.values() for path in images
        }
        counts = flip_bytes(lab, base, 2)
        # the base was not changed
        assert before == {path: path.stat().st_mtime_ns for path in before}
    found = words(counts, 2)
    assert set(found) == set(KINDS)
    assert found["table"] <= {"checksums", "database"}, counts
    assert found["index"] <= {"checksums", "database"}, counts
    assert found["log"] <= {"nobody", "harmless"}, counts
    assert found["metadata"] <= {"filesystem", "harmless"}, counts


@pytest.mark.needs("mkfs.btrfs", "fs:btrfs", "engine:postgres")
def test_btrfs_notices_and_a_mirror_repairs() -> None:
    """On one disk btrfs refuses to return changed data; on two it takes the other copy and repairs
    the first.
    """
    shipped("btrfs")
    with lab_of("btrfs") as (lab, base):
        found = words(flip_bytes(lab, base, 1), 1)
    assert found["table"] == found["index"] == {"filesystem"}
    # by default it has two copies
    assert found["metadata"] <= {"filesystem", "repaired", "harmless"}
    with lab_of("btrfs-raid1", disks=2) as (lab, base):
        counts = flip_bytes(lab, base, 1)
    found = words(counts, 1)
    assert found["table"] == found["index"] == {"repaired"}, counts


@pytest.mark.needs("mkfs.xfs", "fs:xfs", "engine:mariadb")
def test_innodb_notices_by_itself() -> None:
    """Its checksums are always on; its tables are their primary key, so there is no index of its
    own.
    """
    shipped("xfs")
    with lab_of("xfs", "mariadb") as (lab, base):
        counts = flip_bytes(lab, base, 1)
    found = words(counts, 1)
    assert set(found) == {"table", "log", "metadata"}
    assert found["table"] == {"database"}, counts
