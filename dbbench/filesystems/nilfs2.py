"""nilfs2: log-structured, with a checkpoint every few seconds; `nilfs_cleanerd`, which mount starts, makes room again.

Blocks are never overwritten in place, and yet a page of two blocks can tear: a checkpoint may fall between them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems.common import bdi_of_device_number, without_discard
from dbbench.model import Durability, FsSetup, Scalar

SNAPSHOTS: Final = False  # its checkpoints could be kept; no operation here does


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making, reading back and mounting takes."""
    return ("mkfs.nilfs2", "nilfs-tune", "mount.nilfs2")


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """-K: no discard; -f: over an old signature, which the guard has allowed."""
    return ["mkfs.nilfs2", "-q", "-f", "-K", *setup.mkfs.options, *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By nilfs-tune: blocks, segments, what is kept for cleaning, features."""
    return parse_tune(process.run(["nilfs-tune", "-l", target]).stdout)


def parse_tune(text: str) -> dict[str, Scalar]:
    """Of `nilfs-tune -l`."""
    said = dict(re.findall(r"^([^:\n]+):[ \t]+(.*)$", text, re.MULTILINE))
    block, features = int(said["Block size"]), said["Filesystem features"].strip()
    return {
        "uuid": said["Filesystem UUID"],
        "block_size": block,
        "bytes": int(said["Device size"]),
        "segments": int(said["Number of segments"]),
        "segment_bytes": block * int(said["# of blocks per segment"]),
        "reserved_segments_percent": int(said["Reserved segments %"]),
        "features": "" if features == "(none)" else features,
    }


def mount_options(setup: FsSetup) -> tuple[str, ...]:
    """The setup's, without discard."""
    return without_discard(setup.mount)


def live(device_name: str) -> dict[str, Scalar]:
    """Nothing: its mount options say all."""
    return {}


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """Barriers are on where the kernel says nothing."""
    return (Durability.NO_BARRIER,) if "nobarrier" in effective else ()


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Always, see above."""
    return True


def bdi(path: Path) -> Path:
    """That of the block device."""
    return bdi_of_device_number(path)
