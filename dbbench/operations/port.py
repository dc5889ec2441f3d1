"""What an operation works on, and what a filesystem or a layer must be able to do for it.

Each ability is a small protocol of its own; a module satisfies those that it has, and is registered for its family
or its kind of layer in `abilities.py`. All of them work on the filled filesystem after the load, its server stopped,
and leave it mounted at `fs.path` with a data directory that a server can start from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbbench.devices.port import Device
from dbbench.engines.port import Server
from dbbench.filesystems.port import Mounted
from dbbench.journal import Journal
from dbbench.model import CacheFacts, FsSetup, OperationFacts


@dataclass(frozen=True)
class Filled:
    """A filesystem with the dataset in it, mounted; no server is running."""

    setup: FsSetup
    volume: Device  # what the filesystem lies on: the uppermost layer, or the device; `volume.spare` may join it
    fs: Mounted
    datadir: Path
    room: Path  # a private folder off the device under test: for mount points
    serving: Callable[[Path], AbstractContextManager[Server]]  # the trial's server, on its data directory
    second: Callable[[Path], AbstractContextManager[Server]]  # another one beside it, on a clone
    journal: Journal | None = None  # for what namespaces cannot end
    cold: Callable[[], CacheFacts] | None = None  # empty the cache of the data files, and prove it; no server runs
    check: Callable[[Path], str] | None = None  # the engine's integrity check of the stopped data
    data_files: Callable[[Path], Sequence[Path]] | None = None
    tag: str = ""  # part of the names of snapshot and clone, where several are there at once


class Snapshots(Protocol):
    """A copy as of one moment. There is at most one for each `tag`; the rest of its name is the module's own affair."""

    @property
    def ATOMIC(self) -> bool:
        """Whether it may be taken while a server runs (crash-consistent); else the server is stopped."""
        ...

    def lacks(self, filled: Filled) -> str | None:
        """Why it cannot be done here (no reflink, no space in the pool), or None."""
        ...

    def snapshot(self, filled: Filled) -> None:
        """Take it."""
        ...

    def clone(self, filled: Filled) -> AbstractContextManager[Path]:
        """A writable copy of the snapshot, mounted while the block lasts: its data directory."""
        ...

    def taken_bytes(self, filled: Filled) -> int | None:
        """What snapshot and clone take now beside the filesystem itself; None: not known."""
        ...

    def rollback(self, filled: Filled) -> None:
        """The filesystem is as it was at the snapshot, mounted at the same place."""
        ...

    def drop(self, filled: Filled) -> None:
        """Nothing is left of the snapshot, rolled back or not; harmless where there is none."""
        ...


@dataclass(frozen=True)
class Check:
    """A check of the whole filesystem. It changes nothing."""

    name: str  # "e2fsck -fn", "scrub"
    run: Callable[[Filled], str]  # what it said, in a few words; FilesystemDamaged where it found damage
    mounted: bool = False  # it works on the mounted filesystem; else it is unmounted before


class Checked(Protocol):
    """A filesystem that can be checked as a whole."""

    def checks(self, filled: Filled) -> tuple[Check, ...]: ...


class Growing(Protocol):
    """A filesystem, or a layer below it, that takes another device."""

    def add(self, filled: Filled, spare: Device) -> str:
        """The device belongs to it from now on; what the tool said, in a few words."""
        ...

    def rebalance(self, filled: Filled) -> str:
        """What is there already is spread over all devices (btrfs), or the filesystem is grown into the new space
        (LVM, md: `resizing.resize(filled)`); what the tool said, in a few words."""
        ...


Operation = Callable[[Filled], Iterator[OperationFacts]]
