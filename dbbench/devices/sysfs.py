"""What the kernel says about block devices in /sys: names, sizes, and what stands above and below one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SYS: Final = Path("/sys")
SECTOR_BYTES: Final = 512  # of every number in /sys/block, whatever the device's own sector is


def folder(name: str) -> Path:
    """The device's folder, of whole disks and partitions alike."""
    return SYS / "class/block" / name


def read(path: Path) -> str | None:
    """An attribute without white space around it; None where it is not there or cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def name_of(number: int) -> str | None:
    """The kernel name (sda1, loop7) of a device number; None for numbers without a block device (btrfs, tmpfs)."""
    entry = SYS / f"dev/block/{os.major(number)}:{os.minor(number)}"
    return entry.resolve().name if entry.exists() else None


def number_of(name: str) -> int | None:
    """The device number of a kernel name."""
    text = read(folder(name) / "dev")
    if text is None:
        return None
    major, minor = text.split(":")
    return os.makedev(int(major), int(minor))


def size_bytes(name: str) -> int:
    """The size; 0 for a device without a medium or a name that is not there."""
    return int(read(folder(name) / "size") or 0) * SECTOR_BYTES


def disks() -> list[str]:
    """The kernel names of all whole disks, md, dm and loop devices among them; no paths of a multipath disk."""
    return sorted(entry.name for entry in (SYS / "block").iterdir() if read(entry / "hidden") != "1")


def disk_of(name: str) -> str:
    """The whole disk of a partition; a whole disk itself."""
    here = folder(name).resolve()
    return here.parent.name if (here / "partition").exists() else name


def partitions(name: str) -> list[str]:
    """The partitions that the kernel knows on a disk."""
    here = folder(name)
    return sorted(entry.name for entry in here.iterdir() if (entry / "partition").exists())


def holders(name: str) -> list[str]:
    """The md and dm devices that are built on this one."""
    return _names(folder(name) / "holders")


def slaves(name: str) -> list[str]:
    """The devices that this md or dm device is built on."""
    return _names(folder(name) / "slaves")


def above(name: str) -> list[str]:
    """All devices that lie on this one: partitions and holders, theirs too."""
    found: list[str] = []
    for upper in (*partitions(name), *holders(name)):
        found += [upper, *above(upper)]
    return found


def leaves(name: str) -> tuple[str, ...]:
    """The whole disks at the bottom: of a partition its disk, of md and dm their members' disks."""
    disk = disk_of(name)
    below = slaves(disk)
    return tuple(dict.fromkeys(leaf for lower in below for leaf in leaves(lower))) if below else (disk,)


def _names(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return []
