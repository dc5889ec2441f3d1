"""Which package contains which program, and the installer that `make` calls: `python3
dbbench/packages.py run test`. It runs before anything is installed, so it needs nothing but
Python and imports nothing of dbbench.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

# searched after the PATH of the caller
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# program -> directories outside every PATH. They depend on the release: sysstat moved its recorder
# several times.
OUTSIDE_PATH: Final = {
    "sadc": (
        "/usr/lib/sysstat",
        "/usr/libexec/sysstat",
        "/usr/lib64/sa",
        "/usr/lib/sa",
        "/usr/local/lib/sa",
    ),
}
FUSE: Final = "libfuse3.so.[34]"  # pattern: 3 up to Debian 12 and Ubuntu 24.04, 4 in later releases
# last releases with the older names of packages
_OLD_NAMES: Final = {"debian": 12.0, "ubuntu": 24.04}


# Debian package -> name of its project, if the names differ.
_PROJECTS: Final = {
    "bonnie++": "Bonnie++",
    "btrfs-compsize": "compsize",
    "chromium": "Chromium",
    "chromium-driver": "ChromeDriver",
    "cryptsetup-bin": "cryptsetup",
    "dmsetup": "LVM2",
    "dropbear-bin": "Dropbear",
    "libfuse3-3": "libfuse 3",
    "lvm2": "LVM2",
    "mariadb-backup": "MariaDB",
    "mariadb-client": "MariaDB",
    "mariadb-client-core": "MariaDB",
    "mariadb-server-core": "MariaDB",
    "mount": "util-linux",
    "openssh-client": "OpenSSH",
    "openssl": "OpenSSL",
    "percona-toolkit": "Percona Toolkit",
    "postgresql": "PostgreSQL",
    "python3-venv": "Python with the module venv",
}


class Tool(NamedTuple):
    """Programs of one package. `places` is a pattern below / for what is not in PATH; `module` a
    Python module.
    """

    group: str  # "run": benchmarks need it; "test": only tests need it
    programs: tuple[str, ...]
    debian: str  # package in Debian 12, Ubuntu 24.04 and later; "new | old" if it was renamed
    fedora: str
    places: str = ""
    module: str = ""
    # engine of the tool: --without omits it; MariaDB is also omitted if packages exclude it
    engine: str = ""
    optional: bool = False  # if no package has it, only the tests that need it are skipped

    def missing(self) -> list[str]:
        """Return what of it is not installed."""
        if self.module:
            if importlib.util.find_spec(self.module):
                return []
            return [self.module]
        return [name for name in self.programs if not find(name) and not self._in_places(name)]

    def _in_places(self, name: str) -> bool:
        return bool(self.places) and any(Path("/").glob(f"{self.places}/{name}"))


TOOLS: Final = (
    Tool(
        "run",
        ("postgres", "initdb", "pg_ctl", "psql", "pgbench", "pg_amcheck", "pg_checksums"),
        "postgresql",
        "postgresql-server postgresql-contrib",
        places="usr/lib/postgresql/*/bin",
        engine="postgres",
    ),
    Tool(
        "run",
        ("mariadbd", "mariadb-install-db"),
        "mariadb-server-core",
        "mariadb-server",
        engine="mariadb",
    ),
    # Optional because in Debian unstable MySQL conflicts with MariaDB's library, which sysbench
    # needs.
    Tool("run", ("sysbench",), "sysbench", "sysbench", optional=True),
    # These two replay binary logs.
    Tool("run", ("mariadb-binlog",), "mariadb-client", "mariadb", engine="mariadb", optional=True),
    Tool("run", ("mariadb",), "mariadb-client-core", "mariadb", engine="mariadb", optional=True),
    Tool("run", ("sar", "sadf", "iostat", "sadc"), "sysstat", "sysstat"),
    Tool(
        "run",
        (
            "mkfs.ext4",
            "mkfs.ext3",
            "mkfs.ext2",
            "tune2fs",
            "dumpe2fs",
            "chattr",
            "lsattr",
            "filefrag",
            "e2freefrag",
        ),
        "e2fsprogs",
        "e2fsprogs",
    ),
    Tool("run", ("mkfs.xfs", "xfs_db", "xfs_info", "xfs_spaceman"), "xfsprogs", "xfsprogs"),
    Tool("run", ("mkfs.btrfs", "btrfs"), "btrfs-progs", "btrfs-progs"),
    Tool("run", ("compsize",), "btrfs-compsize", "compsize"),
    Tool(
        "run",
        ("wipefs", "lsblk", "findmnt", "blkid", "losetup", "nsenter"),
        "util-linux",
        "util-linux",
    ),
    Tool("run", ("mount", "umount"), "mount", "util-linux"),
    Tool("run", (), "python3-venv", "python3", module="ensurepip"),
    Tool("run", ("fio",), "fio", "fio"),  # the ceiling of the bare device, and a load generator
    Tool("run", ("bonnie++",), "bonnie++", "bonnie++", optional=True),  # a load generator on files
    # Reads slow logs for `dbbench workload from-statements`.
    Tool("run", ("pt-query-digest",), "percona-toolkit", "percona-toolkit", optional=True),
    # The simulated disk of the power-loss lab. Only the library: root needs no fusermount, and the
    # package of fusermount conflicts with that of the older version.
    Tool(
        "run",
        (FUSE,),
        "libfuse3-4 | libfuse3-3",
        "fuse3-libs",
        places="usr/lib*/**",
        optional=True,
    ),
    Tool("test", ("zpool", "zfs", "zdb"), "zfsutils-linux", "zfs", optional=True),
    # For dumps and backups of MariaDB and MySQL as `source` of a workload.
    Tool("test", ("mariadb-dump",), "mariadb-client", "mariadb", engine="mariadb"),
    Tool("test", ("mydumper",), "mydumper", "mydumper", optional=True),
    Tool("test", ("setfattr",), "attr", "attr"),
    Tool("test", ("strace",), "strace", "strace", optional=True),
    # For the operation base-backup.
    Tool(
        "test",
        ("mariadb-backup",),
        "mariadb-backup",
        "mariadb-backup",
        engine="mariadb",
        optional=True,
    ),
    # For tests with other hosts, which are simulated on this machine. dropbear-bin has no service;
    # openssh-server would start one.
    Tool("test", ("dropbear", "dropbearkey"), "dropbear-bin", "dropbear", optional=True),
    Tool("test", ("ssh", "ssh-keygen"), "openssh-client", "openssh-clients", optional=True),
    Tool("test", ("ip",), "iproute2", "iproute", optional=True),
    Tool("test", ("debootstrap",), "debootstrap", "debootstrap"),
    # the stock server of tests/machine
    Tool("test", ("mmdebstrap",), "mmdebstrap", "mmdebstrap", optional=True),
    Tool("test", ("qemu-system-x86_64",), "qemu-system-x86", "qemu-system-x86", optional=True),
    # layers and filesystems of the second kernel
    Tool("test", ("mdadm",), "mdadm", "mdadm", optional=True),
    Tool("test", ("lvcreate", "vgcreate", "lvs"), "lvm2", "lvm2", optional=True),
    Tool("test", ("dmsetup",), "dmsetup", "device-mapper", optional=True),
    Tool("test", ("cryptsetup",), "cryptsetup-bin", "cryptsetup", optional=True),
    Tool("test", ("mkfs.f2fs", "dump.f2fs"), "f2fs-tools", "f2fs-tools", optional=True),
    # Ubuntu has it only as a snap
    Tool("test", ("chromium",), "chromium", "chromium", optional=True),
    Tool("test", ("chromedriver",), "chromium-driver", "chromedriver", optional=True),
)


def package_of(program: str, family: str = "debian") -> str | None:
    """Return the package with a program on `debian` (and Ubuntu) or `fedora`; None if the table has
    none.
    """
    for tool in TOOLS:
        if Path(program).name in tool.programs:
            if family == "fedora":
                return tool.fedora
            return in_release(tool.debian)
    return None


def is_essential(program: str) -> bool:
    """Return whether every benchmark needs it, and not only some plans or tests."""
    essential = [tool for tool in TOOLS if tool.group == "run" and not tool.optional]
    return any(program in tool.programs for tool in essential)


def extra(name: str) -> str:
    """Return the command that installs the Python packages of one of dbbench's extras, from a
    checkout or a wheel.
    """
    condition = re.compile(rf"\s*;\s*extra == ['\"]{re.escape(name)}['\"]$")
    try:
        listed = importlib.metadata.requires("dbbench") or []
    except importlib.metadata.PackageNotFoundError:
        listed = []
    lines = [shlex.quote(condition.sub("", line)) for line in listed if condition.search(line)]
    if not lines:
        return f"install the extra {name}"
    return f"{shlex.quote(sys.executable)} -m pip install {' '.join(lines)}"


def in_release(names: str) -> str:
    """Return the first of "new | old" that this machine's package lists have; where they have none,
    the one of its release.
    """
    choices = names.split(" | ")
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    usual = choices[-1 if has_old_names(release) else 0]
    return next((name for name in choices if has_candidate(name)), usual)


def has_old_names(release: Mapping[str, str]) -> bool:
    """Return whether a release (os-release(5)) has the last name of "new | old"."""
    last = _OLD_NAMES.get(release.get("ID", ""), 0.0)
    version = release.get("VERSION_ID", "")
    return re.fullmatch(r"\d+(\.\d+)?", version) is not None and float(version) <= last


def fix(package: str) -> str:
    """Return what installs a Debian package; where the machine's package lists do not have it,
    that.
    """
    if exists(package):
        return install([package])
    return (
        f"{package} is not in this machine's package lists; if that is still so after apt-get "
        "update, this release does not have it"
    )


def install(names: Sequence[str], *options: str) -> str:
    """Return the command that installs packages of these Debian names, or the projects' names
    without apt-get and dnf. For PostgreSQL it is that of the installer of everything that
    benchmarks need: apt-get would start a cluster.
    """
    if manager() == "apt-get":
        commands = []
        if "postgresql" in names:
            commands = [f"python3 {shlex.quote(str(Path(__file__).resolve()))} run"]
            benchmarks = [in_release(tool.debian) for tool in TOOLS if tool.group == "run"]
            names = [name for name in names if name not in benchmarks]
        if names:
            commands.append(" ".join(["apt-get install", *options, *names]))
        return " && ".join(commands)
    if manager() == "dnf":
        fedora = {name: tool.fedora for tool in TOOLS for name in tool.debian.split(" | ")}
        return f"dnf install {' '.join(dict.fromkeys(fedora.get(name, name) for name in names))}"
    projects = ", ".join(dict.fromkeys(_PROJECTS.get(name, name) for name in names))
    return (
        f"install {projects} (names of the projects, because this machine has neither apt-get "
        "nor dnf)"
    )


def manager() -> str | None:
    """Return "apt-get" or "dnf", whichever this machine has."""
    return next(filter(shutil.which, ("apt-get", "dnf")), None)


def exists(package: str) -> bool:
    """Return whether apt could install it; True if there is no apt."""
    return shutil.which("apt-cache") is None or has_candidate(package)


def find(program: str, outside: Mapping[str, Sequence[str]] = OUTSIDE_PATH) -> str | None:
    """Return the path of `program`: from PATH, the system's directories, or where a release keeps
    it outside them.
    """
    places = ":".join((os.environ.get("PATH", ""), PATH, *outside.get(program, ())))
    return shutil.which(program, path=places)


def remedy(programs: Sequence[str]) -> str:
    """Return how to install `programs`, or where one of an installed package was looked for; "" if
    unknown.
    """
    lines = []
    for name in programs:
        package = package_of(name)
        neighbour = _neighbour(name)
        if package and neighbour:
            looked = ", ".join(("PATH", *OUTSIDE_PATH.get(Path(name).name, ())))
            lines.append(
                f"{Path(name).name} belongs to {package}, which is installed ({neighbour}), but is "
                f"not in {looked}. Find it with  dpkg -L {package}  and add its directory to PATH."
            )
    available, absent = _missing(programs)
    lines += map(fix, absent)
    command = install(available, "--no-install-recommends") if available else ""
    return "\n".join(filter(None, (command, *lines)))


def installable(programs: Sequence[str]) -> list[str]:
    """Return the packages that contain missing programs, of those that apt can install."""
    return _missing(programs)[0]


def _missing(programs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the packages of which no program is installed: those that apt can install, and the
    others.
    """
    names = dict[str, None]()
    for program in programs:
        package = package_of(program)
        if package and not _neighbour(program):
            names[package] = None
    available = [name for name in names if exists(name)]
    return available, [name for name in names if name not in available]


def _neighbour(program: str) -> str | None:
    """Return the path of another program of the same package; None if the package is not installed."""
    for tool in TOOLS:
        if Path(program).name in tool.programs:
            return next(filter(None, map(find, tool.programs)), None)
    return None


def missing(groups: Sequence[str], without: Sequence[str] = ()) -> list[Tool]:
    """Return the tools of `groups` of which a program is not installed, without the engines in
    `without`.
    """
    selected = [tool for tool in TOOLS if tool.group in groups and tool.engine not in without]
    return [tool for tool in selected if tool.missing()]


def has_candidate(package: str) -> bool:
    """Return whether apt knows a version of the package that it can install; False without apt."""
    return names_candidate(policy(package))


def names_candidate(answer: str) -> bool:
    """Return whether this answer of `apt-cache policy` names a version to install."""
    return re.search(r"^\s*Candidate: (?!\(none\))", answer, re.MULTILINE) is not None


def policy(package: str) -> str:
    """Return what `apt-cache policy` prints of a package of TOOLS; "" without apt."""
    return policies().get(package, "")


@functools.lru_cache
def policies() -> Mapping[str, str]:
    """Return the answers for all packages of TOOLS: apt reads its lists for half a second."""
    if shutil.which("apt-cache") is None:
        return {}
    names = [name for tool in TOOLS for name in tool.debian.split(" | ")]
    printed = subprocess.run(
        ["apt-cache", "policy", *names],
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return sections(printed)


def sections(printed: str) -> dict[str, str]:
    """Return the answer of `apt-cache policy` for each package: a line with its name, then others."""
    parts = re.split(r"^(?=\S)", printed, flags=re.MULTILINE)
    return {part.partition(":")[0]: part for part in parts if part}


if __name__ == "__main__":
    installer = Path(__file__).with_name("data") / "installer/tools.py"
    runpy.run_path(str(installer), run_name="__main__")
