"""Snapshots and growth of a filled filesystem: its own, otherwise those of the uppermost layer that
has them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import OperationFailed
from dbbench.model import FsSetup, Layer, Scalars
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import families
from dbbench.storage.filesystems.family import Character, Family, Growing, Snapshots, Stored
from dbbench.storage.filesystems.formatted import Formatted
from dbbench.storage.layers import lvm, md
from dbbench.storage.layers.volume import let_go, note_signatures, open_volume

SNAPSHOT: Final = "taken"
CLONE: Final = "copy"
ROOM: Final = f"{CLONE}room"  # volume for the changed blocks of a classic snapshot
_SHARE: Final = 0.7  # share of the room; the second server needs the rest for its writes
_RESIZE_S: Final = 3600.0  # ext4 writes the tables of all new groups


class _LvmSnapshots:
    """Snapshots of the whole volume, classic or thin. The kernel freezes the filesystem while one
    is taken.
    """

    name = "lvm"
    atomic = True

    def lacks(self, stored: Stored) -> str | None:
        """Return why not: the group needs free space. A snapshot held during the load is checked
        and removed first.
        """
        facts = _facts(stored)
        if not facts["snapshot"]:
            return (
                "the volume fills its group; use a setup with `snapshot`, which leaves free space"
            )
        if stored.tag:  # a snapshot during the load, which already uses the setup's own volume
            if facts["snapshot"] == "thin":
                return None
            return "the group's free space is used by the snapshot that the setup holds"
        lvm.check_snapshot(facts)
        lvm.drop(facts, lvm.HELD)
        return None

    def snapshot(self, stored: Stored) -> None:
        lvm.snapshot(_facts(stored), SNAPSHOT + stored.tag, share=_SHARE)

    @contextlib.contextmanager
    def clone(self, stored: Stored) -> Iterator[Path]:
        facts = _facts(stored)
        clone = CLONE + stored.tag
        root = stored.room / "lvm-copy"
        family = formatted_of(stored.setup)
        root.mkdir(parents=True, exist_ok=True)
        try:
            # A copy of the snapshot can be mounted next to the original.
            with open_volume(lvm.clone(facts, clone, SNAPSHOT + stored.tag), {}) as copy:
                family.mount(
                    stored.setup,
                    copy,
                    root,
                    *family.mount_of_copy,
                )
                try:
                    yield root / stored.datadir.relative_to(stored.fs.path)
                finally:
                    family.unmount(root, copy)
        finally:
            lvm.drop(facts, ROOM, clone)

    def taken_bytes(self, stored: Stored) -> int | None:
        """Return the bytes of the snapshot's chunks; None for several thin ones, whose blocks
        cannot be told apart.
        """
        if stored.tag:
            return None
        stored.sync()
        return lvm.used_bytes(_facts(stored), SNAPSHOT + stored.tag)

    def rollback(self, stored: Stored) -> None:
        with formatted_of(stored.setup).unmount_for(stored), let_go(stored.volume):
            lvm.merge(_facts(stored), SNAPSHOT)

    def drop(self, stored: Stored) -> None:
        """Remove the copy first, because it depends on the snapshot."""
        lvm.drop(
            _facts(stored),
            SNAPSHOT + stored.tag,
            ROOM,
            CLONE + stored.tag,
        )


class _LvmGrowing:
    def add(self, stored: Stored, spare: Device) -> str:
        lvm.extend(_facts(stored), spare)
        note_signatures(spare, stored.journal)
        return "the logical volume was extended onto this device"

    def rebalance(self, stored: Stored) -> str:
        return _resize(stored)


class _MdGrowing:
    def add(self, stored: Stored, spare: Device) -> str:
        md.add(_facts(stored), spare)
        note_signatures(spare, stored.journal)
        return "begun"

    def rebalance(self, stored: Stored) -> str:
        """Wait until it has finished; then grow the filesystem if there is more space (RAID1 has
        none).
        """
        before = _facts(stored)
        array = md.until_idle(before)
        devices = f"{array['devices']} devices"
        if int(array["size_bytes"]) <= int(before["size_bytes"]):
            return f"{devices}, one more copy"
        return f"{devices}; {_resize(stored)}"


_LVM_SNAPSHOTS: Final[Snapshots] = _LvmSnapshots()
_LAYERS_GROWING: Final[dict[str, Growing]] = {
    "lvm": _LvmGrowing(),
    "md": _MdGrowing(),
}


def snapshots_of(setup: FsSetup) -> Snapshots | None:
    """Return what takes snapshots of a setup, or None if neither the filesystem nor a layer
    supports them.
    """
    return _family(setup).snapshots or _of_layers(setup)


def growing_of(setup: FsSetup) -> Growing | None:
    """Return what can add a device, or None if neither the filesystem nor the layer right below it
    supports it.
    """
    growing = _family(setup).growing
    if growing or not setup.layers:
        return growing
    return _LAYERS_GROWING.get(setup.layers[-1].kind)


def layers_to_add(setup: FsSetup) -> tuple[Layer, ...]:
    """Return the layers that `grow` first makes of further devices, bottom first: for mirrors,
    another mirror.
    """
    if growing_of(setup) is None:
        return ()
    below = setup.layers if _family(setup).growing else setup.layers[:-1]
    return tuple(replace(layer, groups=1) for layer in below)


def devices_to_add(setup: FsSetup) -> int:
    """Return how many devices `grow` adds: one, or as many as one group of the array below has; 0
    if it cannot grow.
    """
    if growing_of(setup) is None:
        return 0
    for layer in setup.layers[: len(layers_to_add(setup))]:
        if layer.kind == "md":
            return setup.devices.min // layer.groups
    return 1


def character(setup: FsSetup) -> Character | None:
    """Return the features of a setup, including its layers, or None for an unknown family."""
    described = _family(setup).character(setup)
    if described is None or described.snapshots != "no" or not _of_layers(setup):
        return described
    return replace(described, snapshots="by LVM")


def _family(setup: FsSetup) -> Family:
    return families.family_by_name(setup.mkfs.family)


def _of_layers(setup: FsSetup) -> Snapshots | None:
    kinds = [layer.kind for layer in setup.layers]
    return _LVM_SNAPSHOTS if "lvm" in kinds else None


def _resize(stored: Stored) -> str:
    words = families.family_of(stored.setup).resizing
    if not words:
        raise OperationFailed(f"{stored.setup.mkfs.family} cannot be grown while it is mounted")
    argv = [word.format(device=stored.volume.path, at=stored.fs.path) for word in words]
    process.run(argv, timeout_s=_RESIZE_S)
    return argv[0]


def formatted_of(setup: FsSetup) -> Formatted:
    """Return the family of a setup that is made by mkfs. Raises OperationFailed for a pool."""
    family = families.family_of(setup)
    if not isinstance(family, Formatted):
        raise OperationFailed("a pool cannot be unmounted for an operation")
    return family


def _facts(stored: Stored) -> Scalars:
    return stored.volume.layers[-1]
