"""ZFS: made as a pool of the kernel's OpenZFS, and not by mkfs and mount(8). A pool lives for one
trial: made and exported, imported when needed, exported at the end, and its labels erased from
the devices. `mount` of an fs setup are properties of its root dataset, `mkfs.options` arguments
for `zpool create`; volumes are datasets.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, MountFailed
from dbbench.machine.host.proc import number
from dbbench.machine.pagecache import EVICTING, Emptying
from dbbench.model import Commands, Durability, FsSetup, Scalar, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold, note
from dbbench.storage.devices.hold import afterwards
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.common import BLOCK, FSCK_S, mkfs_error, mount_of
from dbbench.storage.filesystems.family import (
    Character,
    Check,
    Family,
    Made,
    Mounted,
    MountPoint,
    Stored,
    options_of,
)
from dbbench.storage.filesystems.formatted import damage_error
from dbbench.storage.filesystems.zfs import driver, pool, properties
from dbbench.storage.filesystems.zfs.pool import ZfsPool

SNAPSHOT: Final = "dbbench-snapshot"
CLONE: Final = "dbbench-clone"
_POLL_S: Final = 0.1
_COMPRESSION_ON: Final = "lz4"  # what compression=on means since OpenZFS has feature flags
_NAME: Final = "dbbench"  # name of the pool in commands that are only shown, never run


def scrub(stored: Stored) -> str:
    """Run a scrub, which reads everything and verifies its checksums: ZFS has no other check."""
    name = _pool(stored).name
    process.run(["zpool", "scrub", name])
    if process.wait_while(lambda: "scrub in progress" in _status(name), FSCK_S, _POLL_S):
        raise process.too_late(f"the scrub of {name} still runs after more than {FSCK_S:.0f} s")
    damage = damages(_status(name))
    if damage:
        raise damage_error(f"the scrub of {name}", stored, f": {damage}")
    return f"{_pool(stored).used_and_free()[0]} bytes, no errors"


def damages(text: str) -> str:
    """Return the errors in `zpool status` after a scrub, repaired or not; "" without any."""
    damage: list[str] = []
    # A scrub that repaired something found damage, even if nothing is left of it.
    scan = re.search(
        r"^ *(?:scan|scrub): (.*)",
        text,
        re.MULTILINE,
    )
    if scan:
        intact = re.search(r"with 0+ errors", scan[1])
        repaired = re.search(r"repaired (?!0+[A-Z]?(?:\s|$))\d", scan[1])
        if repaired or not intact:
            damage.append(scan[1])
    # Counters of errors, by device.
    rows = re.findall(
        r"^\t *(\S+) +[A-Z]+ +(\S+) +(\S+) +(\S+)",
        text,
        re.MULTILINE,
    )
    for name, read, write, checksum in rows:
        if name != "NAME" and {read, write, checksum} != {"0"}:
            damage.append(f"{name}: read {read}, write {write}, checksum {checksum}")
    # The summary, which names files.
    damage += re.findall(
        r"^errors: (?!No known data errors)(.*)",
        text,
        re.MULTILINE,
    )
    return "; ".join(damage)


class Datasets:
    """Snapshots of all datasets of the pool."""

    name = "zfs"
    atomic = True

    def lacks(self, stored: Stored) -> str | None:
        if stored.fs.pool is not None:
            return None
        return "the pool was not created for this trial"

    def snapshot(self, stored: Stored) -> None:
        process.run(["zfs", "snapshot", "-r", f"{_pool(stored).name}@{SNAPSHOT}{stored.tag}"])

    @contextlib.contextmanager
    def clone(self, stored: Stored) -> Iterator[Path]:
        """Yield the data directory in a writable clone of the dataset that contains it; `drop`
        destroys the clone.
        """
        name = _pool(stored).name
        held = mount_of(stored.datadir)
        copy = stored.room / (CLONE + stored.tag)
        source = f"{held.source}@{SNAPSHOT}{stored.tag}"
        target = f"{name}/{CLONE}{stored.tag}"
        process.run(["zfs", "clone", "-o", f"mountpoint={copy}", source, target])
        try:
            yield copy / stored.datadir.resolve().relative_to(held.point)
        finally:
            process.run(["zfs", "unmount", target])

    def taken_bytes(self, stored: Stored) -> int | None:
        pool = _pool(stored)
        pool.sync()
        argv = ["zfs", "get", "-Hrp", "-o", "name,property,value", "used,usedbydataset", pool.name]
        return parse_bytes(process.run(argv).stdout, stored.tag)

    def rollback(self, stored: Stored) -> None:
        """Roll back and remount every dataset, so that no file newer than the snapshot stays in a
        cache.
        """
        for name in _datasets(_pool(stored).name, "filesystem"):
            if not name.endswith(f"/{CLONE}"):
                process.run(["zfs", "rollback", f"{name}@{SNAPSHOT}"])

    def drop(self, stored: Stored) -> None:
        """Destroy the clone first, because it depends on the snapshot."""
        name = _pool(stored).name
        for kind, part in (("filesystem", f"/{CLONE}"), ("snapshot", f"@{SNAPSHOT}")):
            dataset = f"{name}{part}{stored.tag}"
            if dataset in _datasets(name, kind):
                process.run(["zfs", "destroy", "-r", dataset], timeout_s=FSCK_S)


class Members:
    """Add a device to the pool."""

    def add(self, stored: Stored, spare: Device) -> str:
        """Add the device to the mirror if the pool is one, otherwise as an additional top-level
        device.
        """
        pool = _pool(stored)
        done = process.run(["zpool", "get", "-H", "-o", "value", "guid", pool.name])
        note(stored.journal, "made", [spare], uuid=done.stdout.strip())
        hold.release(spare.fd)
        pool.joined = (*pool.joined, spare)
        if stored.setup.mkfs.topology == "mirror":
            sides = re.findall(
                r"^\t +(\S+) +ONLINE",
                _status(pool.name),
                re.MULTILINE,
            )
            side = next(side for side in sides if not side.startswith("mirror"))
            process.run(["zpool", "attach", "-f", pool.name, side, spare.path])
        else:
            process.run(["zpool", "add", "-f", pool.name, spare.path])
        return f"{len(pool.members)} devices"

    def rebalance(self, stored: Stored) -> str:
        """Wait until a mirror has its copy. In other pools ZFS moves no data: only new writes use
        all devices.
        """
        name = _pool(stored).name
        if stored.setup.mkfs.topology != "mirror":
            return "ZFS does not move existing data: only new data is spread over all devices"
        while "resilver in progress" in _status(name):
            time.sleep(_POLL_S)
        return "resilvered"


@process.understood("zfs list")
def parse_bytes(text: str, tag: str = "") -> int:
    """Parse `zfs get -Hrp -o name,property,value`: `used` of snapshots, `usedbydataset` of the
    clone.
    """
    endings = {"used": f"@{SNAPSHOT}{tag}", "usedbydataset": f"/{CLONE}{tag}"}
    total = 0
    for line in text.splitlines():
        name, key, value = line.split("\t")
        if value.isdigit() and key in endings and name.endswith(endings[key]):
            total += int(value)
    return total


def _pool(stored: Stored) -> ZfsPool:
    assert stored.fs.pool is not None
    return stored.fs.pool


def _status(name: str) -> str:
    return process.run(["zpool", "status", "-v", name]).stdout


def _datasets(name: str, kind: str) -> list[str]:
    done = process.run(["zfs", "list", "-H", "-r", "-t", kind, "-o", "name", name])
    return done.stdout.split()


class Zfs(Family):
    """One pool per trial."""

    name = "zfs"
    period_s = 5.0  # zfs_txg_timeout
    snapshots = Datasets()
    growing = Members()
    checks = (Check("scrub", scrub, mounted=True),)
    described = Character(
        "data and metadata",
        False,
        "yes",
        True,
        "grow",
        False,
    )

    def programs(self, setup: FsSetup) -> Words:
        return ("zpool", "zfs", "zdb")

    def commands(
        self,
        setup: FsSetup,
        targets: Words,
        at: str,
    ) -> Commands:
        commands = pool.making(setup, _NAME, targets)
        commands.append(["zfs", "set", f"mountpoint={at}", _NAME])
        return list(map(tuple, commands))

    def create(
        self,
        setup: FsSetup,
        device: Device,
        journal: Journal | None = None,
    ) -> Made:
        """Make the pool, recorded in the journal before, with its datasets, and export it. Raises
        MakeFailed.
        """
        # The pool is in the journal before it exists, so that a killed run can remove it.
        name = pool.new_name(journal)
        driver.note_resource(
            journal,
            "take",
            pool.JOURNALLED,
            name,
        )
        targets = tuple(str(member.path) for member in device.each)
        commands = []
        try:
            with pool.release(device):
                for argv in pool.making(setup, name, targets):
                    commands.append(process.run(argv, timeout_s=120).argv)
                properties_of_pool = _geometry(name, setup)
                ZfsPool(name, device).export()
                label = pool.label(device.path)
        except (CommandFailed, MountFailed) as failure:
            raise mkfs_error(setup, device, failure) from failure
        # What the kernel made, read from the label and the properties.
        geometry = {
            "pool_version": label["version"],
            "ashift": label["ashift"],
            "topology": setup.mkfs.topology,
            **properties_of_pool,
        }
        return Made(
            tuple(commands),
            str(label["pool_guid"]),
            geometry,
        )

    @contextlib.contextmanager
    def open(
        self,
        setup: FsSetup,
        device: Device,
        to: MountPoint,
    ) -> Iterator[Mounted]:
        """Import the pool within the block (one not exported before replays its log); then remove
        it, or export it if `to.stays`. Raises MountFailed, MakeFailed, UnmountFailed; the last
        one unless the block failed.
        """
        path = to.path
        journal = to.journal
        path.mkdir(parents=True, exist_ok=True)
        with pool.release(device):
            # The label on the device has the pool's name.
            hosted = ZfsPool(str(pool.label(device.path)["name"]), device)
            data = f"{hosted.name}/data" if "data" in setup.volumes else hosted.name
            # From here on a later start would export the pool.
            driver.note_resource(
                journal,
                "take",
                pool.JOURNALLED,
                hosted.name,
            )
            with driver.limit_arc(to.arc_bytes, journal):
                hosted.bring_in()
                with afterwards(lambda: hosted.export(path)):
                    _mount(hosted, path)
                    yield _facts(path, data, setup.mount, hosted)
        driver.note_resource(
            journal,
            "give_back",
            pool.JOURNALLED,
            hosted.name,
        )
        # The label is erased, so that no later import finds the pool.
        if not to.stays:
            pool.wipe(hosted.members)

    def read_at(self, path: Path) -> Mounted:
        return _facts(path, mount_of(path).source)

    def emptying(
        self,
        setup: FsSetup,
        device: Device,
        fs: Mounted,
    ) -> Emptying:
        if fs.pool is None:
            return EVICTING
        return Emptying(
            "export and import",
            fs.pool.reopen,
            lambda: driver.arcstats().get("data_size"),  # of all pools of this kernel
            "primarycache=all" in fs.options_effective,
        )

    def lacks(self, setup: FsSetup, root: Path = Path("/")) -> str | None:
        version = driver.version()
        if version:
            return properties.lacks(setup, version)
        return None

    def give_back(self, journal: Journal) -> list[str]:
        return [*pool.give_back(journal), *driver.arc_given_back(journal)]

    def promises(self, setup: FsSetup) -> tuple[Durability, ...]:
        return properties.flags(options_of(setup), {})

    def conflict(self, setup: FsSetup) -> str | None:
        """Return the option of mount(8) that ZFS has only as a property, or None."""
        for option in setup.mount:
            if "=" not in option:
                return f'"{option}" is not a property of ZFS, such as "atime=off"'
        return None

    def tears(self, effective: Words, attributes: Words) -> bool:
        return properties.tears(effective)

    def tears_pages_of(self, setup: FsSetup, page_bytes: int) -> bool:
        if properties.record_bytes(options_of(setup)) < page_bytes:
            return True
        return super().tears_pages_of(setup, page_bytes)

    def reports(self, options: Words, unprotected: bool) -> Words:
        return properties.reports(options, unprotected)

    def compresses(self, options: Words) -> str | None:
        compression = properties.pairs(options).get("compression", "off")
        if compression == "on":
            return _COMPRESSION_ON
        return None if compression == "off" else compression

    def character(self, setup: FsSetup) -> Character:
        """Return its features: a mirror repairs what its checksums detect."""
        return replace(self.described, repairs=setup.mkfs.topology == "mirror")

    def writes_out_s(self, options: Sequence[str], tunables: Mapping[str, Scalar]) -> float | None:
        """Return zfs_txg_timeout if the driver reports it, otherwise its default."""
        if "txg_timeout_s" in tunables:
            return float(tunables["txg_timeout_s"])
        return self.period_s

    def compression_ratio(self, path: Path) -> float | None:
        return _ratio(pool.dataset_properties(mount_of(path).source))

    def has_compression(self, files: Sequence[Path]) -> bool:
        pool.sync(mount_of(files[0]).source.split("/")[0])
        stats = (path.stat() for path in files)
        return any(stat.st_blocks * BLOCK < stat.st_size for stat in stats)


FAMILY: Final = Zfs()


@process.understood("zfs get")
def _ratio(values: Mapping[str, str]) -> float:
    return float(values["compressratio"].removesuffix("x"))


def _geometry(name: str, setup: FsSetup) -> Scalars:
    """Return the properties by name, a volume's with its name as prefix. Raises MountFailed if one
    differs.
    """
    facts: Scalars = {"driver": f"OpenZFS {driver.version()}"}
    parts = {"": setup.mount}
    parts.update({part: volume.options for part, volume in setup.volumes.items()})
    # Each dataset must have the properties that the setup asks for.
    for part, options in parts.items():
        effective = pool.dataset_properties(f"{name}/{part}" if part else name)
        differences = properties.differences(properties.pairs(options), effective)
        if differences:
            raise MountFailed(f"dataset {part or name!r}: {'; '.join(differences)}")
        for key, value in properties.shown(effective).items():
            facts[f"{part}.{key}" if part else key] = value

    printed = process.run(["zpool", "get", "-H", "-o", "property,value", "all", name]).stdout
    of_pool = properties.parse_get(printed)
    active = [key for key, value in of_pool.items() if value == "active"]
    facts["features"] = " ".join(key.removeprefix("feature@") for key in active)
    if "autotrim" in of_pool:
        facts["autotrim"] = of_pool["autotrim"]
    return facts


def _mount(hosted: ZfsPool, path: Path) -> None:
    """Mount the pool at `path`, unless the import has already done so, because a pool stores its
    mount point.
    """
    mount = mount_of(path)
    expected = (hosted.name, path.resolve())
    if (mount.source, mount.point) == expected:
        return
    try:
        process.run(["zfs", "set", f"mountpoint={path}", hosted.name])
    except CommandFailed as failure:
        raise MountFailed(f"{hosted.name} could not be mounted at {path}: {failure}") from failure
    mount = mount_of(path)
    if (mount.source, mount.point) != expected:
        raise MountFailed(
            f"{path} belongs to {mount.source} mounted at {mount.point}, not to {hosted.name}"
        )


def _facts(
    path: Path,
    dataset: str,
    options: Words = (),
    hosted: ZfsPool | None = None,
) -> Mounted:
    """Return the facts of a mounted pool. `dataset`: the one with the data, for its properties."""
    of_data = properties.effective(pool.dataset_properties(dataset))
    effective = (*mount_of(path).options, *of_data)
    return Mounted(
        path=path,
        family="zfs",
        options_asked=options,
        options_effective=effective,
        read_ahead_kb=number(FAMILY.bdi(path) / "read_ahead_kb"),
        flags=properties.flags(effective, driver.parameters()),
        tears=properties.tears(effective),
        tunables=_tunables(hosted),
        pool=hosted,
        record_bytes=properties.record_bytes(effective),
    )


def _tunables(hosted: ZfsPool | None) -> Scalars:
    parameters = driver.parameters()
    stats = driver.arcstats()
    facts: Scalars = {"driver": f"OpenZFS {driver.version()}"}
    if "zfs_txg_timeout" in parameters:
        facts["txg_timeout_s"] = parameters["zfs_txg_timeout"]
    if "zfs_dirty_data_max" in parameters:
        facts["dirty_data_max_bytes"] = parameters["zfs_dirty_data_max"]
    listed = process.run(["zpool", "list", "-H", "-o", "name"], ok=(0, 1))
    others = listed.stdout.split()
    if hosted is not None:
        others = [name for name in others if name != hosted.name]
    if others:
        facts["other_pools"] = " ".join(others)
    if "c_max" in stats:
        facts["arc_max_bytes"] = stats["c_max"]
    return facts
