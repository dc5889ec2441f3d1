"""From the plan's device to a mounted filesystem, data and log alike."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from dbbench import (
    devices,
    filesystems,
    layers,
    wal,
)
from dbbench.devices.image import write_out
from dbbench.devices.port import Device, Images
from dbbench.engines.settings import own_cache_bytes
from dbbench.filesystems import Made, Mounted
from dbbench.filesystems.families import FAMILIES
from dbbench.journal import Journal
from dbbench.limits import readahead
from dbbench.model import (
    Cell,
    Run,
)
from dbbench.parts.room import Permit, Room
from dbbench.plan.settings import settings_of


@contextlib.contextmanager
def layered(cell: Cell, device: Device, journal: Journal) -> Iterator[Device]:
    """The volume on the device, and that of the log, while the block lasts."""
    with layers.stacked(cell.setup.layers, device, journal) as volume, wal.layered(cell, volume, journal) as whole:
        yield whole


@contextlib.contextmanager
def attached(run: Run, cell: Cell, images: Images | None, permit: Permit) -> Iterator[Device]:
    """The trial's devices, ours until the block ends, with the read-ahead that the plan wants."""
    asked = devices.attached(
        *wal.wanted(cell, run.plan.device, images), permit, cell.arm, cell.setup.devices.max,
        spare="grow" in run.plan.operations,
    )  # fmt: skip
    with asked as device, readahead.on_disks(device.all_leaves, run.plan.equal_readahead_bytes):
        permit.note(device)
        yield device


def _equal_readahead(run: Run, fs: Mounted) -> Mounted:
    """The mounted filesystem with the read-ahead that the plan wants of all; btrfs has one of its own."""
    size = run.plan.equal_readahead_bytes
    if size is None:
        return fs
    return dataclasses.replace(fs, read_ahead_kb=readahead.on_mount(FAMILIES[fs.family].bdi(fs.path), size))


def make(cell: Cell, device: Device, journal: Journal) -> Made:
    """The filesystems of data and log; afterwards every block of a loop image is really there."""
    if device.facts.kind == "dir":
        return Made((), "", {})
    made = dataclasses.replace(filesystems.make(cell.setup, device, journal), wal=wal.made(cell, device, journal))
    for member in device.disks:
        if member.facts.image:
            write_out(Path(member.facts.image))
    if device.facts.kind == "block":
        for member in device.each:
            journal.note("made", device=devices.identity(member.path), uuid=made.uuid, trial=cell.id)
        if made.wal is not None and device.wal is not None:
            journal.note("made", device=devices.identity(device.wal.path), uuid=made.wal.uuid, trial=cell.id)
    return made


@contextlib.contextmanager
def mounted(run: Run, cell: Cell, device: Device, room: Room, journal: Journal) -> Iterator[Mounted]:
    """The filesystem, with that of the log, mounted while the block lasts; a directory is taken as it is."""
    if device.facts.kind == "dir":
        with filesystems.existing(device.path) as found:
            yield found
        return
    with (
        filesystems.mounted(cell.setup, device, room.mount, journal, _arc_bytes(cell)) as fs,
        wal.mounted(cell, device, fs, room.wal_mount, journal) as whole,
    ):
        yield _equal_readahead(run, whole)


def _arc_bytes(cell: Cell) -> int | None:
    """What the plan's memory leaves beside the server's own cache: a page cache may grow so far within the server's
    control group, and a pool's own cache, which no group counts, gets the same; None without a limit."""
    if cell.memory_bytes is None:
        return None
    return max(0, cell.memory_bytes - (own_cache_bytes(settings_of(cell)) or 0))
