"""What a filesystem is able to do beside being fast: facts of families, changed by a setup's layers and options.

From the families' own manual pages (mount(8), btrfs(5), zfsprops(7), zpoolconcepts(7), resize2fs(8), xfs_growfs(8),
lvmsnapshot in lvm(8), nilfs(8)); what depends on an option is looked at, not assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dbbench.model import FsSetup


@dataclass(frozen=True)
class Character:
    """`checksums` of data; `repairs` itself from a second copy; `resize` while mounted; `when_full` for a database
    that overwrites its own pages."""

    checksums: str  # "data and metadata", "metadata", "none"
    repairs: bool
    snapshots: str  # "yes", "by LVM", "no"
    sends: bool  # incremental send and receive
    resize: str  # "grow and shrink", "grow", "no"
    when_full: str


_IN_PLACE: Final = "overwriting goes on"
_COW: Final = "overwriting needs free space too"
_FAMILIES: Final[dict[str, Character]] = {
    "ext2": Character("none", False, "no", False, "grow", _IN_PLACE),
    "ext3": Character("none", False, "no", False, "grow", _IN_PLACE),
    "ext4": Character("metadata", False, "no", False, "grow", _IN_PLACE),
    "xfs": Character("metadata", False, "no", False, "grow", _IN_PLACE),
    "btrfs": Character("data and metadata", False, "yes", True, "grow and shrink", _COW),
    "zfs": Character("data and metadata", False, "yes", True, "grow", _COW),
    "f2fs": Character("none", False, "no", False, "no", _COW),
    "nilfs2": Character("data and metadata", False, "yes", False, "grow and shrink", _COW),
    "bcachefs": Character("data and metadata", False, "yes", False, "grow", _COW),
}
_COPIES: Final = ("raid1", "raid10", "dup", "mirror")


def character(setup: FsSetup) -> Character | None:
    """Of a setup; None for a family of which nothing is known here."""
    found = _FAMILIES.get(setup.mkfs.family)
    if found is None:
        return None
    if setup.mkfs.family == "btrfs":
        found = _btrfs(found, setup)
    elif found.checksums == "data and metadata":
        found = replace(found, repairs=setup.mkfs.topology == "mirror")
    if found.snapshots == "no" and any(layer.kind == "lvm" for layer in setup.layers):
        found = replace(found, snapshots="by LVM")
    return found


def _btrfs(found: Character, setup: FsSetup) -> Character:
    """nodatacow and +C give up checksums of data; a data profile with a second copy lets scrub and reads repair."""
    in_place = "nodatacow" in setup.mount or "+C" in setup.attributes
    checksums = "metadata" if in_place or "nodatasum" in setup.mount else found.checksums
    words = setup.mkfs.options
    data = next((words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-d", "--data")), "single")
    return replace(
        found,
        checksums=checksums,
        repairs=checksums != "metadata" and data in _COPIES,
        when_full=_IN_PLACE if in_place else found.when_full,
    )
