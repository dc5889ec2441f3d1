"""Pools: made, imported, exported, and erased from their devices.

zfs-fuse runs as a process of the trial with a private socket, lock, cache file and configuration. Their paths are
compiled into the program, so in a private mount namespace a tmpfs is mounted over them: the system's own zfs-fuse and
its pools stay invisible and untouched, and nothing outlives the namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, MountFailed, UnmountFailed, ZfsUnavailable
from dbbench.machine.namespaces import MS_NOSUID, mount, mounts_are_private, unmount
from dbbench.model import FsSetup, Scalar
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common
from dbbench.storage.filesystems.zfs import driver as drivers
from dbbench.storage.filesystems.zfs import driver as properties
from dbbench.storage.filesystems.zfs.driver import ZfsDriver

JOURNALLED: Final = "pool"
_PREFIX: Final = "dbbench-"
_SLOW_S: Final = 300.0  # an export first writes all dirty data
_BLKRRPART: Final = 0x125F
# OpenZFS puts the pool of a whole disk into a partition that begins at 1 MiB, followed by one of 8 MiB. Two labels of
# 256 KiB are at each end of what the pool is on.
_HEAD: Final = 2 * 2**20
_TAIL: Final = 10 * 2**20
RUN: Final = Path("/var/run/zfs")
NODES: Final = RUN / "dev"
_SOCKET: Final = RUN / "zfs_socket"
_LOG: Final = RUN / "daemon.log"
_ROOMS: Final = (RUN, Path("/var/lock/zfs"), Path("/var/lib/zfs"), Path("/etc/zfs"))
_START_S: Final = 20.0
ARC_BYTES: Final = 100 * 2**20  # default of Debian's package; the page cache above it holds the files
_ARC_LEAST: Final = 16  # MiB; zfs-fuse accepts no less
_serving: set[int] = set()  # mount namespaces in which this process has started zfs-fuse
_CONFIG: Final = """# As Debian's package has it, but for the size of the ARC, which is on the command line.
vdev-cache-size = 10
zfs-prefetch-disable
fuse-attr-timeout = 3600
fuse-entry-timeout = 3600
fuse-mount-options = default_permissions
"""


@dataclass
class ZfsPool:
    """An imported pool. `paths` are its devices under the names that the driver uses."""

    name: str
    driver: ZfsDriver
    device: Device
    paths: tuple[Path, ...]
    daemon: Daemon | None = None
    joined: tuple[Device, ...] = ()  # devices that were added after the pool was created

    def value(self, name: str) -> str:
        """Return a property of the pool's own dataset; sizes in bytes."""
        return process.run(["zfs", "get", "-Hp", "-o", "value", name, self.name]).stdout.strip()

    def properties(self, dataset: str = "") -> dict[str, str]:
        """Return all properties of a dataset of the pool; sizes in bytes."""
        done = process.run(
            ["zfs", "get", "-Hp", "-o", "property,value", "all", "/".join(filter(None, (self.name, dataset)))]
        )
        return properties.parse_get(done.stdout)

    def sync(self) -> None:
        """Write dirty data of the pool. See `sync`."""
        sync(self.name)

    def used_and_free(self) -> tuple[int, int]:
        """Return (used, available) bytes of all its datasets and snapshots; the second copy of a mirror is not
        counted."""
        return int(self.value("used")), int(self.value("available"))

    def cached_bytes(self) -> int | None:
        """Return the bytes of data in the ARC, of all pools of this kernel, or None if not known (zfs-fuse)."""
        return drivers.arcstats().get("data_size") if self.driver.native else None

    def adopted(self, spare: Device) -> Path:
        """Add a device that will join the pool; return its path for the driver. It is imported and wiped with the
        others."""
        hold.release(spare.fd)
        path = self.daemon.adopted(spare) if self.daemon is not None else spare.path
        self.paths, self.joined = (*self.paths, path), (*self.joined, spare)
        return path

    def reopen(self) -> None:
        """Export and import the pool, which empties its cache: OpenZFS drops it from the ARC, and zfs-fuse is
        restarted."""
        self.export()
        if self.daemon is not None:
            self.daemon.stop()
            self.daemon.start()
        self.bring_in()

    def bring_in(self) -> None:
        """Import the pool, and mount its datasets that have a mount point. Raises MountFailed."""
        where = (
            [word for path in self.paths for word in ("-d", str(path))] if self.driver.native else ["-d", str(NODES)]
        )
        try:
            process.run(["zpool", "import", *where, "-o", "cachefile=none", self.name], timeout_s=_SLOW_S)
        except CommandFailed as failure:
            raise MountFailed(
                f"the pool {self.name} could not be created on {self.device.path}: {failure}"
            ) from failure

    def export(self, at: Path | None = None) -> None:
        """Write dirty data, unmount, and release the devices. After BUSY_S, raises UnmountFailed with the processes
        that hold it."""
        common.until_let_go(
            lambda: process.run(["zpool", "export", self.name], timeout_s=_SLOW_S),
            at,
            lambda by: UnmountFailed(
                f"the pool {self.name} is still busy after {common.BUSY_S:.0f} s: it is in use by {by}",
                effect=f"{self.device.path} still belongs to the pool.",
                remedy=f"End that process, then run: zpool export {self.name}",
            ),
        )


@contextlib.contextmanager
def hosted(device: Device, arc_bytes: int | None = None) -> Iterator[Callable[[str], ZfsPool]]:
    """Run a driver within the block; yield a function that makes `ZfsPool` objects by name. Raises ZfsUnavailable."""
    driver = drivers.taken()
    with contextlib.ExitStack() as stack:
        for member in device.each:
            stack.callback(hold.regained, member.fd)
        hold.release(*(member.fd for member in device.each))  # from now on the driver holds the devices for the pool
        if driver.native:
            paths = tuple(member.path for member in device.each)
            yield lambda name: ZfsPool(name, driver, device, paths)
            return
        daemon = stack.enter_context(serving(device, arc_bytes))
        yield lambda name: ZfsPool(name, driver, device, daemon.nodes, daemon)


def sync(name: str) -> None:
    """Write dirty data of a pool with its next transaction group."""
    if drivers.MODULE.exists():
        process.run(["zpool", "sync", name], timeout_s=_SLOW_S)
    else:  # changing a property returns only when its transaction group is on the disk
        process.run(["zfs", "set", f"dbbench:sync={time.monotonic_ns()}", name], timeout_s=_SLOW_S)


def new_name(journal: Journal | None = None) -> str:
    """Return a name that no other pool of this machine has."""
    return f"{_PREFIX}{journal.tag if journal else ''}{secrets.token_hex(4)}"


def argv(setup: FsSetup, name: str, targets: tuple[str, ...]) -> list[str]:
    """Return the command `zpool create`.

    cachefile=none: no host imports the pool at boot. failmode=continue: an I/O error fails the write; by default the
    pool would hang. -f: overwrite an old signature that the guard has permitted.
    """
    topology = setup.mkfs.topology
    vdevs = [*targets[:-1], "log", targets[-1]] if topology == "log" else list(targets)
    if topology == "mirror":
        vdevs.insert(0, "mirror")
    dataset = [word for option in setup.mount for word in ("-O", option)]
    options = ["-o", "cachefile=none", "-o", "failmode=continue", "-m", "none"]
    return ["zpool", "create", "-f", *options, *setup.mkfs.options, *dataset, name, *vdevs]


def volume_argv(setup: FsSetup, name: str) -> list[list[str]]:
    """Return the command `zfs create` for each volume of the setup."""
    return [["zfs", "create", *(word for option in volume.options for word in ("-o", option)), f"{name}/{part}"]
            for part, volume in setup.volumes.items()]  # fmt: skip


def label(path: Path) -> dict[str, Scalar]:
    """Return the first label on a device: name, pool_guid, version, ashift. Raises MountFailed if there is none.

    Call it within `hosted`, because zdb requires a running zfs-fuse, although it reads the device itself.
    """
    printed = process.run(["zdb", "-l", path], ok=(0, 1, 2)).stdout
    label_fields = properties.parse_label(printed)
    if "name" not in label_fields:
        raise MountFailed(f"{path} has no pool label", effect="Nothing was measured.")
    return label_fields


def wipe(devices: Sequence[Device]) -> None:
    """Erase the labels from the devices, so that no host finds a pool there. mkfs of another family might erase only
    some."""
    for member in devices:
        size = os.lseek(member.fd, 0, os.SEEK_END)
        for offset, length in ((0, min(_HEAD, size)), (max(0, size - _TAIL), min(_TAIL, size))):
            os.pwrite(member.fd, bytes(length), offset)
        os.fsync(member.fd)
        with contextlib.suppress(OSError):  # the device has no partitions, or is a loop device that cannot have any
            fcntl.ioctl(member.fd, _BLKRRPART)


def give_back(journal: Journal) -> list[str]:
    """Destroy the pools that a killed run has left imported; return them. Those of zfs-fuse have ended with its
    process."""
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


class Daemon:
    """A zfs-fuse process that can be stopped and started again; `nodes` are the device nodes that it uses."""

    def __init__(self, nodes: Sequence[Path], arc_bytes: int | None) -> None:
        self.nodes = tuple(nodes)
        mib = (ARC_BYTES if arc_bytes is None else min(arc_bytes, ARC_BYTES)) // 2**20
        self.arc_bytes = max(mib, _ARC_LEAST) * 2**20
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """Start the process. Raises ZfsUnavailable with its last output if it does not answer."""
        _SOCKET.unlink(missing_ok=True)
        argv = ["zfs-fuse", "--no-daemon", "--no-kstat-mount", "--max-arc-size", str(self.arc_bytes // 2**20)]
        # SIGKILL is safe, because the pool was exported, and a normal end would take seconds.
        program = self._running.enter_context(
            process.running(argv, stdout=_LOG, stop_with=signal.SIGKILL, own_session=True)
        )
        process.wait_while(lambda: not _SOCKET.exists() and program.poll() is None, _START_S, 0.01)
        if not _SOCKET.exists():
            output = _LOG.read_text(errors="replace").strip() or "it printed nothing"
            raise ZfsUnavailable(
                f"zfs-fuse did not start: {output}",
                remedy="Check that /dev/fuse exists and that dbbench runs as root.",
            )

    def adopted(self, device: Device) -> Path:
        """Make a node for another device; return it."""
        self.nodes = (*self.nodes, _node(device))
        return self.nodes[-1]

    def stop(self) -> None:
        """Stop the process, which also empties its cache."""
        self._running.close()


@contextlib.contextmanager
def serving(device: Device, arc_bytes: int | None) -> Iterator[Daemon]:
    """Run a zfs-fuse within the block that can access only this device, or its members. Raises ZfsUnavailable."""
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
    """Make a node with the numbers of the checked device, because its name may belong to another device by now."""
    node = NODES / member.path.name
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(member.major, member.minor))
    return node


@contextlib.contextmanager
def _rooms() -> Iterator[None]:
    _must_be_private()
    here = Path("/proc/thread-self/ns/mnt").stat().st_ino
    if here in _serving:
        raise ZfsUnavailable(
            "a zfs-fuse process of this trial is already running, and only one is possible",
            remedy='Put data and log in one pool with volumes.wal or topology = "log".',
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
    """Raise ZfsUnavailable if mounts of this process would be visible to other processes."""
    if not mounts_are_private():
        raise ZfsUnavailable(
            "zfs-fuse can be started only in a mount namespace of its own", effect="Nothing was changed."
        )
