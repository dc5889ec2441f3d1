"""Changed bytes: which blocks are on a disk, and how one is changed."""

import os
from pathlib import Path

from dbbench.labs.harm import flips
from dbbench.labs.harm.flips import FLIPPED
from tests.support.files import write_file

A, B = (letter * FLIPPED for letter in (b"a", b"b"))


def disk(path: Path, **blocks: bytes) -> Path:
    """A sparse disk of 64 blocks with these at their numbers, named `_N`."""
    with path.open("wb") as file:
        os.truncate(file.fileno(), 64 * FLIPPED)
        for number, content in blocks.items():
            os.pwrite(file.fileno(), content, int(number[1:]) * FLIPPED)
    return path


def test_a_block_is_found_on_each_disk(tmp_path: Path) -> None:
    """Both copies of a mirror are places; holes are not read."""
    first = disk(tmp_path / "0", _3=A, _40=B)
    second = disk(tmp_path / "1", _5=B, _9=A)
    disks = {"data": (first, second)}
    assert flips._places(disks, {A}) == [(0, 3 * FLIPPED), (1, 9 * FLIPPED)]
    assert flips._places(disks, {bytes(FLIPPED)}) == []
    offsets = [offset for _number, offset, _block in flips._list_blocks({"data": (first,)})]
    assert offsets == [3 * FLIPPED, 40 * FLIPPED]


def test_only_whole_blocks_with_content_are_sought(tmp_path: Path) -> None:
    """Zeros are everywhere; the end of a file is followed by zeros on the disk."""
    path = write_file(tmp_path / "file", A + bytes(FLIPPED) + b"end")
    assert list(flips._blocks(path)) == [A, b"end" + bytes(FLIPPED - 3)]


def test_each_byte_of_the_block_changes_and_nothing_else(tmp_path: Path) -> None:
    """In its lowest bit: text stays text."""
    image = disk(tmp_path / "0", _3=A, _4=B)
    assert flips._flip(image, 3 * FLIPPED) == A
    assert image.read_bytes()[2 * FLIPPED : 5 * FLIPPED] == bytes(FLIPPED) + b"`" * FLIPPED + B
