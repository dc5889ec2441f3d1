"""nilfs2: log-structured, with a checkpoint every few seconds; `nilfs_cleanerd`, which mount starts, makes room again.

Blocks are never overwritten in place, and yet a page of two blocks can tear: a checkpoint may fall between them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems import common
from dbbench.model import FsSetup, Scalar

mount_options = common.mount_options
live = common.nothing_live
flags = common.flags_of_barriers
tears = common.always_tears  # see above
bdi = common.bdi_of_device_number
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


@process.understood("nilfs-tune")
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
