"""The disks that a trial shares with others: those that hold its images."""

from __future__ import annotations

from pathlib import Path

from dbbench.devices import sysfs
from dbbench.devices.directory import disk_below
from dbbench.devices.port import Device


def shared_disks(device: Device) -> tuple[str, ...]:
    """Kernel names of whole disks below its images, on which others may read and write too; () where nobody tells."""
    found: list[str] = []
    for disk in device.disks:
        if disk.facts.image:
            name = disk_below(Path(disk.facts.image).parent)
            found += sysfs.leaves(name) if name else ()
    return tuple(dict.fromkeys(found))
