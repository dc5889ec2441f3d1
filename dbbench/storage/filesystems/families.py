"""The registry of families. A family is one module and its line here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from dbbench.machine.pagecache import EVICTING, Emptying
from dbbench.model import Durability, FsSetup
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import btrfs, ext, f2fs, raw, xfs, zfs
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.filesystems.family import (
    Family,
    Made,
    Mounted,
    MountPoint,
    attributes_of,
    options_of,
)

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        *ext.FAMILIES,
        xfs.FAMILY,
        btrfs.FAMILY,
        zfs.FAMILY,
        f2fs.FAMILY,
        raw.FAMILY,
    )
}

_IN_MEMORY: Final = ("tmpfs", "ramfs")
PERIODS: Final = 2  # commit intervals of the filesystem that the warm-up should cover


def family_of(setup: FsSetup) -> Family:
    """Return the family of a setup. Raises KeyError."""
    return FAMILIES[setup.mkfs.family]


class Directory(Family):
    """An existing directory on an existing filesystem: nothing is made or mounted, and no root is
    needed. It is read like a mounted filesystem of its own family; its files are evicted from
    the cache one by one.
    """

    name = "dir"
    in_kernel = False

    def create(
        self,
        setup: FsSetup,
        device: Device,
        journal: Journal | None = None,
    ) -> Made:
        return Made((), "", {})

    @contextlib.contextmanager
    def open(
        self,
        setup: FsSetup,
        device: Device,
        to: MountPoint,
    ) -> Iterator[Mounted]:
        """Read the kernel's facts; of a filesystem of no family (tmpfs, network, overlay) only its
        options.
        """
        path = device.path
        mount = mount_of(path)
        if mount.fstype in FAMILIES:
            yield FAMILIES[mount.fstype].read_at(path)
            return
        in_memory = mount.fstype in _IN_MEMORY
        yield Mounted(
            path,
            family=mount.fstype,
            options_asked=(),
            options_effective=mount.options,
            read_ahead_kb=None,
            flags=(Durability.NO_BARRIER if in_memory else Durability.UNKNOWN,),
            tears=True,
        )

    def emptying(
        self,
        setup: FsSetup,
        device: Device,
        fs: Mounted,
    ) -> Emptying:
        return EVICTING


_DIRECTORY: Final = Directory()


def family_on(device: Device, setup: FsSetup) -> Family:
    """Return what makes and mounts the setup on this device."""
    if device.facts.existing:
        return _DIRECTORY
    return family_of(setup)


def family_by_name(name: str) -> Family:
    """Return the family of that name; one without features if dbbench has none, as below a
    directory.
    """
    return FAMILIES.get(name) or Family()


def family_in(fs: Mounted) -> Family:
    """Return the family of a mounted filesystem."""
    return family_by_name(fs.family)


def promises(setup: FsSetup) -> tuple[Durability, ...]:
    """Return the durability flags that follow from the setup's options; () for an unknown family."""
    return family_by_name(setup.mkfs.family).promises(setup)


def compression(setup: FsSetup) -> str | None:
    """Return the algorithm with which the setup's options compress data, or None."""
    return family_by_name(setup.mkfs.family).compresses(options_of(setup))


def copies_on_write(setup: FsSetup) -> bool:
    """Whether data is copied on write according to the setup's options, so that a page cannot tear."""
    return not family_by_name(setup.mkfs.family).tears(setup.mount, attributes_of(setup))


def give_back(journal: Journal) -> list[str]:
    """Release what a killed run left of filesystems, according to its journal; return what it was."""
    released: list[str] = []
    for family in FAMILIES.values():
        released += family.give_back(journal)
    return released
