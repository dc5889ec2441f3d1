"""Finding a mysqld: which program, which kind (MariaDB's is called mysqld too), and where its files are.

`bin` may be the program, its folder, an installation (`sbin/`, `bin/`), or the root folder of another system,
such as debootstrap makes: then the program runs through that system's own loader and libraries, so that a
version can be tested which this machine's libraries could not run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dbbench import process
from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing

Kind = Literal["mariadb", "mysql"]
NAMES: Final = {"mariadb": ("mariadbd", "mysqld"), "mysql": ("mysqld",)}
PACKAGES: Final = {"mariadb": "mariadb-server-core", "mysql": "mysql-server-core-8.0 (Ubuntu)"}
_FOLDERS: Final = ("", "usr/sbin", "usr/libexec", "sbin", "bin", "libexec")
_SYSTEM: Final = (Path("/usr/sbin"), Path("/usr/libexec"), Path("/usr/local/mysql/bin"), Path("/usr/bin"))
_LOADERS: Final = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
_VERSION: Final = re.compile(r"Ver (\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class Mysqld:
    """A server program, ready to be started."""

    path: Path
    version: str  # 10.11.19
    loader: tuple[str, ...] = ()  # of the other root: ld-linux --library-path ...
    root: Path | None = None  # of the other system

    def argv(self, defaults: Path, *options: str) -> tuple[str, ...]:
        """How it is started; the configuration file is the first option, or it would read the system's."""
        return (*self.loader, str(self.path), f"--defaults-file={defaults}", *self._places(), *options)

    def _places(self) -> tuple[str, ...]:
        if self.root is None:
            return ()
        usr = self.root / "usr"
        return (
            f"--basedir={usr}",
            f"--lc-messages-dir={usr}/share/mysql",
            f"--plugin-dir={usr}/lib/mysql/plugin",
        )

    def share(self) -> Path | None:
        """The folder of the SQL files that make the system tables; None where there is none."""
        base = self.path.resolve().parent.parent
        for place in (base / "share/mysql", base / "share/mariadb", base / "share"):
            if any(place.glob("*_system_tables.sql")):
                return place
        return None

    def at_least(self, *version: int) -> bool:
        """Whether it is that version or a later one."""
        return tuple(int(part) for part in self.version.split(".")) >= version


def find(kind: Kind, given: Path | None) -> Mysqld | None:
    """The program of that kind: in `given`, else the one that is installed. None where there is none."""
    for root, path in _candidates(kind, given):
        found = _probe(kind, root, path)
        if found is not None:
            return found
    return None


def found(kind: Kind, given: Path | None) -> Mysqld:
    """`find`, or ProgramMissing."""
    server = find(kind, given)
    if server is None:
        raise ProgramMissing(
            f"no {kind} server in {given}" if given else f"no {kind} server is installed",
            effect="Nothing was changed.",
            remedy=f"Install {PACKAGES[kind]}, or name the folder of its programs as `bin`.",
        )
    return server


def _candidates(kind: Kind, given: Path | None) -> Iterator[tuple[Path | None, Path]]:
    """(root of another system or None, program)."""
    if given is not None and given.is_file():
        yield None, given
        return
    if given is not None:
        other = given if any((given / loader).exists() for loader in _LOADERS) and given != Path("/") else None
        for folder in _FOLDERS:
            yield from ((other, given / folder / name) for name in NAMES[kind])
        return
    for name in NAMES[kind]:
        hit = process.find(name)
        if hit is not None:
            yield None, hit
        yield from ((None, folder / name) for folder in _SYSTEM)


@functools.lru_cache(maxsize=64)
def _probe(kind: Kind, root: Path | None, path: Path) -> Mysqld | None:
    if not path.is_file():
        return None
    loader: tuple[str, ...] = ()
    if root is not None:
        libraries = sorted(str(place) for place in (root / "usr/lib").glob("*-linux-gnu"))
        used = next(root / name for name in _LOADERS if (root / name).exists())
        loader = (str(used), "--library-path", ":".join(libraries))
    try:
        said = process.run((*loader, path, "--no-defaults", "--version"), note=False, timeout_s=30).stdout
    except (CommandFailed, DeadlinePassed):
        return None
    version = _VERSION.search(said)
    if version is None or ("MariaDB" in said) != (kind == "mariadb"):
        return None
    return Mysqld(path, version[1], loader, root)
