"""Block devices in /sys: names, sizes, what is above and below, and counters, which survive a
detach.
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

from dbbench.machine.host.proc import disk_counts, text

SYS: Final = Path("/sys")
SECTOR_BYTES: Final = 512  # unit of every size in /sys/block, whatever the sector of the device is
# Bytes and completed requests: position in /sys/class/block/DISK/stat
# (Documentation/block/stat.rst), unit.
COUNTED: Final = {
    "read_bytes": (2, SECTOR_BYTES),
    "write_bytes": (6, SECTOR_BYTES),
    "read_operations": (0, 1),
    "write_operations": (4, 1),
}
_FLUSHES: Final = 15


def folder(name: str) -> Path:
    """Return the device's directory, for disks and partitions."""
    return Path(f"{SYS}/class/block/{name}")


def attribute(name: str, place: str) -> str | None:
    """Return an attribute of a device without surrounding white space, or None if it is missing or
    unreadable.
    """
    return text(folder(name) / place)


def name_of(number: int) -> str | None:
    """Return the kernel name (sda1, loop7) of a device number, or None without a block device
    (btrfs, tmpfs).
    """
    entry = SYS / f"dev/block/{os.major(number)}:{os.minor(number)}"
    if not os.path.lexists(entry):  # Podman hides this directory
        return None
    return entry.resolve().name


def name_at(path: Path) -> str | None:
    """Return the kernel name of the device file at `path`, or None. Raises OSError without one."""
    return name_of(path.stat().st_rdev)


def number_of(name: str) -> int | None:
    """Return the device number of a kernel name."""
    device_number = attribute(name, "dev")
    if not device_number:
        return None
    major, minor = device_number.split(":")
    return os.makedev(int(major), int(minor))


def size_bytes(name: str) -> int:
    """Return the size; 0 for a device without a medium or a name that does not exist."""
    return int(attribute(name, "size") or 0) * SECTOR_BYTES


def disks() -> list[str]:
    """Return the kernel names of all disks, including md, dm and loop devices, without paths of a
    multipath disk.
    """
    folders = (SYS / "block").iterdir()
    return sorted(folder.name for folder in folders if text(folder / "hidden") != "1")


def other_disks(names: Container[str]) -> tuple[str, ...]:
    """Return the kernel names of all hardware disks that are not among these."""
    others = []
    for name in disks():
        is_hardware = (folder(name) / "device").exists()
        if is_hardware and name not in names:
            others.append(name)
    return tuple(others)


def disk_of(name: str) -> str:
    """Return the disk of a partition; a disk itself."""
    here = folder(name).resolve()
    if (here / "partition").exists():
        return here.parent.name
    return name


def partitions(name: str) -> list[str]:
    """Return the partitions that the kernel knows on a disk."""
    here = folder(name)
    # The kernel names them after the disk, which has dozens of other entries.
    named = [entry for entry in here.iterdir() if entry.name.startswith(name)]
    return sorted(entry.name for entry in named if (entry / "partition").exists())


def holders(name: str) -> list[str]:
    """Return the md and dm devices that are built on this one."""
    return _names(folder(name) / "holders")


def slaves(name: str) -> list[str]:
    """Return the devices on which this md or dm device is built."""
    return _names(folder(name) / "slaves")


def above(name: str) -> list[str]:
    """Return all devices on this one: partitions and holders, recursively."""
    names: list[str] = []
    for upper in (*partitions(name), *holders(name)):
        names += [upper, *above(upper)]
    return names


def leaves(name: str) -> tuple[str, ...]:
    """Return the disks at the bottom: of a partition its disk, of md and dm their members' disks."""
    disk = disk_of(name)
    below = slaves(disk)
    if not below:
        return (disk,)
    names = dict[str, None]()
    for lower in below:
        names |= dict.fromkeys(leaves(lower))
    return tuple(names)


def mounted_btrfs() -> dict[str, set[int | None]]:
    """Return the device numbers of each mounted btrfs filesystem, by its UUID."""
    members = dict[str, set[int | None]]()
    folder_of_all = SYS / "fs/btrfs"
    for uuid in _names(folder_of_all):
        disks_of_it = _names(folder_of_all / uuid / "devices")
        members[uuid] = set(map(number_of, disks_of_it))
    return members


def _names(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return []


def io_counters(name: str) -> dict[str, int] | None:
    """Return what a disk (or partition) has moved since it appeared, by the names of COUNTED, or
    None if it is gone.
    """
    fields = disk_counts(folder(name))
    if fields is None:
        return None
    counters = {}
    for counter, (place, unit) in COUNTED.items():
        counters[counter] = fields[place] * unit
    return counters


def flushes(leaves: Sequence[str]) -> int | None:
    """Return the flush requests that the disks have completed so far; None if `flushes_reason`
    gives a reason.
    """
    if flushes_reason(leaves):
        return None
    counted = [disk_counts(folder(leaf)) for leaf in leaves]
    return sum(fields[_FLUSHES] for fields in counted if fields is not None)


def flushes_reason(leaves: Sequence[str]) -> str:
    """Return why flushes cannot be counted, or "". The kernel sends none to a disk with `write
    through`.
    """
    if not leaves:
        return "no disk is known below"
    for leaf in leaves:
        cache = attribute(leaf, "queue/write_cache")
        if cache != "write back":
            return f"{leaf} has write_cache {cache or 'unknown'}"
        fields = disk_counts(folder(leaf))
        if fields is None or len(fields) <= _FLUSHES:
            return f"{leaf} does not count flushes"
    return ""


def queue_attributes(name: str) -> dict[str, str]:
    """Return every readable attribute of the disk's queue (scheduler, read_ahead_kb, write_cache
    ...), by name.
    """
    queue = folder(disk_of(name)) / "queue"
    values = {}
    for entry in sorted(queue.glob("*")):
        value = text(entry) if entry.is_file() else None
        if value is not None:
            values[entry.name] = value
    return values
