"""The shape of a filesystem, from recorded tool output."""

import errno
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench.model import FreeExtents, SpaceFacts
from dbbench.storage.filesystems import shape
from dbbench.storage.filesystems.btrfs import parse_usage
from dbbench.storage.filesystems.ext import parse_e2freefrag
from dbbench.storage.filesystems.family import Mounted
from dbbench.storage.filesystems.shape import histogram
from dbbench.storage.filesystems.xfs import parse_freesp

FIXTURES = Path(__file__).parents[1] / "fixtures/filesystems"
BLOCK = 4096


def said(name: str) -> str:
    """What a tool printed, as recorded."""
    return (FIXTURES / name).read_text()


def test_bins_are_powers_of_two() -> None:
    """A free extent is in the bin of the largest power of two that is not above it; bins add up. A
    full filesystem has no bin; that is not the same as not known.
    """
    assert histogram([]) == ()
    found = histogram(
        [(4096, 1, 4096), (12288, 2, 24576), (8192, 1, 8192), (2**20 + 1, 1, 2**20 + 1)]
    )
    assert found == (
        FreeExtents(4096, 1, 4096),
        FreeExtents(8192, 3, 32768),
        FreeExtents(2**20, 1, 2**20 + 1),
    )


def test_free_extents_of_ext4_and_xfs() -> None:
    """Extents and blocks of each row; all of them are the free blocks that e2freefrag counts
    itself. xfsprogs 6.13 has two more columns.
    """
    found = parse_e2freefrag(said("e2freefrag-1.47.0.txt"))
    assert found[0] == (8192, 2, 5 * BLOCK)
    assert found[-1] == (64 * 2**20, 4, 113166 * BLOCK)
    assert sum(total for _, _, total in found) == 113239 * BLOCK
    assert sum(count for _, count, _ in found) == 13
    newer = parse_e2freefrag(said("e2freefrag-1.47.2.txt"))
    assert newer == [(64 * 2**20, 4, 118311 * BLOCK), (128 * 2**20, 2, 130814 * BLOCK)]
    for version, expected in {
        "6.13.0": [(2, 1, 3), (32768, 4, 242033)],
        "6.1.0": [(1, 1, 1), (8192, 1, 16374), (16384, 3, 87622)],
    }.items():
        found = parse_freesp(said(f"xfs-freesp-{version}.txt"), BLOCK)
        assert found == [
            (low * BLOCK, extents, blocks * BLOCK) for low, extents, blocks in expected
        ]


def test_btrfs_usage_counts_copies() -> None:
    """Metadata in DUP takes its bytes twice on the device, data of a single copy once."""
    assert parse_usage(said("btrfs-usage-6.2.txt")) == {
        "data": 45510656,
        "metadata": 2 * 311296,
        "system": 2 * 16384,
        "unallocated": 310378496,
    }
    for version, metadata in (("6.14", 131072), ("7.3", 147456)):
        assert parse_usage(said(f"btrfs-usage-{version}.txt")) == {
            "data": 5001216,
            "metadata": 2 * metadata,
            "system": 2 * 16384,
            "unallocated": 941228032,
        }


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_e2freefrag, "/dev/loop7: Bad magic number in super-block\n"),
        (parse_e2freefrag, said("e2freefrag-1.47.2.txt").replace("Extent Size Range", "Extents")),
        (parse_e2freefrag, said("e2freefrag-1.47.2.txt").replace("...", "-")),
        (lambda text: parse_freesp(text, BLOCK), ""),
        (
            lambda text: parse_freesp(text, BLOCK),
            said("xfs-freesp-6.13.0.txt").replace("blocks ", "space "),
        ),
        (parse_usage, said("btrfs-usage-7.3.txt").replace("Size:", "Size: ")),
        (parse_usage, said("btrfs-usage-7.3.txt").replace("Device unallocated:", "Unallocated:")),
    ],
)
def test_a_tool_that_prints_another_format_is_named(
    parse: Callable[[str], object], text: str
) -> None:
    """What is not understood is a fact that is missing, with the reason beside it, and never an
    empty one.
    """
    unread: list[str] = []
    assert shape.read_or_say("free space", lambda: parse(text), unread) is None
    assert len(unread) == 1 and "could not be parsed" in unread[0]


def test_copies_of_each_profile() -> None:
    """RAID1 and its kin write each byte several times, striping does not. Mixed block groups of a
    small filesystem count as data: what of them is metadata is not told.
    """
    for profile, copies in (
        ("Data,single", 1),
        ("Data,RAID0", 1),
        ("Data,RAID1", 2),
        ("Data,RAID10", 2),
        ("Data,RAID1C3", 3),
        ("Data+Metadata,single", 1),
    ):
        text = f"    Device unallocated:\t\t  5\n{profile}: Size:100, Used:10 (10.00%)\n"
        assert parse_usage(text) == {"data": 10 * copies, "unallocated": 5}, profile


def test_a_directory_of_others_has_largest_files_and_no_shape(tmp_path: Path) -> None:
    """Five files at most, the largest first, named below the mount point. In an existing directory
    only the files belong to dbbench: metadata and free space are unknown, never 0.
    """
    for number in range(7):
        (tmp_path / f"t{number}").write_bytes(bytes(1000 * number))
    mounted = Mounted(tmp_path, "ext4", (), (), None, (), True)
    found = shape.largest(mounted, sorted(tmp_path.iterdir()))
    assert [(one.path, one.bytes) for one in found] == [
        (f"t{n}", 1000 * n) for n in (6, 5, 4, 3, 2)
    ]
    facts = shape.find_shape(SpaceFacts(1, 2, 3), mounted, [])
    assert (facts.metadata_bytes, facts.metadata_share, facts.free) == (None, None, None)


def test_a_probe_that_cannot_be_made_has_the_error_of_making_it(tmp_path: Path) -> None:
    """A filesystem without space is not a broken one: the error tells them apart."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    caught = OSError()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        shape._probe(tmp_path)
    except OSError as error:
        caught = error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.errno == errno.EMFILE


def test_without_files_no_tool_looks_for_their_compression(tmp_path: Path) -> None:
    """A load that deletes its files leaves nothing that compsize could read."""
    mounted = Mounted(tmp_path, "btrfs", (), ("compress=zstd",), None, (), tears=False)
    facts = shape.space(mounted, 0)
    assert facts.compression_ratio is None
    assert facts.unread == ()
