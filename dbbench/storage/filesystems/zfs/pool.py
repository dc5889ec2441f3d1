"""Pools: made, imported, exported, and erased from their devices."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, MountFailed
from dbbench.model import FsSetup, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common
from dbbench.storage.filesystems.zfs import driver, properties

JOURNALLED: Final = "pool"
_PREFIX: Final = "dbbench-"
_SLOW_S: Final = 300.0
_BLKRRPART: Final = 0x125F
# OpenZFS puts the pool of a whole disk into a partition that begins at 1 MiB, followed by one of 8
# MiB. Two labels of 256 KiB are at each end of what the pool is on.
_HEAD: Final = 2 * 2**20
_TAIL: Final = 10 * 2**20


@dataclass
class ZfsPool:
    """An imported pool."""

    name: str
    device: Device
    joined: tuple[Device, ...] = ()  # devices that were added after the pool was created

    @property
    def members(self) -> tuple[Device, ...]:
        return (*self.device.each, *self.joined)

    def sync(self) -> None:
        sync(self.name)

    def used_and_free(self) -> tuple[int, int]:
        """Return (used, available) bytes of all datasets and snapshots, without the second copy of
        a mirror.
        """
        of_root = dataset_properties(self.name)
        return int(of_root["used"]), int(of_root["available"])

    def reopen(self) -> None:
        self.export()
        self.bring_in()

    def bring_in(self) -> None:
        """Import the pool, and mount its datasets that have a mount point. Raises MountFailed."""
        argv = ["zpool", "import"]
        for member in self.members:
            argv += ["-d", str(member.path)]
        argv += ["-o", "cachefile=none", self.name]
        try:
            process.run(argv, timeout_s=_SLOW_S)
        except CommandFailed as failure:
            text = f"the pool {self.name} could not be imported from {self.device.path}: {failure}"
            raise MountFailed(text) from failure

    def export(self, at: Path | None = None) -> None:
        """Write dirty data, unmount, release the devices. Raises UnmountFailed with the holders
        after BUSY_S.
        """
        effect = f"{self.device.path} still belongs to the pool."
        common.until_let_go(
            ["zpool", "export", self.name],
            f"the pool {self.name}",
            at,
            effect,
        )


@contextlib.contextmanager
def release(device: Device) -> Iterator[None]:
    """Let the kernel take over the devices for a pool within the block. Raises MakeFailed."""
    driver.load()
    hold.release(*device.fds)
    try:
        yield
    finally:
        for fd in device.fds:
            hold.regain(fd)


def sync(name: str) -> None:
    """Write dirty data of a pool with its next transaction group."""
    process.run(["zpool", "sync", name], timeout_s=_SLOW_S)


def dataset_properties(dataset: str) -> dict[str, str]:
    """Return all properties of a dataset; sizes in bytes."""
    done = process.run(["zfs", "get", "-Hp", "-o", "property,value", "all", dataset])
    return properties.parse_get(done.stdout)


def new_name(journal: Journal | None = None) -> str:
    """Return a name that no other pool of this machine has."""
    return f"{_PREFIX}{journal.tag if journal else ''}{secrets.token_hex(4)}"


def making(
    setup: FsSetup,
    name: str,
    targets: Words,
) -> list[list[str]]:
    """Return `zpool create`, then `zfs create` for each volume of the setup. cachefile=none: no
    host imports the pool at boot. failmode=continue: an I/O error fails the write instead of
    hanging the pool. -f: overwrite an old signature that the guard has permitted.
    """
    vdevs = list(targets)
    if setup.mkfs.topology == "log":
        vdevs.insert(-1, "log")
    elif setup.mkfs.topology == "mirror":
        vdevs.insert(0, "mirror")
    options = ["-o", "cachefile=none", "-o", "failmode=continue", "-m", "none"]
    options += setup.mkfs.options
    for option in setup.mount:
        options += ["-O", option]
    commands = [["zpool", "create", "-f", *options, name, *vdevs]]
    for part, volume in setup.volumes.items():
        options = []
        for option in volume.options:
            options += ["-o", option]
        commands.append(["zfs", "create", *options, f"{name}/{part}"])
    return commands


def label(path: Path) -> Scalars:
    """Return the first label on a device: name, pool_guid, version, ashift. Raises MountFailed if
    there is none.
    """
    label_fields = properties.parse_label(process.run(["zdb", "-l", path], ok=(0, 1, 2)).stdout)
    if "name" not in label_fields:
        raise MountFailed(f"{path} has no pool label", effect="Nothing was measured.")
    return label_fields


def wipe(devices: Sequence[Device]) -> None:
    """Erase all labels from the devices, so that no host finds a pool; another family's mkfs might
    leave some.
    """
    for member in devices:
        size = os.lseek(member.fd, 0, os.SEEK_END)
        os.pwrite(member.fd, bytes(min(_HEAD, size)), 0)
        os.pwrite(
            member.fd,
            bytes(min(_TAIL, size)),
            max(0, size - _TAIL),
        )
        os.fsync(member.fd)
        # the device has no partitions, or is a loop device that cannot have any
        with contextlib.suppress(OSError):
            fcntl.ioctl(member.fd, _BLKRRPART)


def give_back(journal: Journal) -> list[str]:
    """Destroy the pools that a killed run has left imported; return them."""
    gone = []
    for name in journal.outstanding(JOURNALLED):
        if driver.version() is not None:
            listed = process.run(
                ["zpool", "list", "-H", name],
                ok=(0, 1),
                note=False,
            )
            if listed.returncode == 0:
                process.run(
                    ["zpool", "destroy", "-f", name],
                    timeout_s=_SLOW_S,
                    note=False,
                )
                gone.append(name)
        journal.release(JOURNALLED, name)
    return gone
