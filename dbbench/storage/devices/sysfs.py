"""Block devices in /sys: names, sizes, and the devices above and below one.

Counters and queue attributes of disks, from /sys/block. Counters survive a detach: only differences are meaningful.

Fields of `stat`: Documentation/block/stat.rst of the kernel (the 16th, flush requests, since 5.5).

The loop driver's ioctls (linux/loop.h): get a free device, bind a file to it, query the bound file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

SYS: Final = Path("/sys")
SECTOR_BYTES: Final = 512  # unit of every size in /sys/block, whatever the sector of the device is
_READS: Final = 0  # positions in /sys/class/block/DISK/stat (Documentation/block/stat.rst)
_READ_SECTORS: Final = 2
_WRITES: Final = 4
_WRITE_SECTORS: Final = 6
_FLUSHES: Final = 15


def folder(name: str) -> Path:
    """Return the device's directory, for disks and partitions."""
    return SYS / "class/block" / name


def read(path: Path) -> str | None:
    """Return an attribute without surrounding white space, or None if it is missing or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def name_of(number: int) -> str | None:
    """Return the kernel name (sda1, loop7) of a device number, or None without a block device (btrfs, tmpfs)."""
    entry = SYS / f"dev/block/{os.major(number)}:{os.minor(number)}"
    return entry.resolve().name if os.path.lexists(entry) else None  # Podman hides this directory


def number_of(name: str) -> int | None:
    """Return the device number of a kernel name."""
    device_number = read(folder(name) / "dev")
    if device_number is None:
        return None
    major, minor = device_number.split(":")
    return os.makedev(int(major), int(minor))


def size_bytes(name: str) -> int:
    """Return the size; 0 for a device without a medium or a name that does not exist."""
    return int(read(folder(name) / "size") or 0) * SECTOR_BYTES


def disks() -> list[str]:
    """Return the kernel names of all disks, including md, dm and loop devices, without paths of a multipath disk."""
    return sorted(entry.name for entry in (SYS / "block").iterdir() if read(entry / "hidden") != "1")


def other_disks(names: Container[str]) -> tuple[str, ...]:
    """Return the kernel names of all hardware disks that are not among these."""
    return tuple(name for name in disks() if name not in names and (folder(name) / "device").exists())


def disk_of(name: str) -> str:
    """Return the disk of a partition; a disk itself."""
    here = folder(name).resolve()
    return here.parent.name if (here / "partition").exists() else name


def partitions(name: str) -> list[str]:
    """Return the partitions that the kernel knows on a disk."""
    here = folder(name)
    return sorted(entry.name for entry in here.iterdir() if (entry / "partition").exists())


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
    return tuple(dict.fromkeys(leaf for lower in below for leaf in leaves(lower))) if below else (disk,)


def btrfs_on(numbers: Container[int | None]) -> list[str]:
    """Return the UUIDs of the mounted btrfs filesystems that have one of the device numbers."""
    mounted = SYS / "fs/btrfs"
    return [
        uuid
        for uuid in _names(mounted)
        if any(number_of(name) in numbers for name in _names(mounted / uuid / "devices"))
    ]


def _names(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return []


class IoCounters(NamedTuple):
    """Bytes and completed requests since the disk appeared."""

    read_bytes: int
    write_bytes: int
    read_operations: int
    write_operations: int


def io_counters(name: str) -> IoCounters | None:
    """Return what a disk (or partition) has read and written so far, or None if it is gone."""
    fields = _stat(name)
    if fields is None:
        return None
    bytes_moved = (fields[_READ_SECTORS] * SECTOR_BYTES, fields[_WRITE_SECTORS] * SECTOR_BYTES)
    return IoCounters(*bytes_moved, fields[_READS], fields[_WRITES])


def flushes(leaves: Sequence[str]) -> int | None:
    """Return the flush requests that the disks have completed so far; None if `flushes_reason` gives a reason."""
    if flushes_reason(leaves):
        return None
    counted = [_stat(leaf) for leaf in leaves]
    return sum(fields[_FLUSHES] for fields in counted if fields is not None)


def flushes_reason(leaves: Sequence[str]) -> str:
    """Return why flushes cannot be counted here; "" if they can. The kernel sends no flushes to a disk with `write
    through`, so there is nothing to count."""
    if not leaves:
        return "no disk is known below"
    for leaf in leaves:
        cache = read(folder(leaf) / "queue/write_cache")
        if cache != "write back":
            return f"{leaf} has write_cache {cache or 'unknown'}"
        fields = _stat(leaf)
        if fields is None or len(fields) <= _FLUSHES:
            return f"{leaf} does not count flushes"
    return ""


def queue_attributes(name: str) -> dict[str, str]:
    """Return every readable attribute of the disk's queue (scheduler, read_ahead_kb, write_cache ...), by name."""
    queue = folder(disk_of(name)) / "queue"
    attributes: dict[str, str] = {}
    for entry in sorted(queue.iterdir()) if queue.is_dir() else ():
        value = read(entry) if entry.is_file() else None
        if value is not None:
            attributes[entry.name] = value
    return attributes


def _stat(name: str) -> list[int] | None:
    counters = read(folder(name) / "stat")
    return [int(word) for word in counters.split()] if counters else None


CONTROL: Final = Path("/dev/loop-control")
LO_FLAGS_AUTOCLEAR: Final = 4
LO_FLAGS_DIRECT_IO: Final = 16
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_GET_STATUS64: Final = 0x4C05
_BLKBSZSET: Final = 0x40081271
_INFO: Final = struct.Struct("=5Q4I64s64s32s2Q")  # struct loop_info64
_CONFIG: Final = struct.Struct(f"=2I{_INFO.size}s8Q")  # struct loop_config


@dataclass(frozen=True)
class LoopStatus:
    """The file of a loop device as (device, inode), or its block device by number (0: none)."""

    file: tuple[int, int]
    number: int
    file_name: str  # from sysfs: never truncated, but possibly misleading from another mount namespace


def free_number() -> int:
    """Return the number of a currently free loop device. Raises OSError."""
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)


def configure(device: int, file: int, flags: int, sector_bytes: int) -> None:
    """Bind an open file to an open loop device with these flags and sectors (0: of 512 bytes) atomically. OSError
    EBUSY: another process was faster. EINVAL: the kernel has no such sectors."""
    name = os.fsencode(Path(f"/proc/self/fd/{file}").readlink())[:63]
    info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    fcntl.ioctl(device, _LOOP_CONFIGURE, _CONFIG.pack(file, sector_bytes, info, *[0] * 8))
    if sector_bytes:  # until the next first open, the page cache of the device would still have smaller blocks
        fcntl.ioctl(device, _BLKBSZSET, struct.pack("=i", sector_bytes))


def is_bound(name: str) -> bool:
    """Whether that is a loop device with a bound file."""
    return (folder(name) / "loop/backing_file").exists()


def status(name: str) -> LoopStatus | None:
    """Return what a loop device is bound to, or None if it was released meanwhile. Raises OSError. A file that the
    kernel cannot examine, because the server of its filesystem has died, is (0, 0). It is not a file that can be
    examined at the same time."""
    fd = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        answer = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(_INFO.size))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        answer = bytes(_INFO.size)
    finally:
        os.close(fd)
    device, inode, number, *_ = _INFO.unpack(answer)
    return LoopStatus((device, inode), number, read(folder(name) / "loop/backing_file") or "")
