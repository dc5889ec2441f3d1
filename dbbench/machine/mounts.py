"""Mounts, read from the kernel's mountinfo (proc(5))."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. `device` is "major:minor"; major 0 (btrfs, tmpfs) is not a block
    device.
    """

    id: int
    parent: int
    device: str
    point: Path
    fstype: str
    source: str  # the source as given to mount: /dev/sdb1, tmpfs
    # options of the mount and of the superblock, in the kernel's order, without duplicates
    options: tuple[str, ...]


def _every(_fstype: str, _device: str, _source: str) -> bool:
    return True


def mounts_of(
    process: Path,
    wanted: Callable[[str, str, str], bool] = _every,
) -> tuple[Mount, ...]:
    """Return the mounts in the namespace of a process (its directory in /proc), in mount order.
    `wanted` chooses by type, device and source. Raises OSError.
    """
    return parsed_mounts((process / "mountinfo").read_text(errors="surrogateescape"), wanted)


def parsed_mounts(
    mountinfo: str,
    wanted: Callable[[str, str, str], bool] = _every,
) -> tuple[Mount, ...]:
    r"""Parse a mountinfo file. Its lines end only with \n: the kernel allows other line ends in
    names.
    """
    mounts = list[Mount]()
    for line in mountinfo.split("\n"):
        if line:
            words = line.split(" ")
            dash = words.index("-", 6)  # optional fields precede it
            source = unescape(words[dash + 2])
            if wanted(words[dash + 1], words[2], source):
                mounts.append(_mount(words, dash, source))
    return tuple(mounts)


def mount_holding(path: Path, table: Sequence[Mount]) -> Mount | None:
    """Return the mount that contains `path` (absolute, without symlinks), or None if the table has
    none.
    """
    deepest: Mount | None = None  # the last one of several on the same point
    for entry in table:
        if entry.point != path and entry.point not in path.parents:
            continue
        if deepest is None or len(entry.point.parts) >= len(deepest.point.parts):
            deepest = entry
    return deepest


def _mount(
    words: list[str],
    dash: int,
    source: str,
) -> Mount:
    options = dict.fromkeys(f"{words[5]},{words[dash + 3]}".split(","))
    return Mount(
        id=int(words[0]),
        parent=int(words[1]),
        device=words[2],
        point=Path(unescape(words[4])),
        fstype=words[dash + 1],
        source=source,
        options=tuple(options),
    )


def unescape(text: str) -> str:
    r"""Decode the octal escapes of a field of mountinfo, fstab or swaps (a space is \\040)."""
    if "\\" not in text:
        return text
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
