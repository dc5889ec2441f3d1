"""Devices for filesystems: loop files, block devices, existing directories; and the kernel's counters for them.

A new kind is one module with `attached(spec, image, permit, arm)` and one line in KINDS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench.errors import DeviceUnusable
from dbbench.model import DeviceSpec
from dbbench.storage.devices import block, directory, guard, loop, sysfs
from dbbench.storage.devices.naming import Described, describe_all, identity
from dbbench.storage.devices.port import Attached, Device, Images, Permit, joint, with_spare
from dbbench.storage.devices.sysfs import IoCounters, flushes, flushes_reason, io_counters, leaves, queue_attributes

__all__ = [
    "KINDS",
    "Described",
    "Device",
    "Images",
    "IoCounters",
    "Permit",
    "attached",
    "describe_all",
    "flushes",
    "flushes_reason",
    "identity",
    "io_counters",
    "leaves",
    "over",
    "queue_attributes",
    "size_bytes",
]


def attached(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str = "", most: int = 1,
             spare: int = 0) -> AbstractContextManager[Device]:  # fmt: skip
    """Attach the plan's device for one trial, locked until the block ends.

    Of several devices the first `most` become one, with that of `[device.wal]` next to it. `spare`: also attach so many
    devices that are left over, and leave them over even if `most` would use all. `images` are the run's (kind loop),
    `arm` is the fs setup's label (kind dir: `paths` is by arm). A directory's Device has `fd` -1 and the working
    directory as `path`. Raises the errors of its kind before anything was changed: DeviceUnusable, DeviceLocked,
    DeviceInUse, DeviceNotEmpty, NotRoot, MakeFailed.
    """
    if not spare or spec.given <= spare:
        return KINDS[spec.kind](spec, images, permit, arm, most)
    most = min(most, spec.given - spare)
    left = slice(most, most + spare)
    alone = dataclasses.replace(spec, paths=tuple(spec.paths)[left], path=None, identity=None, wal=None)
    last = Images(images.data[left]) if images else None
    whole = KINDS[spec.kind](spec, images, permit, arm, most)
    return with_spare(whole, KINDS[spec.kind](alone, last, permit, arm, spare))


def _loop(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str, most: int
          ) -> AbstractContextManager[Device]:  # fmt: skip
    if images is None:
        raise DeviceUnusable("a loop device requires an image file", effect="Nothing was changed.")
    return over(dataclasses.replace(images, data=images.data[:most]))


def over(images: Images) -> AbstractContextManager[Device]:
    """Attach loop devices over these images as one device, with that of the log next to it. See `loop.attached`."""
    wal = loop.attached(images.wal) if images.wal else None
    return joint([loop.attached(image, images.sector_bytes) for image in images.data], wal)


def _block(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str, most: int
           ) -> AbstractContextManager[Device]:  # fmt: skip
    paths = [spec.path] if spec.path else list(spec.paths)[:most]
    if not paths:
        raise DeviceUnusable("the plan names no block device", effect=guard.UNTOUCHED,
                             remedy='Set path = "/dev/disk/by-id/..." in [device].')  # fmt: skip
    _must_differ([*paths, *([spec.wal.path] if spec.wal and spec.wal.path else [])])
    wal = block.attached(Path(spec.wal.path), spec.wal.identity, permit) if spec.wal and spec.wal.path else None
    return joint([block.attached(Path(path), spec.identity, permit) for path in paths], wal)


def _must_differ(paths: Sequence[str]) -> None:
    """Raise DeviceUnusable if two of the plan's paths are the same device."""
    first: dict[int, str] = {}
    for path in paths:
        number = block.number_of(Path(path))
        if number in first:
            raise DeviceUnusable(
                f"{path} is listed twice in [device]" + ("" if path == first[number] else f", also as {first[number]}"),
                effect=guard.UNTOUCHED,
                remedy="List each device once.",
            )
        if number is not None:
            first[number] = path


def size_bytes(path: Path) -> int | None:
    """Return the size of a block device, or None if the path is not one."""
    number = block.number_of(path)
    name = None if number is None else sysfs.name_of(number)
    return None if name is None else sysfs.size_bytes(name)


def _dir(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str, most: int
         ) -> AbstractContextManager[Device]:  # fmt: skip
    return directory.attached(spec, arm)


KINDS: Final[dict[str, Attached]] = {"loop": _loop, "block": _block, "dir": _dir}
