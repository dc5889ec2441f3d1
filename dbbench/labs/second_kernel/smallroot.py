"""The small root: the part of the build that is kept: the kernel, its modules, and programs that run anywhere.

Its programs are started with the small root's own ld.so and libraries (`command`), so that they work on another root
and nothing is installed on the machine. Those in OWN belong to this kernel and take precedence inside; those in SPARE
are used if the machine has none.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from dbbench import process

KERNEL: Final = "usr/bin/linux.uml"
ROOM: Final = "room"  # an empty folder: where the booted kernel mounts its own disk
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_LOADER: Final = "lib64/ld-linux-x86-64.so.2"
_DLOPENED: Final = ("libgcc_s.so.1",)  # no program is linked to it: pthread_exit loads it
_KMOD: Final = "usr/bin/kmod"
_LVM: Final = ("lvm", "pvcreate", "pvremove", "pvs", "pvscan", "vgcreate", "vgremove", "vgchange", "vgs", "vgextend",
               "lvcreate", "lvremove", "lvchange", "lvs", "lvextend", "lvconvert", "lvdisplay")  # fmt: skip

# name -> the file it is
OWN: Final[dict[str, str]] = {
    **{name: f"usr/sbin/{name}" for name in ("zfs", "zpool", "zdb")},
    **dict.fromkeys(("modprobe", "insmod", "rmmod", "lsmod"), _KMOD),
}
SPARE: Final[dict[str, str]] = {
    **dict.fromkeys(_LVM, "usr/sbin/lvm"),
    **dict.fromkeys(("thin_check", "thin_dump", "thin_repair"), "usr/sbin/pdata_tools"),
    **{name: f"usr/sbin/{name}" for name in ("mdadm", "dmsetup", "cryptsetup", "mkfs.f2fs", "fsck.f2fs", "dump.f2fs",
                                             "mkfs.nilfs2", "mount.nilfs2", "umount.nilfs2", "nilfs_cleanerd",
                                             "nilfs-tune")},
    **{name: f"usr/bin/{name}" for name in ("lscp", "mkcp", "chcp", "rmcp")},
}  # fmt: skip


def command(small: Path, name: str) -> list[str]:
    """Return the argv that starts a program of the small root from any other root."""
    file = {**SPARE, **OWN}[name]
    first = ["-d", str(small)] if name == "modprobe" else []  # its modules are not those of the machine
    return [str(small / _LOADER), "--library-path", str(small / _LIBRARIES), "--argv0", name, str(small / file), *first]


def kept_of(root: Path, small: Path) -> None:
    """Make the small root in `small` from a whole `root`."""
    for folder in ("usr/bin", "usr/sbin", _LIBRARIES, "lib64", "host", "proc", "dev/shm", "tmp", "root", ROOM):
        (small / folder).mkdir(parents=True, exist_ok=True)
    for name in ("dev/null", "dev/urandom"):
        (small / name).touch()  # the machine's own are bound over them
    (small / "lib").symlink_to("usr/lib")
    shutil.copy(root / _LOADER, small / _LOADER)
    for program in dict.fromkeys((KERNEL, *OWN.values(), *SPARE.values())):
        _copied(root, small, program)
    for name in _DLOPENED:
        shutil.copy(root / _LIBRARIES / name, small / _LIBRARIES / name)


def _copied(root: Path, small: Path, program: str) -> None:
    """Copy a program with its libraries. Raises OSError if the root does not have it."""
    shutil.copy(root / program, small / program)
    listed = process.run(["chroot", root, "ldd", f"/{program}"], ok=(0, 1)).stdout  # 1: a static one
    for line in listed.splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "=>" and words[2].startswith("/"):
            library = root / words[2].lstrip("/")
            shutil.copy(library, small / _LIBRARIES / library.name)
