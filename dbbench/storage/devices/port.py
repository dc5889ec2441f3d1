"""The interface of a device for the rest of the program."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbbench.model import DeviceFacts, DeviceSpec, Scalar


@dataclass(frozen=True)
class Device:
    """A block device that was checked and is locked (flock) until the block ends.

    Programs that write to it get `argument` with `pass_fds=(fd,)`: the checked file description, not a name.
    """

    path: Path  # /dev/loop7
    fd: int
    major: int
    minor: int
    facts: DeviceFacts
    leaves: tuple[str, ...]  # kernel names of the whole disks below it: ("loop7",)
    members: tuple[Device, ...] = ()  # all devices if the filesystem may use several, this one first
    wal: Device | None = None  # the device of `[device.wal]`
    layers: tuple[dict[str, Scalar], ...] = ()  # layers between the disks and this volume, bottom first
    spare: Device | None = None  # the device that the fs setup leaves unused for the operation "grow"

    @property
    def argument(self) -> str:
        return f"/proc/self/fd/{self.fd}"

    @property
    def each(self) -> tuple[Device, ...]:
        """Return its members, or itself."""
        return self.members or (self,)

    @property
    def disks(self) -> tuple[Device, ...]:
        """Return its members or itself, and the log's device of `[device.wal]`."""
        return (*self.each, *(self.wal.each if self.wal else ()))

    @property
    def all_leaves(self) -> tuple[str, ...]:
        """Return the disks below, with those of the log: where a window's bytes and flushes are counted."""
        return tuple(dict.fromkeys((*self.leaves, *(self.wal.leaves if self.wal else ()))))


@dataclass(frozen=True)
class Images:
    """The image files of a run with kind loop."""

    data: tuple[Path, ...]
    wal: Path | None = None
    sector_bytes: int = 0  # of the loop devices for data; 0: the driver's default, 512

    @property
    def all(self) -> tuple[Path, ...]:
        return (*self.data, *((self.wal,) if self.wal else ()))


class Permit(Protocol):
    """Permission to format: the identities that were typed, and the content of this run's journal."""

    def wipe(self, identity: str) -> bool: ...
    def made_by_us(self, device: str, uuid: str) -> bool: ...
    def had_by_us(self, device: str) -> bool: ...


Attached = Callable[[DeviceSpec, Images | None, Permit, str, int], AbstractContextManager[Device]]


# --- Several devices as one: attached, released, named and counted together ------------------------


@contextlib.contextmanager
def joint(several: Sequence[AbstractContextManager[Device]], wal: AbstractContextManager[Device] | None
          ) -> Iterator[Device]:  # fmt: skip
    """Yield the first device with the others as its members, and the one for the write-ahead log next to it.

    `facts.size_bytes` is the sum, `leaves` are all leaves of the members; those of `wal` are separate.
    """
    with contextlib.ExitStack() as stack:
        members = tuple(stack.enter_context(member) for member in several)
        log = stack.enter_context(wal) if wal is not None else None
        yield dataclasses.replace(as_one(members), wal=log)


@contextlib.contextmanager
def with_spare(device: AbstractContextManager[Device], spare: AbstractContextManager[Device]) -> Iterator[Device]:
    """Yield the device with another one that may join its filesystem."""
    with spare as more, device as taken:  # in this order, so that a device that was added is released first
        yield dataclasses.replace(taken, spare=more)


def as_one(members: tuple[Device, ...], below: Device | None = None) -> Device:
    """Return several devices as one. `below`: the disks below these layers, which provide the facts."""
    joined = _one(members)
    if below is None:
        return joined
    return dataclasses.replace(joined, facts=below.facts, leaves=below.leaves, wal=below.wal, spare=below.spare)


def _one(members: tuple[Device, ...]) -> Device:
    first = members[0]
    if len(members) == 1:
        return first
    facts = dataclasses.replace(
        first.facts,
        path=",".join(member.facts.path for member in members),
        size_bytes=sum(member.facts.size_bytes for member in members),
        members=tuple(member.facts for member in members),
    )
    leaves = dict.fromkeys(leaf for member in members for leaf in member.leaves)
    return dataclasses.replace(first, facts=facts, leaves=tuple(leaves), members=members)
