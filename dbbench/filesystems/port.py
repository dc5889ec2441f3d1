"""What a family of filesystems must say of itself, and what a mounted filesystem can tell."""

from __future__ import annotations

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
    options_effective: tuple[str, ...]  # mount and superblock options from mountinfo, without doubles
    read_ahead_kb: int | None  # /sys/class/bdi/MAJ:MIN of st_dev
    flags: tuple[Durability, ...]  # the filesystem's own durability flags, computed from the effective options
    tears: bool  # a database page can tear when it is overwritten in place (copy-on-write of data: False)
    wal: Mounted | None = None  # where the write-ahead log lies instead, with `[device.wal]`
    tunables: dict[str, Scalar] = field(default_factory=dict)  # of driver or pool: txg_timeout_s, sync ...


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
        self, setup: FsSetup, device: Device, at: Path, journal: Journal | None
    ) -> AbstractContextManager[Mounted]:
        """The pool, imported and mounted at `at` while the block lasts; then exported."""
        ...

    def cold(self, fs: Mounted) -> None:
        """Empty its own cache, mounted again at the same place afterwards."""
        ...

    def give_back(self, journal: Journal) -> list[str]:
        """End what a killed run has left, by its journal alone; what that was."""
        ...


class Compressing(Protocol):
    """A family that can compress data."""

    def compresses(self, options: tuple[str, ...]) -> str | None:
        """The algorithm that these mount options compress data with."""
        ...

    def compression_ratio(self, path: Path) -> float | None:
        """Bytes of the files' data below `path` ÷ bytes on disk; None where it cannot be known."""
        ...
