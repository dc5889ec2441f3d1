"""The registry of families: the word behind `mkfs.` -> the module that knows it."""

from __future__ import annotations

from typing import Final

from dbbench.filesystems import btrfs, ext, xfs
from dbbench.filesystems.port import Compressing, Family, Pooled

FAMILIES: Final[dict[str, Family]] = {"ext3": ext, "ext4": ext, "xfs": xfs, "btrfs": btrfs}
POOLED: Final[dict[str, Pooled]] = {}
COMPRESSING: Final[dict[str, Compressing]] = {"btrfs": btrfs}
