"""btrfs: copy-on-write, checksums, compression; each can be given up by a mount option or an attribute."""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, ProgramMissing
from dbbench.filesystems.common import without_discard
from dbbench.model import Durability, FsSetup, Scalar

SNAPSHOTS: Final = True

_FS_INFO: Final = 0x8400941F  # BTRFS_IOC_FS_INFO: 1024 bytes, the fsid at 16 (linux/btrfs.h)


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making and reading back takes."""
    return ("mkfs.btrfs", "btrfs", *(("chattr",) if setup.attributes else ()))


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """-K: no discard; -f: over an old signature, which the guard has allowed."""
    return ["mkfs.btrfs", "-q", "-f", "-K", *setup.mkfs.options, *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By `btrfs inspect-internal`: node and sector size, checksum, features, profiles of the block groups."""
    inspect = ["btrfs", "inspect-internal"]
    found = parse_super(process.run([*inspect, "dump-super", target]).stdout)
    return {**found, **parse_chunks(process.run([*inspect, "dump-tree", "-t", "chunk", target]).stdout)}


def parse_super(text: str) -> dict[str, Scalar]:
    """Of dump-super's output."""
    lines = dict(re.findall(r"^(\w+)\t+(.*)$", text, re.MULTILINE))
    features = re.search(r"^incompat_flags.*\n\s*\(([^)]*)\)", text, re.MULTILINE)
    return {
        "uuid": lines["fsid"],
        "nodesize": int(lines["nodesize"]),
        "sector_size": int(lines["sectorsize"]),
        "bytes": int(lines["total_bytes"]),
        "checksum": lines["csum_type"].split("(")[-1].rstrip(")"),
        "features": " ".join(features[1].replace("|", " ").split()) if features else "",
    }


def parse_chunks(text: str) -> dict[str, Scalar]:
    """data_profile, metadata_profile, system_profile of dump-tree's output ("single", "DUP", "RAID1")."""
    found: dict[str, Scalar] = {}
    for kinds, profile in re.findall(r"\btype ([A-Z|]+)\|(\w+)", text):
        for kind in kinds.split("|"):
            found[f"{kind.lower()}_profile"] = profile
    return found


def mount_options(setup: FsSetup) -> tuple[str, ...]:
    """The setup's, without discard."""
    return without_discard(setup.mount)


def live(device_name: str) -> dict[str, Scalar]:
    """Nothing: its mount options say all."""
    return {}


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """nodatacow brings none of its own: what it gives up is `tears`, and that weighs with the server's settings."""
    return (Durability.NO_BARRIER,) if "nobarrier" in effective else ()


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Only where data is overwritten in place."""
    return "nodatacow" in effective or "+C" in attributes


def bdi(path: Path) -> Path:
    """Its device number is anonymous and has no bdi; the one that counts is linked under its UUID."""
    fd = os.open(path, os.O_RDONLY)
    try:
        info = fcntl.ioctl(fd, _FS_INFO, bytes(1024))
    finally:
        os.close(fd)
    return Path(f"/sys/fs/btrfs/{uuid.UUID(bytes=info[16:32])}/bdi")


def compresses(options: tuple[str, ...]) -> str | None:
    """The algorithm that the last of several `compress` options names."""
    for option in reversed(options):
        if match := re.fullmatch(r"compress(?:-force)?(?:=(\w+)(?::\d+)?)?", option):
            return None if match[1] in ("no", "none") else match[1] or "zlib"  # the kernel's default
    return None


def compression_ratio(path: Path) -> float | None:
    """By compsize, which needs root: uncompressed ÷ on disk of the data extents below `path`."""
    try:
        said = process.run(["compsize", "-b", path], timeout_s=300).stdout
    except (ProgramMissing, CommandFailed):
        return None
    return parse_compsize(said)


def parse_compsize(text: str) -> float | None:
    """Of `compsize -b`: the TOTAL line's uncompressed ÷ disk usage."""
    match = re.search(r"^TOTAL\s+\S+\s+(\d+)\s+(\d+)\s", text, re.MULTILINE)
    return int(match[2]) / int(match[1]) if match and int(match[1]) else None
