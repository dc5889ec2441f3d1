"""Loop devices for layers, and filesystems on them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from dbbench.model import FsSetup, Mkfs, Scalar
from dbbench.storage import filesystems
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import shape

MIB = 2**20
SIZE = 320 * MIB
EXT4 = FsSetup("ext4", Mkfs("ext4"), name="ext4", mount=("noatime",))
XFS = FsSetup("xfs", Mkfs("xfs"), name="xfs", mount=("noatime",))

Disks = Callable[[int], contextlib.AbstractContextManager[Device]]


def read(path: str) -> str:
    """Return the content of a file of the kernel; "" if it does not exist."""
    return Path(path).read_text() if Path(path).exists() else ""


def written_and_read(volume: Device, setup: FsSetup, at: Path) -> None:
    """A filesystem is made on the volume, a file outlives an unmount, and the filesystem is gone
    again.
    """
    filesystems.make(setup, volume)
    content = os.urandom(8 * MIB)
    with filesystems.mount(setup, volume, at) as fs:
        (fs.path / "file").write_bytes(content)
    with filesystems.mount(setup, volume, at) as fs:
        assert (fs.path / "file").read_bytes() == content
        assert shape.healthy(fs) is None


def facts_of(volume: Device) -> dict[str, Scalar]:
    """What the uppermost layer read back."""
    return volume.layers[-1]
