"""No filesystem at all: InnoDB's tablespace on the bare device, the floor beneath what filesystems cost.

Nothing is made or mounted. The server gets a node of its own for the device, in a small memory filesystem of the trial,
so that the real node below /dev keeps its owner. What a server must have as files (redo, doublewrite, its own tables)
lies on the filesystem of `[device.wal]`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import namespaces
from dbbench.devices.port import Device
from dbbench.errors import DirectoryRefused, MountFailed
from dbbench.filesystems.common import read_ahead_kb
from dbbench.filesystems.port import Made, Mounted
from dbbench.journal import Journal
from dbbench.model import Durability, FsSetup, Scalar

SNAPSHOTS: Final = False
NODE: Final = "device"


def programs(setup: FsSetup) -> tuple[str, ...]:
    """None."""
    return ()


def commands(setup: FsSetup, targets: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
    """How the tablespace comes onto the device; it was filled as a file, of a fixed size."""
    return [("dd", "if=data/ibdata1", f"of={targets[0]}", "bs=1M", "oflag=direct")]


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """None: nothing is made."""
    return []


def create(setup: FsSetup, device: Device, journal: Journal | None = None) -> Made:
    """Nothing is made."""
    return Made((), "", {"device_bytes": device.facts.size_bytes})


@contextlib.contextmanager
def opened(
    setup: FsSetup,
    device: Device,
    at: Path,
    journal: Journal | None = None,
    arc_bytes: int | None = None,
    *,
    stays: bool = False,
) -> Iterator[Mounted]:
    """A node for the device in a memory filesystem at `at`; `raw` names it. The device keeps what is on it.
    MountFailed."""
    at.mkdir(parents=True, exist_ok=True)
    try:
        namespaces.mount("tmpfs", at, "tmpfs", namespaces.MS_NOSUID, "mode=0755,size=64k")
    except OSError as failure:
        raise MountFailed(f"no memory filesystem at {at}: {failure}", effect="Nothing was changed.") from failure
    try:
        node = at / NODE
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(device.major, device.minor))
        kb = read_ahead_kb(Path(f"/sys/dev/block/{device.major}:{device.minor}/bdi"))
        yield Mounted(at, "raw", (), (), kb, (), tears((), ()), raw=node)
    finally:
        namespaces.unmount(at)


def existing(path: Path) -> Mounted:
    """There is no directory without a filesystem. DirectoryRefused."""
    raise DirectoryRefused(f"{path} lies on a filesystem", effect="Nothing was changed.")


def works(setup: FsSetup) -> str | None:
    """Everywhere; which servers can is a matter of the plan."""
    return None


def driver_flags(setup: FsSetup) -> tuple[Durability, ...]:
    """The kernel's own block device."""
    return ()


def compressed(files: Sequence[Path]) -> bool:
    """Nothing is."""
    return False


def install(setup: FsSetup) -> tuple[str, ...]:
    """Nothing to be installed."""
    return ()


def give_back(journal: Journal) -> list[str]:
    """The node is gone with the trial's namespace."""
    return []


def geometry(target: Path) -> dict[str, Scalar]:
    """There is none."""
    return {}


def mount_options(setup: FsSetup) -> tuple[str, ...]:
    """There are none."""
    return ()


def live(device_name: str) -> dict[str, Scalar]:
    """No filesystem says anything."""
    return {}


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """None: what the server flushes, the device flushes."""
    return ()


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Pages are overwritten in place."""
    return True


def bdi(path: Path) -> Path:
    """The device's own."""
    number = path.stat().st_rdev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/bdi")
