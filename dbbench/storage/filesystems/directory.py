"""An existing directory on an existing filesystem: nothing is made or mounted, and no root is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from dbbench.errors import DeviceUnusable
from dbbench.machine.pagecache import EVICTING, Emptying
from dbbench.model import FsSetup
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.filesystems.families import FAMILIES, family_of
from dbbench.storage.filesystems.port import Family, Made, Mounted, MountPoint


class Directory(Family):
    """It is read like a mounted filesystem of its own family; its files are evicted from the cache one by one."""

    name = "dir"
    in_kernel = False

    def create(self, setup: FsSetup, device: Device, journal: Journal | None = None) -> Made:
        """Make nothing."""
        return Made((), "", {})

    @contextlib.contextmanager
    def open(self, setup: FsSetup, device: Device, to: MountPoint) -> Iterator[Mounted]:
        """Raise DeviceUnusable if it is not known which data the filesystem preserves after a power loss."""
        fstype = mount_of(device.path).fstype
        if fstype not in FAMILIES:
            raise DeviceUnusable(
                f"{device.path} is on {fstype}, and dbbench does not know which data this filesystem preserves after "
                "a power loss",
                effect="Nothing was changed.",
                remedy=f"Name a directory on one of {', '.join(FAMILIES)}; findmnt lists the mounted filesystems.",
            )
        yield FAMILIES[fstype].existing(device.path)

    def emptying(self, setup: FsSetup, device: Device, fs: Mounted) -> Emptying:
        return EVICTING


_DIRECTORY: Final = Directory()


def family_on(device: Device, setup: FsSetup) -> Family:
    """Return what makes and mounts the setup on this device."""
    return _DIRECTORY if device.facts.existing else family_of(setup)
