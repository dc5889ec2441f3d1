"""nilfs2: log-structured, with a checkpoint every few seconds; `nilfs_cleanerd`, started by mount,
frees space. Blocks are never overwritten in place, and yet a page of two blocks can tear: a
checkpoint may fall between them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.model import Scalar
from dbbench.storage.filesystems.formatted import Formatted
from dbbench.storage.filesystems.port import Character


class Nilfs2(Formatted):
    """nilfs2; its pages can tear (see above). No operation here keeps its checkpoints."""

    needs = ("mkfs.nilfs2", "nilfs-tune", "mount.nilfs2")
    mkfs = ("mkfs.nilfs2", "-q", "-f", "-K")
    resizing = ("nilfs-resize", "--yes", "{device}")
    described = Character("data and metadata", False, "yes", False, "grow and shrink", False)

    def geometry(self, target: Path) -> dict[str, Scalar]:
        return parse_tune(process.run(["nilfs-tune", "-l", target]).stdout)


FAMILY: Final = Nilfs2("nilfs2")


@process.understood("nilfs-tune")
def parse_tune(text: str) -> dict[str, Scalar]:
    """Parse `nilfs-tune -l`."""
    fields = dict(re.findall(r"^([^:\n]+):[ \t]+(.*)$", text, re.MULTILINE))
    block = int(fields["Block size"])
    features = fields["Filesystem features"].strip()
    return {
        "uuid": fields["Filesystem UUID"],
        "block_size": block,
        "bytes": int(fields["Device size"]),
        "segments": int(fields["Number of segments"]),
        "segment_bytes": block * int(fields["# of blocks per segment"]),
        "reserved_segments_percent": int(fields["Reserved segments %"]),
        "features": "" if features == "(none)" else features,
    }
