"""xfs. Its kernel has no nobarrier (removed in 4.19): no mount option takes a durability flag."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems.common import (
    PAGE_BYTES,
    bdi_of_device_number,
    kernel_version,
    option_value,
    without_discard,
)
from dbbench.model import Durability, FsSetup, Scalar
from dbbench.units import bytes_of

SNAPSHOTS: Final = False
LARGE_BLOCKS: Final = (6, 12)  # the first kernel that takes blocks above its page size


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making and reading back takes."""
    return ("mkfs.xfs", "xfs_info", "xfs_db")


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """-K: no discard; -f: over an old signature, which the guard has allowed."""
    return ["mkfs.xfs", "-q", "-f", "-K", *setup.mkfs.options, *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By xfs_info and xfs_db: allocation groups, log, sector and block size, features."""
    found = parse_xfs_info(process.run(["xfs_info", target]).stdout)
    said = process.run(["xfs_db", "-r", "-c", "sb 0", "-c", "print uuid", target]).stdout
    return {"uuid": said.split("=")[1].strip(), **found}


def parse_xfs_info(text: str) -> dict[str, Scalar]:
    """Geometry out of xfs_info's table (mkfs.xfs prints the same)."""
    sections: dict[str, dict[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if line[:1].strip():
            name = line.split("=")[0].split()[0]
        pairs = re.findall(r"([a-z0-9-]+)=(\d+)", line)
        sections.setdefault(name, {}).update({key: int(value) for key, value in pairs})
    meta, data, log = sections["meta-data"], sections["data"], sections["log"]
    return {
        "block_size": data["bsize"],
        "blocks": data["blocks"],
        "sector_size": meta["sectsz"],
        "agcount": meta["agcount"],
        "ag_bytes": meta["agsize"] * data["bsize"],
        "log_bytes": log["blocks"] * log["bsize"],
        "inode_size": meta["isize"],
        "reflink": bool(meta.get("reflink", 0)),
        "rmapbt": bool(meta.get("rmapbt", 0)),
        "crc": bool(meta.get("crc", 0)),
    }


def mount_options(setup: FsSetup) -> tuple[str, ...]:
    """The setup's, without discard."""
    return without_discard(setup.mount)


def lacks(setup: FsSetup) -> str | None:
    """Blocks above the page size need Linux 6.12."""
    said = option_value(setup.mkfs.options, "-b") or ""
    size = bytes_of(said.removeprefix("size=").upper()) if said.startswith("size=") else 0
    if size <= PAGE_BYTES or kernel_version() >= LARGE_BLOCKS:
        return None
    return f"blocks of {size} bytes, above the page size of {PAGE_BYTES}, need Linux 6.12; this is {os.uname().release}"


def live(device_name: str) -> dict[str, Scalar]:
    """Nothing: its mount options say all."""
    return {}


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """nobarrier is looked for all the same: kernels before 4.19 take it."""
    return (Durability.NO_BARRIER,) if "nobarrier" in effective else ()


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Always: data is overwritten in place."""
    return True


def bdi(path: Path) -> Path:
    """That of the block device."""
    return bdi_of_device_number(path)
