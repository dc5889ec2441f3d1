"""Aged filesystems: the same sequence of writes on each, and fragmented free space."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbbench.errors import FilesystemFull
from dbbench.model import AgeFacts, Ageing, FreeExtents, FsSetup, Mkfs
from dbbench.storage import ageing, filesystems
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import Mounted

FAMILIES = [
    pytest.param(name, marks=pytest.mark.needs("root", f"mkfs.{name}", tool, f"fs:{name}"))
    for name, tool in (("ext4", "e2freefrag"), ("xfs", "xfs_spaceman"), ("btrfs", "btrfs"))
]
ASKED = Ageing(fill=0.4, churn=1.0)


@pytest.fixture
def fs(
    request: pytest.FixtureRequest,
    loop_device: Device,
    tmp_path: Path,
) -> Iterator[Mounted]:
    """A new filesystem of the parameter's family."""
    setup = FsSetup("of the test", Mkfs(request.param))
    filesystems.make(setup, loop_device)
    with filesystems.mount(setup, loop_device, tmp_path / "mnt") as mounted:
        yield mounted


def content(fs: Mounted) -> dict[str, tuple[int, int]]:
    """Size and CRC-32 of every aged file, by name."""
    root = fs.path / ageing.FOLDER
    files = [path for path in root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): (path.stat().st_size, zlib.crc32(path.read_bytes()))
        for path in files
    }


def pieces(found: tuple[FreeExtents, ...] | None) -> tuple[int, int]:
    """How many free extents, and bytes of all."""
    assert found is not None
    return sum(one.extents for one in found), sum(one.bytes for one in found)


_first: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {}


@pytest.mark.parametrize("fs", FAMILIES, indirect=True)
def test_same_files_on_every_filesystem(fs: Mounted, loop_device: Device) -> None:
    """Names, sizes and bytes are those that any other filesystem got; the fill is what was
    asked.
    """
    found = ageing.age(fs, loop_device.facts.size_bytes, ASKED, seed=7)
    there = content(fs)
    reference = _first.setdefault("reference", (found.digest, there))
    assert (found.digest, there) == reference
    assert len(there) == found.files
    assert sum(size for size, _ in there.values()) == pytest.approx(
        0.4 * loop_device.facts.size_bytes, abs=4096
    )
    assert found.filled == pytest.approx(0.47, abs=0.1)


@pytest.mark.parametrize("fs", FAMILIES, indirect=True)
def test_free_space_is_in_pieces(fs: Mounted, loop_device: Device) -> None:
    """Before: a few large extents. Afterwards many: the mean one is less than a quarter."""
    found: AgeFacts = ageing.age(fs, loop_device.facts.size_bytes, ASKED, seed=7)
    (few, much), (many, less) = pieces(found.before), pieces(found.after)
    assert less / many < 0.25 * much / few
    assert less < 0.75 * much


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
@pytest.mark.parametrize("fs", ["ext4"], indirect=True)
def test_too_full_is_reported(fs: Mounted, loop_device: Device) -> None:
    """A fill that the filesystem has no room for is an error with its name, not a smaller fill."""
    with pytest.raises(FilesystemFull, match="aged"):
        ageing.age(fs, loop_device.facts.size_bytes, Ageing(fill=0.99, churn=0.0), seed=1)
