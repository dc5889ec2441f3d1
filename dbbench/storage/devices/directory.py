"""Kind `dir`: an existing directory on an existing filesystem, which is not changed. No mkfs, no
root. The work is done in `dbbench-ARM` with a marker file that is locked while the run lives.
One whose marker is not locked was left by a killed run and is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError, DeviceInUse, DeviceUnusable
from dbbench.machine.mounts import mount_holding, mounts_of
from dbbench.model import DeviceFacts, DeviceSpec, Role
from dbbench.results.fileio import open_fd, try_lock, user_name
from dbbench.storage.devices import guard, naming, sysfs
from dbbench.storage.devices.port import Device

MARKER: Final = ".dbbench"
PREFIX: Final = "dbbench-"
# These directories are refused; a folder made for this purpose below /srv, /home or /mnt is
# accepted.
_SYSTEM: Final = frozenset(
    (
        "/",
        "/bin",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/media",
        "/mnt",
        "/opt",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/tmp",
        "/var",
        "/var/cache",
        "/var/lib",
        "/var/log",
        "/var/spool",
        "/var/tmp",
    )
)
# These are refused with everything below them: programs, settings and directories of the kernel.
_TREES: Final = tuple(
    Path(p) for p in ["/boot", "/dev", "/efi", "/etc", "/lib", "/proc", "/sys", "/usr"]
)
_EMPTY: Final = frozenset({"lost+found"})  # what mkfs creates in an empty filesystem


@contextlib.contextmanager
def attach(spec: DeviceSpec, arm: str) -> Iterator[Device]:
    """Make a directory in the arm's directory; remove it with its content when the block ends.
    `facts.name` and `leaves` refer to the disk below, "" and () without one (zfs, tmpfs,
    network). Raises DeviceUnusable, and DeviceInUse if another run works in the directory.
    """
    named = spec.directories.get(arm) or spec.path
    if not named:
        raise DeviceUnusable(
            f"[device] has no directory for {arm!r}",
            remedy=f'Set paths = {{ {arm or "ext4"} = "/mnt/a", ... }} in [device].',
        )
    # Directories of runs that were killed are removed first.
    directory = check_directory(Path(named))
    for left in _ours(directory):
        _remove_stale(left)
    folder = directory / (PREFIX + re.sub(r"[^A-Za-z0-9._+-]", "_", arm or "data"))
    with contextlib.ExitStack() as stack:
        try:
            # The marker in it is locked while it is used, so that no other run removes it.
            folder.mkdir(0o755)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            marker = os.open(
                folder / MARKER,
                os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            raise _refusal(
                directory, f"{folder.name} cannot be created in it: {error.strerror}"
            ) from None
        stack.callback(os.close, marker)
        try_lock(marker)
        yield _device(folder)


def check_directory(directory: Path) -> Path:
    """Return the directory without symlinks if it may be used. Raises DeviceUnusable."""
    real = directory.resolve()
    if str(real) in _SYSTEM or any(tree == real or tree in real.parents for tree in _TREES):
        raise _refusal(directory, "it belongs to the operating system")
    if not real.exists():
        raise DeviceUnusable(
            f"{directory} cannot be used: it does not exist",
            remedy=f"Create it on the filesystem to be measured:  mkdir -p {shlex.quote(str(directory))}",
        )
    if not real.is_dir():
        raise _refusal(directory, "it is not a directory")
    try:
        others = sorted(
            {entry.name for entry in real.iterdir()} - _EMPTY - {path.name for path in _ours(real)}
        )
    except OSError as error:
        raise _refusal(directory, f"it cannot be read: {error.strerror}") from None
    if others:
        names = ", ".join(others[:5]) + (" ..." if others[5:] else "")
        raise _refusal(
            directory,
            f"it is not empty: {names}",
            f", for example a new one: {directory / 'dbbench'}",
        )
    if not os.access(real, os.W_OK | os.X_OK):
        raise _refusal(directory, f"the user {user_name(os.geteuid())} cannot create files in it")
    return real


def nearest(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists and that this account can see."""
    path = path.absolute()
    if os.access(path, os.F_OK):
        return path
    return nearest(path.parent)


def disk_below(path: Path) -> str | None:
    """Return the kernel name of the device below a path, or None if the kernel shows none (zfs,
    tmpfs, network).
    """
    name = sysfs.name_of(path.stat().st_dev)
    # btrfs has an anonymous number, but the source of the mount is one of its devices
    if name is None:
        entry = mount_holding(path.resolve(), mounts_of(Path("/proc/self")))
        source = Path(entry.source) if entry else Path()
        name = sysfs.name_at(source) if source.is_block_device() else None
    return name


def disks_below(path: Path) -> tuple[str, ...]:
    """Return the kernel names of the whole disks below a path; () if the kernel shows none."""
    name = disk_below(path)
    return sysfs.leaves(name) if name else ()


def _ours(directory: Path) -> list[Path]:
    paths = directory.glob(f"{PREFIX}*")
    return [path for path in paths if not path.is_symlink() and (path / MARKER).is_file()]


def _remove_stale(folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        try:
            marker = stack.enter_context(open_fd(folder / MARKER, os.O_RDWR))
        except OSError as error:
            raise _refusal(
                folder.parent, f"{folder.name} in it belongs to another user: {error.strerror}"
            ) from None
        if not try_lock(marker):
            raise DeviceInUse(f"{folder} is in use by another run:{guard.locked_by(marker)}")
        shutil.rmtree(folder)


def _device(folder: Path) -> Device:
    name = disk_below(folder)
    made = (naming.serial(sysfs.disk_of(name)), naming.model(name)) if name else ("", "")
    facts = DeviceFacts("dir", str(folder), name or "", shutil.disk_usage(folder).total, *made)
    return Device(folder, -1, folder.stat().st_dev, facts, disks_below(folder))


def _refusal(directory: Path, why: str, example: str = "") -> DbbenchError:
    return DeviceUnusable(
        f"{directory} cannot be used: {why}",
        remedy=f"Name an empty directory on the filesystem to be measured{example}.",
    )


def shared_disks(volumes: Mapping[Role, Device]) -> tuple[str, ...]:
    """Return kernel names of disks below the images, which other processes may use too; () if
    unknown.
    """
    images = (disk.facts for device in volumes.values() for disk in device.each if disk.facts.image)
    return tuple(dict.fromkeys(name for facts in images for name in physical_disks(facts)))


def physical_disks(facts: DeviceFacts) -> tuple[str, ...]:
    """Return the kernel names of the whole disks below a device: those of its image file, or of its
    partition.
    """
    if facts.image:
        return disks_below(Path(facts.image).parent)
    if facts.name:
        return sysfs.leaves(facts.name)
    return ()


def disks_with_several(devices: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the disks that lie below more than one of these devices; each is given with its own
    disks.
    """
    counted = Counter(disk for disks in devices for disk in set(disks))
    return tuple(disk for disk, number in counted.items() if number > 1)
