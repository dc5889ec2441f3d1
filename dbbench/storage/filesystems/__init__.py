"""Filesystems: made, mounted, read back from the kernel, verified, measured. One module per family.
`make` and `mount` are two stages of a trial; `shape` reads a mounted filesystem, `volumes` has
snapshots and growth.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench import packages, process
from dbbench.errors import CommandFailed, DeadlinePassed, MountFailed, SetupNotInForce
from dbbench.machine import namespaces
from dbbench.machine.libc import syncfs as sync
from dbbench.machine.pagecache import Emptying
from dbbench.model import Commands, FsSetup, Role, Words, durability_class
from dbbench.results.journal import Journal
from dbbench.storage import layers
from dbbench.storage.devices import image
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import added_options, families
from dbbench.storage.filesystems.common import inode_flags
from dbbench.storage.filesystems.families import (
    FAMILIES,
    family_in,
    family_of,
    family_on,
    give_back,
    promises,
)
from dbbench.storage.filesystems.family import (
    Family,
    Made,
    Mounted,
    MountPoint,
    Stored,
    attributes_of,
    options_of,
)
from dbbench.storage.filesystems.formatted import MKFS_S, Formatted
from dbbench.storage.layers.volume import kernel_lacks

__all__ = [
    "FAMILIES",
    "Family",
    "Made",
    "MountPoint",
    "Mounted",
    "Stored",
    "apply_attributes",
    "check_promise",
    "commands",
    "data_directory",
    "emptying",
    "family_in",
    "family_of",
    "give_back",
    "install",
    "log_directory",
    "make",
    "missing_programs",
    "mount",
    "obstacles",
    "options_of",
    "promises",
    "sync",
    "verify_files",
    "works",
]

_MEMORY: Final = Path("/dev/shm")
_TRIED_BYTES: Final = 2**30  # size of the sparse file; mkfs uses other limits for smaller devices


def works(setup: FsSetup, root: Path = Path("/")) -> str | None:
    """Return all reasons why this setup cannot work here, with what to install, or None. The last
    check runs mkfs on sparse files, because only this version of it knows what it supports. Some
    combinations of mount options are refused only in a trial.
    """
    family = FAMILIES.get(setup.mkfs.family)
    missing = missing_programs(setup) if family is not None else ()
    lacking: list[str] = []
    if missing:
        needed = install(setup)
        how = f": {packages.install(needed)}" if needed else ""
        lacking.append(f"{', '.join(missing)} not installed{how}")
    lacking += obstacles(setup, root)
    if lacking:
        return "; ".join(lacking)
    if not isinstance(family, Formatted) or not family.tries_mkfs or setup.layers:
        return None
    return _refusal(setup, family)


def obstacles(setup: FsSetup, root: Path = Path("/")) -> list[str]:
    """Return why the family, its layers or the kernel cannot make this setup; programs are not
    among it.
    """
    name = setup.mkfs.family
    if name not in FAMILIES:
        return [f"unknown family {name!r} (known: {', '.join(FAMILIES)})"]
    # What the family itself lacks, and options that it does not have.
    family = FAMILIES[name]
    reasons = [family.lacks(setup, root)]
    if isinstance(family, Formatted):
        reasons.append(added_options.unknown(name, setup.mount))
    tunable = [other.name for other in FAMILIES.values() if other.tuner]
    if setup.mkfs.tune and name not in tunable:
        reasons.append(f"{name} cannot be tuned after mkfs (supported: {', '.join(tunable)})")

    # The kernel needs a module for each layer, and for the filesystem.
    modules: list[str] = []
    unknown_kinds = []
    for layer in setup.layers:
        if layer.kind in layers.KINDS:
            modules += layers.KINDS[layer.kind].needs(layer)
        else:
            unknown_kinds.append(layer.kind)
    if unknown_kinds:
        reasons.append(f"unknown kind of layer: {', '.join(unknown_kinds)}")
    else:
        if family.in_kernel:
            modules.append(name)
        reasons += [kernel_lacks(module, root) for module in dict.fromkeys(modules)]
    return [reason for reason in reasons if reason]


def _refusal(setup: FsSetup, family: Formatted) -> str | None:
    if not (setup.mkfs.options or setup.mkfs.tune):
        return None
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None  # mkfs syncs, which is slow on a disk
    with namespaces.temporary_folder(memory) as folder:
        targets = tuple(f"{folder}/{number}" for number in range(setup.devices.min))
        for target in targets:
            Path(target).touch()
            os.truncate(target, _TRIED_BYTES)
        try:
            for argv in family.making(setup, targets):
                process.run(argv, timeout_s=MKFS_S, note=False)
        except (CommandFailed, DeadlinePassed) as failure:
            return str(failure).replace(f"{folder}/", "")
    return None


def missing_programs(setup: FsSetup) -> Words:
    """Return missing programs of the family and of the layers."""
    programs: list[str] = []
    for layer in setup.layers:
        if layer.kind in layers.KINDS:
            programs += layers.KINDS[layer.kind].PROGRAMS
    programs += families.family_by_name(setup.mkfs.family).programs(setup)
    return tuple(program for program in dict.fromkeys(programs) if process.find(program) is None)


def install(setup: FsSetup) -> Words:
    """Return Debian packages that provide what is missing."""
    needed = map(packages.package_of, missing_programs(setup))
    return tuple(dict.fromkeys(filter(None, needed)))


def commands(
    setup: FsSetup,
    targets: Words,
    at: str,
) -> Commands:
    """Return the commands for layers, mkfs, mount, volumes and attributes of a setup. Raises
    KeyError.
    """
    below, volumes = layers.commands(setup.layers, targets)
    inside = family_of(setup).commands(setup, volumes, at)
    return [*below, *inside, *layers.holding(setup.layers)]


def make(
    setup: FsSetup,
    device: Device,
    journal: Journal | None = None,
) -> Made:
    """Make the filesystem on a locked, checked device; `journal` records a pool. Raises MakeFailed."""
    return family_on(device, setup).create(setup, device, journal)


def mount(
    setup: FsSetup,
    device: Device,
    at: Path,
    journal: Journal | None = None,
    arc_bytes: int | None = None,
) -> AbstractContextManager[Mounted]:
    """Mount the filesystem at `at` within the block; then free the device. Raises MountFailed (with
    the kernel's message), UnmountFailed (with the holders) unless the block failed,
    DeviceUnusable for a directory.
    """
    return family_on(device, setup).open(
        setup,
        device,
        MountPoint(at, journal, arc_bytes),
    )


def emptying(setup: FsSetup, device: Device, fs: Mounted) -> Emptying:
    """Return what empties the caches of the mounted filesystem, without an effect on others."""
    return family_on(device, setup).emptying(setup, device, fs)


def check_promise(setup: FsSetup, fs: Mounted) -> None:
    """Raise SetupNotInForce if the setup's options promise other durability flags than the kernel
    reports.
    """
    if set(promises(setup)) == set(fs.flags):
        return
    raise SetupNotInForce(
        f"fs setup {setup.name!r} promises the durability class "
        f"{durability_class(promises(setup))!r}, but the options in effect make it "
        f"{durability_class(fs.flags)!r} ({','.join(fs.options_effective)})",
        remedy="Correct the options in the setup's file.",
    )


def data_directory(setup: FsSetup, fs: Mounted) -> Path:
    """Return a new empty data directory on the filesystem, accessible only to its owner: a
    directory or a volume.
    """
    datadir = fs.path / "data"
    datadir.mkdir(mode=0o700, exist_ok="data" in setup.volumes)
    datadir.chmod(0o700)
    return datadir


def log_directory(setup: FsSetup, mounts: Mapping[Role, Mounted]) -> Path | None:
    """Return the log's directory on its own filesystem or volume, or None. It may not exist yet."""
    if "log" in mounts:
        return mounts["log"].path / "wal"
    if "wal" in setup.volumes:
        return mounts["data"].path / "wal"
    return None


def apply_attributes(setup: FsSetup, datadir: Path) -> None:
    """Run chattr on the empty data directory, so that restored files inherit the attributes. Raises
    MountFailed.
    """
    if not setup.attributes:
        return
    try:
        process.run(["chattr", *setup.attributes, datadir])
    except CommandFailed as failure:
        raise MountFailed(f"{' '.join(setup.attributes)} on {datadir}: {failure}") from failure


def verify_files(setup: FsSetup, files: Iterable[Path]) -> None:
    """Raise SetupNotInForce unless nodatacow and +C are set on every file, and compression on at
    least one: the kernel does not compress data that does not shrink. These options have no
    effect on existing files.
    """
    written = [path for path in files if path.stat().st_size > 0]
    if not written:
        return
    # Copy-on-write that remains on one file would be measured as if it were off.
    if "nodatacow" in setup.mount or "+C" in attributes_of(setup):
        wrong = [path for path in written if not inode_flags(path) & image.NOCOW_FL]
        if wrong:
            raise SetupNotInForce(
                f"{len(wrong)} of {len(written)} files use copy-on-write although {setup.name!r} "
                f"disables it, the first is {wrong[0]}",
                remedy="The option must be set before files are restored. Reflinked files keep "
                "their previous state.",
            )
    # Compression shows only in files that shrink, which the large ones do first.
    family = family_of(setup)
    algorithm = family.compresses(options_of(setup))
    written.sort(key=lambda path: path.stat().st_size, reverse=True)
    if algorithm and not family.has_compression(written):
        raise SetupNotInForce(
            f"none of {len(written)} files has a compressed extent although {setup.name!r} "
            f"requests {algorithm}",
            remedy="The option must be set before files are restored. If the data does not shrink, this "
            "setup equals the one without compression.",
        )
