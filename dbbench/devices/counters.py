"""Counters and queue attributes of disks, from /sys/block. Counters survive a detach: only differences count.

Fields of `stat`: Documentation/block/stat.rst of the kernel (the 16th, flush requests, since 5.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench.devices import sysfs

_READ_SECTORS: Final = 2
_WRITE_SECTORS: Final = 6
_FLUSHES: Final = 15


class IoCounters(NamedTuple):
    """Bytes since the disk appeared."""

    read_bytes: int
    write_bytes: int


def io_counters(name: str) -> IoCounters | None:
    """What a disk (or partition) has read and written so far; None where it is gone."""
    fields = _stat(name)
    if fields is None:
        return None
    return IoCounters(fields[_READ_SECTORS] * sysfs.SECTOR_BYTES, fields[_WRITE_SECTORS] * sysfs.SECTOR_BYTES)


def flushes(leaves: Sequence[str]) -> int | None:
    """Flush requests that the disks have carried out so far; None where `flushes_reason` says why."""
    if flushes_reason(leaves):
        return None
    counted = [_stat(leaf) for leaf in leaves]
    return sum(fields[_FLUSHES] for fields in counted if fields is not None)


def flushes_reason(leaves: Sequence[str]) -> str:
    """Why flushes cannot be counted here; "" where they can.

    To a disk with `write through` the kernel sends no flushes: there are none to be counted.
    """
    if not leaves:
        return "no disk is known below"
    for leaf in leaves:
        cache = sysfs.read(sysfs.folder(leaf) / "queue/write_cache")
        if cache != "write back":
            return f"{leaf} has write_cache {cache or 'unknown'}"
        fields = _stat(leaf)
        if fields is None or len(fields) <= _FLUSHES:
            return f"{leaf} does not count flushes"
    return ""


def queue_attributes(name: str) -> dict[str, str]:
    """Every readable attribute of the disk's queue (scheduler, read_ahead_kb, write_cache ...), by name."""
    queue = sysfs.folder(sysfs.disk_of(name)) / "queue"
    found: dict[str, str] = {}
    for entry in sorted(queue.iterdir()) if queue.is_dir() else ():
        value = sysfs.read(entry) if entry.is_file() else None
        if value is not None:
            found[entry.name] = value
    return found


def _stat(name: str) -> list[int] | None:
    text = sysfs.read(sysfs.folder(name) / "stat")
    return [int(word) for word in text.split()] if text else None
