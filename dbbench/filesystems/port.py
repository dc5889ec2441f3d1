"""What a family of filesystems must say of itself, and what a mounted filesystem can tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbbench.model import Durability, FsSetup, Scalar


@dataclass(frozen=True)
class Made:
    """A filesystem that mkfs has made."""

    argv: tuple[tuple[str, ...], ...]
    uuid: str
    geometry: dict[str, Scalar]  # parsed: block_size, journal_bytes, agcount, nodesize, data_profile ...


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


class Family(Protocol):
    """A family: one module each (`ext.py`, `xfs.py`, `btrfs.py`)."""

    SNAPSHOTS: bool  # whether it can take a snapshot of itself

    def programs(self, setup: FsSetup) -> tuple[str, ...]: ...

    def mkfs_argv(self, setup: FsSetup, target: str) -> list[str]:
        """The command; never discards; forces over an old signature only because the guard has decided."""
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


class Compressing(Protocol):
    """A family that can compress data."""

    def compresses(self, options: tuple[str, ...]) -> str | None:
        """The algorithm that these mount options compress data with."""
        ...

    def compression_ratio(self, path: Path) -> float | None:
        """Bytes of the files' data below `path` ÷ bytes on disk; None where it cannot be known."""
        ...
