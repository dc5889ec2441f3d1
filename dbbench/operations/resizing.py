"""A filesystem grown into the space that its volume got, mounted as it is."""

from __future__ import annotations

from dbbench import process
from dbbench.errors import OperationFailed
from dbbench.operations.port import Filled

_RESIZE_S = 3600.0  # ext4 writes the new groups' tables


def resize(filled: Filled) -> str:
    """By the family's own tool; which that was. OperationFailed where it has none that works on a mounted one."""
    at, device = str(filled.fs.path), str(filled.volume.path)
    argv = {
        "ext3": ["resize2fs", device],
        "ext4": ["resize2fs", device],
        "xfs": ["xfs_growfs", at],
        "btrfs": ["btrfs", "filesystem", "resize", "max", at],
        "nilfs2": ["nilfs-resize", "--yes", device],
    }.get(filled.setup.mkfs.family)
    if argv is None:
        raise OperationFailed(f"{filled.setup.mkfs.family} is not grown while it is mounted")
    process.run(argv, timeout_s=_RESIZE_S)
    return " ".join(argv[:1])
