"""Which package contains which program, and the installer that `make` calls: `python3 dbbench/packages.py run test`.

It runs before anything is installed, so it needs nothing but Python, imports nothing of dbbench, and is, with
`process.py`, the only file that starts programs. It must not harm a machine that already serves databases: installed
packages are neither upgraded nor removed, no cluster is created, no service is started, and everything that will be
installed is listed first.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # searched after the PATH of the caller
# program -> directories outside every PATH. They depend on the release: sysstat moved its recorder several times.
OUTSIDE_PATH: Final = {
    "sadc": ("/usr/lib/sysstat", "/usr/libexec/sysstat", "/usr/lib64/sa", "/usr/lib/sa", "/usr/local/lib/sa"),
}
FUSE: Final = "libfuse3.so.[34]"  # pattern: 3 up to Debian 12 and Ubuntu 24.04, 4 in later releases
EXIT_ENVIRONMENT: Final = 2  # equal to errors.EXIT_USAGE: nothing was changed


class Tool(NamedTuple):
    """Programs of one package. `places` is a pattern below / for what is not in PATH; `module` a Python module."""

    group: str  # "run": benchmarks need it; "test": only tests need it
    programs: tuple[str, ...]
    debian: str  # package in Debian 12, Ubuntu 24.04 and later; "new | old" if it was renamed
    fedora: str
    places: str = ""
    module: str = ""
    engine: str = ""  # engine of the tool: --without omits it; MariaDB is also omitted if packages exclude it
    optional: bool = False  # if no package has it, only the tests that need it are skipped

    def missing(self) -> list[str]:
        """Return the programs that are not installed."""
        if self.module:
            return [] if importlib.util.find_spec(self.module) else [self.module]
        return [name for name in self.programs if not self._find(name)]

    def _find(self, name: str) -> bool:
        return find(name) is not None or (bool(self.places) and any(Path("/").glob(f"{self.places}/{name}")))


TOOLS: Final = (
    Tool("run", ("postgres", "initdb", "pg_ctl", "pgbench", "pg_amcheck", "pg_checksums"), "postgresql",
         "postgresql-server postgresql-contrib", places="usr/lib/postgresql/*/bin", engine="postgres"),
    Tool("run", ("mariadbd", "mariadb-install-db"), "mariadb-server-core", "mariadb-server", engine="mariadb"),
    # Optional because in Debian unstable MySQL conflicts with MariaDB's library, which sysbench needs.
    Tool("run", ("sysbench",), "sysbench", "sysbench", optional=True),
    # These two replay binary logs.
    Tool("run", ("mariadb-binlog",), "mariadb-client", "mariadb", engine="mariadb", optional=True),
    Tool("run", ("mariadb",), "mariadb-client-core", "mariadb", engine="mariadb", optional=True),
    Tool("run", ("sar", "sadf", "iostat", "sadc"), "sysstat", "sysstat"),
    Tool("run", ("mkfs.ext4", "mkfs.ext3", "mkfs.ext2", "tune2fs", "dumpe2fs", "chattr", "lsattr", "filefrag",
                 "e2freefrag"),
         "e2fsprogs", "e2fsprogs"),
    Tool("run", ("mkfs.xfs", "xfs_db", "xfs_info", "xfs_spaceman"), "xfsprogs", "xfsprogs"),
    Tool("run", ("mkfs.btrfs", "btrfs"), "btrfs-progs", "btrfs-progs"),
    Tool("run", ("compsize",), "btrfs-compsize", "compsize"),
    Tool("run", ("wipefs", "lsblk", "findmnt", "blkid", "losetup", "nsenter"), "util-linux", "util-linux"),
    Tool("run", ("mount", "umount"), "mount", "util-linux"),
    Tool("run", (), "python3-venv", "python3", module="ensurepip"),
    Tool("run", ("fio",), "fio", "fio"),  # the ceiling of the bare device, and a load generator
    Tool("run", ("bonnie++",), "bonnie++", "bonnie++", optional=True),  # a load generator on files
    # Reads slow logs for `dbbench workload from-statements`.
    Tool("run", ("pt-query-digest",), "percona-toolkit", "percona-toolkit", optional=True),
    # The simulated disk of the power-loss lab. Only the library: root needs no fusermount, and the package of
    # fusermount conflicts with that of the older version.
    Tool("run", (FUSE,), "libfuse3-4 | libfuse3-3", "fuse3-libs", places="usr/lib*/**", optional=True),
    Tool("test", ("zpool", "zfs", "zdb"), "zfsutils-linux", "zfs", optional=True),
    # For dumps and backups of MariaDB and MySQL as `source` of a workload.
    Tool("test", ("mariadb-dump",), "mariadb-client", "mariadb", engine="mariadb"),
    Tool("test", ("mydumper",), "mydumper", "mydumper", optional=True),
    Tool("test", ("setfattr",), "attr", "attr"),
    # For the operation base-backup.
    Tool("test", ("mariadb-backup",), "mariadb-backup", "mariadb-backup", engine="mariadb", optional=True),
    # For tests with other hosts, which are simulated on this machine. dropbear-bin has no service; openssh-server would
    # start one.
    Tool("test", ("dropbear", "dropbearkey"), "dropbear-bin", "dropbear", optional=True),
    Tool("test", ("ssh", "ssh-keygen"), "openssh-client", "openssh-clients", optional=True),
    Tool("test", ("ip",), "iproute2", "iproute", optional=True),
    Tool("test", ("debootstrap",), "debootstrap", "debootstrap"),
    Tool("test", ("mdadm",), "mdadm", "mdadm", optional=True),  # layers and filesystems of the second kernel
    Tool("test", ("lvcreate", "vgcreate", "lvs"), "lvm2", "lvm2", optional=True),
    Tool("test", ("dmsetup",), "dmsetup", "device-mapper", optional=True),
    Tool("test", ("cryptsetup",), "cryptsetup-bin", "cryptsetup", optional=True),
    Tool("test", ("mkfs.f2fs", "dump.f2fs"), "f2fs-tools", "f2fs-tools", optional=True),
    Tool("test", ("mkfs.nilfs2", "nilfs-tune", "mount.nilfs2"), "nilfs-tools", "nilfs-utils", optional=True),
    Tool("test", ("chromium",), "chromium", "chromium", optional=True),  # Ubuntu has it only as a snap
    Tool("test", ("chromedriver",), "chromium-driver", "chromedriver", optional=True),
)  # fmt: skip


_EXCLUDED: Final = "mariadb"  # the engine whose packages conflict with servers of other vendors
# Program outside PATH -> a program of the same package.
_BESIDE: Final = {
    "psql": "postgres",
}
# Debian package -> name of its project, if the names differ.
_PROJECTS: Final = {
    "bonnie++": "Bonnie++", "btrfs-compsize": "compsize", "chromium": "Chromium", "chromium-driver": "ChromeDriver",
    "cryptsetup-bin": "cryptsetup", "dmsetup": "LVM2", "dropbear-bin": "Dropbear", "libfuse3-3": "libfuse 3",
    "lvm2": "LVM2", "mariadb-backup": "MariaDB", "mariadb-client": "MariaDB", "mariadb-client-core": "MariaDB",
    "mariadb-server-core": "MariaDB", "mount": "util-linux", "openssh-client": "OpenSSH", "openssl": "OpenSSL",
    "percona-toolkit": "Percona Toolkit",
    "postgresql": "PostgreSQL", "python3-venv": "Python with the module venv",
}  # fmt: skip


def package_of(program: str, family: str = "debian") -> str | None:
    """Return the package with a program on `debian` (and Ubuntu) or `fedora`; None if the table has none."""
    name = _BESIDE.get(Path(program).name, Path(program).name)
    for tool in TOOLS:
        if name in tool.programs:
            return tool.fedora if family == "fedora" else in_release(tool.debian)
    return None


def required(program: str) -> bool:
    """Return whether every benchmark needs it, and not only some plans or tests."""
    return any(program in tool.programs and tool.group == "run" and not tool.optional for tool in TOOLS)


def extra(name: str) -> str:
    """Return the command that installs the Python packages of one of dbbench's extras, from a checkout or a wheel."""
    condition = re.compile(rf"\s*;\s*extra == ['\"]{re.escape(name)}['\"]$")
    try:
        listed = importlib.metadata.requires("dbbench") or []
    except importlib.metadata.PackageNotFoundError:
        listed = []
    lines = [shlex.quote(condition.sub("", line)) for line in listed if condition.search(line)]
    return f"{shlex.quote(sys.executable)} -m pip install {' '.join(lines)}" if lines else f"install the extra {name}"


def in_release(names: str) -> str:
    """Return the first of "new | old" that this machine's package lists have; the last one where they have none."""
    *newer, last = names.split(" | ")
    return next((name for name in newer if has_candidate(_policy(name))), last)


def fix(package: str) -> str:
    """Return what installs a Debian package; where the machine's package lists do not have it, that."""
    if not exists(package):
        return (
            f"{package} is not in this machine's package lists; "
            "if that is still so after apt-get update, this release does not have it"
        )
    return install([package])


def install(names: Sequence[str], *options: str) -> str:
    """Return what installs packages, given by their Debian names: the command of apt-get, with `options`, or of dnf.

    Without these two, it names the projects. With PostgreSQL, for which apt-get would create a cluster and start it,
    the command is that of this installer, which installs everything that benchmarks need.
    """
    if manager() == "apt-get":
        commands = []
        if "postgresql" in names:
            commands = [f"python3 {shlex.quote(str(Path(__file__).resolve()))} run"]
            benchmarks = _packages([tool for tool in TOOLS if tool.group == "run"])
            names = [name for name in names if name not in benchmarks]
        if names:
            commands.append(" ".join(["apt-get install", *options, *names]))
        return " && ".join(commands)
    if manager() == "dnf":
        fedora = {name: tool.fedora for tool in TOOLS for name in tool.debian.split(" | ")}
        return f"dnf install {' '.join(dict.fromkeys(fedora.get(name, name) for name in names))}"
    projects = ", ".join(dict.fromkeys(_PROJECTS.get(name, name) for name in names))
    return f"install {projects} (names of the projects, because this machine has neither apt-get nor dnf)"


def manager() -> str | None:
    """Return "apt-get" or "dnf", whichever this machine has."""
    return next(filter(shutil.which, ("apt-get", "dnf")), None)


def exists(package: str) -> bool:
    """Return whether apt could install it; True if there is no apt."""
    return shutil.which("apt-cache") is None or has_candidate(_policy(package))


def find(program: str) -> str | None:
    """Return the path of `program`: from PATH, the system's directories, or where a release keeps it outside them."""
    places = ":".join((os.environ.get("PATH", ""), PATH, *OUTSIDE_PATH.get(program, ())))
    return shutil.which(program, path=places)


def remedy(programs: Sequence[str]) -> str:
    """Return what helps where `programs` are missing: the command that installs their packages, or for a program whose
    package is installed already, where it was looked for; "" where no package is known."""
    lines = []
    for name in programs:
        package, neighbour = package_of(name), _neighbour(name)
        if package and neighbour:
            looked = ", ".join(("PATH", *OUTSIDE_PATH.get(Path(name).name, ())))
            lines.append(
                f"{Path(name).name} belongs to {package}, which is installed ({neighbour}), but is not in {looked}. "
                f"Find it with  dpkg -L {package}  and add its directory to PATH."
            )
    there, absent = _wanted(programs)
    lines += map(fix, absent)
    command = install(there, "--no-install-recommends") if there else ""
    return "\n".join(filter(None, (command, *lines)))


def installable(programs: Sequence[str]) -> list[str]:
    """Return the packages that contain missing programs, of those that apt can install."""
    return _wanted(programs)[0]


def _wanted(programs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the packages of which no program is installed: those that apt can install, and the others."""
    names = dict.fromkeys(package for name in programs if (package := package_of(name)) and not _neighbour(name))
    there = [name for name in names if exists(name)]
    return there, [name for name in names if name not in there]


def _neighbour(program: str) -> str | None:
    """Return the path of another program of the same package; None if the package is not installed."""
    others = next((tool.programs for tool in TOOLS if Path(program).name in tool.programs), ())
    return next((path for name in others if (path := find(name))), None)


def missing(groups: Sequence[str], without: Sequence[str] = ()) -> list[Tool]:
    """Return the tools of `groups` of which a program is not installed, without the engines in `without`."""
    return [tool for tool in TOOLS if tool.group in groups and tool.engine not in without and tool.missing()]


def main(argv: Sequence[str] | None = None) -> int:
    """Install what is missing. Return 0 if everything is installed, 2 with an error if that is not possible."""
    parser = argparse.ArgumentParser(prog="packages.py", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("groups", nargs="*", choices=("run", "test", []), metavar="run|test")
    parser.add_argument("--demo", type=Path, metavar="PLAN", help="print the demo's plan for the installed servers")
    parser.add_argument("--without", action="append", default=[], choices=("postgres", "mariadb"))
    parser.add_argument("--dry-run", action="store_true", help="list the packages without installing them")
    given = parser.parse_args(argv)
    if given.demo:
        print(demo(given.demo))
        return 0
    if not given.groups:
        parser.error("name the group of packages: run, test or both")
    # Run the `finally` blocks, which remove temporary files.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        return _provide(missing(given.groups, given.without), given.dry_run)
    except KeyboardInterrupt:
        print(
            "interrupted. Completed packages stay installed; run the same command again to continue.", file=sys.stderr
        )
        return 130


def _provide(tools: list[Tool], dry_run: bool) -> int:
    if not tools:
        return 0
    if manager() != "apt-get":
        _fail("E201", "this machine has no apt-get", f"By hand:  {install(_packages(tools))}")
    as_root = os.geteuid() != 0 and not dry_run
    if as_root and _unknown(tools):  # the package lists may be old
        return _as_root(tools)
    tools, plan = _possible(_known(tools))
    if not tools:
        return 0
    if as_root:
        return _as_root(tools)
    for tool in tools:
        print(f"missing: {', '.join(tool.missing())} ({in_release(tool.debian)})")
    wanted = _packages(tools)
    print(f"apt-get installs {len(plan.new)} packages: {' '.join(plan.new)}", flush=True)
    if plan.upgraded:
        print(f"and upgrades, because these depend on it: {' '.join(plan.upgraded)}", flush=True)
    if dry_run:
        return 0
    with _no_cluster(), _no_services():
        _install(wanted)
    if names := ", ".join(name for tool in tools for name in tool.missing()):
        _fail("E201", f"{names} is still missing after apt-get", "Run dbbench doctor for details.", changed=True)
    return 0


def _packages(tools: Sequence[Tool]) -> list[str]:
    return list(dict.fromkeys(in_release(tool.debian) for tool in tools))


def _possible(tools: list[Tool]) -> tuple[list[Tool], Simulation]:
    """Return the tools that can be installed, and what apt would do. If the server of another vendor conflicts with
    MariaDB, all tools of MariaDB are left out, and optional tools that conflict too. Exits with E205 if apt would still
    harm the machine."""
    plan = _simulated(tools)
    if not (harm := _harm(plan)):
        return tools, plan
    kept = [tool for tool in tools if tool.engine != _EXCLUDED]
    if _harm(_simulated(kept)):
        kept = [tool for tool in kept if not (tool.optional and _harm(_simulated([tool])))]
    possible = _simulated(kept)
    if _harm(possible):
        _judge(plan, _packages(tools))
    names = " ".join(_packages([tool for tool in tools if tool not in kept]))
    print(f"left out: {names}, because apt-get {harm.splitlines()[0]}")
    return kept, possible


def _simulated(tools: list[Tool]) -> Simulation:
    if not tools:
        return Simulation((), (), (), "")
    return simulate(_apt(["--simulate", *_packages(tools)], check=False))


def _as_root(tools: list[Tool]) -> int:
    """Run the same command with sudo and return its status."""
    sudo = shutil.which("sudo")
    if sudo is None:
        packages = " ".join(_packages(tools))
        _fail("E202", f"root is needed to install {packages}, and there is no sudo",
              f"As root:  apt-get install --no-install-recommends --no-remove {packages}")  # fmt: skip
    return subprocess.run([sudo, sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]], check=False).returncode


def _unknown(tools: list[Tool]) -> list[Tool]:
    return [tool for tool in tools if not has_candidate(_policy(in_release(tool.debian)))]


def _known(tools: list[Tool]) -> list[Tool]:
    """Return the tools whose packages apt can install, after `apt-get update` if some were unknown."""
    unknown, failure = _unknown(tools), ""
    if unknown and os.geteuid() == 0:
        print(f"apt-get update (unknown so far: {' '.join(_packages(unknown))})", flush=True)
        failure = _updated()
        _policy.cache_clear()
        unknown = _unknown(unknown)
    if needed := [tool for tool in unknown if not tool.optional and tool.engine != _EXCLUDED]:
        _fail("E201", f"no package source of this machine has {', '.join(_packages(needed))}{failure}", _SOURCES)
    if unknown:
        print(
            f"left out: {' '.join(_packages(unknown))} (no such package here); tests that need it are skipped by name"
        )
    return [tool for tool in tools if tool not in unknown]


def demo(plan: Path) -> Path:
    """Return the demo's plan for this machine: `plan` itself if MariaDB is installed; otherwise a copy in .venv with
    MySQL instead, or with PostgreSQL only. Prints which one."""
    if find("mariadbd") and find("sysbench"):
        return plan
    text = plan.read_text()
    if find("mysqld") and find("sysbench"):
        text, choice = text.replace('"mariadb"', '"mysql"'), "PostgreSQL and MySQL, because MariaDB is not installed"
    else:
        blocks = [block for block in text.split("\n\n") if '"mariadb"' not in block]
        lacking = "sysbench" if find("mysqld") or find("mariadbd") else "neither MariaDB nor MySQL"
        text = "\n\n".join(blocks)
        choice = f"PostgreSQL alone, because {lacking} is {'not ' if lacking == 'sysbench' else ''}installed"
    print(f"the demo runs with {choice}", file=sys.stderr)
    made = Path(".venv", plan.name)
    made.write_text(text)
    return made


# --- what apt would do -----------------------------------------------------------------------------


class Simulation(NamedTuple):
    """The output of `apt-get --simulate`."""

    new: tuple[str, ...]
    upgraded: tuple[str, ...]
    removed: tuple[str, ...]
    error: str  # "" if the installation would succeed


def simulate(done: subprocess.CompletedProcess[str]) -> Simulation:
    """Read the answer of `apt-get --simulate`: `Inst NAME [OLD] (NEW ...)`, `Remv NAME [OLD]`, `E: ...`."""
    printed = done.stdout + done.stderr
    new = re.findall(r"^Inst (\S+) \(", printed, re.MULTILINE)
    upgraded = re.findall(r"^Inst (\S+) \[", printed, re.MULTILINE)
    removed = re.findall(r"^Remv (\S+)", printed, re.MULTILINE)
    if listed := re.search(r"will be REMOVED:\n((?:  .*\n)+)", printed):
        removed += [name.rstrip("*") for name in listed[1].split()]
    unmet = re.findall(r"^ (\S+ : .*(?:\n {3,}.*)*)", printed, re.MULTILINE)
    errors = re.findall(r"^E: .*", printed, re.MULTILINE) + unmet
    failed = "\n  ".join(errors) or f"status {done.returncode}"
    return Simulation(
        tuple(dict.fromkeys(new)),
        tuple(dict.fromkeys(upgraded)),
        tuple(dict.fromkeys(removed)),
        failed if done.returncode else "",
    )


_SERVERS: Final = re.compile(r"^(postgresql(-\d+)?|(mariadb|mysql|percona)\S*-server\S*)$")


def _harm(plan: Simulation) -> str:
    """Return how the installation would harm the machine; "" if it would not."""
    if plan.removed:
        return f"would remove {', '.join(plan.removed)}"
    if plan.error:
        return f"fails: {plan.error}"
    touched = [name for name in plan.upgraded if _SERVERS.match(name)]
    return f"would upgrade a database server: {' '.join(touched)}" if touched else ""


def _judge(plan: Simulation, wanted: list[str]) -> None:
    """Exit with an error if the installation would remove a package, or upgrade and restart a database server."""
    harm, line = _harm(plan), " ".join(wanted)
    if not harm:
        return
    remedy = f"Resolve this conflict with apt, then run the same command again:  apt-get --simulate install {line}"
    if not plan.removed and not plan.error:
        servers = " ".join(name for name in plan.upgraded if _SERVERS.match(name))
        remedy = f"Upgrade the server first:  apt-get install {servers}  Then run the same command again."
    _fail("E205", f"installing {line} {harm}", remedy)


def has_candidate(policy: str) -> bool:
    """Return whether `apt-cache policy NAME` shows a version that can be installed."""
    match = re.search(r"^\s*Candidate: (\S+)", policy, re.MULTILINE)
    return match is not None and match[1] != "(none)"


# --- doing it --------------------------------------------------------------------------------------

_MARK: Final = "dbbench packages.py"
_HELPER: Final = "/usr/lib/apt/apt-helper"
_IMPATIENT: Final = ("-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20")
_SOURCES: Final = (
    "Check the network and apt's sources (on Ubuntu:  add-apt-repository universe), then run it again. "
    "A machine without a network needs a bundle, see docs/install.md."
)
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_LOCK: Final = Path("/var/lib/dpkg/lock-frontend")
_CLUSTER: Final = Path("/etc/postgresql-common/createcluster.d/zz-dbbench.conf")


@contextlib.contextmanager
def _no_services(path: Path = _POLICY) -> Iterator[None]:
    """Prevent packages from starting services within the block (invoke-rc.d runs this file). An existing file stays.

    The file forbids services only while this process exists, so a file that a killed process left has no effect.
    """
    if _ours(path):
        path.unlink()
    if os.path.lexists(path):
        yield
        return
    script = f"#!/bin/sh\n# {_MARK}, process {os.getpid()}\nkill -0 {os.getpid()} 2>/dev/null && exit 101\nexit 0\n"
    try:
        path.write_text(script)
        path.chmod(0o755)
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _no_cluster(path: Path = _CLUSTER) -> Iterator[None]:
    """Prevent PostgreSQL's package from creating a cluster within the block."""
    made = [folder for folder in (path.parent, path.parent.parent) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(f"# {_MARK}: removed after the installation\ncreate_main_cluster = false\n")
        yield
    finally:
        path.unlink(missing_ok=True)
        for folder in made:
            with contextlib.suppress(OSError):  # a package uses the directory now
                folder.rmdir()


def _ours(path: Path) -> bool:
    try:
        return _MARK in path.read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _updated() -> str:
    """Read the package lists again; return the first failure of a source as ": why", or ""."""
    done = _checked(["apt-get", "update", "-q", *_IMPATIENT], check=False, quiet=True)
    failure = re.search(r"^[EW]: (.*)", done.stderr, re.MULTILINE)
    return f": {failure[1]}" if failure else ""


def _unreachable(packages: list[str]) -> str:
    """Return the address of the smallest of the packages' files if it cannot be downloaded, else ""."""
    printed = _apt(["--print-uris", *packages], check=False).stdout
    files = re.findall(r"^'(https?://[^']+)' \S+ (\d+)", printed, re.MULTILINE)
    if not files:
        return ""
    smallest = str(min(files, key=lambda file: int(file[1]))[0])
    with tempfile.TemporaryDirectory() as folder:
        argv = [_HELPER, *_IMPATIENT, "download-file", smallest, f"{folder}/file"]
        return smallest if _checked(argv, check=False, quiet=True).returncode else ""


def _install(packages: list[str]) -> None:
    # Otherwise apt tries each of them for some seconds and prints several lines of each.
    if _unreachable(packages):
        failure = _refreshed(packages)
        if address := _unreachable(packages):
            _fail("E201", f"{address} cannot be downloaded{failure}", _SOURCES)
    done = _apt(["--yes", *packages], check=False, quiet=False)
    if done.returncode != 0 and locked():
        _fail(
            "E201",
            f"another process still holds {_LOCK} after five minutes",
            "Run the same command again when that process has ended.",
        )
    if done.returncode != 0:  # outdated package lists name files that the archive no longer has
        _refreshed(packages)
        _apt(["--yes", *packages], quiet=False)


def _refreshed(packages: list[str]) -> str:
    """Read the package lists again, and judge the installation anew; return the failure of a source as `_updated`."""
    print("The package lists may be old: running apt-get update", flush=True)
    failure = _updated()
    _judge(simulate(_apt(["--simulate", *packages], check=False)), packages)
    return failure


def locked(path: Path = _LOCK) -> bool:
    """Return whether another process holds the lock of dpkg."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _apt(words: list[str], *, check: bool = True, quiet: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `apt-get install` for missing packages, without questions and without removing or upgrading packages."""
    argv = ["apt-get", "install", "-q", "--no-install-recommends", "--no-remove", "--no-upgrade",
            "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confdef",
            "-o", "Dpkg::Options::=--force-confold", *words]  # fmt: skip
    return _checked(argv, check=check, quiet=quiet)


@functools.lru_cache
def _policy(package: str) -> str:
    if shutil.which("apt-cache") is None:
        return ""
    return _checked(["apt-cache", "policy", package], check=False, quiet=True).stdout


def _checked(argv: list[str], *, check: bool = True, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    # needrestart (Ubuntu) would restart services of the machine after the installation.
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
    pipe = subprocess.PIPE if quiet else None
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, check=False)
    if check and done.returncode != 0:
        _fail("E201", f"{' '.join(argv[:2])} ended with status {done.returncode}",
              "The lines above show the cause. If another process holds apt's lock, run the same command again "
              "later.", True)  # fmt: skip
    return done


def _fail(error: str, evidence: str, remedy: str, changed: bool = False) -> NoReturn:
    effect = "" if changed else "Nothing was changed. "
    print(f"error {error}: {evidence}\n  {effect}{remedy}", file=sys.stderr)
    sys.exit(EXIT_ENVIRONMENT)


if __name__ == "__main__":
    sys.exit(main())
