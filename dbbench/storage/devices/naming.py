"""The identity of a disk, with which a user permits erasing it: its serial number if it is unique
on this machine (virtual disks may share one, loop devices have none); otherwise the WWN, or a
by-id name; otherwise kernel name, exact size in bytes, boot and the kernel's media count
(diskseq), valid only for this boot and this attachment.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.storage.devices import sysfs

BY_ID: Final = Path("/dev/disk/by-id")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def identity(path: Path) -> str:
    """Return the identity of the block device at `path`. Raises OSError if it does not exist."""
    name = sysfs.name_of(path.stat().st_rdev)
    if name is None:
        raise OSError(f"{path} is not a block device that the kernel knows")
    return identity_of(name)


def identity_of(name: str) -> str:
    """Return the identity for a kernel name; for a partition, its disk's with -partN."""
    disk = sysfs.disk_of(name)
    part = "" if disk == name else f"-part{sysfs.attribute(name, 'partition')}"
    for read in (serial, wwn):
        if (word := read(disk)) and [*map(read, sysfs.disks())].count(word) == 1:
            return word + part
    boot = BOOT_ID.read_text().strip()[:8]
    for_this_boot = [disk, str(sysfs.size_bytes(disk)), boot, sysfs.attribute(disk, "diskseq")]
    return (next(iter(_links(disk)), "") or "-".join(filter(None, for_this_boot))) + part


def names_of(name: str) -> frozenset[str]:
    """Return every name that `identity` of a plan may use for it; these select a disk and never
    permit a wipe.
    """
    words = {identity_of(name), name, serial(name), wwn(name), *_links(name)}
    return frozenset(words - {""})


def serial(name: str) -> str:
    """Return the serial number that the disk reports; "" without one."""
    for place in ("serial", "device/serial"):  # where virtio has it, and where nvme and mmc have it
        if number := sysfs.attribute(name, place):
            return " ".join(number.split())
    try:  # SCSI page 80h: four bytes of header (the last two: length), then text (SPC-4, 7.8.18)
        page = (sysfs.folder(name) / "device/vpd_pg80").read_bytes()
    except OSError:
        return ""
    return page[4 : 4 + int.from_bytes(page[2:4], "big")].decode(errors="replace").strip("\0 ")


def wwn(name: str) -> str:
    """Return the world wide name, or the UUID of an array or volume; "" without one."""
    names = (
        sysfs.attribute(name, place) for place in ("wwid", "device/wwid", "dm/uuid", "md/uuid")
    )
    return " ".join(next(filter(None, names), "").split())


def model(name: str) -> str:
    """Return the model that the disk reports; "" without one."""
    return sysfs.attribute(sysfs.disk_of(name), "device/model") or ""


def describe_all() -> list[dict[str, Any]]:
    """Return all disks and partitions with at least one sector as lsblk shows them, which is never
    for a decision, with `identity` and `model`.
    """
    columns = "NAME,PKNAME,TYPE,SIZE,FSTYPE,LABEL,MOUNTPOINTS,RO,ROTA,TRAN"
    answer = process.run(
        ["lsblk", "--json", "--bytes", "--list", "--output", columns], note=False
    ).stdout
    return [
        {**row, "identity": identity_of(row["name"]), "model": model(row["name"])}
        for row in json.loads(answer)["blockdevices"]
        if sysfs.size_bytes(row["name"]) > 0
    ]


def _links(name: str) -> list[str]:
    number = sysfs.number_of(name)
    return sorted(
        link.name for link in BY_ID.glob("*") if link.exists() and link.stat().st_rdev == number
    )
