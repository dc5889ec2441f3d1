"""device-mapper: who has a name of ours, what lies below, and how all of it is removed.

LVM's and dm-crypt's volumes are taken apart here, below their own tools: it works the same however far they got.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices import sysfs
from dbbench.layers.volume import kept_open, persistently, wiped

_BLOCK: Final = Path("/sys/block")
ENV: Final = {"DM_DISABLE_UDEV": "1"}  # nodes are made at once by the tools themselves; nobody is waited for


def ours(prefix: str, block: Path = _BLOCK) -> dict[str, str]:
    """Name -> kernel name (dm-3) of the devices that are called `prefix` or `prefix-...`."""
    found = {}
    for entry in sorted(block.glob("dm-*")):
        name = sysfs.read(entry / "dm/name") or ""
        if name == prefix or name.startswith(f"{prefix}-"):
            found[name] = entry.name
    return found


def below(prefix: str) -> list[str]:
    """Kernel names of the devices that those called `prefix...` lie on."""
    own = set(ours(prefix).values())
    lower = [name for upper in own for name in sysfs.slaves(upper)]
    return sorted(set(lower) - own)


def status(name: str) -> str:
    """What the target of a device says of itself, without its place: "snapshot 16/139264 16"."""
    said = process.run(["dmsetup", "status", name], env=ENV, note=False).stdout.split()
    return " ".join(said[2:])


def end(prefix: str) -> None:
    """Remove the devices called `prefix...`, upper ones first, and erase what they lay on. LayerStuck.

    A tool that was killed may have left one suspended: whoever still waits for it would wait for ever.
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
    """Remove a folder of links in /dev whose devices are gone; dmsetup does not know it."""
    if folder.is_dir():
        for link in folder.iterdir():
            if link.is_symlink():
                link.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
