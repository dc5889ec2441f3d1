"""Installs the servers and tools: `python3 dbbench/packages.py run test`, which `make` calls, runs
this file.

It must not harm a machine that already serves databases: nothing is removed, an installed package is
upgraded only if a new one depends on it, no cluster is created, no service is started, and
everything that will be installed or upgraded is listed first.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

# in a checkout, a wheel and a bundle: dbbench itself may be missing
sys.path.append(str(Path(__file__).parents[2]))

import packages

EXIT_ENVIRONMENT: Final = 2  # equal to errors.EXIT_USAGE: nothing was changed
EXCLUDED: Final = "mariadb"  # the engine whose packages conflict with servers of other vendors
_SERVERS: Final = re.compile(r"^(postgresql(-\d+)?|(mariadb|mysql|percona)\S*-server\S*)$")
_MARK: Final = "dbbench packages.py"
_HELPER: Final = "/usr/lib/apt/apt-helper"
_IMPATIENT: Final = (
    "-o",
    "Acquire::Retries=0",
    "-o",
    "Acquire::http::Timeout=20",
    "-o",
    "Acquire::https::Timeout=20",
)
_SOURCES: Final = (
    "Check the network and apt's sources (on Ubuntu:  add-apt-repository universe), then run it "
    "again. A machine without a network needs a bundle, see docs/install.md."
)
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_PAUSE_S: Final = 5
_LOCK: Final = Path("/var/lib/dpkg/lock-frontend")
_CLUSTER: Final = Path("/etc/postgresql-common/createcluster.d/zz-dbbench.conf")


def main(argv: Sequence[str] | None = None) -> int:
    """Install what is missing. Return 0 if everything is installed, 2 with an error if that is not
    possible.
    """
    parser = argparse.ArgumentParser(
        prog="packages.py", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument(
        "groups",
        nargs="*",
        choices=("run", "test", []),
        metavar="run|test",
    )
    parser.add_argument(
        "--demo", type=Path, metavar="PLAN", help="print the demo's plan for the installed servers"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("postgres", "mariadb"),
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the packages without installing them"
    )
    given = parser.parse_args(argv)
    if given.demo:
        print(demo(given.demo))
        return 0
    if not given.groups:
        parser.error("name the group of packages: run, test or both")
    # Run the `finally` blocks, which remove temporary files.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        return _provide(packages.missing(given.groups, given.without), given.dry_run)
    except KeyboardInterrupt:
        print(
            "interrupted. Completed packages stay installed; run the same command again to "
            "continue.",
            file=sys.stderr,
        )
        return 130


def _provide(tools: list[packages.Tool], dry_run: bool) -> int:
    if not tools:
        return 0
    if packages.manager() != "apt-get":
        _fail(
            "E201", "this machine has no apt-get", f"By hand:  {packages.install(_packages(tools))}"
        )
    as_root = os.geteuid() != 0 and not dry_run
    if as_root and _unknown(tools):  # the package lists may be old
        return _as_root(tools)
    tools, plan = _possible(_known(tools))
    if not tools:
        return 0
    if as_root:
        return _as_root(tools)
    for tool in tools:
        print(f"missing: {', '.join(tool.missing())} ({packages.in_release(tool.debian)})")
    names = _packages(tools)
    _list(plan)
    if dry_run:
        return 0
    with _no_cluster(), _no_services():
        _install(names)
    missing = ", ".join(name for tool in tools for name in tool.missing())
    if missing:
        _fail(
            "E201",
            f"{missing} is still missing after apt-get",
            "Run dbbench doctor for details.",
            changed=True,
        )
    return 0


def _list(plan: Simulation) -> None:
    """Print what will be installed and upgraded; on a terminal, leave time to stop upgrades."""
    print(f"apt-get installs {len(plan.new)} packages: {' '.join(plan.new)}", flush=True)
    if not plan.upgraded:
        return
    upgraded = " ".join(plan.upgraded)
    print(f"and upgrades installed ones, on which these depend: {upgraded}", flush=True)
    if sys.stdout.isatty():
        print(f"Ctrl-C within {_PAUSE_S} s stops before anything is changed.", flush=True)
        time.sleep(_PAUSE_S)


def _packages(tools: Sequence[packages.Tool]) -> list[str]:
    return list(dict.fromkeys(packages.in_release(tool.debian) for tool in tools))


def _possible(tools: list[packages.Tool]) -> tuple[list[packages.Tool], Simulation]:
    """Return the tools that can be installed, and what apt would do. If the server of another
    vendor conflicts with MariaDB, all tools of MariaDB are left out, and optional tools that
    conflict too. Exits with E201 if apt would still harm the machine.
    """
    plan = _simulated(tools)
    if not (harm := _harm(plan)):
        return tools, plan
    kept = [tool for tool in tools if tool.engine != EXCLUDED]
    if _harm(_simulated(kept)):
        kept = [tool for tool in kept if not (tool.optional and _harm(_simulated([tool])))]
    possible = _simulated(kept)
    if _harm(possible):
        _judge(plan, _packages(tools))
    names = " ".join(_packages([tool for tool in tools if tool not in kept]))
    print(f"left out: {names}, because apt-get {harm.splitlines()[0]}")
    return kept, possible


def _simulated(tools: list[packages.Tool]) -> Simulation:
    if not tools:
        return Simulation((), (), (), "")
    return simulate(_apt(["--simulate", *_packages(tools)], check=False))


def _as_root(tools: list[packages.Tool]) -> int:
    """Run the same command with sudo and return its status."""
    sudo = shutil.which("sudo")
    if sudo is None:
        names = " ".join(_packages(tools))
        _fail(
            "E202",
            f"root is needed to install {names}, and there is no sudo",
            f"As root:  apt-get install --no-install-recommends --no-remove {names}",
        )
    return subprocess.run(
        [sudo, sys.executable, str(Path(packages.__file__).resolve()), *sys.argv[1:]], check=False
    ).returncode


def _unknown(tools: list[packages.Tool]) -> list[packages.Tool]:
    return [tool for tool in tools if not packages.has_candidate(packages.in_release(tool.debian))]


def _known(tools: list[packages.Tool]) -> list[packages.Tool]:
    """Return the tools whose packages apt can install, after `apt-get update` if some were unknown."""
    unknown = _unknown(tools)
    failure = ""
    if unknown and os.geteuid() == 0:
        print(f"apt-get update (unknown so far: {' '.join(_packages(unknown))})", flush=True)
        failure = _updated()
        packages.policies.cache_clear()
        unknown = _unknown(unknown)
    if needed := [tool for tool in unknown if not tool.optional and tool.engine != EXCLUDED]:
        _fail(
            "E201",
            f"no package source of this machine has {', '.join(_packages(needed))}{failure}",
            _SOURCES,
        )
    if unknown:
        print(
            f"left out: {' '.join(_packages(unknown))} (no such package here); tests that need "
            "it are skipped by name"
        )
    return [tool for tool in tools if tool not in unknown]


def demo(plan: Path) -> Path:
    """Return the demo's plan for this machine: `plan` itself if MariaDB is installed; otherwise a
    copy in .venv with MySQL instead, or with PostgreSQL only. Prints which one.
    """
    if packages.find("mariadbd") and packages.find("sysbench"):
        return plan
    text = plan.read_text()
    if packages.find("mysqld") and packages.find("sysbench"):
        text = text.replace('"mariadb"', '"mysql"')
        choice = "PostgreSQL and MySQL, because MariaDB is not installed"
    else:
        blocks = [block for block in text.split("\n\n") if '"mariadb"' not in block]
        lacking = (
            "sysbench"
            if packages.find("mysqld") or packages.find("mariadbd")
            else "neither MariaDB nor MySQL"
        )
        text = "\n\n".join(blocks)
        choice = (
            f"PostgreSQL alone, because {lacking} is "
            f"{'not ' if lacking == 'sysbench' else ''}installed"
        )
    print(f"the demo runs with {choice}", file=sys.stderr)
    made = Path(".venv", plan.name)
    made.write_text(text)
    return made


class Simulation(NamedTuple):
    """The output of `apt-get --simulate`."""

    new: tuple[str, ...]
    upgraded: tuple[str, ...]
    removed: tuple[str, ...]
    error: str  # "" if the installation would succeed


def simulate(done: subprocess.CompletedProcess[str]) -> Simulation:
    """Read the answer of `apt-get --simulate`: `Inst NAME [OLD] (NEW ...)`, `Remv NAME [OLD]`, `E:
    ...`.
    """
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


def _harm(plan: Simulation) -> str:
    """Return how the installation would harm the machine; "" if it would not."""
    if plan.removed:
        return f"would remove {', '.join(plan.removed)}"
    if plan.error:
        return f"fails: {plan.error}"
    touched = [name for name in plan.upgraded if _SERVERS.match(name)]
    return f"would upgrade a database server: {' '.join(touched)}" if touched else ""


def _judge(plan: Simulation, wanted: list[str]) -> None:
    """Exit with an error if the installation would remove a package, or upgrade and restart a
    database server.
    """
    harm = _harm(plan)
    line = " ".join(wanted)
    if not harm:
        return
    remedy = (
        "Resolve this conflict with apt, then run the same command again:  apt-get --simulate "
        f"install {line}"
    )
    if not plan.removed and not plan.error:
        servers = " ".join(name for name in plan.upgraded if _SERVERS.match(name))
        remedy = (
            f"Upgrade the server first:  apt-get install {servers}  Then run the same command "
            "again."
        )
    _fail("E201", f"installing {line} {harm}", remedy)


@contextlib.contextmanager
def _no_services(path: Path = _POLICY) -> Iterator[None]:
    """Prevent packages from starting services within the block (invoke-rc.d runs this file). An
    existing file stays.

    The file forbids services only while this process exists, so a file that a killed process
    left has no effect.
    """
    if _ours(path):
        path.unlink()
    if os.path.lexists(path):
        yield
        return
    script = (
        f"#!/bin/sh\n# {_MARK}, process {os.getpid()}\nkill -0 {os.getpid()} 2>/dev/null && exit "
        "101\nexit 0\n"
    )
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
    done = _checked(["apt-get", "update", "-q", *_IMPATIENT], check=False)
    failure = re.search(r"^[EW]: (.*)", done.stderr, re.MULTILINE)
    return f": {failure[1]}" if failure else ""


def _unreachable(names: list[str]) -> str:
    """Return the address of the smallest of the packages' files if it cannot be downloaded, else
    "".
    """
    printed = _apt(["--print-uris", *names], check=False).stdout
    files = re.findall(r"^'(https?://[^']+)' \S+ (\d+)", printed, re.MULTILINE)
    if not files:
        return ""
    smallest = str(min(files, key=lambda file: int(file[1]))[0])
    with tempfile.TemporaryDirectory() as folder:
        argv = [_HELPER, *_IMPATIENT, "download-file", smallest, f"{folder}/file"]
        return smallest if _checked(argv, check=False).returncode else ""


def _install(names: list[str]) -> None:
    # Otherwise apt tries each of them for some seconds and prints several lines of each.
    if _unreachable(names):
        failure = _refreshed(names)
        if address := _unreachable(names):
            _fail("E201", f"{address} cannot be downloaded{failure}", _SOURCES)
    done = _apt(["--yes", *names], check=False)
    if done.returncode != 0 and locked():
        _fail(
            "E201",
            f"another process still holds {_LOCK} after five minutes",
            "Run the same command again when that process has ended.",
        )
    if done.returncode != 0:  # outdated package lists name files that the archive no longer has
        _refreshed(names)
        _apt(["--yes", *names])


def _refreshed(names: list[str]) -> str:
    """Read the package lists again, and judge the installation anew; return the failure of a source
    as `_updated`.
    """
    print("The package lists may be old: running apt-get update", flush=True)
    failure = _updated()
    plan = simulate(_apt(["--simulate", *names], check=False))
    _judge(plan, names)
    _list(plan)
    return failure


def locked(path: Path = _LOCK) -> bool:
    """Return whether another process holds the lock of dpkg."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _apt(words: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `apt-get install` for missing packages, without questions and without removing or
    upgrading packages.
    """
    argv = [
        "apt-get",
        "install",
        "-q",
        "--no-install-recommends",
        "--no-remove",
        "--no-upgrade",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
        *words,
    ]
    return _checked(argv, check=check)


def _checked(argv: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is printed only if it fails and `check` is given."""
    # needrestart (Ubuntu) would restart services of the machine after the installation.
    env = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_SUSPEND": "1",
    }
    done = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if check and done.returncode != 0:
        print(
            done.stdout,
            done.stderr,
            sep="",
            end="",
            file=sys.stderr,
        )
        _fail(
            "E201",
            f"{' '.join(argv[:2])} ended with status {done.returncode}",
            "The lines above show the cause. If another process holds apt's lock, run the same "
            "command again later.",
            True,
        )
    return done


def _fail(
    error: str,
    evidence: str,
    remedy: str,
    changed: bool = False,
) -> NoReturn:
    effect = "" if changed else "Nothing was changed. "
    print(f"error {error}: {evidence}\n  {effect}{remedy}", file=sys.stderr)
    sys.exit(EXIT_ENVIRONMENT)


if __name__ == "__main__":
    sys.exit(main())
