"""Devices for filesystems, with the kernel's counters for them. A new kind is one module and one
line in KINDS.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench.errors import DeviceUnusable
from dbbench.model import DeviceSpec, Role
from dbbench.results.journal import Journal
from dbbench.storage.devices import block, directory, loop, sysfs
from dbbench.storage.devices.guard import Permit
from dbbench.storage.devices.naming import (
    DiskNames,
    Listed,
    describe_all,
    identity,
    identity_of,
    model,
)
from dbbench.storage.devices.port import Device, DiskSet, joint, leaves_of
from dbbench.storage.devices.sysfs import (
    flushes,
    flushes_reason,
    io_counters,
    leaves,
    queue_attributes,
)

__all__ = [
    "KINDS",
    "Device",
    "DiskNames",
    "DiskSet",
    "Listed",
    "Permit",
    "attach",
    "describe_all",
    "flushes",
    "flushes_reason",
    "holding",
    "identity",
    "identity_of",
    "io_counters",
    "leaves",
    "leaves_of",
    "model",
    "note",
    "queue_attributes",
    "size_bytes",
]


def note(journal: Journal | None, event: str, disks: Iterable[Device], **more: str) -> None:
    """Record an event of block devices in the journal, by their identity; nothing for image files
    and layers.
    """
    for disk in disks:
        if journal is not None and (name := disk.identity):
            journal.note(event, device=name, **more)


@contextlib.contextmanager
def attach(
    disks: Mapping[Role, DiskSet],
    permit: Permit,
    arm: str = "",
) -> Iterator[dict[Role, Device]]:
    """Attach the plan's devices of each volume for one trial, locked until the block ends. `arm`:
    the fs setup's label, for `paths` of kind dir, whose Device has `fd` -1 and the working
    directory as `path`. Raises the errors of its kind before anything was changed:
    DeviceUnusable, DeviceInUse, DeviceNotEmpty, MakeFailed.
    """
    _must_differ([path for some in disks.values() for path in some.spec.disks[: some.most]])
    with contextlib.ExitStack() as stack:
        yield {
            role: stack.enter_context(_with_spare(some, permit, arm))
            for role, some in disks.items()
        }


@contextlib.contextmanager
def holding(spec: DeviceSpec, wipe: Sequence[str], journal: Journal) -> Iterator[None]:
    """Hold the disks of kind block exclusively within the block; nothing is written to them. `wipe`:
    typed identities of disks that may be erased. Raises DeviceUnusable, DeviceInUse,
    DeviceNotEmpty.
    """
    disks: dict[Role, DiskSet] = {}
    if spec.disks:
        for role, volume in spec.volumes.items():
            disks[role] = DiskSet(volume, most=volume.device_count)
    with attach(disks, Permit(wipe, journal, checking=True)):
        yield


@contextlib.contextmanager
def _with_spare(disks: DiskSet, permit: Permit, arm: str) -> Iterator[Device]:
    kind = KINDS[disks.spec.kind]
    spec = disks.spec
    if not disks.spare or spec.device_count <= disks.spare:
        with kind(disks, permit, arm) as device:
            yield device
        return
    most = min(disks.most, spec.device_count - disks.spare)
    left = slice(most, most + disks.spare)
    rest = dataclasses.replace(spec, paths=tuple(spec.paths)[left], path=None, identity=None)
    with (  # in this order, so that a device that was added is released first
        kind(DiskSet(rest, disks.images[left], disks.spare), permit, arm) as spare,
        kind(dataclasses.replace(disks, most=most), permit, arm) as device,
    ):
        yield dataclasses.replace(device, spare=spare)


def _must_differ(paths: Sequence[str]) -> None:
    first: dict[int, str] = {}
    for path in paths:
        number = block.number_of(Path(path))
        if number in first:
            raise DeviceUnusable(
                f"{path} is listed twice in [device]"
                + ("" if path == first[number] else f", also as {first[number]}"),
                remedy="List each device once.",
            )
        if number is not None:
            first[number] = path


def size_bytes(path: Path) -> int | None:
    """Return the size of a block device, or None if the path is not one."""
    number = block.number_of(path)
    name = None if number is None else sysfs.name_of(number)
    if name is None:
        return None
    return sysfs.size_bytes(name)


KINDS: Final[dict[str, Callable[[DiskSet, Permit, str], AbstractContextManager[Device]]]] = {
    "loop": lambda disks, _permit, _arm: joint(
        [loop.attach(image, disks.sector_bytes) for image in disks.images[: disks.most]]
    ),
    "block": lambda disks, permit, _arm: joint(
        [
            block.attach(Path(path), disks.spec.identity, permit)
            for path in disks.spec.disks[: disks.most]
        ]
    ),
    "dir": lambda disks, _permit, arm: directory.attach(disks.spec, arm),
}
