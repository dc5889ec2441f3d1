"""ZFS: not made by mkfs and mount(8) but as a pool, by OpenZFS in the kernel or by zfs-fuse.

A pool lives for one trial: it is made and exported, imported where it is wanted, exported at the end, and then its
labels are taken off the devices. Its options (`mount` of an fs setup) are properties of its own dataset, those of the
pool (`mkfs.options`) are words for `zpool create`; volumes of a setup are datasets within it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, DbbenchError, MountFailed
from dbbench.filesystems import mountinfo
from dbbench.filesystems.common import bdi_of_device_number, mkfs_failed, read_ahead_kb
from dbbench.filesystems.port import Made, Mounted
from dbbench.filesystems.zfs import arc, driver, pool, properties
from dbbench.filesystems.zfs.driver import install, works
from dbbench.filesystems.zfs.pool import Pool
from dbbench.filesystems.zfs.properties import compresses
from dbbench.journal import Journal
from dbbench.model import Durability, FsSetup, Scalar

__all__ = [
    "SNAPSHOTS", "bdi", "commands", "compressed", "compresses", "compression_ratio", "create", "driver_flags",
    "existing", "flags", "geometry", "give_back", "install", "live", "mkfs_argv", "mount_options", "opened", "programs",
    "tears", "works",
]  # fmt: skip

SNAPSHOTS: Final = True
_BLOCK: Final = 512  # the unit of st_blocks
_NAME: Final = "dbbench"  # of the pool in commands that are only shown


def programs(setup: FsSetup) -> tuple[str, ...]:
    """Those that every driver brings; whether there is a driver: `works`."""
    return ("zpool", "zfs", "zdb")


def commands(setup: FsSetup, targets: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
    """Making and mounting, as a person would type it."""
    made = [mkfs_argv(setup, targets), *pool.volume_argv(setup, _NAME), ["zfs", "set", f"mountpoint={at}", _NAME]]
    return [tuple(argv) for argv in made]


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """zpool create."""
    return pool.argv(setup, _NAME, targets)


def mount_options(setup: FsSetup) -> tuple[str, ...]:
    """The dataset's properties, as asked."""
    return setup.mount


def create(setup: FsSetup, device: Device, journal: Journal | None = None) -> Made:
    """The pool with its datasets, exported again. It is journalled first: no namespace ends a pool of the kernel.
    MkfsFailed, ZfsUnavailable."""
    name = pool.new_name()
    if journal is not None:
        journal.note("take", what=pool.JOURNALLED, path=name)
    paths = {}
    try:
        with pool.hosted(device) as host:
            made = host(name)
            paths = {str(seen): str(member.path) for seen, member in zip(made.paths, device.each, strict=True)}
            said = [pool.argv(setup, name, tuple(paths)), *pool.volume_argv(setup, name)]
            done = [process.run(argv, timeout_s=120) for argv in said]
            found = _geometry(made, setup)
            made.export()
            on_disk = pool.label(device.path)
    except (CommandFailed, MountFailed) as failure:
        raise mkfs_failed(setup, device, failure) from failure
    typed = tuple(tuple(paths.get(word, word) for word in one.argv) for one in done)
    shape = {"pool_version": on_disk["version"], "ashift": on_disk["ashift"], "topology": setup.mkfs.topology}
    return Made(typed, str(on_disk["pool_guid"]), {**shape, **found})


@contextlib.contextmanager
def opened(
    setup: FsSetup,
    device: Device,
    at: Path,
    journal: Journal | None = None,
    arc_bytes: int | None = None,
    *,
    stays: bool = False,
) -> Iterator[Mounted]:
    """The pool of a device that `create` made, imported and mounted at `at` while the block lasts; afterwards nothing
    of it is left, unless it `stays`, exported. One that was not exported before gets back what its log holds.

    `arc_bytes`: the most that its own cache may hold; None: as the driver has it. Raises MountFailed, ZfsUnavailable,
    UnmountFailed; an error of the block itself is never hidden by the latter.
    """
    at.mkdir(parents=True, exist_ok=True)
    with pool.hosted(device, arc_bytes) as host:
        found = host(str(pool.label(device.path)["name"]))
        if journal is not None:
            journal.note("take", what=pool.JOURNALLED, path=found.name)
        with arc.limited(arc_bytes if found.driver.native else None, journal):
            found.bring_in()
            try:
                _mount(found, at)
                yield _read_back(setup, found, at)
            except BaseException as first:
                try:
                    found.export(at)
                except DbbenchError as second:
                    first.add_note(f"and then: {second}")
                raise
            found.export(at)
    if journal is not None:
        journal.note("give_back", what=pool.JOURNALLED, path=found.name)
    if not stays:
        pool.wipe((*device.each, *found.joined))


def existing(path: Path) -> Mounted:
    """A directory on a dataset of the kernel's ZFS that is there already."""
    mount = mountinfo.of(path)
    found = _properties(mount.source)
    return _facts(path, (), (*mount.options, *properties.effective(found)), driver.taken(), None)


def give_back(journal: Journal) -> list[str]:
    """End what a killed run has left, by its journal alone; what that was."""
    return [*pool.give_back(journal), *arc.give_back(journal)]


def geometry(target: Path) -> dict[str, Scalar]:
    """Of the label on a device; `uuid` is the pool's GUID, as blkid calls it."""
    found = pool.label(target)
    return {"uuid": str(found["pool_guid"]), "pool_version": found["version"], "ashift": found["ashift"]}


def live(device_name: str) -> dict[str, Scalar]:
    """The kernel module's parameters."""
    return driver.parameters()


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """See `properties.flags`."""
    return properties.flags(effective, live)


def driver_flags(setup: FsSetup) -> tuple[Durability, ...]:
    """Of the driver that the setup's pool is made with here; of OpenZFS where it needs that."""
    by = driver.found()
    return by.flags if by and by.refusal(setup) is None else ()


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """See `properties.tears`; `Mounted.record_bytes` says it for larger pages."""
    return properties.tears(effective)


def bdi(path: Path) -> Path:
    """By device number; the kernel's own ZFS has none that could be told by its mount."""
    return bdi_of_device_number(path)


def compression_ratio(path: Path) -> float | None:
    """By zfs get: of the dataset that `path` lies on and those below it."""
    try:
        return float(_properties(mountinfo.of(path).source)["compressratio"].removesuffix("x"))
    except (CommandFailed, KeyError, ValueError):
        return None


def compressed(files: Sequence[Path]) -> bool:
    """Whether one of the files takes less space than its bytes, once all is written."""
    pool.sync(mountinfo.of(files[0]).source.split("/")[0])
    found = (path.stat() for path in files)
    return any(one.st_blocks * _BLOCK < one.st_size for one in found)


def _geometry(made: Pool, setup: FsSetup) -> dict[str, Scalar]:
    """The datasets' properties: the pool's own plainly, a volume's with its name before them. MountFailed where one
    is not as asked."""
    found: dict[str, Scalar] = {"driver": str(made.driver)}
    asked: dict[str, tuple[str, ...]] = {
        "": setup.mount,
        **{part: volume.options for part, volume in setup.volumes.items()},
    }
    for part, options in asked.items():
        has = made.properties(part)
        if wrong := properties.differences(properties.pairs(options), has):
            raise MountFailed(f"dataset {part or made.name!r}: {'; '.join(wrong)}")
        found |= {f"{part}.{name}" if part else name: value for name, value in properties.shown(has).items()}
    if made.driver.native:
        said = process.run(["zpool", "get", "-H", "-o", "property,value", "all", made.name]).stdout
        on = (name for name, value in properties.parse_get(said).items() if value == "active")
        found["features"] = " ".join(name.removeprefix("feature@") for name in on)
    return found


def _mount(found: Pool, at: Path) -> None:
    """At `at`, where the import has not done so already: a pool keeps its mount point."""
    if not _is_mounted(found, at):
        try:
            process.run(["zfs", "set", f"mountpoint={at}", found.name])
        except CommandFailed as failure:
            raise MountFailed(f"{found.name} at {at}: {failure}") from failure
    if not _is_mounted(found, at):
        mount = mountinfo.of(at)
        raise MountFailed(f"{at} is {mount.source} mounted at {mount.point}, not {found.name}")


def _is_mounted(found: Pool, at: Path) -> bool:
    mount = mountinfo.of(at)
    return mount.point == at.resolve() and mount.source == found.name


def _read_back(setup: FsSetup, found: Pool, at: Path) -> Mounted:
    """What is in force of the dataset that the data directory lies in."""
    part = "data" if "data" in setup.volumes else ""
    options = (*mountinfo.of(at).options, *properties.effective(found.properties(part)))
    return _facts(at, setup.mount, options, found.driver, found)


def _facts(path: Path, asked: tuple[str, ...], options: tuple[str, ...], by: driver.Driver, of: Pool | None) -> Mounted:
    return Mounted(
        path=path,
        family="zfs",
        options_asked=asked,
        options_effective=options,
        read_ahead_kb=read_ahead_kb(bdi(path)),
        flags=(*by.flags, *properties.flags(options, driver.parameters() if by.native else {})),
        tears=properties.tears(options),
        tunables=_tunables(by, of),
        pool=of,
        record_bytes=properties.record_bytes(options),
    )


def _tunables(by: driver.Driver, of: Pool | None) -> dict[str, Scalar]:
    """Of the driver, units in the names. zfs-fuse has its transaction groups' times built in and does not tell them."""
    if not by.native:
        daemon = of.daemon if of else None
        return {"driver": str(by), "arc_max_bytes": daemon.arc_bytes} if daemon else {"driver": str(by)}
    known, stats = driver.parameters(), driver.arcstats()
    found: dict[str, Scalar] = {"driver": str(by)}
    for name, key in (("txg_timeout_s", "zfs_txg_timeout"), ("dirty_data_max_bytes", "zfs_dirty_data_max")):
        if key in known:
            found[name] = known[key]
    said = process.run(["zpool", "list", "-H", "-o", "name"], ok=(0, 1)).stdout.split()
    if others := [name for name in said if of is None or name != of.name]:
        found["other_pools"] = " ".join(others)
    return {**found, **({"arc_max_bytes": stats["c_max"]} if "c_max" in stats else {})}


def _properties(dataset: str) -> dict[str, str]:
    said = process.run(["zfs", "get", "-Hp", "-o", "property,value", "all", dataset])
    return properties.parse_get(said.stdout)
