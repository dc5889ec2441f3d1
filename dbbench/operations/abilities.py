"""The registry: which module can do what, by family of filesystem or by kind of layer below it."""

from __future__ import annotations

from typing import Final, TypeVar

from dbbench.model import FsSetup
from dbbench.operations import bcachefs, btrfs, ext, f2fs, lvm, md, xfs, zfs
from dbbench.operations.port import Checked, Growing, Snapshots

Ability = TypeVar("Ability")

SNAPSHOTS: Final[dict[str, Snapshots]] = {"btrfs": btrfs, "zfs": zfs, "lvm": lvm}
CHECKED: Final[dict[str, Checked]] = {
    "ext2": ext, "ext3": ext, "ext4": ext, "xfs": xfs, "btrfs": btrfs, "f2fs": f2fs, "bcachefs": bcachefs,
    "zfs": zfs,
}  # fmt: skip
GROWING: Final[dict[str, Growing]] = {"btrfs": btrfs, "zfs": zfs, "lvm": lvm, "md": md}


def of(registry: dict[str, Ability], setup: FsSetup) -> Ability | None:
    """Who can do it for a setup: the filesystem itself, else the uppermost layer that can; None: nobody."""
    names = (setup.mkfs.family, *(layer.kind for layer in reversed(setup.layers)))
    return next((registry[name] for name in names if name in registry), None)
