"""Where filesystems are made: loop files, block devices, existing directories; and what the kernel counts there.

A new kind is one module with `attached(spec, image, permit, arm)` and one line in KINDS.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench.devices import block, directory, guard, loop
from dbbench.devices.counters import IoCounters, flushes, flushes_reason, io_counters, queue_attributes
from dbbench.devices.joint import joint, with_spare
from dbbench.devices.naming import Described, describe_all, identity
from dbbench.devices.port import Attached, Device, Images, Permit
from dbbench.devices.sysfs import leaves
from dbbench.errors import DeviceUnusable
from dbbench.model import DeviceSpec

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
]


def attached(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str = "", most: int = 1,
             spare: bool = False) -> AbstractContextManager[Device]:  # fmt: skip
    """The device of the plan for one trial, ours until the block ends: the first `most` of several as one, and
    that of `[device.wal]` beside it. `spare`: one that would be left over goes along, and is left over by force
    where `most` would take all.

    `images` are the run's (kind loop), `arm` the fs setup's label (kind dir: `paths` is by arm). A directory's
    Device has `fd` -1 and the working folder as `path`. Raises what its kind does, before anything was changed:
    DeviceUnusable, DeviceLocked, DeviceInUse, DeviceNotEmpty, DirectoryRefused, NotRoot, LoopFailed.
    """
    if not spare or spec.given < 2:
        return KINDS[spec.kind](spec, images, permit, arm, most)
    most = min(most, spec.given - 1)
    alone = dataclasses.replace(spec, paths=tuple(spec.paths)[most : most + 1], path=None, identity=None, wal=None)
    last = Images(images.data[most : most + 1]) if images else None
    whole = KINDS[spec.kind](spec, images, permit, arm, most)
    return with_spare(whole, KINDS[spec.kind](alone, last, permit, arm, 1))


def _loop(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str, most: int
          ) -> AbstractContextManager[Device]:  # fmt: skip
    if images is None:
        raise DeviceUnusable("a loop device needs an image file", effect="Nothing was changed.")
    return over(Images(images.data[:most], images.wal))


def over(images: Images) -> AbstractContextManager[Device]:
    """Loop devices over these images as one device, with that of the log beside it. See `loop.attached`."""
    wal = loop.attached(images.wal) if images.wal else None
    return joint([loop.attached(image) for image in images.data], wal)


def _block(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str, most: int
           ) -> AbstractContextManager[Device]:  # fmt: skip
    paths = [spec.path] if spec.path else list(spec.paths)[:most]
    if not paths:
        raise DeviceUnusable("the plan names no block device", effect=guard.UNTOUCHED,
                             remedy='Give  path = "/dev/disk/by-id/..."  in [device].')  # fmt: skip
    wal = block.attached(Path(spec.wal.path), spec.wal.identity, permit) if spec.wal and spec.wal.path else None
    return joint([block.attached(Path(path), spec.identity, permit) for path in paths], wal)


def _dir(spec: DeviceSpec, images: Images | None, permit: Permit, arm: str, most: int
         ) -> AbstractContextManager[Device]:  # fmt: skip
    return directory.attached(spec, arm)


KINDS: Final[dict[str, Attached]] = {"loop": _loop, "block": _block, "dir": _dir}
