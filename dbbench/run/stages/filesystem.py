"""The filesystem under test, and that of the log: made, mounted, read back, synced, measured."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from dbbench import durability
from dbbench.engines.port import Engine
from dbbench.engines.settings import own_cache_bytes
from dbbench.errors import FilesystemGone
from dbbench.machine.host import tunables
from dbbench.model import FilesystemFacts, FsSetup, SpaceFacts, durability_class
from dbbench.run.job import Job
from dbbench.run.stages import wal
from dbbench.storage import devices, filesystems, layers
from dbbench.storage.devices.image import write_out
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import FAMILIES, Made, Mounted


@contextlib.contextmanager
def layered(job: Job, device: Device) -> Iterator[Device]:
    """Make the layers of data and log within the block.

    The journal records that the content of the disks may be incomplete from now on.
    """
    setup = job.cell.setup
    for disk in device.disks:
        if disk.facts.real:
            job.journal.note("making", device=devices.identity(disk.path))
    with (
        layers.stacked(setup.layers, device, job.journal, filesystems.layers_to_add(setup)) as volume,
        wal.layered(job.cell, volume, job.journal) as whole,
    ):
        yield whole


def make(job: Job, volume: Device) -> Made:
    """Make the filesystems of data and log; afterwards every block of a loop image is allocated and written."""
    if volume.facts.existing:
        return Made((), "", {})
    cell, journal = job.cell, job.journal
    made = dataclasses.replace(filesystems.make(cell.setup, volume, journal), wal=wal.made(cell, volume, journal))
    for member in volume.disks:
        if member.facts.image:
            write_out(Path(member.facts.image))
    if volume.facts.real:
        for member in volume.each:
            _note_made(job, member, made)
        if made.wal is not None and volume.wal is not None:
            _note_made(job, volume.wal, made.wal)
    return made


def _note_made(job: Job, volume: Device, made: Made) -> None:
    job.journal.note("made", device=devices.identity(volume.path), uuid=made.uuid, trial=job.cell.id)
    layers.note_made(volume, job.journal)  # as the guard reads it


@contextlib.contextmanager
def mounted(job: Job, volume: Device) -> Iterator[Mounted]:
    """Mount the filesystem, with that of the log, within the block; an existing directory is used as it is."""
    if volume.facts.existing:
        with filesystems.existing(volume.path) as fs:
            yield fs
        return
    with (
        filesystems.mounted(job.cell.setup, volume, job.workdir.mount, job.journal, _arc_bytes(job)) as data,
        wal.mounted(job.cell, volume, data, job.workdir.wal_mount, job.journal) as fs,
    ):
        yield _equal_readahead(job, fs)


def _equal_readahead(job: Job, fs: Mounted) -> Mounted:
    """Set the plan's read-ahead on the mounted filesystem; btrfs has its own."""
    size = job.run.plan.equal_readahead_bytes
    if size is None:
        return fs
    return dataclasses.replace(fs, read_ahead_kb=tunables.on_mount(FAMILIES[fs.family].bdi(fs.path), size))


def _arc_bytes(job: Job) -> int | None:
    """Return what the plan's memory leaves next to the server's own cache, or None without a limit.

    A page cache may grow by that much within the server's control group; the cache of a pool, which no group counts,
    gets the same.
    """
    if job.cell.memory_bytes is None:
        return None
    return max(0, job.cell.memory_bytes - (own_cache_bytes(job.settings) or 0))


def facts(job: Job, volume: Device, made: Made, fs: Mounted) -> FilesystemFacts:
    """Return what the kernel reports; durability is that of data and log together. Raises ClaimWrong."""
    data = _facts_of(job.cell.setup, volume, made, fs)
    if fs.wal is None or made.wal is None or volume.wal is None or job.cell.wal_setup is None:
        return data
    log = _facts_of(job.cell.wal_setup, volume.wal, made.wal, fs.wal)
    flags = durability.combined(data.durability_flags, log.durability_flags)
    return dataclasses.replace(data, wal=log, durability_flags=flags, durability_class=durability_class(flags))


def _facts_of(setup: FsSetup, volume: Device, made: Made, fs: Mounted) -> FilesystemFacts:
    if not volume.facts.existing:
        filesystems.check_claim(setup, fs)
    return FilesystemFacts(
        family=fs.family,
        mkfs=made.argv,
        mount_options_asked=fs.options_asked,
        mount_options_effective=fs.options_effective,
        geometry=made.geometry,
        read_ahead_kb=fs.read_ahead_kb,
        tunables=fs.tunables,
        layers=tuple(volume.layers),
        queue=devices.queue_attributes(volume.leaves[0]) if volume.leaves else {},
        claims=setup.claims,
        durability_flags=fs.flags,
        durability_class=durability_class(fs.flags),
    )


def sync(fs: Mounted) -> None:
    """Write back dirty data of the filesystems of data and log, including that of a pool."""
    for mount in (fs, fs.wal):
        if mount is not None:
            filesystems.sync(mount.path)
            if mount.pool is not None:
                mount.pool.sync()


def must_be_healthy(fs: Mounted) -> None:
    """Raise FilesystemGone if data or log are no longer reliable."""
    if bad := filesystems.healthy(fs) or (fs.wal and filesystems.healthy(fs.wal)):
        raise FilesystemGone(bad, effect="The trial is marked failed.", remedy="Read the kernel log with dmesg.")


def space(fs: Mounted, engine: Engine, files: Sequence[Path]) -> SpaceFacts:
    """Return the space of the data: logical, on disk, and its fragmentation."""
    logical = sum(map(engine.data_bytes, files))
    if fs.raw is not None:
        return SpaceFacts(logical)  # nothing is used or free on a bare device
    return filesystems.shaped(filesystems.space(fs, logical), fs, files)
