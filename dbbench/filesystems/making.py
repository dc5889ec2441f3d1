"""mkfs, and whether a setup can work on this machine at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from dbbench import layers, packages, process
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, DeadlinePassed
from dbbench.filesystems.common import mkfs_failed
from dbbench.filesystems.families import EXACTING, FAMILIES, POOLED, SEVERAL, TUNERS
from dbbench.filesystems.port import Made
from dbbench.journal import Journal
from dbbench.model import FsSetup

# With lazy initialisation off mke2fs writes 1/64 of the device (256-byte inodes, one for 16 KiB); a slow disk
# takes 50 MB/s.
_DEADLINE_S: Final = 120
_SECONDS_PER_BYTE: Final = 1 / 64 / 50e6

_MEMORY: Final = Path("/dev/shm")
_TRIED_BYTES: Final = 2**30  # of a sparse file: small-device limits begin below


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
        fds = [member.fd for member in device.each]
        for fd in fds:
            layers.wiped(fd)  # an old signature that mkfs leaves would stand beside the new one
        said = [process.run(argv, timeout_s=deadline_s, pass_fds=fds).argv for argv in _making(setup, tuple(paths))]
        geometry = family.geometry(device.path)
    except (CommandFailed, DeadlinePassed) as failure:
        raise mkfs_failed(setup, device, failure) from failure
    uuid = str(geometry.pop("uuid"))
    return Made(tuple(tuple(paths.get(word, word) for word in argv) for argv in said), uuid, geometry)


def commands(setup: FsSetup, targets: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
    """Layers, mkfs, mount, volumes and attributes of a setup on `targets`, as a person would type them. KeyError for
    an unknown family."""
    said, volumes = layers.commands(setup.layers, targets)
    if pooled := POOLED.get(setup.mkfs.family):
        return [*said, *pooled.commands(setup, volumes, at)]
    family, several = FAMILIES[setup.mkfs.family], SEVERAL.get(setup.mkfs.family)
    others = several.mount_words(volumes[1:]) if several else ()
    mount = ("mount", "-t", setup.mkfs.family, "-o", ",".join((*family.mount_options(setup), *others)), volumes[0], at)
    inside = several.volume_commands(setup, Path(at)) if several else []
    if setup.attributes:
        inside += [["mkdir", f"{at}/data"], ["chattr", *setup.attributes, f"{at}/data"]]
    return [*said, *map(tuple, _making(setup, volumes)), mount, *map(tuple, inside), *layers.holding(setup.layers)]


def _making(setup: FsSetup, targets: tuple[str, ...]) -> list[list[str]]:
    """mkfs, and the family's tuner where the setup has words for it."""
    mkfs = FAMILIES[setup.mkfs.family].mkfs_argv(setup, targets)
    return [mkfs, *([[TUNERS[setup.mkfs.family], *setup.mkfs.tune, targets[0]]] if setup.mkfs.tune else [])]


def works(setup: FsSetup, root: Path = Path("/")) -> str | None:
    """Why this setup cannot work here, with what to install; None where it can.

    Programs, layers, kernel; then what only some kernels take of a family (checksums, blocks above the page size);
    at last mkfs itself with the setup's own options, on sparse files: its version, and nobody's list, says what it
    knows. Mount options are the one thing that only a mount tells.
    """
    name = setup.mkfs.family
    if name not in FAMILIES:
        return f"the family {name!r} is not known (known: {', '.join(FAMILIES)})"
    pooled = POOLED.get(name)
    if pooled and (reason := pooled.works(setup)):
        return reason
    if setup.mkfs.tune and name not in TUNERS:
        return f"nothing tunes {name} after mkfs (only {', '.join(TUNERS)})"
    if missing := missing_programs(setup):
        wanted = install(setup)
        return f"{', '.join(missing)} not installed" + (f": apt install {' '.join(wanted)}" if wanted else "")
    if unknown := [layer.kind for layer in setup.layers if layer.kind not in layers.KINDS]:
        return f"layers of kind {', '.join(unknown)} are not known"
    below = [module for layer in setup.layers for module in layers.KINDS[layer.kind].needs(layer)]
    own = () if pooled else (name,)
    for module in dict.fromkeys((*below, *own, *setup.needs.kernel)):
        if reason := layers.lacks(module, root):
            return reason
    if name not in EXACTING:
        return None
    to_try = bool(setup.mkfs.options or setup.mkfs.tune) and not setup.layers
    return EXACTING[name].lacks(setup) or (_refused(setup) if to_try else None)


def _refused(setup: FsSetup) -> str | None:
    """What mkfs says against the setup's options; None where it takes them."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None  # mkfs syncs: a disk would take its time
    with tempfile.TemporaryDirectory(prefix="dbbench-mkfs-", dir=memory) as folder:
        targets = tuple(f"{folder}/{number}" for number in range(setup.devices.min))
        for target in targets:
            Path(target).touch()
            os.truncate(target, _TRIED_BYTES)
        try:
            for argv in _making(setup, targets):
                process.run(argv, timeout_s=_DEADLINE_S, note=False)
        except (CommandFailed, DeadlinePassed) as failure:
            return str(failure).replace(f"{folder}/", "")
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
    pooled, missing = POOLED.get(setup.mkfs.family), missing_programs(setup)
    if pooled and (missing or pooled.works(setup)):
        return pooled.install(setup)
    if not missing:
        return ()
    known = tuple(dict.fromkeys(filter(None, map(packages.package_of, missing))))
    return known or setup.needs.packages.get("debian", ())
