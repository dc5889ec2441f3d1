"""The small root: what is kept of a build of the second kernel. The kernel, its modules, and
programs that run on any root, started with its own ld.so and libraries (`small_command`);
nothing is installed on the machine. OWN_PROGRAMS belong to this kernel and take precedence
inside; SPARE_PROGRAMS are used if the machine has none.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from dbbench import process

KERNEL_FILE: Final = "usr/bin/linux.uml"
ROOM: Final = "room"  # an empty folder, on which the second kernel mounts its own disk
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_LOADER: Final = "lib64/ld-linux-x86-64.so.2"
# pthread_exit loads this at run time, so ldd does not list it
_DLOPENED: Final = ("libgcc_s.so.1",)
_KMOD: Final = "usr/bin/kmod"
_LVM: Final = (
    "lvm",
    "pvcreate",
    "pvremove",
    "pvs",
    "pvscan",
    "vgcreate",
    "vgremove",
    "vgchange",
    "vgs",
    "vgextend",
    "lvcreate",
    "lvremove",
    "lvchange",
    "lvs",
    "lvextend",
    "lvconvert",
    "lvdisplay",
)
# name -> path of its file
ZFS_PROGRAMS: Final = ("zfs", "zpool", "zdb")
OWN_PROGRAMS: Final[dict[str, str]] = {
    **{name: f"usr/sbin/{name}" for name in ZFS_PROGRAMS},
    **dict.fromkeys(("modprobe", "insmod", "rmmod", "lsmod"), _KMOD),
}
SPARE_PROGRAMS: Final[dict[str, str]] = {
    **dict.fromkeys(_LVM, "usr/sbin/lvm"),
    **dict.fromkeys(("thin_check", "thin_dump", "thin_repair"), "usr/sbin/pdata_tools"),
    **{
        name: f"usr/sbin/{name}"
        for name in (
            "mdadm",
            "dmsetup",
            "cryptsetup",
            "mkfs.f2fs",
            "fsck.f2fs",
            "dump.f2fs",
        )
    },
}


def make_small_root(root: Path, small: Path) -> None:
    """Make the small root in `small` from a whole `root`."""
    for folder in (
        "usr/bin",
        "usr/sbin",
        _LIBRARIES,
        "lib64",
        "host",
        "proc",
        "dev/shm",
        "tmp",
        "root",
        ROOM,
    ):
        (small / folder).mkdir(parents=True, exist_ok=True)
    for name in ("dev/null", "dev/urandom"):
        (small / name).touch()  # the machine's files are mounted over these
    (small / "lib").symlink_to("usr/lib")
    shutil.copy(root / _LOADER, small / _LOADER)
    for program in dict.fromkeys((KERNEL_FILE, _KMOD, *SPARE_PROGRAMS.values())):
        if program not in SPARE_PROGRAMS.values() or (root / program).exists():
            copy_program(root, small, program)
    for name in _DLOPENED:
        shutil.copy(root / _LIBRARIES / name, small / _LIBRARIES / name)


def copy_program(root: Path, small: Path, program: str) -> None:
    """Copy a program with its libraries. Raises OSError if the root does not have it."""
    shutil.copy(root / program, small / program)
    # status 1: a static program
    listed = process.run(["chroot", root, "ldd", f"/{program}"], ok=(0, 1)).stdout
    for line in listed.splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "=>" and words[2].startswith("/"):
            library = root / words[2].lstrip("/")
            shutil.copy(library, small / _LIBRARIES / library.name)


def small_command(small: Path, name: str) -> list[str]:
    """Return the argv that starts a program of the small root from any other root."""
    file = {**SPARE_PROGRAMS, **OWN_PROGRAMS}[name]
    # modules of the second kernel, not of the machine
    first = ["-d", str(small)] if name == "modprobe" else []
    return [
        str(small / _LOADER),
        "--library-path",
        str(small / _LIBRARIES),
        "--argv0",
        name,
        str(small / file),
        *first,
    ]
