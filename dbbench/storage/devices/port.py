"""The interface of a device for the rest of the program."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dbbench.errors import DeviceUnusable
from dbbench.model import DeviceFacts, DeviceSpec, Role, Scalars


@dataclass(frozen=True)
class Device:
    """A block device that was checked and is locked (flock) until the block ends. Programs that
    write to it get `argument` with `pass_fds=(fd,)`: the checked file description, not a name.
    """

    path: Path  # /dev/loop7
    fd: int
    st_rdev: int  # device number; of a directory, that of its filesystem
    facts: DeviceFacts
    leaves: tuple[str, ...]  # kernel names of the whole disks below it: ("loop7",)
    # all devices if the filesystem may use several, this one first
    members: tuple[Device, ...] = ()
    # layers between the disks and this volume, bottom first
    layers: tuple[Scalars, ...] = ()
    # the device that the fs setup leaves unused for the operation "grow"
    spare: Device | None = None
    identity: str = ""  # of a real disk; "" for an image file, a directory or a layer

    @property
    def argument(self) -> str:
        return f"/proc/self/fd/{self.fd}"

    @property
    def number(self) -> str:
        return f"{os.major(self.st_rdev)}:{os.minor(self.st_rdev)}"

    @property
    def each(self) -> tuple[Device, ...]:
        return self.members or (self,)

    @property
    def fds(self) -> list[int]:
        return [member.fd for member in self.each]


@dataclass(frozen=True)
class DiskSet:
    """The plan's disks for one volume, and how many of them it uses."""

    spec: DeviceSpec
    images: tuple[Path, ...] = ()  # only for kind loop
    most: int = 1  # so many disks become one device
    spare: int = 0  # so many more are attached and left unused, even if `most` would use all
    sector_bytes: int = 0  # of loop devices; 0: the driver's default, 512


def leaves_of(volumes: Mapping[Role, Device]) -> tuple[str, ...]:
    """Return the whole disks below all volumes: where a window's bytes and flushes are counted."""
    return tuple(dict.fromkeys(leaf for device in volumes.values() for leaf in device.leaves))


@contextlib.contextmanager
def joint(several: Iterable[AbstractContextManager[Device]]) -> Iterator[Device]:
    """Yield the first device with the others as members; `facts.size_bytes` and `leaves` are those
    of all. Raises DeviceUnusable if there is none.
    """
    with contextlib.ExitStack() as stack:
        members = tuple(stack.enter_context(member) for member in several)
        if not members:
            raise DeviceUnusable("the plan names no device", remedy="Check `[device]` in the plan.")
        yield as_one(members)


def as_one(members: tuple[Device, ...], below: Device | None = None) -> Device:
    """Return several devices as one. `below`: the disks below these layers, which provide the
    facts.
    """
    joined = members[0]
    if len(members) > 1:
        facts = dataclasses.replace(
            joined.facts,
            path=",".join(member.facts.path for member in members),
            size_bytes=sum(member.facts.size_bytes for member in members),
            members=tuple(member.facts for member in members),
        )
        leaves = dict.fromkeys(leaf for member in members for leaf in member.leaves)
        joined = dataclasses.replace(joined, facts=facts, leaves=tuple(leaves), members=members)
    if below is None:
        return joined
    return dataclasses.replace(joined, facts=below.facts, leaves=below.leaves, spare=below.spare)
