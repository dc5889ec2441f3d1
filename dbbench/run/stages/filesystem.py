"""The filesystem under test, and that of the log: made, mounted, read back, synced, measured; and the write-ahead log
at the place that the plan or the fs setup requests: moved after the restore, and verified.

`filesystems.wal_directory` alone decides the place, for `[device.wal]` and for a setup's volume `wal`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from dbbench import durability
from dbbench.engines.port import Engine, HasLog, Place, UsesBareDevice, log_files_of
from dbbench.engines.settings import own_cache_bytes
from dbbench.errors import FilesElsewhere, FilesystemGone
from dbbench.machine.host import tunables
from dbbench.machine.pagecache import EVICTING, Emptying
from dbbench.model import Cell, DeviceSpec, FilesystemFacts, FsSetup, SpaceFacts, durability_class
from dbbench.results.fileio import naming_full
from dbbench.results.journal import Journal
from dbbench.run.job import Job
from dbbench.storage import devices, filesystems, layers, small_writes
from dbbench.storage.devices.image import write_out
from dbbench.storage.devices.port import Device, Images
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
        wal_layered(job.cell, volume, job.journal) as whole,
    ):
        yield whole


def make(job: Job, volume: Device) -> Made:
    """Make the filesystems of data and log; afterwards every block of a loop image is allocated and written."""
    if volume.facts.existing:
        return Made((), "", {})
    cell, journal = job.cell, job.journal
    made = dataclasses.replace(filesystems.make(cell.setup, volume, journal), wal=wal_made(cell, volume, journal))
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
    layers.note_made(volume, job.journal)  # so that the guard of the next trial recognises the layers


@contextlib.contextmanager
def mounted(job: Job, volume: Device) -> Iterator[Mounted]:
    """Mount the filesystem, with that of the log, within the block; an existing directory is used as it is.

    A failure of the block on a full filesystem is FilesystemFull.
    """
    if volume.facts.existing:
        with filesystems.existing(volume.path) as fs, naming_full(fs.path):
            yield fs
        return
    with (
        filesystems.mounted(job.cell.setup, volume, job.workdir.mount, job.journal, _arc_bytes(job)) as data,
        wal_mounted(job.cell, volume, data, job.workdir.wal_mount, job.journal) as fs,
        naming_full(fs.path, *((fs.wal.path,) if fs.wal else ())),
    ):
        yield _equal_readahead(job, fs)


def emptying(job: Job, volume: Device, fs: Mounted) -> Emptying:
    """Return what empties the caches of data and log; the files of an existing directory are evicted one by one."""
    if volume.facts.existing:
        return EVICTING
    data = FAMILIES[fs.family].emptying(job.cell.setup, volume, fs)
    log = None
    if fs.wal is not None and volume.wal is not None and job.cell.wal_setup is not None:
        log = FAMILIES[fs.wal.family].emptying(job.cell.wal_setup, volume.wal, fs.wal)

    def empty() -> None:
        data.empty()
        if log is not None:
            log.empty()
        _equal_readahead(job, fs)

    return dataclasses.replace(data, empty=empty)


def _equal_readahead(job: Job, fs: Mounted) -> Mounted:
    """Set the plan's read-ahead on the mounted filesystem; btrfs has a setting of its own for it."""
    size = job.run.plan.equal_readahead_bytes
    if size is None:
        return fs
    return dataclasses.replace(fs, read_ahead_kb=tunables.on_mount(FAMILIES[fs.family].bdi(fs.path), size))


def _arc_bytes(job: Job) -> int | None:
    """Return the plan's memory less the server's own cache, or None without a limit.

    A page cache can grow by that much within the server's control group. The cache of a ZFS pool, which no group
    counts, gets the same limit.
    """
    if job.cell.memory_bytes is None:
        return None
    return max(0, job.cell.memory_bytes - (own_cache_bytes(job.settings) or 0))


def facts(job: Job, volume: Device, made: Made, fs: Mounted) -> FilesystemFacts:
    """Return what the kernel reports; durability is that of data and log together. Raises SetupNotInForce."""
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


def paths(fs: Mounted) -> tuple[Path, ...]:
    """Return the directories of the filesystems under test."""
    return (fs.path, *((fs.wal.path,) if fs.wal else ()))


def probed(job: Job, fs: Mounted, facts: FilesystemFacts, datadir: Path) -> FilesystemFacts:
    """Return the facts with the latency of fsync and the limits of atomic writes, of data and log.

    The files are made in the directories of data and log, which may have attributes or a volume of their own.
    """
    log, folder = facts.wal, filesystems.wal_directory(job.cell.setup, fs)
    if fs.wal is not None and log is not None:
        log = _probed(job, fs.wal, log, folder or fs.wal.path)
    return dataclasses.replace(_probed(job, fs, facts, datadir), wal=log)


def _probed(job: Job, fs: Mounted, facts: FilesystemFacts, folder: Path) -> FilesystemFacts:
    if fs.raw is not None:
        return dataclasses.replace(facts, syncs_note="there is no filesystem")
    where = folder if folder.is_dir() and folder.is_relative_to(fs.path) else fs.path
    rows, note = small_writes.syncs(where, job.cell.window.measure_s, job.run.plan.seed)
    least, most = small_writes.atomic_write_bytes(where) or (None, None)
    return dataclasses.replace(
        facts, syncs=rows, syncs_note=note, atomic_write_min_bytes=least, atomic_write_max_bytes=most
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
    size = engine.data_bytes if isinstance(engine, UsesBareDevice) else lambda file: file.stat().st_size
    logical = sum(map(size, files))
    if fs.raw is not None:
        return SpaceFacts(logical)  # a bare device has no used or free space
    return filesystems.shaped(filesystems.space(fs, logical), fs, files)


def without_wal(cell: Cell, device: DeviceSpec, images: Images | None) -> tuple[DeviceSpec, Images | None]:
    """Return the plan's device and images; without those of the log in a cell that keeps its log with the data."""
    if cell.wal_setup is not None or device.wal is None:
        return device, images
    return dataclasses.replace(device, wal=None), images and dataclasses.replace(images, wal=None)


@contextlib.contextmanager
def wal_layered(cell: Cell, volume: Device, journal: Journal) -> Iterator[Device]:
    """Yield the volume with the layers of the log's own setup made on its device, if it has one."""
    if cell.wal_setup is None or volume.wal is None:
        yield volume
        return
    with layers.stacked(cell.wal_setup.layers, volume.wal, journal) as log:
        yield dataclasses.replace(volume, wal=log)


def wal_made(cell: Cell, volume: Device, journal: Journal) -> Made | None:
    """Make the log's own filesystem; return None if the cell has none."""
    if cell.wal_setup is None or volume.wal is None:
        return None
    return filesystems.make(cell.wal_setup, volume.wal, journal)


@contextlib.contextmanager
def wal_mounted(cell: Cell, volume: Device, fs: Mounted, at: Path, journal: Journal) -> Iterator[Mounted]:
    """Yield `fs` with the log's own filesystem mounted at `at` as its `wal`, if the cell has one."""
    if cell.wal_setup is None or volume.wal is None:
        yield fs
        return
    with filesystems.mounted(cell.wal_setup, volume.wal, at, journal) as log:
        # On a raw device the data directory is next to the log; only the tables are on the device.
        yield dataclasses.replace(fs, wal=log, path=log.path if fs.raw else fs.path)


def wal_moved(cell: Cell, engine: Engine, fs: Mounted, datadir: Path, place: Place) -> Place:
    """Move the restored log to its place; return the place with its directory, or unchanged."""
    folder = filesystems.wal_directory(cell.setup, fs)
    # Only a tablespace is on the filesystem under test; the log is with the rest of the cluster.
    alone = "tablespace" in cell.dataset.parameters
    if folder is None or not engine.PROFILE.has_server or (alone and cell.wal_setup is None):
        return place
    return wal_moved_to(folder, cell.wal_setup, engine, datadir, place)


def wal_moved_to(folder: Path, setup: FsSetup | None, engine: Engine, datadir: Path, place: Place) -> Place:
    """Move the log into that directory; return the place with it.

    `setup` is that of the log's own filesystem, on which the directory is made; None for a volume of the data's
    filesystem.
    """
    if setup is not None:
        folder.mkdir(mode=0o700)
        filesystems.apply_attributes(setup, folder)
    if isinstance(engine, HasLog):
        engine.place_log(datadir, folder)
    return dataclasses.replace(place, wal=folder)


def wal_proved(engine: Engine, datadir: Path, place: Place, effective: dict[str, str]) -> None:
    """Raise FilesElsewhere if a file of the running server's log is not in the directory to which it was moved."""
    if place.wal is None:
        return
    files = log_files_of(engine, datadir, effective)
    folder = place.wal.resolve()
    astray = [path for path in files if folder not in path.parents]
    if astray or not files:
        raise FilesElsewhere(
            f"{astray[0]} of the write-ahead log is not in {folder}" if astray else f"{folder} contains no log file",
            effect="Nothing was measured.",
            remedy="Remove settings for the location of the log (innodb_log_group_home_dir, log_bin) from the plan.",
        )
