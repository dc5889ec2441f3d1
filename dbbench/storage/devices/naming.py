"""The identity of a disk, with which a user permits erasing it: its serial number if it is unique
on this machine (virtual disks may share one, loop devices have none); otherwise the WWN, or a
by-id name; otherwise kernel name, exact size in bytes, boot and the kernel's media count
(diskseq), valid only for this boot and this attachment.
"""

from __future__ import annotations

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import DbbenchError
from dbbench.machine.host.proc import BOOT_ID
from dbbench.storage.devices import sysfs

BY_ID: Final = Path("/dev/disk/by-id")
# lsblk prints device-mapper's name of a volume as NAME, and the kernel's, dm-3, as KNAME.
_COLUMNS: Final = "KNAME,PKNAME,TYPE,SIZE,FSTYPE,MOUNTPOINTS,UUID,LABEL,PARTUUID,PARTLABEL"
_TAGS: Final = ("UUID", "LABEL", "PARTUUID", "PARTLABEL")


class DiskNames:
    """What tells the disks of this machine apart. Each kind of name is read once, for all disks,
    when it is first needed.
    """

    @functools.cached_property
    def serials(self) -> Counter[str]:
        return Counter(map(serial, sysfs.disks()))

    @functools.cached_property
    def wwns(self) -> Counter[str]:
        return Counter(map(wwn, sysfs.disks()))

    @functools.cached_property
    def links(self) -> Mapping[int, list[str]]:
        """The names in /dev/disk/by-id of each device number."""
        names: dict[int, list[str]] = defaultdict(list)
        for link in sorted(BY_ID.glob("*")):
            if link.exists():
                names[link.stat().st_rdev].append(link.name)
        return names

    def of(self, name: str) -> list[str]:
        """Return the names in /dev/disk/by-id of a kernel name."""
        number = sysfs.number_of(name)
        if number is None:
            return []
        return self.links.get(number, [])


def identity(path: Path) -> str:
    """Return the identity of the block device at `path`. Raises OSError if it does not exist."""
    name = sysfs.name_at(path)
    if name is None:
        raise OSError(f"{path} is not a block device that the kernel knows")
    return identity_of(name)


def identity_of(name: str, names: DiskNames | None = None) -> str:
    """Return the identity for a kernel name; for a partition, its disk's with -partN. `names`: of
    all disks, if they were read before.
    """
    names = names or DiskNames()
    disk = sysfs.disk_of(name)
    part = "" if disk == name else f"-part{sysfs.attribute(name, 'partition')}"

    # Names that no other disk of this machine has.
    number = serial(disk)
    if number and names.serials[number] == 1:
        return number + part
    world_wide = wwn(disk)
    if world_wide and names.wwns[world_wide] == 1:
        return world_wide + part
    links = names.of(disk)
    if links:
        return links[0] + part

    # Without one, an identity that is valid for this boot and this attachment only.
    boot = BOOT_ID.read_text().strip()[:8]
    for_this_boot = [disk, str(sysfs.size_bytes(disk)), boot, sysfs.attribute(disk, "diskseq")]
    return "-".join(filter(None, for_this_boot)) + part


def names_of(name: str, names: DiskNames | None = None) -> frozenset[str]:
    """Return every name that `identity` of a plan may use for it; these select a disk and never
    permit a wipe. `names`: as in `identity_of`.
    """
    names = names or DiskNames()
    words = {identity_of(name, names), name, serial(name), wwn(name), *names.of(name)}
    return frozenset(words - {""})


def serial(name: str) -> str:
    """Return the serial number that the disk reports; "" without one."""
    for place in ("serial", "device/serial"):  # where virtio has it, and where nvme and mmc have it
        if number := sysfs.attribute(name, place):
            return " ".join(number.split())
    try:
        page = (sysfs.folder(name) / "device/vpd_pg80").read_bytes()
    except OSError:
        return ""
    # SCSI page 80h: four bytes of header (the last two: length), then text (SPC-4, 7.8.18)
    length = int.from_bytes(page[2:4], "big")
    text = page[4 : 4 + length].decode(errors="replace")
    return text.strip("\0 ")


def wwn(name: str) -> str:
    """Return the world wide name, or the UUID of an array or volume; "" without one."""
    for place in ("wwid", "device/wwid", "dm/uuid", "md/uuid"):
        if world_wide := sysfs.attribute(name, place):
            return " ".join(world_wide.split())
    return ""


def model(name: str) -> str:
    """Return the model that the disk reports; "" without one."""
    return sysfs.attribute(sysfs.disk_of(name), "device/model") or ""


@dataclass(frozen=True)
class Listed:
    """A disk, partition or layer as lsblk lists it, to be shown and never for a decision."""

    name: str  # the kernel's
    kind: str  # lsblk's TYPE: disk, part, loop, raid1, crypt, lvm ...
    below: tuple[str, ...]  # kernel names of the devices that it is made of
    size_bytes: int
    fstype: str
    mounts: tuple[str, ...]
    tags: frozenset[str] = frozenset()  # with which fstab may name it, such as "UUID=..."

    @property
    def path(self) -> str:
        """The name under /dev; of a volume of device-mapper the one that its owner gave it."""
        volume = sysfs.attribute(self.name, "dm/name")
        if volume:
            return f"/dev/mapper/{volume}"
        return f"/dev/{self.name}"


def describe_all(silent: Collection[str] = ()) -> list[Listed]:
    """Return all devices with at least one sector; without filesystems and mounts if lsblk is
    missing, fails or prints something unknown. `silent`: loop devices whose file does not answer.
    """
    argv = ["lsblk", "--json", "--bytes", "--list", "--output", _COLUMNS]
    # lsblk may read disks, and would wait for such a loop device.
    if silent:
        argv += [f"/dev/{name}" for name in sysfs.disks() if name not in silent]
    try:
        disks = parse_lsblk(process.run(argv, note=False).stdout)
    except DbbenchError:
        disks = list(_listed_by_kernel())
    listed = {disk.name for disk in disks}
    for name in silent:
        if name not in listed:
            disks.append(Listed(name, "loop", (), sysfs.size_bytes(name), "", ()))
    return [disk for disk in disks if sysfs.size_bytes(disk.name) > 0]


def _listed_by_kernel() -> Iterator[Listed]:
    for disk in sysfs.disks():
        lower = tuple(sysfs.slaves(disk))
        yield Listed(disk, "layer" if lower else "disk", lower, sysfs.size_bytes(disk), "", ())
        for part in sysfs.partitions(disk):
            yield Listed(part, "part", (disk,), sysfs.size_bytes(part), "", ())


@process.understood("lsblk")
def parse_lsblk(answer: str) -> list[Listed]:
    """Return the devices in lsblk's order. One that is made of several others has a row for each;
    "mountpoints" of a device that is not mounted is [null] up to util-linux 2.40, then [].
    """
    listed: dict[str, Listed] = {}
    for row in json.loads(answer)["blockdevices"]:
        name = str(row["kname"])
        before = listed.get(name)
        below = dict.fromkeys(before.below if before else ())
        if parent := row.get("pkname"):
            below[str(parent)] = None
        tags = set()
        for tag in _TAGS:
            if value := row.get(tag.lower()):
                tags.add(f"{tag}={value}")
        listed[name] = Listed(
            name,
            row.get("type") or "",
            tuple(below),
            int(row.get("size") or 0),
            row.get("fstype") or "",
            tuple(_mount_points(row)),
            frozenset(tags),
        )
    return list(listed.values())


def _mount_points(row: Mapping[str, Any]) -> Iterator[str]:
    for point in row.get("mountpoints") or ():
        if point:
            yield str(point)
