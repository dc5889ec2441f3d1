"""btrfs: copy-on-write, checksums, compression; each can be given up by a mount option or an attribute."""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, ProgramMissing
from dbbench.filesystems import common
from dbbench.filesystems.common import option_value
from dbbench.model import FsSetup, Scalar, Volume

mount_options = common.mount_options
live = common.nothing_live
flags = common.flags_of_barriers
SNAPSHOTS: Final = True

_FEATURES: Final = Path("/sys/fs/btrfs/features")
_FS_INFO: Final = 0x8400941F  # BTRFS_IOC_FS_INFO: 1024 bytes, the fsid at 16 (linux/btrfs.h)


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making and reading back takes."""
    attributes = (*setup.attributes, *(word for volume in setup.volumes.values() for word in volume.attributes))
    return ("mkfs.btrfs", "btrfs", *(("chattr",) if attributes else ()))


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """-K: no discard; -f: over an old signature, which the guard has allowed."""
    return ["mkfs.btrfs", "-q", "-f", "-K", *setup.mkfs.options, *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By `btrfs inspect-internal`: node and sector size, checksum, features, profiles of the block groups."""
    inspect = ["btrfs", "inspect-internal"]
    found = parse_super(process.run([*inspect, "dump-super", target]).stdout)
    return {**found, **parse_chunks(process.run([*inspect, "dump-tree", "-t", "chunk", target]).stdout)}


@process.understood("btrfs inspect-internal")
def parse_super(text: str) -> dict[str, Scalar]:
    """Of dump-super's output."""
    lines = dict(re.findall(r"^(\w+)\t+(.*)$", text, re.MULTILINE))
    features = re.search(r"^incompat_flags.*\n\s*\(([^)]*)\)", text, re.MULTILINE)
    return {
        "uuid": lines["fsid"],
        "nodesize": int(lines["nodesize"]),
        "sector_size": int(lines["sectorsize"]),
        "bytes": int(lines["total_bytes"]),
        "devices": int(lines["num_devices"]),
        "checksum": lines["csum_type"].split("(")[-1].rstrip(")"),
        "features": " ".join(features[1].replace("|", " ").split()) if features else "",
    }


@process.understood("btrfs inspect-internal")
def parse_chunks(text: str) -> dict[str, Scalar]:
    """data_profile, metadata_profile, system_profile of dump-tree's output ("single", "DUP", "RAID1")."""
    found: dict[str, Scalar] = {}
    for kinds, profile in re.findall(r"\btype ([A-Z|]+)\|(\w+)", text):
        for kind in kinds.split("|"):
            found[f"{kind.lower()}_profile"] = profile
    return found


def mount_words(others: tuple[str, ...]) -> tuple[str, ...]:
    """device=: the kernel takes the members from here; otherwise udev, or `btrfs device scan`, must have told it."""
    return tuple(f"device={other}" for other in others)


def members(path: Path) -> frozenset[str]:
    """The kernel names of the devices of the filesystem that is mounted at `path`."""
    return frozenset(link.name for link in (_folder(path) / "devices").iterdir())


def forget(devices: tuple[Device, ...]) -> None:
    """The kernel keeps the names of several devices after the unmount; of a single one it does not."""
    if len(devices) > 1:
        argv = ["btrfs", "device", "scan", "--forget", *(device.argument for device in devices)]
        process.run(argv, ok=(0, 1), pass_fds=[device.fd for device in devices])


def volume_commands(setup: FsSetup, at: Path) -> list[list[str]]:
    """A subvolume each, its properties, its attributes; all that is written into it inherits both."""
    said = []
    for name, volume in setup.volumes.items():
        said.append(["btrfs", "subvolume", "create", str(at / name)])
        said += [["btrfs", "property", "set", str(at / name), *option.split("=", 1)] for option in volume.options]
        said += [["chattr", *volume.attributes, str(at / name)]] if volume.attributes else []
    return said


def add_volumes(setup: FsSetup, path: Path) -> tuple[str, ...]:
    """Make them below `path`; the properties of the data volume as `btrfs property get` reads them back. Raises
    CommandFailed."""
    for argv in volume_commands(setup, path):
        process.run(argv)
    names = [option.split("=")[0] for option in setup.volumes.get("data", Volume()).options]
    return tuple(process.run(["btrfs", "property", "get", path / "data", name]).stdout.strip() for name in names)


def lacks(setup: FsSetup) -> str | None:
    """A checksum that this kernel's btrfs does not know, or a sector size beside the page size that it has not."""
    options = setup.mkfs.options
    checksum = option_value(options, "--csum") or option_value(options, "--checksum")
    if reason := _unknown("supported_checksums", checksum, "checksum"):
        return reason
    return _unknown("supported_sectorsizes", option_value(options, "-s"), "sector size")


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Only where data is overwritten in place."""
    return "nodatacow" in effective or "+C" in attributes


def bdi(path: Path) -> Path:
    """Its device number is anonymous and has no bdi; the one that counts is linked under its UUID."""
    return _folder(path) / "bdi"


def compresses(options: tuple[str, ...]) -> str | None:
    """The algorithm that the last of several `compress` options names, or a volume's property, which wins."""
    for option in reversed(options):
        if match := re.fullmatch(r"compress(?:ion|-force)?(?:=(\w+)(?::-?\d+)?)?", option):
            return None if match[1] in ("no", "none") else match[1] or "zlib"  # the kernel's default
    return None


def compression_ratio(path: Path) -> float | None:
    """By compsize, which needs root: uncompressed ÷ on disk of the data extents below `path`."""
    try:
        said = process.run(["compsize", "-b", path], timeout_s=300).stdout
    except (ProgramMissing, CommandFailed):
        return None
    return parse_compsize(said)


@process.understood("compsize")
def parse_compsize(text: str) -> float | None:
    """Of `compsize -b`: the TOTAL line's uncompressed ÷ disk usage."""
    match = re.search(r"^TOTAL\s+\S+\s+(\d+)\s+(\d+)\s", text, re.MULTILINE)
    return int(match[2]) / int(match[1]) if match and int(match[1]) else None


def _folder(path: Path) -> Path:
    """/sys/fs/btrfs/UUID of the filesystem that is mounted at `path`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        info = fcntl.ioctl(fd, _FS_INFO, bytes(1024))
    finally:
        os.close(fd)
    return Path(f"/sys/fs/btrfs/{uuid.UUID(bytes=info[16:32])}")


def _unknown(feature: str, wanted: str | None, what: str) -> str | None:
    """Why the kernel does not take it; None where it does, or where it does not tell (the module is not loaded)."""
    try:
        known = (_FEATURES / feature).read_text().split()
    except OSError:
        return None
    if wanted is None or any(name.startswith(wanted) for name in known):  # xxhash is xxhash64 there, blake2 blake2b
        return None
    return f"this kernel's btrfs has no {what} {wanted} (it has {', '.join(known)})"
