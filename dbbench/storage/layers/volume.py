"""What all kinds of layers share: a name, opening the result, waiting, erasing; what this kernel
supports (filesystems, RAID levels, targets: built in, loaded or loadable); and device-mapper,
without tools of LVM and dm-crypt, to remove volumes in whatever state they are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from dbbench import packages, process
from dbbench.errors import CommandFailed, DeadlinePassed, MakeFailed, UnmountFailed
from dbbench.machine.host.proc import text
from dbbench.model import Commands, DeviceFacts, Layer, Scalars, Words
from dbbench.results.fileio import open_fd
from dbbench.results.journal import Journal
from dbbench.storage.devices import guard, hold, sysfs
from dbbench.storage.devices.hold import afterwards, retry
from dbbench.storage.devices.port import Device

WHAT: Final = "layer"  # kind of resource in the journal
# the tools create device nodes themselves and do not wait for udev
MAPPER_ENV: Final = {"DM_DISABLE_UDEV": "1"}
_ROOT: Final = Path("/")
# The option of the kernel's configuration for each driver: Kconfig of drivers/md and fs.
_CONFIG: Final = {
    "raid0": "MD_RAID0",
    "raid1": "MD_RAID1",
    "raid10": "MD_RAID10",
    "dm-mod": "BLK_DEV_DM",
    "dm-snapshot": "DM_SNAPSHOT",
    "dm-thin-pool": "DM_THIN_PROVISIONING",
    "dm-crypt": "DM_CRYPT",
    "dm-delay": "DM_DELAY",
    "f2fs": "F2FS_FS",
    "xfs": "XFS_FS",
    "btrfs": "BTRFS_FS",
    "ext4": "EXT4_FS",
}
# Drivers that are separate modules, with the package that builds them.
_NOT_IN_KERNEL: Final = {"zfs": "zfs-dkms"}
_RELEASE_S: Final = 20.0  # the mount of a killed trial, or udev, may still use the device
_APPEAR_S: Final = 5.0  # the kernel creates a node in /dev at once, but udev may be busy


@contextlib.contextmanager
def reserve(
    kind: str,
    end: Callable[[str], object],
    members: Sequence[Device],
    journal: Journal,
) -> Iterator[str]:
    """Reserve a name for a layer on these members in the journal; afterwards `end` removes what has
    it.
    """
    # md allows 32 characters, including the name of the host
    name = f"dbbench-{journal.tag}{secrets.token_hex(2)}"
    path = f"{kind}:{name}"

    def give_back() -> None:
        end(name)
        for member in members:
            wipe(member.fd)
        journal.release(WHAT, path)

    journal.take(WHAT, path)
    with afterwards(give_back):
        # from now on the kernel holds the devices for the layer
        hold.release(*(member.fd for member in members))
        yield name


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Convert a program's error in the block into MakeFailed."""
    try:
        yield
    except (CommandFailed, DeadlinePassed) as failure:
        raise MakeFailed(
            f"{what}: {failure}",
            effect="The incomplete layers were removed again. Nothing was measured.",
            remedy="Print the commands with dbbench fs NAME, and read the kernel log with dmesg.",
        ) from failure


@contextlib.contextmanager
def open_volume(name: str, facts: Scalars) -> Iterator[Device]:
    """Yield the volume of that kernel name (md127, dm-3), locked, so that udev does not open it.
    Raises MakeFailed.
    """
    path = Path(f"/dev/{name}")
    if process.wait_while(lambda: not path.is_block_device(), _APPEAR_S, 0.02):
        raise MakeFailed(
            f"{path} does not exist although the kernel reports {name}",
            effect="Nothing was measured.",
        )
    with open_fd(path, os.O_RDWR) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        described = DeviceFacts("layer", str(path), name, sysfs.size_bytes(name))
        yield Device(path, fd, os.fstat(fd).st_rdev, described, sysfs.leaves(name), layers=(facts,))


@contextlib.contextmanager
def let_go(device: Device) -> Iterator[None]:
    """Close its descriptor within the block, because some tools require that; then lock and hold it
    again.
    """
    hold.release(device.fd)
    with open_fd(os.devnull) as nothing:
        os.dup2(nothing, device.fd, inheritable=False)
    try:
        yield
    finally:
        with open_fd(device.path, os.O_RDWR) as again:
            os.dup2(again, device.fd, inheritable=False)
        fcntl.flock(device.fd, fcntl.LOCK_EX)
        if os.fstat(device.fd).st_rdev != device.st_rdev:
            raise UnmountFailed(
                f"{device.path} is now another device", effect="It was not changed."
            )
        hold.regain(device.fd)


@contextlib.contextmanager
def kept_open(names: Sequence[str]) -> Iterator[list[int]]:
    """Yield descriptors of these devices: a loop device would release its image with its last user."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open_fd(f"/dev/{name}", os.O_RDWR)) for name in names]


def wipe(fd: int) -> None:
    """Erase every signature of a member from a device. Raises UnmountFailed if another process
    holds it.
    """

    def regain() -> None:
        if not hold.regain(fd):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    persistently(regain, Path(f"/proc/self/fd/{fd}").readlink())
    hold.erase(fd)


def persistently(step: Callable[[], object], what: object) -> None:
    """Repeat a step until it succeeds. Raises UnmountFailed if it still fails after a time."""
    if failure := retry(step, _RELEASE_S):
        raise UnmountFailed(
            f"{what} is still in use after {_RELEASE_S:.0f} s: {failure}",
            effect="It still exists, and so do the layers below it.",
            remedy="Unmount the filesystem on it, then run: dbbench clean",
        ) from failure


def note_signatures(member: Device, journal: Journal | None) -> None:
    """Record the signatures of a layer on a real disk, so that the next run may erase them without
    asking. A layer without a signature has a line too: it is complete.
    """
    if journal is None or not member.identity:
        return
    # A dict, because libblkid reports the ZFS label 24 times.
    texts = {mark.uuid: mark.text for mark in guard.signatures_of(member.fd) if mark.uuid}
    for uuid, mark in (texts or {"": "no signature"}).items():
        journal.note("made", device=member.identity, uuid=uuid, what=mark)


class LayerKind(Protocol):
    """A kind of layer: one module each."""

    @property
    def PROGRAMS(self) -> Words: ...

    def needs(self, layer: Layer) -> Words:
        """Return what the kernel must have: modules, by name (`raid0`, `dm-snapshot`)."""

    def commands(self, layer: Layer, targets: Words) -> tuple[Commands, Words]:
        """Return the commands that make it on these targets, as a person would type them, and the
        resulting volumes.
        """

    def make(
        self,
        layer: Layer,
        devices: Sequence[Device],
        journal: Journal,
    ) -> AbstractContextManager[tuple[Device, ...]]:
        """Make the layer on these devices within the block; afterwards nothing of it is left on
        them. Each resulting volume has what was read back in its `layers`: one entry.
        """

    def end(self, name: str) -> bool:
        """Remove that layer, in whatever state, and erase it from its devices; return whether it
        existed.
        """


def kernel_lacks(module: str, root: Path = _ROOT) -> str | None:
    """Return why this kernel lacks `module` ("raid0", "dm-thin-pool", "f2fs"), with what provides
    it, or None.
    """
    if _there(module, root) or loadable(module):
        return None
    if module in _NOT_IN_KERNEL:
        return f"this kernel has no {module}: {packages.install([_NOT_IN_KERNEL[module]])}"
    option = (
        f"it was built without CONFIG_{_CONFIG[module]}, or its" if module in _CONFIG else "its"
    )
    return f"this kernel has no {module}: {option} package of modules is not installed"


def load_module(*modules: str) -> None:
    """Load the modules that are not loaded yet: the kernel does so itself only if its modprobe is
    configured.
    """
    for module in modules:
        if not _there(module, _ROOT) and loadable(module):
            process.run(["modprobe", "-q", module], ok=(0, 1), note=False)


def loadable(module: str) -> bool:
    """Whether modprobe finds it for this kernel."""
    if process.find("modprobe") is None:
        return False
    argv = ["modprobe", "-n", "-q", module]
    done = process.run(argv, ok=(0, 1, 255), note=False)
    return done.returncode == 0


def _there(module: str, root: Path) -> bool:
    proc = root / "proc"
    if (root / "sys/module" / module.replace("-", "_")).exists() or module in _words(
        proc / "filesystems"
    ):
        return True
    if module.startswith("raid"):
        return f"[{module}]" in _words(proc / "mdstat")
    if module == "dm-mod":
        return "device-mapper" in _words(proc / "misc")
    return module.startswith("dm-") and module.removeprefix("dm-") in _targets(proc)


def _targets(proc: Path) -> set[str]:
    """Return the available targets of device-mapper; empty without root."""
    if (
        "device-mapper" not in _words(proc / "misc")
        or process.find("dmsetup") is None
        or os.geteuid() != 0
    ):
        return set()
    printed = process.run(["dmsetup", "targets"], ok=(0, 1), note=False).stdout
    return {line.split()[0] for line in printed.splitlines() if line.split()}


def _words(path: Path) -> list[str]:
    return (text(path) or "").split()


def mapped_names(prefix: str) -> dict[str, str]:
    """Return name -> kernel name (dm-3) of the devices called `prefix` or `prefix-...`."""
    names = {}
    for disk in sysfs.disks():
        if disk.startswith("dm-"):
            name = sysfs.attribute(disk, "dm/name") or ""
            # With a hyphen, `dbbench-1` is not a beginning of `dbbench-12`.
            if f"{name}-".startswith(f"{prefix}-"):
                names[name] = disk
    return names


def mapped_below(prefix: str) -> list[str]:
    """Return kernel names of the devices below those called `prefix...`."""
    own_names = set(mapped_names(prefix).values())
    lower = [name for upper in own_names for name in sysfs.slaves(upper)]
    return sorted(set(lower) - own_names)


def mapped_status(name: str) -> str:
    """Return the status of a device's target without its position: "snapshot 16/139264 16"."""
    done = process.run(["dmsetup", "status", name], env=MAPPER_ENV, note=False)
    words = done.stdout.split()
    return " ".join(words[2:])


def remove_dm(prefix: str) -> bool:
    """Remove the devices called `prefix...`, upper ones first, even suspended ones of a killed
    tool, and erase what they were on; return whether there were any. Raises UnmountFailed.
    """
    with kept_open(mapped_below(prefix)) as lower:
        mapped = mapped_names(prefix)
        for name, kernel_name in mapped.items():
            if sysfs.attribute(kernel_name, "dm/suspended") == "1":
                with contextlib.suppress(Exception):
                    process.run(["dmsetup", "resume", name], env=MAPPER_ENV, note=False)
        while left := mapped_names(prefix):
            free = [name for name, kernel_name in left.items() if not sysfs.holders(kernel_name)]
            for name in free or left:
                persistently(partial(_remove, name), f"the volume {name}")
        for fd in lower:
            wipe(fd)
    return bool(mapped)


def _remove(name: str) -> None:
    if name in mapped_names(name):
        process.run(["dmsetup", "remove", name], env=MAPPER_ENV, timeout_s=60)
