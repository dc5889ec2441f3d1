"""f2fs: log-structured, made for flash. Data is mostly written to new places, and yet a page can tear: an fsync of a
few blocks overwrites them in place (its `ipu_policy`), and a page of two blocks is not written as one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems import common
from dbbench.model import Durability, FsSetup, Scalar

mount_options = common.mount_options
live = common.nothing_live
tears = common.always_tears  # see above
bdi = common.bdi_of_device_number
SNAPSHOTS: Final = False


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making and reading back takes."""
    return ("mkfs.f2fs", "dump.f2fs", "blkid")


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """-t 0: no discard; -f: over an old signature, which the guard has allowed."""
    return ["mkfs.f2fs", "-q", "-f", "-t", "0", *setup.mkfs.options, *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By dump.f2fs: blocks, segments, sections, what is kept for cleaning, features; the UUID by blkid."""
    found = parse_dump(process.run(["dump.f2fs", "-d", "1", target]).stdout)
    uuid = process.run(["blkid", "--probe", "--output", "value", "--match-tag", "UUID", target], note=False)
    return {"uuid": uuid.stdout.strip(), **found}


@process.understood("dump.f2fs")
def parse_dump(text: str) -> dict[str, Scalar]:
    """Of `dump.f2fs -d 1`: superblock and checkpoint."""
    values = {name: int(value) for name, value in re.findall(r"^(\w+)\s+\[0x[ \w]+: (\d+)\]", text, re.MULTILINE)}
    features = re.search(r"^Info: superblock features = \w+ :(.*)$", text, re.MULTILINE)
    block = 2 ** values["log_blocksize"]
    return {
        "block_size": block,
        "blocks": values["block_count"],
        "sector_size": 2 ** values["log_sectorsize"],
        "segment_bytes": block * 2 ** values["log_blocks_per_seg"],
        "segments": values["segment_count_main"],
        "segments_per_section": values["segs_per_sec"],
        "overprovisioned_segments": values["overprov_segment_count"],
        "features": " ".join(features[1].split()) if features else "",
    }


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """`nobarrier` and `fsync_mode=nobarrier` send no flush; without checkpoints a cut goes back to the last one."""
    without = ("nobarrier", "fsync_mode=nobarrier")
    dropped = any(option in without or option.startswith("checkpoint=disable") for option in effective)
    return (Durability.NO_BARRIER,) if dropped else ()
