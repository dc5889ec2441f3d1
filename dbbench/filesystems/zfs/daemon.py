"""zfs-fuse as a process of the trial: its socket, lock, cache file and configuration are private to it.

The program has its paths built in. Where we are in a mount namespace of our own, memory is mounted over them, so a
zfs-fuse of the system and its pools are neither seen nor touched, and nothing of it outlives the namespace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.port import Device
from dbbench.errors import ZfsUnavailable
from dbbench.namespaces import MS_NOSUID, mount, mounts_are_private, unmount

RUN: Final = Path("/var/run/zfs")
NODES: Final = RUN / "dev"
_SOCKET: Final = RUN / "zfs_socket"
_LOG: Final = RUN / "daemon.log"
_ROOMS: Final = (RUN, Path("/var/lock/zfs"), Path("/var/lib/zfs"), Path("/etc/zfs"))
_START_S: Final = 20.0
ARC_BYTES: Final = 100 * 2**20  # as Debian's package sets it; the page cache stands above it and holds the files
_ARC_LEAST: Final = 16  # MiB, of the program
_serving: set[int] = set()  # mount namespaces in which this process has one running
_CONFIG: Final = """# As Debian's package has it, but for the size of the ARC, which is on the command line.
vdev-cache-size = 10
zfs-prefetch-disable
fuse-attr-timeout = 3600
fuse-entry-timeout = 3600
fuse-mount-options = default_permissions
"""


class Daemon:
    """A zfs-fuse that can be ended and started again; `nodes` are the devices as it sees them."""

    def __init__(self, nodes: Sequence[Path], arc_bytes: int | None) -> None:
        self.nodes = tuple(nodes)
        mib = (ARC_BYTES if arc_bytes is None else min(arc_bytes, ARC_BYTES)) // 2**20
        self.arc_bytes = max(mib, _ARC_LEAST) * 2**20
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """ZfsUnavailable with its last words where it does not answer."""
        _SOCKET.unlink(missing_ok=True)
        argv = ["zfs-fuse", "--no-daemon", "--no-kstat-mount", "--max-arc-size", str(self.arc_bytes // 2**20)]
        # Once its pool is exported there is nothing that it could lose, and by itself it takes seconds to end.
        program = self._running.enter_context(
            process.running(argv, stdout=_LOG, stop_with=signal.SIGKILL, own_session=True)
        )
        until = time.monotonic() + _START_S
        while not _SOCKET.exists():
            if program.poll() is not None or time.monotonic() > until:
                said = _LOG.read_text(errors="replace").strip() or "it said nothing"
                raise ZfsUnavailable(f"zfs-fuse did not start: {said}", remedy="Is /dev/fuse there, and are we root?")
            time.sleep(0.01)

    def adopted(self, device: Device) -> Path:
        """The node of one device more."""
        self.nodes = (*self.nodes, _node(device))
        return self.nodes[-1]

    def stop(self) -> None:
        """What it has cached is gone with it."""
        self._running.close()


@contextlib.contextmanager
def serving(device: Device, arc_bytes: int | None) -> Iterator[Daemon]:
    """A zfs-fuse that knows the device (its members) and nothing else, while the block lasts. ZfsUnavailable."""
    with _rooms():
        (RUN / "dev").mkdir()
        (Path("/etc/zfs") / "zfsrc").write_text(_CONFIG)
        daemon = Daemon([_node(member) for member in device.each], arc_bytes)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()


def _node(member: Device) -> Path:
    """A node with the numbers of the device that was checked: its name may be another's by now."""
    node = NODES / member.path.name
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(member.major, member.minor))
    return node


@contextlib.contextmanager
def _rooms() -> Iterator[None]:
    _must_be_private()
    here = Path("/proc/thread-self/ns/mnt").stat().st_ino
    if here in _serving:
        raise ZfsUnavailable(
            "a zfs-fuse of this trial is running already, and there can be one only",
            remedy='Give data and log one pool: volumes.wal, or topology = "log".',
        )
    with contextlib.ExitStack() as stack:
        for room in _ROOMS:
            room.mkdir(0o755, parents=True, exist_ok=True)
            mount("tmpfs", room.resolve(), "tmpfs", MS_NOSUID, "mode=0755")
            stack.callback(unmount, room.resolve(), lazy=True)
        _serving.add(here)
        stack.callback(_serving.discard, here)
        yield


def _must_be_private() -> None:
    """ZfsUnavailable where the mounts that we would make were everybody's."""
    if not mounts_are_private():
        raise ZfsUnavailable("zfs-fuse is started in a mount namespace of its own only", effect="Nothing was changed.")
