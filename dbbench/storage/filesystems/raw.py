"""No filesystem: InnoDB's tablespace on the bare device, the reference for the cost of filesystems.
The server gets a separate node in a small memory filesystem, so that the node in /dev keeps its
owner. What it needs as files (redo log, doublewrite buffer, system tables) is on the volume of
the log.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.errors import MountFailed
from dbbench.machine import namespaces
from dbbench.machine.host.proc import number
from dbbench.machine.pagecache import Emptying
from dbbench.model import Commands, FsSetup, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.family import Family, Made, Mounted, MountPoint

NODE: Final = "device"


class Raw(Family):
    """Pages are overwritten in place; the device flushes what the server flushes."""

    name = "raw"
    in_kernel = False

    def conflict(self, setup: FsSetup) -> str | None:
        if setup.mount or setup.mkfs.options:
            return "there is no filesystem to which options could be added"
        return None

    def commands(
        self,
        setup: FsSetup,
        targets: Words,
        at: str,
    ) -> Commands:
        """Describe how the tablespace is copied to the device; it was filled as a file of fixed
        size.
        """
        return [("dd", "if=data/ibdata1", f"of={targets[0]}", "bs=1M", "oflag=direct")]

    def create(
        self,
        setup: FsSetup,
        device: Device,
        journal: Journal | None = None,
    ) -> Made:
        return Made((), "", {"device_bytes": device.facts.size_bytes})

    @contextlib.contextmanager
    def open(
        self,
        setup: FsSetup,
        device: Device,
        to: MountPoint,
    ) -> Iterator[Mounted]:
        """Make a node `raw` for the device in a memory filesystem; its content remains. Raises
        MountFailed.
        """
        path = to.path
        path.mkdir(parents=True, exist_ok=True)
        # The node is in a memory filesystem of its own, so that nothing is written for it.
        try:
            namespaces.mount(
                "tmpfs",
                path,
                "tmpfs",
                namespaces.MS_NOSUID,
                "mode=0755,size=64k",
            )
        except OSError as failure:
            text = f"tmpfs could not be mounted at {path}: {failure}"
            raise MountFailed(text, effect="Nothing was changed.") from failure
        try:
            node = path / NODE
            os.mknod(node, stat.S_IFBLK | 0o600, device.st_rdev)
            yield Mounted(
                path,
                family=self.name,
                options_asked=(),
                options_effective=(),
                read_ahead_kb=number(self.bdi(node) / "read_ahead_kb"),
                flags=(),
                tears=True,
                raw=node,
            )
        finally:
            namespaces.unmount(path)

    def emptying(
        self,
        setup: FsSetup,
        device: Device,
        fs: Mounted,
    ) -> Emptying:
        return Emptying("BLKFLSBUF", lambda: hold.drop_buffers(device.fd))

    def bdi(self, path: Path) -> Path:
        st_rdev = path.stat().st_rdev
        return Path(f"/sys/dev/block/{os.major(st_rdev)}:{os.minor(st_rdev)}/bdi")


FAMILY: Final = Raw()
