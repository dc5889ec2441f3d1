"""LVM below a filesystem: snapshots of the volume, classic and thin; another device in the group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import filesystems
from dbbench.devices.port import Device
from dbbench.filesystems import mounting
from dbbench.layers import lvm, note_made
from dbbench.layers.volume import let_go, opened
from dbbench.model import Scalar
from dbbench.operations.port import Filled
from dbbench.operations.resizing import resize
from dbbench.operations.steps import unmounted

ATOMIC: Final = True  # the kernel freezes the filesystem while it is taken
SNAPSHOT: Final = "taken"
CLONE: Final = "copy"
ROOM: Final = f"{CLONE}room"  # of a classic snapshot's copy
_SHARE: Final = 0.7  # of the room; the rest is for what the second server writes


# --- Snapshots -------------------------------------------------------------------------------------


def lacks(filled: Filled) -> str | None:
    """The group has room only where the setup leaves some. A snapshot that was held for the load makes place, once
    it is known that it held."""
    facts = _facts(filled)
    if not facts["snapshot"]:
        return "the volume takes the whole group: a setup with `snapshot` leaves room"
    if filled.tag:  # beside the load, which runs with the one that the setup holds
        return None if facts["snapshot"] == "thin" else "the group's room is taken by the snapshot that the setup holds"
    lvm.still_held(facts)
    lvm.drop(facts, lvm.HELD)
    return None


def snapshot(filled: Filled) -> None:
    """Of the whole volume."""
    lvm.snapshot(_facts(filled), SNAPSHOT + filled.tag, share=_SHARE)


@contextlib.contextmanager
def clone(filled: Filled) -> Iterator[Path]:
    """A writable copy of the snapshot, mounted; xfs would not mount a second one of the same UUID."""
    facts, at = _facts(filled), filled.room / "lvm-copy"
    at.mkdir(parents=True, exist_ok=True)
    more = ("nouuid",) if filled.setup.mkfs.family == "xfs" else ()
    try:
        with opened(lvm.cloned(facts, CLONE + filled.tag, SNAPSHOT + filled.tag), {}) as copy:
            mounting.mount(filled.setup, copy, at, *more)
            try:
                yield at / filled.datadir.relative_to(filled.fs.path)
            finally:
                mounting.unmount(at, copy)
    finally:
        lvm.drop(facts, ROOM, CLONE + filled.tag)


def taken_bytes(filled: Filled) -> int | None:
    """Chunks that the snapshot keeps, or blocks of the pool that are not the volume's: of several thin ones nobody
    tells which are whose."""
    if filled.tag:
        return None
    filesystems.sync(filled.fs.path)
    return lvm.used_bytes(_facts(filled), SNAPSHOT + filled.tag)


def rollback(filled: Filled) -> None:
    """What the snapshot keeps is merged into the volume, which nobody may have open."""
    with unmounted(filled), let_go(filled.volume):
        lvm.merge(_facts(filled), SNAPSHOT)


def drop(filled: Filled) -> None:
    """The copy first: it lies on the snapshot."""
    lvm.drop(_facts(filled), SNAPSHOT + filled.tag, ROOM, CLONE + filled.tag)


# --- Growing ---------------------------------------------------------------------------------------


def add(filled: Filled, spare: Device) -> str:
    """Into the group, and the volume over it: at once, nothing is moved."""
    lvm.extend(_facts(filled), spare)
    if filled.journal is not None:
        note_made(spare, filled.journal)
    return "the volume goes on where it ended"


def rebalance(filled: Filled) -> str:
    """What is there stays where it is; the filesystem is grown."""
    return resize(filled)


def _facts(filled: Filled) -> dict[str, Scalar]:
    return filled.volume.layers[-1]


__all__ = ["ATOMIC", "add", "clone", "drop", "lacks", "rebalance", "rollback", "snapshot", "taken_bytes"]
