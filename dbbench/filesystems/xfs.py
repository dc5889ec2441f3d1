"""xfs. Its kernel has no nobarrier (removed in 4.19): no mount option takes a durability flag."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems import common
from dbbench.filesystems.common import PAGE_BYTES, kernel_version, option_value
from dbbench.model import FsSetup, Scalar
from dbbench.units import bytes_of

mount_options = common.mount_options
live = common.nothing_live
flags = common.flags_of_barriers
tears = common.always_tears
bdi = common.bdi_of_device_number
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


@process.understood("xfs_info")
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


def lacks(setup: FsSetup) -> str | None:
    """Blocks above the page size need Linux 6.12."""
    said = option_value(setup.mkfs.options, "-b") or ""
    size = bytes_of(said.removeprefix("size=").upper()) if said.startswith("size=") else 0
    if size <= PAGE_BYTES or kernel_version() >= LARGE_BLOCKS:
        return None
    return f"blocks of {size} bytes, above the page size of {PAGE_BYTES}, need Linux 6.12; this is {os.uname().release}"
