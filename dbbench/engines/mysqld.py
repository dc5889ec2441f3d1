"""MariaDB's and MySQL's server program, which have the same name; its files, its binary log. `bin`
may be the program, its directory, an installation (`sbin/`, `bin/`), or the root directory of
another system, for example one made by debootstrap: the program then runs with that system's
loader and libraries.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.engines.port import Profile, Values
from dbbench.engines.settings import numbers_of
from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing

_FOLDERS: Final = ("", "usr/sbin", "usr/libexec", "sbin", "bin", "libexec")
_SYSTEM: Final = (
    Path("/usr/sbin"),
    Path("/usr/libexec"),
    Path("/usr/local/mysql/bin"),
    Path("/usr/bin"),
)
_LOADERS: Final = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
_MARIADB: Final = "MariaDB"  # printed by a mysqld program that is MariaDB, not MySQL
_VERSION: Final = re.compile(r"Ver (\d+\.\d+\.\d+)")
# As on a server with replicas or point-in-time recovery: each commit is flushed to the binary log
# too. MariaDB's default of sync_binlog is 0, and its default of binlog_format may log statements
# instead of rows, which writes less.
BINLOG_PRODUCTION: Final[Values] = {"log_bin": True, "sync_binlog": 1, "binlog_format": "ROW"}
BINLOG_STATED: Final = ("log_bin", "sync_binlog", "binlog_format")
# MariaDB cannot remove a log until InnoDB has flushed its commits, a moment after the switch
_ROTATED_S: Final = 5.0
_STEP_S: Final = 0.05


@dataclass(frozen=True)
class Mysqld:
    """A server program that can be started."""

    path: Path
    version: str  # 10.11.19
    # command prefix for a program in another root: ld-linux --library-path ...
    loader: tuple[str, ...] = ()
    root: Path | None = None  # root directory of another system; None: this system

    def argv(self, defaults: Path, *options: str) -> tuple[str, ...]:
        """Return the command line; the configuration file must come first, otherwise the system's
        file is read.
        """
        places: tuple[str, ...] = ()
        if self.root is not None:
            usr = self.root / "usr"
            places = (
                f"--basedir={usr}",
                f"--lc-messages-dir={usr}/share/mysql",
                f"--plugin-dir={usr}/lib/mysql/plugin",
            )
        return (*self.loader, str(self.path), f"--defaults-file={defaults}", *places, *options)


def find(profile: Profile, given: Path | None) -> Mysqld | None:
    """Return the program of that engine in `given`, otherwise the installed one, or None."""
    for root, path in _candidates(profile.programs, given):
        program = _probe(profile.banner, root, path)
        if program is not None:
            return program
    return None


def require(profile: Profile, given: Path | None) -> Mysqld:
    """Return the result of `find`. Raises ProgramMissing if there is none, or if it is too old."""
    server = find(profile, given)
    if server is None:
        package = profile.package or "the package of its vendor"
        where = f"in {given}" if given else "is installed"
        raise ProgramMissing(
            f"no {profile.name} server {where}",
            remedy=f"Install {package}, or name the folder of its programs as `bin`.",
        )
    if numbers_of(server.version) < profile.oldest:
        oldest = ".".join(map(str, profile.oldest))
        raise ProgramMissing(
            f"{server.path} is {profile.title} {server.version}; {oldest} or later is required"
        )
    return server


def _candidates(names: tuple[str, ...], given: Path | None) -> Iterator[tuple[Path | None, Path]]:
    """Yield (root of another system or None, program)."""
    if given is not None and given.is_file():
        yield None, given
        return
    if given is not None:
        is_system = any((given / loader).exists() for loader in _LOADERS)
        root = given if is_system and given != Path("/") else None
        for folder in _FOLDERS:
            for name in names:
                yield root, given / folder / name
        return
    for name in names:
        hit = process.find(name)
        if hit is not None:
            yield None, hit
        for directory in _SYSTEM:
            yield None, directory / name


@functools.lru_cache(maxsize=64)
def _probe(banner: str, root: Path | None, path: Path) -> Mysqld | None:
    if not path.is_file():
        return None
    loader: tuple[str, ...] = ()
    if root is not None:
        libraries = sorted(str(place) for place in (root / "usr/lib").glob("*-linux-gnu"))
        linker = next(root / name for name in _LOADERS if (root / name).exists())
        loader = (str(linker), "--library-path", ":".join(libraries))
    argv = (*loader, str(path), "--no-defaults", "--version")
    try:
        printed = process.run(argv, note=False, timeout_s=30).stdout
    except (CommandFailed, DeadlinePassed):
        return None
    version = _VERSION.search(printed)
    is_mariadb = _MARIADB in printed
    if version is None or is_mariadb != (banner == _MARIADB):
        return None
    return Mysqld(path, version[1], loader, root)


def binlog_place(effective: Mapping[str, str], datadir: Path | None = None) -> Path | None:
    """Return the path of the log's files without their numbers, or None if there is no binary log."""
    base = effective.get("log_bin_basename")
    if not base or effective.get("log_bin", "").upper() not in ("ON", "1"):
        return None
    if datadir is None:
        return Path(base)
    return datadir / base


def binlog_files(base: Path) -> list[Path]:
    """Return the files of the log, without the index of all and MariaDB's index of each (`.idx`)."""
    files = base.parent.glob(f"{base.name}.[0-9]*")
    return sorted(path for path in files if path.suffix[1:].isdigit())


def purge_binlog(ask: Callable[[str], list[Any]]) -> None:
    """Begin a new log and remove the others; `ask` runs a statement and returns its rows."""
    ask("FLUSH BINARY LOGS")
    until = time.monotonic() + _ROTATED_S
    while len(logs := ask("SHOW BINARY LOGS")) > 1:
        ask(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")
        if time.monotonic() > until:
            return  # the next purge removes the remaining logs
        time.sleep(_STEP_S)
