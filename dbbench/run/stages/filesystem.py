"""The filesystems of the volumes: made, mounted, read back, synced, measured; and the write-ahead log, moved after the
restore to the place that the plan or the fs setup requests, and verified."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dbbench import durability
from dbbench.engines.port import Engine, HasLog, Place, UsesBareDevice, log_files_of
from dbbench.engines.settings import own_cache_bytes
from dbbench.errors import FilesElsewhere, FilesystemGone
from dbbench.machine.host import tunables
from dbbench.machine.pagecache import Emptying
from dbbench.model import FilesystemFacts, FsSetup, Role, SpaceFacts, durability_class
from dbbench.results.fileio import naming_full
from dbbench.run.job import Job
from dbbench.storage import devices, filesystems, layers, small_writes
from dbbench.storage.devices.image import write_out
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import FAMILIES, Made, Mounted

Setups = Mapping[Role, FsSetup]
Volumes = Mapping[Role, Device]
Mounts = Mapping[Role, Mounted]


@contextlib.contextmanager
def layered(job: Job, disks: Volumes) -> Iterator[dict[Role, Device]]:
    """Make the layers of each volume within the block.

    The journal records that the content of the disks may be incomplete from now on.
    """
    for disk in (disk for device in disks.values() for disk in device.each):
        if disk.facts.real:
            job.journal.note("making", device=devices.identity(disk.path))
    with contextlib.ExitStack() as stack:
        volumes: dict[Role, Device] = {}
        for role, setup in job.setups.items():
            to_add = filesystems.layers_to_add(setup)
            volumes[role] = stack.enter_context(layers.stacked(setup.layers, disks[role], job.journal, to_add))
        yield volumes


def make(job: Job, volumes: Volumes) -> dict[Role, Made]:
    """Make the filesystems; afterwards every block of a loop image is allocated and written."""
    made = {role: filesystems.make(setup, volumes[role], job.journal) for role, setup in job.setups.items()}
    for role, volume in volumes.items():
        for member in volume.each:
            if member.facts.image:
                write_out(Path(member.facts.image))
            if volume.facts.real:
                identity = devices.identity(member.path)
                job.journal.note("made", device=identity, uuid=made[role].uuid, trial=job.cell.id)
                layers.note_made(member, job.journal)  # so that the guard of the next trial recognises the layers
    return made


@contextlib.contextmanager
def mounted(job: Job, volumes: Volumes) -> Iterator[dict[Role, Mounted]]:
    """Mount the filesystems within the block. A failure of the block on a full one is FilesystemFull."""
    with contextlib.ExitStack() as stack:
        mounts: dict[Role, Mounted] = {}
        for role, setup in job.setups.items():
            at = job.workdir.mount_point(role)
            opened = filesystems.mounted(setup, volumes[role], at, job.journal, _arc_bytes(job))
            mounts[role] = _with_readahead(job, stack.enter_context(opened))
        if mounts["data"].raw:  # the data directory is next to the log; only the tables are on the device
            mounts["data"] = dataclasses.replace(mounts["data"], path=mounts["log"].path)
        stack.enter_context(naming_full(*paths(mounts)))
        yield mounts


def emptying(job: Job, volumes: Volumes, mounts: Mounts) -> Emptying:
    """Return what empties the caches of all volumes."""
    each = [filesystems.emptying(setup, volumes[role], mounts[role]) for role, setup in job.setups.items()]

    def empty() -> None:
        for part in each:
            part.empty()
        for fs in mounts.values():
            _with_readahead(job, fs)

    return dataclasses.replace(each[0], empty=empty)


def _with_readahead(job: Job, fs: Mounted) -> Mounted:
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


def facts(job: Job, volumes: Volumes, made: Mapping[Role, Made], mounts: Mounts) -> FilesystemFacts:
    """Return what the kernel reports; durability is that of all volumes together. Raises SetupNotInForce."""
    each = {role: _facts_of(setup, volumes[role], made[role], mounts[role]) for role, setup in job.setups.items()}
    flags = durability.combined(*(volume.durability_flags for volume in each.values()))
    return dataclasses.replace(
        each["data"], wal=each.get("log"), durability_flags=flags, durability_class=durability_class(flags)
    )


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


def paths(mounts: Mounts) -> tuple[Path, ...]:
    """Return the directories of the filesystems under test."""
    return tuple(fs.path for fs in mounts.values())


def probed(job: Job, mounts: Mounts, facts: FilesystemFacts, datadir: Path) -> FilesystemFacts:
    """Return the facts with the latency of fsync and the limits of atomic writes, of each volume.

    The files are made in the directories of data and log, which may have attributes or a volume of their own.
    """
    folders = {"data": datadir, "log": filesystems.log_directory(job.cell.setup, mounts)}
    each = {role: _probed(job, mounts[role], of_volume, folders[role]) for role, of_volume in facts.volumes.items()}
    return dataclasses.replace(each["data"], wal=each.get("log"))


def _probed(job: Job, fs: Mounted, facts: FilesystemFacts, folder: Path | None) -> FilesystemFacts:
    if fs.raw is not None:
        return dataclasses.replace(facts, syncs_note="there is no filesystem")
    where = folder if folder is not None and folder.is_dir() and folder.is_relative_to(fs.path) else fs.path
    rows, note = small_writes.syncs(where, job.cell.window.measure_s, job.run.plan.seed)
    least, most = small_writes.atomic_write_bytes(where) or (None, None)
    return dataclasses.replace(
        facts, syncs=rows, syncs_note=note, atomic_write_min_bytes=least, atomic_write_max_bytes=most
    )


def sync(mounts: Mounts) -> None:
    """Write back dirty data of the filesystems, including that of a pool."""
    for fs in mounts.values():
        filesystems.sync(fs.path)
        if fs.pool is not None:
            fs.pool.sync()


def must_be_healthy(mounts: Mounts) -> None:
    """Raise FilesystemGone if a filesystem is no longer reliable."""
    for fs in mounts.values():
        if bad := filesystems.healthy(fs):
            raise FilesystemGone(bad, effect="The trial is marked failed.", remedy="Read the kernel log with dmesg.")


def space(fs: Mounted, engine: Engine, files: Sequence[Path]) -> SpaceFacts:
    """Return the space of the data: logical, on disk, and its fragmentation."""
    size = engine.data_bytes if isinstance(engine, UsesBareDevice) else lambda file: file.stat().st_size
    logical = sum(map(size, files))
    if fs.raw is not None:
        return SpaceFacts(logical)  # a bare device has no used or free space
    return filesystems.shaped(filesystems.space(fs, logical), fs, files)


def move_log(setups: Setups, mounts: Mounts, engine: Engine, datadir: Path, place: Place) -> Place:
    """Move the restored log to its own filesystem or volume; return the place with its directory, or unchanged."""
    folder = filesystems.log_directory(setups["data"], mounts)
    # If only a tablespace is on the filesystem under test, the log stays with the rest of the cluster.
    alone = "log" not in mounts and not datadir.is_relative_to(mounts["data"].path)
    if folder is None or alone or not isinstance(engine, HasLog):
        return place
    if "log" in setups:
        folder.mkdir(mode=0o700)
        filesystems.apply_attributes(setups["log"], folder)
    engine.place_log(datadir, folder)
    return dataclasses.replace(place, log_dir=folder)


def check_log(engine: Engine, datadir: Path, place: Place, effective: dict[str, str]) -> None:
    """Raise FilesElsewhere if a file of the running server's log is not in the directory to which it was moved."""
    if place.log_dir is None:
        return
    files = log_files_of(engine, datadir, effective)
    folder = place.log_dir.resolve()
    astray = [path for path in files if folder not in path.parents]
    if astray or not files:
        raise FilesElsewhere(
            f"{astray[0]} of the write-ahead log is not in {folder}" if astray else f"{folder} contains no log file",
            effect="Nothing was measured.",
            remedy="Remove settings for the location of the log (innodb_log_group_home_dir, log_bin) from the plan.",
        )
