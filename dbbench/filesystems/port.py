"""What a family of filesystems must say of itself, and what a mounted filesystem can tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dbbench.devices.port import Device
from dbbench.journal import Journal
from dbbench.model import Durability, FsSetup, Scalar


@dataclass(frozen=True)
class Made:
    """A filesystem that mkfs has made."""

    argv: tuple[tuple[str, ...], ...]
    uuid: str
    geometry: dict[str, Scalar]  # parsed: block_size, journal_bytes, agcount, nodesize, data_profile ...
    wal: Made | None = None  # the write-ahead log's, with `[device.wal]`


@dataclass(frozen=True)
class Mounted:
    """A mounted filesystem, and what the kernel says of it."""

    path: Path
    family: str
    options_asked: tuple[str, ...]
    # mount and superblock options from mountinfo, without doubles; then the properties of the data volume
    options_effective: tuple[str, ...]
    read_ahead_kb: int | None  # /sys/class/bdi/MAJ:MIN of st_dev
    flags: tuple[Durability, ...]  # the filesystem's own durability flags, computed from the effective options
    tears: bool  # a database page can tear when it is overwritten in place (copy-on-write of data: False)
    wal: Mounted | None = None  # where the write-ahead log lies instead, with `[device.wal]`
    raw: Path | None = None  # a node of the device itself, where no filesystem is on it
    tunables: dict[str, Scalar] = field(default_factory=dict)  # of driver or pool: txg_timeout_s, arc_max_bytes ...
    record_bytes: int | None = None  # of a pool: what is copied on write as one; a larger page tears
    pool: Pool | None = field(default=None, repr=False, compare=False)  # the handle of a pool of ours

    def tears_pages_of(self, page_bytes: int) -> bool:
        """Whether a database page of that size can tear when it is overwritten."""
        return self.tears or (self.record_bytes is not None and self.record_bytes < page_bytes)


class Pool(Protocol):
    """A mounted pool, which has more to it than its mount."""

    @property
    def reopening(self) -> str:
        """What `reopen` is, in words."""
        ...

    def sync(self) -> None:
        """Have what is dirty written: syncfs(2) alone does not."""
        ...

    def used_and_free(self) -> tuple[int, int]:
        """Bytes, of all that is in it."""
        ...

    def cached_bytes(self) -> int | None:
        """Data in its own cache; None where nobody tells."""
        ...

    def reopen(self) -> None:
        """Let go of it and take it again, its own cache empty, mounted at the same place. No file may be open."""
        ...


class Family(Protocol):
    """A family: one module each (`ext.py`, `xfs.py`, `btrfs.py`)."""

    SNAPSHOTS: bool  # whether it can take a snapshot of itself

    def programs(self, setup: FsSetup) -> tuple[str, ...]: ...

    def mkfs_argv(self, setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
        """The command on one device, or several where the family takes them; never discards; forces over an old
        signature only because the guard has decided."""
        ...

    def geometry(self, target: Path) -> dict[str, Scalar]:
        """Read back from the device with the family's own tool; `uuid` is among it."""
        ...

    def mount_options(self, setup: FsSetup) -> tuple[str, ...]:
        """What is asked for: the setup's options and `nodiscard` where the family has it."""
        ...

    def live(self, device_name: str) -> dict[str, Scalar]:
        """What the running kernel says of the mounted filesystem on that block device, by kernel name, beyond
        its mount options, as far as durability hangs on it. Needs no root."""
        ...

    def flags(self, effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]: ...

    def tears(self, effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
        """Whether a database page can tear; `attributes` are those of the data directory."""
        ...

    def bdi(self, path: Path) -> Path:
        """The folder in /sys with the mounted filesystem's own read_ahead_kb."""
        ...


class Pooled(Protocol):
    """A family that is not made by mkfs and mount(8) but as a pool (ZFS). It satisfies `Family` too."""

    def commands(self, setup: FsSetup, targets: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
        """Making and mounting, as a person would type it."""
        ...

    def create(self, setup: FsSetup, device: Device, journal: Journal | None) -> Made:
        """Make the pool on a device that is ours and let go of it again (exported)."""
        ...

    def opened(
        self,
        setup: FsSetup,
        device: Device,
        at: Path,
        journal: Journal | None,
        arc_bytes: int | None = None,
        *,
        stays: bool = False,
    ) -> AbstractContextManager[Mounted]:
        """The pool, imported and mounted at `at` while the block lasts; then nothing of it is left on the devices,
        unless it `stays`. `arc_bytes`: the most that its own cache may hold; None: as the driver has it."""
        ...

    def existing(self, path: Path) -> Mounted:
        """A directory of a pool that is there already."""
        ...

    def works(self, setup: FsSetup) -> str | None:
        """Why a setup cannot work here, with what to install; None where it can."""
        ...

    def driver_flags(self, setup: FsSetup) -> tuple[Durability, ...]:
        """What may be gone because of what serves the setup's pool here, whatever it asks for."""
        ...

    def compressed(self, files: Sequence[Path]) -> bool:
        """Whether one at least of these files is compressed on the disk."""
        ...

    def install(self, setup: FsSetup) -> tuple[str, ...]:
        """Debian packages that bring what a setup needs."""
        ...

    def give_back(self, journal: Journal) -> list[str]:
        """End what a killed run has left, by its journal alone; what that was."""
        ...


class Several(Protocol):
    """A family that lies on several devices by itself, and has volumes with options of their own."""

    def mount_words(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Mount options that name the other devices, so that nobody has to scan for them."""
        ...

    def members(self, path: Path) -> frozenset[str]:
        """The kernel names of the devices of the mounted filesystem."""
        ...

    def forget(self, devices: tuple[Device, ...]) -> None:
        """Have the kernel forget the unmounted devices, whose names will be other people's."""
        ...

    def volume_commands(self, setup: FsSetup, at: Path) -> list[list[str]]:
        """How the setup's volumes are made below the mount point, as a person would type it."""
        ...

    def add_volumes(self, setup: FsSetup, path: Path) -> tuple[str, ...]:
        """Make the setup's volumes below `path`; the data volume's properties as they are in force."""
        ...


class Exacting(Protocol):
    """A family of which a kernel that has it may still refuse some setups."""

    def lacks(self, setup: FsSetup) -> str | None:
        """What this kernel, or its page size, has not; None where it should work."""
        ...


class Compressing(Protocol):
    """A family that can compress data."""

    def compresses(self, options: tuple[str, ...]) -> str | None:
        """The algorithm that these mount options compress data with."""
        ...

    def compression_ratio(self, path: Path) -> float | None:
        """Bytes of the files' data below `path` ÷ bytes on disk; None where it cannot be known."""
        ...
