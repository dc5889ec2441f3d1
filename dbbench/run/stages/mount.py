"""Mount the filesystem of each volume, and read back what the kernel made of its options."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

from dbbench import durability
from dbbench.engines.settings import own_cache_bytes
from dbbench.machine.host import tunables
from dbbench.model import Cell, FilesystemFacts, FsSetup, Plan, Role, durability_class
from dbbench.model.plan import READ_AHEAD
from dbbench.plan.server_settings import settings_of
from dbbench.results.fileio import naming_full
from dbbench.results.journal import Journal
from dbbench.run.stages import Mounts, Setups, Volumes, paths
from dbbench.run.stages.attach import setups_of
from dbbench.run.workdir import WorkDir
from dbbench.storage import devices, filesystems
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import Made, Mounted, family_in


@contextlib.contextmanager
def mount(
    plan: Plan,
    cell: Cell,
    volumes: Volumes,
    workdir: WorkDir,
    journal: Journal,
) -> Iterator[dict[Role, Mounted]]:
    """Mount the filesystems within the block. A failure of the block on a full one is
    FilesystemFull.
    """
    with contextlib.ExitStack() as stack:
        mounts: dict[Role, Mounted] = {}
        for role, setup in setups_of(plan, cell).items():
            point = workdir.mount_point(role)
            mounted = filesystems.mount(setup, volumes[role], point, journal, _arc_bytes(cell))
            fs = stack.enter_context(mounted)
            mounts[role] = equalize_readahead(fs, cell)
        # the data directory is next to the log; only the tables are on the device
        if mounts["data"].raw:
            mounts["data"] = dataclasses.replace(mounts["data"], path=mounts["log"].path)
        stack.enter_context(naming_full(*paths(mounts)))
        yield mounts


def equalize_readahead(fs: Mounted, cell: Cell) -> Mounted:
    """Set the plan's read-ahead on the mounted filesystem; btrfs has a setting of its own for it."""
    asked = cell.queue.get(READ_AHEAD)
    if asked is None:
        return fs
    kilobytes = tunables.on_mount(family_in(fs).bdi(fs.path), int(asked))
    return dataclasses.replace(fs, read_ahead_kb=kilobytes)


def _arc_bytes(cell: Cell) -> int | None:
    """Return the limit of ZFS's cache, which no group counts: the plan's memory less the server's
    own cache.
    """
    if cell.memory_bytes is None:
        return None
    own_cache = own_cache_bytes(settings_of(cell)) or 0
    return max(0, cell.memory_bytes - own_cache)


def facts(
    setups: Setups,
    volumes: Volumes,
    made: Mapping[Role, Made],
    mounts: Mounts,
) -> FilesystemFacts:
    """Return what the kernel reports; durability is that of all volumes together. Raises
    SetupNotInForce.
    """
    each = {}
    for role, setup in setups.items():
        each[role] = _facts_of(setup, volumes[role], made[role], mounts[role])
    flags = durability.combine(*(volume.durability_flags for volume in each.values()))
    return dataclasses.replace(
        each["data"],
        wal=each.get("log"),
        durability_flags=flags,
        durability_class=durability_class(flags),
    )


def _facts_of(
    setup: FsSetup,
    volume: Device,
    made: Made,
    fs: Mounted,
) -> FilesystemFacts:
    if not volume.facts.existing:
        filesystems.check_promise(setup, fs)
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
        claims=filesystems.promises(setup),
        durability_flags=fs.flags,
        durability_class=durability_class(fs.flags),
    )
