"""Space and shape that are reported for real filesystems agree with their known content."""

import os
import random
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dbbench import process
from dbbench.model import FsSetup, Mkfs, SpaceFacts
from dbbench.storage import filesystems
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import Mounted, shape

MIB = 2**20
Mount = Callable[..., AbstractContextManager[Mounted]]
FAMILIES = [
    pytest.param(name, marks=pytest.mark.needs("root", f"mkfs.{name}", tool, f"fs:{name}"))
    for name, tool in (("ext4", "e2freefrag"), ("xfs", "xfs_spaceman"), ("btrfs", "btrfs"))
]


@pytest.fixture
def mounted(loop_device: Device, tmp_path: Path) -> Mount:
    """A new filesystem of a family, mounted with these options."""

    def made(family: str, *mount: str) -> AbstractContextManager[Mounted]:
        setup = FsSetup("of the test", Mkfs(family), mount=mount)
        filesystems.make(setup, loop_device)
        return filesystems.mount(setup, loop_device, tmp_path / "mnt")

    return made


def looked_at(fs: Mounted, *files: Path) -> SpaceFacts:
    """All that a trial records of these files."""
    return shape.find_shape(shape.space(fs, sum(path.stat().st_size for path in files)), fs, files)


def write(path: Path, piece: bytes, size: int) -> None:
    """A file of `size` bytes made of one piece again and again; no filesystem here looks farther
    than 128 KiB.
    """
    with path.open("wb") as file:
        for _ in range(size // len(piece)):
            file.write(piece)


def text_like(size: int) -> bytes:
    """Words of a small vocabulary with numbers between: what a table of text and keys looks like."""
    dice = random.Random(1)
    words = [bytes(dice.choices(b"etaoinshrdlucmfwyp", k=dice.randint(2, 9))) for _ in range(4000)]
    lines = []
    while sum(map(len, lines[-1:])) + 60 * len(lines) < size * 1.3:
        lines.append(
            b"%d\t%s\t%d\n"
            % (len(lines), b" ".join(dice.choices(words, k=8)), dice.getrandbits(32))
        )
    return b"".join(lines)[:size]


@pytest.mark.parametrize("family", FAMILIES)
def test_free_space_adds_up(family: str, mounted: Mount) -> None:
    """The histogram holds the free space that statfs tells, but for what is kept in reserve (a
    tenth at most).
    """
    with mounted(family) as fs:
        (fs.path / "t").write_bytes(os.urandom(20 * MIB))
        found = looked_at(fs, fs.path / "t")
    assert found.free
    assert sum(one.bytes for one in found.free) == pytest.approx(found.free_bytes, rel=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_holes_show_in_the_histogram(family: str, mounted: Mount) -> None:
    """Every second of many small files removed leaves at least that many small free extents more
    than before.
    """
    with mounted(family) as fs:
        before = looked_at(fs)
        for number in range(400):
            (fs.path / f"f{number}").write_bytes(os.urandom(16 * 1024))
        filesystems.sync(fs.path)
        for number in range(0, 400, 2):
            (fs.path / f"f{number}").unlink()
        after = looked_at(fs)
    assert before.free is not None and after.free is not None
    small = [
        sum(one.extents for one in found if one.from_bytes <= 16 * 1024)
        for found in (before.free, after.free)
    ]
    assert small[1] - small[0] >= 150


@pytest.mark.parametrize("family", FAMILIES)
def test_metadata_is_what_is_left(family: str, mounted: Mount) -> None:
    """Content and metadata share what is taken; empty files by the thousand are metadata alone."""
    with mounted(family) as fs:
        (fs.path / "t").write_bytes(os.urandom(32 * MIB))
        before = looked_at(fs, fs.path / "t")
        for number in range(8000):
            (fs.path / f"a-long-name-for-an-empty-file-{number:06}").touch()
        after = looked_at(fs, fs.path / "t")
    assert before.metadata_bytes is not None and after.metadata_bytes is not None
    assert before.metadata_share == pytest.approx(
        before.metadata_bytes / (before.metadata_bytes + 32 * MIB), rel=0.02
    )
    assert after.metadata_bytes > before.metadata_bytes + 200_000  # at least the names


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_extents_of_a_file_in_pieces(mounted: Mount) -> None:
    """A file of which every second MiB was written has as many extents as pieces."""
    with mounted("ext4") as fs:
        with (fs.path / "t").open("wb") as file:
            for number in range(8):
                file.seek(2 * number * MIB)
                file.write(os.urandom(MIB))
        found = looked_at(fs, fs.path / "t")
    assert [(one.path, one.extents) for one in found.largest] == [("t", 8)]


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "compsize", "fs:btrfs")
@pytest.mark.parametrize("algorithm", ["lzo", "zstd"])
def test_zeros_and_random_bytes(
    algorithm: str,
    image: Path,
    tmp_path: Path,
) -> None:
    """Random bytes do not shrink; of zeros each 128 KiB shrink to a block of 4 KiB, the best there
    is.
    """
    os.truncate(image, 1024 * MIB)
    size = 256 * MIB
    setup = FsSetup("of the test", Mkfs("btrfs"), mount=(f"compress={algorithm}",))
    with loop.attach(image) as device:
        filesystems.make(setup, device)
        with filesystems.mount(setup, device, tmp_path / "mnt") as fs:
            write(fs.path / "noise", os.urandom(64 * MIB), size)
            noise = looked_at(fs, fs.path / "noise")
            (fs.path / "noise").unlink()
            filesystems.sync(fs.path)
            write(fs.path / "zeros", bytes(64 * MIB), size)
            zeros = looked_at(fs, fs.path / "zeros")
    assert noise.compression_ratio == pytest.approx(1.0, abs=0.01)
    assert zeros.compression_ratio == pytest.approx(32.0, abs=0.5)
    assert zeros.largest[0].extents == pytest.approx(size // (128 * 1024), rel=0.01)


@pytest.mark.needs("root", "mkfs.btrfs", "btrfs", "compsize", "fs:btrfs")
def test_algorithms_in_their_order(mounted: Mount) -> None:
    """Text-like data: lzo < zlib, about as zstd level 1 (a tenth), < zstd level 15."""
    data = text_like(24 * MIB)
    ratios = {}
    for algorithm in ("lzo", "zlib", "zstd:1", "zstd:15"):
        with mounted("btrfs", f"compress={algorithm}") as fs:
            (fs.path / "t").write_bytes(data)
            ratios[algorithm] = looked_at(fs, fs.path / "t").compression_ratio or 0.0
    assert ratios["lzo"] < min(ratios["zlib"], ratios["zstd:1"]), ratios
    assert ratios["zstd:1"] == pytest.approx(ratios["zlib"], rel=0.1), ratios
    assert ratios["zstd:15"] > max(ratios["zlib"], ratios["zstd:1"]), ratios
    assert ratios["zlib"] == pytest.approx(
        len(data) / len(zlib.compress(data[: 4 * MIB], 3)) / 6, rel=0.15
    ), ratios


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_a_tool_that_is_missing_is_not_a_zero(
    mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without e2freefrag the histogram is not known; the rest still is."""
    real = process.find
    monkeypatch.setattr(process, "find", lambda name: None if name == "e2freefrag" else real(name))
    with mounted("ext4") as fs:
        (fs.path / "t").write_bytes(bytes(MIB))
        found = looked_at(fs, fs.path / "t")
    assert found.free is None
    assert found.metadata_bytes is not None and found.largest[0].extents == 1
