"""The shape of a filesystem, out of what its tools print."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbbench.filesystems import shape
from dbbench.filesystems.port import Mounted
from dbbench.filesystems.shape_parse import histogram, parse_e2freefrag, parse_freesp, parse_usage
from dbbench.model import FreeExtents, SpaceFacts

FIXTURES = Path(__file__).parents[1] / "fixtures/filesystems"
BLOCK = 4096


def said(name: str) -> str:
    """What a tool printed, as recorded."""
    return (FIXTURES / name).read_text()


def directory(path: Path) -> Mounted:
    """An existing directory as a filesystem under test."""
    return Mounted(path, "ext4", (), (), None, (), True)


def test_bins_are_powers_of_two() -> None:
    """A free extent is in the bin of the largest power of two that is not above it; bins add up."""
    found = histogram([(4096, 1, 4096), (12288, 2, 24576), (8192, 1, 8192), (2**20 + 1, 1, 2**20 + 1)])
    assert found == (FreeExtents(4096, 1, 4096), FreeExtents(8192, 3, 32768), FreeExtents(2**20, 1, 2**20 + 1))


def test_nothing_free_is_an_empty_histogram() -> None:
    """A full filesystem has no bin; that is not the same as not known."""
    assert histogram([]) == ()


def test_e2freefrag() -> None:
    """Extents and blocks of each row; all of them are the free blocks that it counts itself."""
    found = list(parse_e2freefrag(said("e2freefrag.txt")))
    assert found[0] == (8192, 2, 5 * BLOCK)
    assert found[-1] == (64 * 2**20, 4, 113166 * BLOCK)
    assert sum(total for _, _, total in found) == 113239 * BLOCK
    assert sum(count for _, count, _ in found) == 13


def test_e2freefrag_of_a_damaged_filesystem() -> None:
    """Without its header there is no unit, so nothing is said."""
    assert list(parse_e2freefrag("/dev/loop7: Bad magic number in super-block\n")) == []


def test_xfs_freesp() -> None:
    """Each row with its blocks in bytes."""
    assert list(parse_freesp(said("xfs-freesp.txt"), BLOCK)) == [
        (BLOCK, 1, BLOCK),
        (8192 * BLOCK, 1, 16374 * BLOCK),
        (16384 * BLOCK, 3, 87622 * BLOCK),
    ]


def test_btrfs_usage_counts_copies() -> None:
    """Metadata in DUP takes its bytes twice on the device, data of a single copy once."""
    assert parse_usage(said("btrfs-usage.txt")) == {
        "data": 45510656, "metadata": 2 * 311296, "system": 2 * 16384, "unallocated": 310378496,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "copies"), [("single", 1), ("RAID0", 1), ("RAID1", 2), ("RAID10", 2), ("RAID1C3", 3)]
)
def test_copies_of_each_profile(profile: str, copies: int) -> None:
    """RAID1 and its kin write each byte several times, striping does not."""
    assert parse_usage(f"Data,{profile}: Size:100, Used:10 (10.00%)\n") == {"data": 10 * copies}


def test_largest_files_come_first(tmp_path: Path) -> None:
    """Five files at most, the largest first, named below the mount point."""
    for number in range(7):
        (tmp_path / f"t{number}").write_bytes(bytes(1000 * number))
    found = shape.largest(directory(tmp_path), sorted(tmp_path.iterdir()))
    assert [(one.path, one.bytes) for one in found] == [(f"t{n}", 1000 * n) for n in (6, 5, 4, 3, 2)]


def test_a_directory_of_others_has_no_shape(tmp_path: Path) -> None:
    """Below an existing directory only the files are ours: metadata and free space are not known, never 0."""
    found = shape.shaped(SpaceFacts(1, 2, 3), directory(tmp_path), [])
    assert (found.metadata_bytes, found.metadata_share, found.free) == (None, None, None)
