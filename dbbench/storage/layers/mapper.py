"""device-mapper: find devices by name, find what is below them, and remove them.

Volumes of LVM and dm-crypt are removed here without their own tools, which works in whatever state they are.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.storage.devices import sysfs
from dbbench.storage.layers.volume import kept_open, persistently, wiped

_BLOCK: Final = Path("/sys/block")
ENV: Final = {"DM_DISABLE_UDEV": "1"}  # nodes are made at once by the tools themselves; nobody is waited for


def ours(prefix: str, block: Path = _BLOCK) -> dict[str, str]:
    """Return name -> kernel name (dm-3) of the devices called `prefix` or `prefix-...`."""
    names = {}
    for entry in sorted(block.glob("dm-*")):
        name = sysfs.read(entry / "dm/name") or ""
        if name == prefix or name.startswith(f"{prefix}-"):
            names[name] = entry.name
    return names


def below(prefix: str) -> list[str]:
    """Return kernel names of the devices below those called `prefix...`."""
    own_names = set(ours(prefix).values())
    lower = [name for upper in own_names for name in sysfs.slaves(upper)]
    return sorted(set(lower) - own_names)


def status(name: str) -> str:
    """Return the status of a device's target without its position: "snapshot 16/139264 16"."""
    words = process.run(["dmsetup", "status", name], env=ENV, note=False).stdout.split()
    return " ".join(words[2:])


def end(prefix: str) -> None:
    """Remove the devices called `prefix...`, upper ones first, and erase what they were on. Raises LayerStuck.

    A killed tool may have left one suspended: a process that waits for it would wait forever.
    """
    with kept_open(below(prefix)) as lower:
        for name, kernel_name in ours(prefix).items():
            if sysfs.read(_BLOCK / kernel_name / "dm/suspended") == "1":
                with contextlib.suppress(Exception):
                    process.run(["dmsetup", "resume", name], env=ENV, note=False)
        while left := ours(prefix):
            free = [name for name, kernel_name in left.items() if not sysfs.holders(kernel_name)]
            for name in free or left:
                persistently(partial(_remove, name), f"the volume {name}")
        for fd in lower:
            wiped(fd)


def _remove(name: str) -> None:
    if name in ours(name):
        process.run(["dmsetup", "remove", name], env=ENV, timeout_s=60)


def forget(folder: Path) -> None:
    """Remove a directory of links in /dev whose devices are gone; dmsetup does not know it."""
    if folder.is_dir():
        for link in folder.iterdir():
            if link.is_symlink():
                link.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
