"""xfs. Its kernel has no nobarrier (removed in 4.19), so no mount option adds a durability flag."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.machine.host.proc import text
from dbbench.model import FsSetup, Scalar, Scalars
from dbbench.storage.filesystems.common import PAGE_BYTES, TOOL_S, block_bytes
from dbbench.storage.filesystems.family import Character, Check, FreeExtent, Mounted, Stored
from dbbench.storage.filesystems.formatted import Formatted, examine

# Features that xfs_info prints, as far as its release knows them.
FEATURES: Final = (
    "crc",
    "finobt",
    "sparse",
    "rmapbt",
    "reflink",
    "bigtime",
    "inobtcount",
    "nrext64",
    "exchange",
    "metadir",
    "parent",
    "zoned",
)
LARGE_BLOCKS: Final = (6, 12)  # the first kernel that supports blocks larger than its page size
LARGEST_SECTOR: Final = 16384  # of a loop device: one page of InnoDB


def _repair(stored: Stored) -> str:
    examine(stored, "xfs_repair", "-n")
    return "no errors"


class Xfs(Formatted):
    """xfs of all releases."""

    needs = ("mkfs.xfs", "xfs_info", "xfs_db")
    mkfs = ("mkfs.xfs", "-q", "-f", "-K")
    tries_mkfs = True
    resizing = ("xfs_growfs", "{at}")
    mount_of_copy = ("nouuid",)
    reads_with = ("xfs_info", "xfs_db", "xfs_spaceman")
    described = Character("metadata", False, "no", False, "grow", True)
    checks = (Check("xfs_repair -n", _repair),)

    def geometry(self, target: Path) -> Scalars:
        facts = parse_xfs_info(process.run(["xfs_info", target]).stdout)
        print_uuid = ["xfs_db", "-r", "-c", "sb 0", "-c", "print uuid", str(target)]
        uuid = process.run(print_uuid).stdout.partition("=")[2]
        return {"uuid": uuid.strip(), **facts}

    def lacks(self, setup: FsSetup, root: Path = Path("/")) -> str | None:
        size = block_bytes(setup)
        release = text(root / "proc/sys/kernel/osrelease") or os.uname().release
        version = [int(digits) for digits in re.findall(r"\d+", release)[:2]]
        if size <= PAGE_BYTES or tuple(version) >= LARGE_BLOCKS:
            return None
        return (
            f"blocks of {size} bytes, above the page size of {PAGE_BYTES}, need Linux 6.12; this "
            f"is {release}"
        )

    def sector_bytes(self, setup: FsSetup) -> int:
        """Return the size of a block above the page size, but at most an InnoDB page, because
        direct I/O cannot write less than a sector. mkfs.xfs uses the sectors of the device.
        """
        size = block_bytes(setup)
        if size > PAGE_BYTES:
            return min(size, LARGEST_SECTOR)
        return 0

    def unit_bytes(self, setup: FsSetup, live: Mapping[str, Scalar]) -> int:
        return block_bytes(setup)

    def free_extents(self, fs: Mounted) -> Iterable[FreeExtent]:
        argv = ["xfs_spaceman", "-c", "freesp -b", str(fs.path)]
        printed = process.run(argv, timeout_s=TOOL_S).stdout
        return parse_freesp(printed, os.statvfs(fs.path).f_frsize)

    def defragmenting(self, datadir: Path, files: Sequence[Path]) -> list[list[str]]:
        """Return xfs_fsr, which skips files that it cannot improve."""
        return [["xfs_fsr", "-v", str(file)] for file in files]


FAMILY: Final = Xfs("xfs")


@process.understood("xfs_info")
def parse_xfs_info(text: str) -> Scalars:
    """Parse the geometry in xfs_info's table (mkfs.xfs prints the same)."""
    sections: dict[str, dict[str, int]] = {}
    name = ""
    # A section begins at the left margin and goes on in indented lines.
    for line in text.splitlines():
        if line[:1].strip():
            name = line.partition("=")[0].split()[0]
            sections[name] = {}
        for key, value in re.findall(r"([a-z0-9-]+)=(\d+)", line):
            sections[name][key] = int(value)
    # The names of the facts are those of the other families.
    meta = sections["meta-data"]
    data = sections["data"]
    log = sections["log"]
    features = {**meta, **sections["naming"]}
    return {
        "block_size": data["bsize"],
        "blocks": data["blocks"],
        "sector_size": meta["sectsz"],
        "agcount": meta["agcount"],
        "ag_bytes": meta["agsize"] * data["bsize"],
        "log_bytes": log["blocks"] * log["bsize"],
        "inode_size": meta["isize"],
        "reflink": bool(meta["reflink"]),
        "rmapbt": bool(meta["rmapbt"]),
        "crc": bool(meta["crc"]),
        "features": " ".join(name for name in FEATURES if features.get(name)),
    }


@process.understood("xfs_spaceman")
def parse_freesp(text: str, block_size: int) -> list[FreeExtent]:
    """Parse xfs_spaceman's freesp: from, to, extents, blocks, pct; xfsprogs 6.13 has more columns."""
    head, *lines = [line.split() for line in text.splitlines() if line.strip()]
    extents = []
    for words in lines:
        row = dict(zip(head, words, strict=False))
        least = int(row["from"]) * block_size
        total = int(row["blocks"]) * block_size
        extents.append((least, int(row["extents"]), total))
    return extents
