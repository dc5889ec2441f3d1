"""The registry of families: the word behind `mkfs.` -> the module that knows it."""

from __future__ import annotations

from typing import Final

from dbbench.filesystems import bcachefs, btrfs, ext, f2fs, nilfs2, raw, xfs, zfs
from dbbench.filesystems.port import Compressing, Exacting, Family, Pooled, Several

FAMILIES: Final[dict[str, Family]] = {
    "ext2": ext, "ext3": ext, "ext4": ext, "xfs": xfs, "btrfs": btrfs, "zfs": zfs, "f2fs": f2fs, "nilfs2": nilfs2,
    "bcachefs": bcachefs, "raw": raw,
}  # fmt: skip
POOLED: Final[dict[str, Pooled]] = {"zfs": zfs, "raw": raw}
COMPRESSING: Final[dict[str, Compressing]] = {"btrfs": btrfs, "zfs": zfs}
SEVERAL: Final[dict[str, Several]] = {"btrfs": btrfs}
EXACTING: Final[dict[str, Exacting]] = {"ext2": ext, "ext3": ext, "ext4": ext, "xfs": xfs, "btrfs": btrfs}
TUNERS: Final = {"ext2": "tune2fs", "ext3": "tune2fs", "ext4": "tune2fs"}  # for `Mkfs.tune`
