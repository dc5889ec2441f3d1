"""mkfs, and whether a setup can work on this machine at all."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, DeadlinePassed, MkfsFailed
from dbbench.filesystems.families import FAMILIES
from dbbench.filesystems.port import Made
from dbbench.model import FsSetup

# With lazy initialisation off mke2fs writes 1/64 of the device (256-byte inodes, one for 16 KiB); a slow disk
# takes 50 MB/s.
_DEADLINE_S: Final = 120
_SECONDS_PER_BYTE: Final = 1 / 64 / 50e6

_PACKAGES: Final = {
    "mkfs.ext3": "e2fsprogs", "mkfs.ext4": "e2fsprogs", "dumpe2fs": "e2fsprogs", "chattr": "e2fsprogs",
    "mkfs.xfs": "xfsprogs", "xfs_info": "xfsprogs", "xfs_db": "xfsprogs",
    "mkfs.btrfs": "btrfs-progs", "btrfs": "btrfs-progs",
}  # fmt: skip


def make(setup: FsSetup, device: Device) -> Made:
    """Make the filesystem on a device that is ours: the guards were passed when it was attached.

    mkfs gets the checked file description, so a name that was swapped since then hits nothing. `Made.argv` has
    the device's path in its place, as a person would type it. Raises MkfsFailed.
    """
    family = FAMILIES[setup.mkfs.family]
    deadline_s = _DEADLINE_S + device.facts.size_bytes * _SECONDS_PER_BYTE
    try:
        argv = family.mkfs_argv(setup, device.argument)
        done = process.run(argv, timeout_s=deadline_s, pass_fds=(device.fd,))
        geometry = family.geometry(device.path)
    except (CommandFailed, DeadlinePassed) as failure:
        raise MkfsFailed(
            f"{setup.mkfs.family} on {device.path}: {failure}",
            effect="The device holds no usable filesystem now.",
            remedy=f"dbbench fs show {setup.name}  prints the command.",
        ) from failure
    uuid = str(geometry.pop("uuid"))
    shown = tuple(str(device.path) if word == device.argument else word for word in done.argv)
    return Made((shown,), uuid, geometry)


def works(setup: FsSetup, filesystems: Path = Path("/proc/filesystems")) -> str | None:
    """Why this setup cannot work here, with what to install; None where it can. Starts at most modprobe -n."""
    name = setup.mkfs.family
    if name not in FAMILIES:
        return f"the family {name!r} is not known (known: {', '.join(FAMILIES)})"
    if setup.layers:
        kinds = ", ".join(str(layer.get("kind", "?")) for layer in setup.layers)
        return f"layers below the filesystem ({kinds}) are not supported yet"
    if setup.devices.min > 1:
        return f"it needs {setup.devices.min} devices, and several devices are not supported yet"
    if missing := missing_programs(setup):
        packages = install(setup)
        return f"{', '.join(missing)} not installed" + (f": apt install {' '.join(packages)}" if packages else "")
    known = {line.split()[-1] for line in filesystems.read_text().splitlines()}
    for wanted in dict.fromkeys((name, *setup.needs.kernel)):
        if wanted not in known and not _loadable(wanted):
            return f"this kernel has no {wanted}, and no module of that name can be loaded"
    return None


def missing_programs(setup: FsSetup) -> tuple[str, ...]:
    """Programs of the family and of the setup's own needs that are not installed."""
    family = FAMILIES.get(setup.mkfs.family)
    wanted = (*(family.programs(setup) if family else ()), *setup.needs.programs)
    return tuple(program for program in dict.fromkeys(wanted) if process.find(program) is None)


def install(setup: FsSetup) -> tuple[str, ...]:
    """Debian packages that bring what is missing: the setup's own word, else by program."""
    missing = missing_programs(setup)
    if not missing:
        return ()
    known = tuple(dict.fromkeys(_PACKAGES[program] for program in missing if program in _PACKAGES))
    return known or setup.needs.packages.get("debian", ())


def _loadable(module: str) -> bool:
    if process.find("modprobe") is None:
        return False
    return process.run(["modprobe", "-n", "-q", module], ok=(0, 1, 255), note=False).returncode == 0
