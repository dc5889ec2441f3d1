"""By which word a disk is named when a person allows it to be erased.

A serial is not always an identity: virtual disks may share one constant, loop devices have none. So: the serial
where it is unique on this machine; else the WWN, else a by-id name; else kernel name, exact size in bytes, boot
and the kernel's count of media (diskseq), which is valid for this boot and this attachment only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.devices import sysfs

BY_ID: Final = Path("/dev/disk/by-id")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Described:
    """A disk as `doctor` shows it. `shown` is lsblk's view: good for people, never for a decision."""

    name: str
    identity: str
    size_bytes: int
    model: str
    shown: dict[str, Any]


def identity(path: Path) -> str:
    """The word to type for the block device at `path`. Raises OSError where it is not there."""
    name = sysfs.name_of(path.stat().st_rdev)
    if name is None:
        raise OSError(f"{path} is no block device that the kernel knows")
    return identity_of(name)


def identity_of(name: str) -> str:
    """The word to type for a kernel name; a partition's is its disk's with -partN."""
    disk = sysfs.disk_of(name)
    part = "" if disk == name else f"-part{sysfs.read(sysfs.folder(name) / 'partition')}"
    for word, all_words in ((serial(disk), map(serial, sysfs.disks())), (wwn(disk), map(wwn, sysfs.disks()))):
        if word and list(all_words).count(word) == 1:
            return word + part
    return (_by_id(disk) or _for_this_boot(disk)) + part


def names_of(name: str) -> frozenset[str]:
    """Every word that names this device in a plan's `identity` (which names a disk, and never permits a wipe)."""
    words = {identity_of(name), name, serial(name), wwn(name), *_links(name)}
    return frozenset(words - {""})


def serial(name: str) -> str:
    """The serial number that the disk reports; "" where it has none."""
    here = sysfs.folder(name)
    for place in ("serial", "device/serial"):  # virtio; nvme, mmc
        if text := sysfs.read(here / place):
            return " ".join(text.split())
    return _vital_product_data(here / "device/vpd_pg80")


def wwn(name: str) -> str:
    """The world wide name, or the array's or volume's own UUID; "" where it has none."""
    here = sysfs.folder(name)
    found = (sysfs.read(here / place) for place in ("wwid", "device/wwid", "dm/uuid", "md/uuid"))
    return next((" ".join(text.split()) for text in found if text), "")


def model(name: str) -> str:
    """The model that the disk reports; "" where it does not."""
    here = sysfs.folder(sysfs.disk_of(name))
    return sysfs.read(here / "device/model") or ""


def describe_all() -> list[Described]:
    """All disks and partitions that hold at least a sector, for people."""
    columns = "NAME,TYPE,SIZE,FSTYPE,LABEL,MOUNTPOINTS,RO,ROTA,TRAN"
    answer = process.run(["lsblk", "--json", "--bytes", "--list", "--output", columns], note=False).stdout
    return [
        Described(row["name"], identity_of(row["name"]), sysfs.size_bytes(row["name"]), model(row["name"]), row)
        for row in json.loads(answer)["blockdevices"]
        if sysfs.size_bytes(row["name"]) > 0
    ]


def _vital_product_data(path: Path) -> str:
    """The serial of SCSI page 80h: four bytes of header (the last two: length), then text (SPC-4, 7.8.18)."""
    try:
        page = path.read_bytes()
    except OSError:
        return ""
    return page[4 : 4 + int.from_bytes(page[2:4], "big")].decode(errors="replace").strip("\0 ")


def _links(name: str) -> list[str]:
    number = sysfs.number_of(name)
    if not BY_ID.is_dir():
        return []
    return sorted(link.name for link in BY_ID.iterdir() if link.exists() and link.stat().st_rdev == number)


def _by_id(name: str) -> str:
    return next(iter(_links(name)), "")


def _for_this_boot(name: str) -> str:
    boot = BOOT_ID.read_text().strip()[:8]
    words = [name, str(sysfs.size_bytes(name)), boot, sysfs.read(sysfs.folder(name) / "diskseq")]
    return "-".join(word for word in words if word)
