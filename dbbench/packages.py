"""Which package brings which program, and the installer that `make` calls: `python3 dbbench/packages.py run test`.

It runs before anything is installed, so it needs nothing but Python, imports nothing of dbbench, and is the one
file beside `process.py` that starts programs. It must not harm a machine that serves databases already: what is
there is neither upgraded nor removed, no cluster is created, no service started, and everything that will be
installed is listed first.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

SBIN: Final = "/usr/local/sbin:/usr/sbin:/sbin"
EXIT_ENVIRONMENT: Final = 2  # as errors.EXIT_USAGE: nothing was changed


class Tool(NamedTuple):
    """Programs of one package. `places` is a pattern below / for what is not in PATH; `module` a Python module."""

    group: str  # "run": what benchmarks need; "test": what only the tests need on top
    programs: tuple[str, ...]
    debian: str  # Debian 12, Ubuntu from 24.04
    fedora: str
    places: str = ""
    module: str = ""
    engine: str = ""  # a server: may be left out with --without
    optional: bool = False  # tests that need it are skipped by name where no package has it

    def missing(self) -> list[str]:
        """The programs that are not here."""
        if self.module:
            return [] if importlib.util.find_spec(self.module) else [self.module]
        return [name for name in self.programs if not self._find(name)]

    def _find(self, name: str) -> bool:
        if shutil.which(name, path=os.environ.get("PATH", "") + ":" + SBIN):
            return True
        return bool(self.places) and any(Path("/").glob(f"{self.places}/{name}"))


TOOLS: Final = (
    Tool("run", ("postgres", "initdb", "pg_ctl", "pgbench", "pg_amcheck", "pg_checksums"), "postgresql",
         "postgresql-server postgresql-contrib", places="usr/lib/postgresql/*/bin", engine="postgres"),
    Tool("run", ("mariadbd", "mariadb-install-db"), "mariadb-server-core", "mariadb-server", engine="mariadb"),
    Tool("run", ("sysbench",), "sysbench", "sysbench"),
    Tool("run", ("mariadb-binlog",), "mariadb-client", "mariadb", optional=True),  # binary logs are replayed with them
    Tool("run", ("mariadb",), "mariadb-client-core", "mariadb", optional=True),
    Tool("run", ("sar", "sadf", "iostat"), "sysstat", "sysstat"),
    Tool("run", ("mkfs.ext4", "mkfs.ext3", "mkfs.ext2", "tune2fs", "dumpe2fs", "chattr", "lsattr", "filefrag"),
         "e2fsprogs", "e2fsprogs"),
    Tool("run", ("mkfs.xfs", "xfs_db", "xfs_info"), "xfsprogs", "xfsprogs"),
    Tool("run", ("mkfs.btrfs", "btrfs"), "btrfs-progs", "btrfs-progs"),
    Tool("run", ("compsize",), "btrfs-compsize", "compsize"),
    Tool("run", ("wipefs", "lsblk", "findmnt", "blkid", "losetup", "nsenter"), "util-linux", "util-linux"),
    Tool("run", ("mount", "umount"), "mount", "util-linux"),
    Tool("run", (), "python3-venv", "python3", module="ensurepip"),
    Tool("run", ("fio",), "fio", "fio"),  # the ceiling of the bare device, and a load generator
    Tool("run", ("bonnie++",), "bonnie++", "bonnie++", optional=True),  # a load generator on files
    # The power-cut lab's disk. The library alone: root needs no fusermount, and its package excludes the older one.
    Tool("test", ("libfuse3.so.3",), "libfuse3-3", "fuse3-libs", places="usr/lib*/**", optional=True),
    # Where OpenZFS's own tools are, nothing lacks: its package and this one exclude each other.
    Tool("test", ("zpool", "zfs", "zdb"), "zfs-fuse", "zfs-fuse", optional=True),
    # Sources of a user's own: dumps and backups of MariaDB and MySQL. Only who has such a source needs them.
    Tool("test", ("mariadb-dump",), "mariadb-client", "mariadb"),
    Tool("test", ("mydumper", "myloader"), "mydumper", "mydumper", optional=True),
    Tool("test", ("setfattr",), "attr", "attr"),
    Tool("test", ("mariadb-backup",), "mariadb-backup", "mariadb-backup", optional=True),  # the operation base-backup
    # Machines to reach by ssh, on this one. This package has no service; openssh-server would start one.
    Tool("test", ("dropbear", "dropbearkey"), "dropbear-bin", "dropbear", optional=True),
    Tool("test", ("ssh", "ssh-keygen"), "openssh-client", "openssh-clients", optional=True),
    Tool("test", ("ip",), "iproute2", "iproute", optional=True),
    Tool("test", ("debootstrap",), "debootstrap", "debootstrap"),
    Tool("test", ("mdadm",), "mdadm", "mdadm", optional=True),  # layers and filesystems for the second kernel
    Tool("test", ("lvcreate", "vgcreate", "lvs"), "lvm2", "lvm2", optional=True),
    Tool("test", ("dmsetup",), "dmsetup", "device-mapper", optional=True),
    Tool("test", ("cryptsetup",), "cryptsetup-bin", "cryptsetup", optional=True),
    Tool("test", ("mkfs.f2fs", "dump.f2fs"), "f2fs-tools", "f2fs-tools", optional=True),
    Tool("test", ("mkfs.nilfs2", "nilfs-tune", "mount.nilfs2"), "nilfs-tools", "nilfs-utils", optional=True),
    Tool("test", ("chromium",), "chromium", "chromium", optional=True),  # Ubuntu has it as a snap only
    Tool("test", ("chromedriver",), "chromium-driver", "chromedriver", optional=True),
)  # fmt: skip


_BESIDE: Final = {
    "sadc": "sadf",
    "psql": "postgres",
    "zfs-fuse": "zpool",
}  # lie outside PATH, in the package of the other
_NAMED: Final = dict.fromkeys(("bcachefs", "mkfs.bcachefs", "mount.bcachefs"), "bcachefs-tools")  # told, not installed


def package_of(program: str, family: str = "debian") -> str | None:
    """The package that brings a program on `debian` (and Ubuntu) or `fedora`; None where the table has none."""
    name = _BESIDE.get(Path(program).name, Path(program).name)
    for tool in TOOLS:
        if name in tool.programs:
            return tool.fedora if family == "fedora" else tool.debian
    return _NAMED.get(name)


def missing(groups: Sequence[str], without: Sequence[str] = ()) -> list[Tool]:
    """The tools of `groups` of which a program is not here, leaving out the engines in `without`."""
    return [tool for tool in TOOLS if tool.group in groups and tool.engine not in without and tool.missing()]


def main(argv: Sequence[str] | None = None) -> int:
    """Install what is missing; 0 when everything is there, 2 with an error when it cannot be."""
    parser = argparse.ArgumentParser(prog="packages.py", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("groups", nargs="+", choices=("run", "test"))
    parser.add_argument("--without", action="append", default=[], choices=("postgres", "mariadb"))
    parser.add_argument("--dry-run", action="store_true", help="list, install nothing")
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # what is temporary is taken away
    try:
        return _provide(missing(given.groups, given.without), given.dry_run)
    except KeyboardInterrupt:
        print("interrupted: what apt-get had finished is installed; the same command goes on", file=sys.stderr)
        return 130


def _provide(tools: list[Tool], dry_run: bool) -> int:
    if not tools:
        return 0
    for tool in tools:
        print(f"missing: {', '.join(tool.missing())} ({tool.debian})")
    if shutil.which("apt-get") is None:
        named = " ".join(dict.fromkeys(tool.fedora for tool in tools))
        _fail("E201", "this machine has no apt-get", f"Install by hand. On Fedora:  dnf install {named}")
    if os.geteuid() != 0 and not dry_run:
        return _as_root([tool.debian for tool in tools])
    wanted = _known(tools)
    plan = simulate(_apt(["--simulate", *wanted], check=False)) if wanted else Simulation((), (), (), "")
    _judge(plan, wanted)
    if not wanted:
        return 0
    print(f"apt-get installs {len(plan.new)} packages: {' '.join(plan.new)}", flush=True)
    if plan.upgraded:
        print(f"and upgrades, because these depend on it: {' '.join(plan.upgraded)}", flush=True)
    if dry_run:
        return 0
    with _no_cluster(), _no_services():
        _install(wanted)
    left = [tool for tool in tools if tool.debian in wanted and tool.missing()]
    if left:
        names = ", ".join(name for tool in left for name in tool.missing())
        _fail("E201", f"{names} is still missing after apt-get", "dbbench doctor  says more.", changed=True)
    return 0


def _as_root(packages: list[str]) -> int:
    """The same command through sudo."""
    sudo = shutil.which("sudo")
    if sudo is None:
        _fail("E202", f"root is needed to install {' '.join(packages)}, and there is no sudo",
              "As root:  apt-get install --no-install-recommends --no-remove " + " ".join(packages))  # fmt: skip
    return subprocess.run([sudo, sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]], check=False).returncode


def _known(tools: list[Tool]) -> list[str]:
    """The packages that apt can install, after an update where it knew too few."""
    unknown = [tool for tool in tools if not has_candidate(_policy(tool.debian))]
    if unknown and os.geteuid() == 0:
        print(f"apt-get update (unknown so far: {' '.join(tool.debian for tool in unknown)})", flush=True)
        _checked(["apt-get", "update", "-q"])
        unknown = [tool for tool in unknown if not has_candidate(_policy(tool.debian))]
    if needed := [tool.debian for tool in unknown if not tool.optional]:
        _fail("E201", f"no package source of this machine has {', '.join(needed)}",
              "On Ubuntu:  add-apt-repository universe, then the same command again.")  # fmt: skip
    for tool in unknown:
        print(f"left out: {tool.debian} (no such package here); tests that need it are skipped by name")
    return [tool.debian for tool in tools if tool not in unknown]


# --- what apt would do -----------------------------------------------------------------------------


class Simulation(NamedTuple):
    """What `apt-get --simulate` said."""

    new: tuple[str, ...]
    upgraded: tuple[str, ...]
    removed: tuple[str, ...]
    error: str  # "" where it would succeed


def simulate(done: subprocess.CompletedProcess[str]) -> Simulation:
    """Read the answer of `apt-get --simulate`: `Inst NAME [OLD] (NEW ...)`, `Remv NAME [OLD]`, `E: ...`."""
    said = done.stdout + done.stderr
    new = re.findall(r"^Inst (\S+) \(", said, re.MULTILINE)
    upgraded = re.findall(r"^Inst (\S+) \[", said, re.MULTILINE)
    removed = re.findall(r"^Remv (\S+)", said, re.MULTILINE)
    if listed := re.search(r"will be REMOVED:\n((?:  .*\n)+)", said):
        removed += [name.rstrip("*") for name in listed[1].split()]
    unmet = re.findall(r"^ (\S+ : .*(?:\n {3,}.*)*)", said, re.MULTILINE)
    errors = re.findall(r"^E: .*", said, re.MULTILINE) + unmet
    failed = "\n  ".join(errors) or f"status {done.returncode}"
    return Simulation(
        tuple(dict.fromkeys(new)),
        tuple(dict.fromkeys(upgraded)),
        tuple(dict.fromkeys(removed)),
        failed if done.returncode else "",
    )


_SERVERS: Final = re.compile(r"^(postgresql(-\d+)?|(mariadb|mysql|percona)\S*-server\S*)$")


def _judge(plan: Simulation, wanted: list[str]) -> None:
    """Refuse what would take something away, or restart a server that is in use."""
    touched = [name for name in plan.upgraded if _SERVERS.match(name)]
    if plan.removed or plan.error:
        evidence = f"would remove {', '.join(plan.removed)}" if plan.removed else f"fails: {plan.error}"
        _fail("E205", f"installing {' '.join(wanted)} {evidence}", _remedy(wanted, plan.removed or (plan.error,)))
    if touched:
        servers = " ".join(touched)
        _fail(
            "E205",
            f"installing {' '.join(wanted)} would upgrade a database server: {servers}",
            f"Upgrade it when it suits:  apt-get install {servers}  Then the same command again.",
        )


def _remedy(wanted: list[str], found: Sequence[str]) -> str:
    if "mariadb-server-core" in wanted and any("mysql" in text or "percona" in text for text in found):
        return (
            "Another vendor's server is installed, and both cannot be. Leave MariaDB out:\n"
            "    python3 dbbench/packages.py run --without mariadb\n"
            '  and give the demo the server that is here: in docs/plans/demo.toml write name = "mysql" for'
            ' "mariadb".'
        )
    return "Settle this with apt, then the same command again:  apt-get --simulate install " + " ".join(wanted)


def has_candidate(policy: str) -> bool:
    """Whether `apt-cache policy NAME` names a version that could be installed."""
    match = re.search(r"^\s*Candidate: (\S+)", policy, re.MULTILINE)
    return match is not None and match[1] != "(none)"


# --- doing it --------------------------------------------------------------------------------------

_MARK: Final = "dbbench packages.py"
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_CLUSTER: Final = Path("/etc/postgresql-common/createcluster.d/zz-dbbench.conf")


@contextlib.contextmanager
def _no_services(path: Path = _POLICY) -> Iterator[None]:
    """Nothing is started while the block runs (invoke-rc.d asks this file). An own file of the machine stays.

    It says no only while this process lives: one that is left behind by a kill forbids nothing.
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
    """PostgreSQL's package creates no cluster while the block runs."""
    made = [folder for folder in (path.parent, path.parent.parent) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(f"# {_MARK}: taken away after the installation\ncreate_main_cluster = false\n")
        yield
    finally:
        path.unlink(missing_ok=True)
        for folder in made:
            with contextlib.suppress(OSError):  # the package has put something there, or owns it now
                folder.rmdir()


def _ours(path: Path) -> bool:
    try:
        return _MARK in path.read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _install(packages: list[str]) -> None:
    done = _apt(["--yes", *packages], check=False, quiet=False)
    if done.returncode != 0:  # a list that is older than the archive names files that are gone
        print("apt-get update, and once more", flush=True)
        _checked(["apt-get", "update", "-q"])
        plan = simulate(_apt(["--simulate", *packages], check=False))
        _judge(plan, packages)
        _apt(["--yes", *packages], quiet=False)


def _apt(words: list[str], *, check: bool = True, quiet: bool = True) -> subprocess.CompletedProcess[str]:
    """`apt-get install` of packages that are not here; it asks nothing and removes nothing."""
    argv = ["apt-get", "install", "-q", "--no-install-recommends", "--no-remove", "--no-upgrade",
            "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confdef",
            "-o", "Dpkg::Options::=--force-confold", *words]  # fmt: skip
    return _checked(argv, check=check, quiet=quiet)


def _policy(package: str) -> str:
    return _checked(["apt-cache", "policy", package], check=False, quiet=True).stdout


def _checked(argv: list[str], *, check: bool = True, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    # needrestart (Ubuntu) would restart other people's services after the installation.
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
    pipe = subprocess.PIPE if quiet else None
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, check=False)
    if check and done.returncode != 0:
        _fail("E201", f"{' '.join(argv[:2])} ended with status {done.returncode}", "Its lines above say why.", True)
    return done


def _fail(error: str, evidence: str, remedy: str, changed: bool = False) -> NoReturn:
    effect = "" if changed else "Nothing was changed. "
    print(f"error {error}: {evidence}\n  {effect}{remedy}", file=sys.stderr)
    sys.exit(EXIT_ENVIRONMENT)


if __name__ == "__main__":
    sys.exit(main())
