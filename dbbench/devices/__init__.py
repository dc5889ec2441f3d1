"""Where filesystems are made: loop files, block devices, existing directories; and what the kernel counts there.

A new kind is one module with `attached(spec, image, permit, arm)` and one line in KINDS.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench.devices import block, directory, loop
from dbbench.devices.counters import IoCounters, flushes, flushes_reason, io_counters, queue_attributes
from dbbench.devices.naming import Described, describe_all, identity
from dbbench.devices.port import Attached, Device, Permit
from dbbench.devices.sysfs import leaves
from dbbench.errors import DeviceUnusable
from dbbench.model import DeviceSpec

__all__ = [
    "KINDS",
    "Described",
    "Device",
    "IoCounters",
    "Permit",
    "attached",
    "describe_all",
    "flushes",
    "flushes_reason",
    "identity",
    "io_counters",
    "leaves",
    "queue_attributes",
]


def attached(spec: DeviceSpec, image: Path | None, permit: Permit, arm: str = "") -> AbstractContextManager[Device]:
    """The device of the plan for one trial, ours until the block ends.

    `image` is the run's image file (kind loop), `arm` the fs setup's label (kind dir: `paths` is by arm). A
    directory's Device has `fd` -1 and the working folder as `path`. Raises what its kind does, before anything
    was changed: DeviceUnusable, DeviceLocked, DeviceInUse, DeviceNotEmpty, DirectoryRefused, NotRoot, LoopFailed.
    """
    return KINDS[spec.kind](spec, image, permit, arm)


def _loop(spec: DeviceSpec, image: Path | None, permit: Permit, arm: str) -> AbstractContextManager[Device]:
    if image is None:
        raise DeviceUnusable("a loop device needs an image file", effect="Nothing was changed.")
    return loop.attached(image)


KINDS: Final[dict[str, Attached]] = {"loop": _loop, "block": block.attached, "dir": directory.attached}
