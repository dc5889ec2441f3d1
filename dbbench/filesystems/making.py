"""mkfs, and whether a setup can work on this machine at all."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dbbench import layers, process
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, DeadlinePassed, MkfsFailed
from dbbench.filesystems.families import FAMILIES, POOLED
from dbbench.filesystems.port import Made
from dbbench.journal import Journal
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


def make(setup: FsSetup, device: Device, journal: Journal | None = None) -> Made:
    """Make the filesystem on a device that is ours: the guards were passed when it was attached.

    mkfs gets the checked file descriptions, so a name that was swapped since then hits nothing. `Made.argv` has
    the devices' paths in their places, as a person would type it. A pool is noted in `journal`: no namespace
    ends it. Raises MkfsFailed.
    """
    if pooled := POOLED.get(setup.mkfs.family):
        return pooled.create(setup, device, journal)
    family = FAMILIES[setup.mkfs.family]
    deadline_s = _DEADLINE_S + device.facts.size_bytes * _SECONDS_PER_BYTE
    paths = {member.argument: str(member.path) for member in device.each}
    try:
        argv = family.mkfs_argv(setup, tuple(paths))
        done = process.run(argv, timeout_s=deadline_s, pass_fds=[member.fd for member in device.each])
        geometry = family.geometry(device.path)
    except (CommandFailed, DeadlinePassed) as failure:
        raise MkfsFailed(
            f"{setup.mkfs.family} on {device.path}: {failure}",
            effect="The device holds no usable filesystem now.",
            remedy=f"dbbench fs show {setup.name}  prints the command.",
        ) from failure
    uuid = str(geometry.pop("uuid"))
    shown = tuple(paths.get(word, word) for word in done.argv)
    return Made((shown,), uuid, geometry)


def commands(setup: FsSetup, targets: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
    """Layers, mkfs and mount of a setup on `targets`, as a person would type them. KeyError for an unknown family."""
    said, volumes = layers.commands(setup.layers, targets)
    if pooled := POOLED.get(setup.mkfs.family):
        return [*said, *pooled.commands(setup, volumes, at)]
    family = FAMILIES[setup.mkfs.family]
    options = ",".join(family.mount_options(setup))
    mount = ("mount", "-t", setup.mkfs.family, "-o", options, volumes[0], at)
    return [*said, tuple(family.mkfs_argv(setup, volumes)), mount]


def works(setup: FsSetup, filesystems: Path = Path("/proc/filesystems")) -> str | None:
    """Why this setup cannot work here, with what to install; None where it can. Starts at most modprobe -n."""
    name = setup.mkfs.family
    if name not in FAMILIES:
        return f"the family {name!r} is not known (known: {', '.join(FAMILIES)})"
    if missing := missing_programs(setup):
        packages = install(setup)
        return f"{', '.join(missing)} not installed" + (f": apt install {' '.join(packages)}" if packages else "")
    if unknown := [layer.kind for layer in setup.layers if layer.kind not in layers.KINDS]:
        return f"layers of kind {', '.join(unknown)} are not known"
    known = {line.split()[-1] for line in filesystems.read_text().splitlines()}
    below = [module for layer in setup.layers for module in layers.KINDS[layer.kind].needs(layer)]
    for wanted in dict.fromkeys((*below, name, *setup.needs.kernel)):
        if wanted not in known and not _loadable(wanted):
            return f"this kernel has no {wanted}, and no module of that name can be loaded"
    return None


def missing_programs(setup: FsSetup) -> tuple[str, ...]:
    """Programs of the family and of the setup's own needs that are not installed."""
    family = FAMILIES.get(setup.mkfs.family)
    below = [program for layer in setup.layers if layer.kind in layers.KINDS
             for program in layers.KINDS[layer.kind].programs(layer)]  # fmt: skip
    wanted = (*below, *(family.programs(setup) if family else ()), *setup.needs.programs)
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
