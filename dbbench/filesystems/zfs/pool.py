"""A pool: made, imported where it is wanted, exported, and nothing of it left on the devices."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, MountFailed, UnmountFailed
from dbbench.filesystems import common
from dbbench.filesystems.zfs import daemon as fuse
from dbbench.filesystems.zfs import driver as drivers
from dbbench.filesystems.zfs import properties
from dbbench.filesystems.zfs.daemon import Daemon
from dbbench.filesystems.zfs.driver import Driver
from dbbench.journal import Journal
from dbbench.model import FsSetup, Scalar

JOURNALLED: Final = "pool"
_PREFIX: Final = "dbbench-"
_SLOW_S: Final = 300.0  # an export writes what is dirty
_BLKRRPART: Final = 0x125F
# OpenZFS puts a whole disk's pool into a partition from 1 MiB on, with one of 8 MiB behind it; labels are 2 x 256 KiB
# at either end of what the pool lies on.
_HEAD: Final = 2 * 2**20
_TAIL: Final = 10 * 2**20


@dataclass
class Pool:
    """A pool that is imported. `paths` are its devices as the driver sees them."""

    name: str
    driver: Driver
    device: Device
    paths: tuple[Path, ...]
    daemon: Daemon | None = None
    joined: tuple[Device, ...] = ()  # beside those that it was made on

    @property
    def reopening(self) -> str:
        return "export and import" if self.driver.native else "export and import by another zfs-fuse"

    def value(self, name: str) -> str:
        """A property of the pool's own dataset; sizes in bytes."""
        return process.run(["zfs", "get", "-Hp", "-o", "value", name, self.name]).stdout.strip()

    def properties(self, dataset: str = "") -> dict[str, str]:
        """All properties of a dataset of the pool; sizes in bytes."""
        said = process.run(
            ["zfs", "get", "-Hp", "-o", "property,value", "all", "/".join(filter(None, (self.name, dataset)))]
        )
        return properties.parse_get(said.stdout)

    def sync(self) -> None:
        """See `sync`."""
        sync(self.name)

    def used_and_free(self) -> tuple[int, int]:
        """Bytes, of all its datasets and snapshots together; copies for redundancy (mirror) are not counted."""
        return int(self.value("used")), int(self.value("available"))

    def cached_bytes(self) -> int | None:
        """Data in the ARC, of all pools of this kernel; None where nobody tells (zfs-fuse)."""
        return drivers.arcstats().get("data_size") if self.driver.native else None

    def adopted(self, spare: Device) -> Path:
        """One device more, as the driver sees it: it is imported and wiped with the others from now on."""
        path = self.daemon.adopted(spare) if self.daemon is not None else spare.path
        self.paths, self.joined = (*self.paths, path), (*self.joined, spare)
        return path

    def reopen(self) -> None:
        """Export and import: the kernel's ARC gives up what it holds of the pool; a zfs-fuse is another process."""
        self.export()
        if self.daemon is not None:
            self.daemon.stop()
            self.daemon.start()
        self.bring_in()

    def bring_in(self) -> None:
        """Import it, and mount what has a mount point. MountFailed."""
        where = (
            [word for path in self.paths for word in ("-d", str(path))]
            if self.driver.native
            else ["-d", str(fuse.NODES)]
        )
        try:
            process.run(["zpool", "import", *where, "-o", "cachefile=none", self.name], timeout_s=_SLOW_S)
        except CommandFailed as failure:
            raise MountFailed(f"the pool {self.name} on {self.device.path}: {failure}") from failure

    def export(self, at: Path | None = None) -> None:
        """Write what is dirty, unmount, let go of the devices. UnmountFailed, with who holds it, after a while."""
        common.until_let_go(
            lambda: process.run(["zpool", "export", self.name], timeout_s=_SLOW_S),
            at,
            lambda by: UnmountFailed(
                f"the pool {self.name} is busy after {common.BUSY_S:.0f} s: {by}",
                effect=f"{self.device.path} still belongs to it.",
                remedy=f"End what holds it, then  zpool export {self.name}",
            ),
        )


@contextlib.contextmanager
def hosted(device: Device, arc_bytes: int | None = None) -> Iterator[Callable[[str], Pool]]:
    """A driver at work while the block lasts: a maker of `Pool` objects by name. ZfsUnavailable."""
    driver = drivers.taken()
    if driver.native:
        paths = tuple(member.path for member in device.each)
        yield lambda name: Pool(name, driver, device, paths)
        return
    with fuse.serving(device, arc_bytes) as daemon:
        yield lambda name: Pool(name, driver, device, daemon.nodes, daemon)


def sync(name: str) -> None:
    """Have what is dirty of a pool written by its transaction group."""
    if drivers.MODULE.exists():
        process.run(["zpool", "sync", name], timeout_s=_SLOW_S)
    else:  # a change of a property returns when its transaction group is on the disk
        process.run(["zfs", "set", f"dbbench:sync={time.monotonic_ns()}", name], timeout_s=_SLOW_S)


def new_name() -> str:
    """One that no other pool of this machine has."""
    return f"{_PREFIX}{secrets.token_hex(4)}"


def argv(setup: FsSetup, name: str, targets: tuple[str, ...]) -> list[str]:
    """zpool create. No cache file: a host does not import it at its next start. failmode=continue: an I/O error is an
    error of the write, where the default would stop it for ever. -f: over an old signature, which the guard allowed."""
    topology = setup.mkfs.topology
    vdevs = [*targets[:-1], "log", targets[-1]] if topology == "log" else list(targets)
    if topology == "mirror":
        vdevs.insert(0, "mirror")
    dataset = [word for option in setup.mount for word in ("-O", option)]
    own = ["-o", "cachefile=none", "-o", "failmode=continue", "-m", "none"]
    return ["zpool", "create", "-f", *own, *setup.mkfs.options, *dataset, name, *vdevs]


def volume_argv(setup: FsSetup, name: str) -> list[list[str]]:
    """zfs create, of each volume of the setup."""
    return [["zfs", "create", *(word for option in volume.options for word in ("-o", option)), f"{name}/{part}"]
            for part, volume in setup.volumes.items()]  # fmt: skip


def label(path: Path) -> dict[str, Scalar]:
    """What the first label on a device says: name, pool_guid, version, ashift. MountFailed where there is none.

    To be called within `hosted`: zdb wants a zfs-fuse to answer, though it reads the device itself.
    """
    said = process.run(["zdb", "-l", path], ok=(0, 1, 2)).stdout
    found = properties.parse_label(said)
    if "name" not in found:
        raise MountFailed(f"{path} has no label of a pool", effect="Nothing was measured.")
    return found


def wipe(devices: Sequence[Device]) -> None:
    """Take the labels off the devices: no host finds a pool there, and no other filesystem's mkfs leaves half of it."""
    for member in devices:
        size = os.lseek(member.fd, 0, os.SEEK_END)
        for offset, length in ((0, min(_HEAD, size)), (max(0, size - _TAIL), min(_TAIL, size))):
            os.pwrite(member.fd, bytes(length), offset)
        os.fsync(member.fd)
        with contextlib.suppress(OSError):  # no partitions, or a loop device that cannot have any
            fcntl.ioctl(member.fd, _BLKRRPART)


def give_back(journal: Journal) -> list[str]:
    """End the pools that a killed run has left imported. Those of zfs-fuse have ended with its process."""
    gone = []
    for name in journal.outstanding(JOURNALLED):
        if (
            drivers.MODULE.exists()
            and process.run(["zpool", "list", "-H", name], ok=(0, 1), note=False).returncode == 0
        ):
            process.run(["zpool", "destroy", "-f", name], timeout_s=_SLOW_S, note=False)
            gone.append(f"pool {name}")
        journal.note("give_back", what=JOURNALLED, path=name)
    return gone
