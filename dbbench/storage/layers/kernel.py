"""Check what this kernel supports: filesystems, RAID levels, device-mapper targets: built in, loaded or loadable.

/proc/filesystems lists only filesystems; a built-in module may be visible only in its own subsystem.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dbbench import process

_ROOT: Final = Path("/")
# What a kernel is configured with to have it: Kconfig of drivers/md and fs.
_CONFIG: Final = {
    "raid0": "MD_RAID0", "raid1": "MD_RAID1", "raid10": "MD_RAID10", "dm-mod": "BLK_DEV_DM",
    "dm-snapshot": "DM_SNAPSHOT", "dm-thin-pool": "DM_THIN_PROVISIONING", "dm-crypt": "DM_CRYPT",
    "f2fs": "F2FS_FS", "nilfs2": "NILFS2_FS", "xfs": "XFS_FS", "btrfs": "BTRFS_FS", "ext4": "EXT4_FS",
}  # fmt: skip
# A module of its own; the package that builds it.
_NOT_IN_KERNEL: Final = {"zfs": "zfs-dkms", "bcachefs": "bcachefs-kernel-dkms"}


def lacks(module: str, root: Path = _ROOT) -> str | None:
    """Return why this kernel does not have `module` ("raid0", "dm-thin-pool", "f2fs"), with what provides it, or None.

    Starts at most `modprobe -n` and `dmsetup targets`.
    """
    if _there(module, root) or _built_in(module, root) or loadable(module):
        return None
    if module in _NOT_IN_KERNEL:
        return f"this kernel has no {module}: apt install {_NOT_IN_KERNEL[module]}"
    option = f"it was built without CONFIG_{_CONFIG[module]}, or its" if module in _CONFIG else "its"
    return f"this kernel has no {module}: {option} package of modules is not installed"


def load(*modules: str) -> None:
    """Load the modules that are not loaded yet: the kernel does so itself only if its modprobe is configured."""
    for module in modules:
        if not _there(module, _ROOT) and loadable(module):
            process.run(["modprobe", "-q", module], ok=(0, 1), note=False)


def loadable(module: str) -> bool:
    """Whether modprobe finds it for this kernel."""
    if process.find("modprobe") is None:
        return False
    return process.run(["modprobe", "-n", "-q", module], ok=(0, 1, 255), note=False).returncode == 0


def _there(module: str, root: Path) -> bool:
    """Whether the running kernel has it as a module, a filesystem, a RAID level or a target."""
    proc = root / "proc"
    if (root / "sys/module" / module.replace("-", "_")).exists() or module in _words(proc / "filesystems"):
        return True
    if module.startswith("raid"):
        return f"[{module}]" in _words(proc / "mdstat")
    if module == "dm-mod":
        return "device-mapper" in _words(proc / "misc")
    return module.startswith("dm-") and module.removeprefix("dm-") in _targets(proc)


def _built_in(module: str, root: Path) -> bool:
    """Whether it is in the list of built-in modules. File names may contain "-" or "_"."""
    name, folder = module.replace("-", "_"), root / "lib/modules" / os.uname().release
    return any(Path(line).name.removesuffix(".ko").replace("-", "_") == name
               for line in _words(folder / "modules.builtin"))  # fmt: skip


def _targets(proc: Path) -> set[str]:
    """Return the available targets of device-mapper; empty without root."""
    if "device-mapper" not in _words(proc / "misc") or process.find("dmsetup") is None or os.geteuid() != 0:
        return set()
    printed = process.run(["dmsetup", "targets"], ok=(0, 1), note=False).stdout
    return {line.split()[0] for line in printed.splitlines() if line.split()}


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
