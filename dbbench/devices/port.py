"""What a device is to the rest of the program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbbench.model import DeviceFacts, DeviceSpec, Scalar


@dataclass(frozen=True)
class Device:
    """A block device that was checked, is locked (flock) and is ours until the block ends.

    Programs that write to it get `argument` with `pass_fds=(fd,)`: the checked file description, not a name.
    """

    path: Path  # /dev/loop7
    fd: int
    major: int
    minor: int
    facts: DeviceFacts
    leaves: tuple[str, ...]  # whole-disk kernel names below it: ("loop7",)
    members: tuple[Device, ...] = ()  # where the plan's filesystem may lie on several: all of them, this one first
    wal: Device | None = None  # of `[device.wal]`
    layers: tuple[dict[str, Scalar], ...] = ()  # between the disks and this volume, as made; bottom first
    spare: Device | None = None  # one more than the fs setup takes, for the operation "grow"

    @property
    def argument(self) -> str:
        return f"/proc/self/fd/{self.fd}"

    @property
    def each(self) -> tuple[Device, ...]:
        """The devices that it stands for: its members, or itself alone."""
        return self.members or (self,)

    @property
    def disks(self) -> tuple[Device, ...]:
        """All that it stands for, and the log's of `[device.wal]`."""
        return (*self.each, *(self.wal.each if self.wal else ()))

    @property
    def all_leaves(self) -> tuple[str, ...]:
        """The whole disks below, with those of the log: where a window's bytes and flushes are counted."""
        return tuple(dict.fromkeys((*self.leaves, *(self.wal.leaves if self.wal else ()))))


@dataclass(frozen=True)
class Images:
    """The image files of a run with kind loop."""

    data: tuple[Path, ...]
    wal: Path | None = None

    @property
    def all(self) -> tuple[Path, ...]:
        return (*self.data, *((self.wal,) if self.wal else ()))


class Permit(Protocol):
    """Who may format: the identities that were typed, and what our own journal knows."""

    def wipe(self, identity: str) -> bool: ...
    def made_by_us(self, device: str, uuid: str) -> bool: ...
    def had_by_us(self, device: str) -> bool: ...


Attached = Callable[[DeviceSpec, Images | None, Permit, str, int], AbstractContextManager[Device]]
