"""An existing directory on an existing filesystem: nothing is made or mounted, and no root is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from dbbench.machine.pagecache import EVICTING, Emptying
from dbbench.model import Durability, FsSetup
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.filesystems.families import FAMILIES, family_of
from dbbench.storage.filesystems.port import Family, Made, Mounted, MountPoint

_IN_MEMORY: Final = ("tmpfs", "ramfs")


class Directory(Family):
    """It is read like a mounted filesystem of its own family; its files are evicted from the cache one by one."""

    name = "dir"
    in_kernel = False

    def create(self, setup: FsSetup, device: Device, journal: Journal | None = None) -> Made:
        return Made((), "", {})

    @contextlib.contextmanager
    def open(self, setup: FsSetup, device: Device, to: MountPoint) -> Iterator[Mounted]:
        """Read the kernel's facts; of a filesystem of no family (tmpfs, network, overlay) only its options."""
        mount = mount_of(device.path)
        if mount.fstype in FAMILIES:
            yield FAMILIES[mount.fstype].read_at(device.path)
        else:
            lost = Durability.NO_BARRIER if mount.fstype in _IN_MEMORY else Durability.UNKNOWN
            yield Mounted(device.path, mount.fstype, (), mount.options, None, (lost,), tears=True)

    def emptying(self, setup: FsSetup, device: Device, fs: Mounted) -> Emptying:
        return EVICTING


_DIRECTORY: Final = Directory()


def family_on(device: Device, setup: FsSetup) -> Family:
    """Return what makes and mounts the setup on this device."""
    return _DIRECTORY if device.facts.existing else family_of(setup)
