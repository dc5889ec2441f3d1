"""Read a running server through one read-only session on its unix socket. Passwords come from where
the servers' own clients look for them; never from the command line.
"""

from __future__ import annotations

import contextlib
import getpass
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dbbench.engines import ENGINES, innodb_server, postgres_server, profile_of
from dbbench.engines.settings import Reported, same_in_mysql, same_in_postgres
from dbbench.engines.sql import rows_of
from dbbench.errors import DbbenchError, LiveServerUnreadable
from dbbench.machine import mounts
from dbbench.plan.proposal import RunningServer

_WINDOW_S: Final = (60, 120)  # warm-up and window of the plan
_SAME: Final = {"postgres": same_in_postgres, "mysql": same_in_mysql}  # by dialect
PATHS: Final = (
    "/run/postgresql/.s.PGSQL.*",
    "/tmp/.s.PGSQL.*",
    "/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
)


class LiveServer:
    """A server that answers."""

    def __init__(self, socket: Path, connection: Any) -> None:
        self.socket = socket
        self._connection = connection
        # "PostgreSQL 15.18 (Debian)", "10.11.8-MariaDB", "8.0.36"
        text = str(self.rows("SELECT version()")[0][0])
        self.engine = "mysql"
        if "PostgreSQL" in text:
            self.engine = "postgres"
        elif "MariaDB" in text:
            self.engine = "mariadb"
        words = text.removeprefix("PostgreSQL ").replace("-", " ")
        self.version = words.split()[0]

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises LiveServerUnreadable with the server's own error."""
        try:
            return rows_of(self._connection, statement, values)
        except Exception as error:
            raise _unreadable(self.socket, error) from error

    def facts(self, memory_bytes: int | None) -> RunningServer:
        """Read what a plan takes from it. `memory_bytes`: the memory on which dbbench's own
        settings depend.
        """
        ((size, place),) = self.rows(profile_of(self.engine).live_data)
        table = mounts.mounts_of(Path("/proc/self"))
        profile, settings = self._settings(memory_bytes)
        return RunningServer(
            engine=self.engine,
            version=self.version,
            socket=self.socket,
            profile=profile,
            settings=settings,
            data_bytes=None if size is None else int(size),
            mount=mounts.mount_holding(Path(place).resolve(), table) if place else None,
        )

    def _settings(self, memory_bytes: int | None) -> tuple[str, dict[str, str]]:
        """Return the settings profile that is nearest in what a plan cannot set (whether it keeps
        its log), and the settings that matter to storage and differ from dbbench's.
        """
        engine = ENGINES[self.engine]
        profile = profile_of(self.engine)
        same = _SAME[profile.dialect]
        # All settings of the server: text, number, unit, whether it was changed.
        rows = {name: rest for name, *rest in self.rows(profile.live_settings)}
        reported = {name: Reported(number, unit) for name, (_, number, unit, _) in rows.items()}
        named = {name for name in rows if re.fullmatch(profile.live_names, name)}

        # The settings that each profile sets otherwise, of those that a plan cannot set.
        defaults = {**engine.defaults(memory_bytes), **engine.window_settings(*_WINDOW_S)}
        differences = {}
        for name, values in profile.settings_profiles.items():
            changed = {**defaults, **values}
            compared = (changed.keys() & rows.keys()) - named
            differences[name] = sum(not same(changed[key], reported[key]) for key in compared)
        nearest = min(differences, key=differences.__getitem__)

        # What a plan can set, and dbbench would set otherwise.
        settings = {}
        expected = {**defaults, **profile.settings_profiles[nearest]}
        for name in [name for name in rows if name in named]:
            text, _, _, changed_here = rows[name]
            differs = changed_here
            if name in expected:
                differs = not same(expected[name], reported[name])
            if differs:
                settings[name] = text
        return nearest, settings


def sockets() -> list[Path]:
    """Return the sockets at the places that packages use."""
    paths: list[Path] = []
    for place in PATHS:
        paths += filter(Path.is_socket, Path("/").glob(place[1:]))
    return sorted(paths)


@contextlib.contextmanager
def reading(
    socket: Path,
    user: str | None = None,
    database: str | None = None,
) -> Iterator[LiveServer]:
    """Yield a read-only session. `socket`: the socket, or PostgreSQL's directory of it. Raises
    LiveServerUnreadable if nothing answers or the server refuses.
    """
    path = min(socket.glob(".s.PGSQL.[0-9]*"), default=socket) if socket.is_dir() else socket
    if not path.is_socket():
        raise LiveServerUnreadable(f"{socket} is not the socket of a server")
    server = postgres_server if path.name.startswith(".s.PGSQL.") else innodb_server
    try:
        connection = server.connect_read_only(path, user or getpass.getuser(), database)
    except Exception as error:
        raise _unreadable(path, error) from error
    with contextlib.closing(connection):
        yield LiveServer(path, connection)


def _unreadable(socket: Path, error: Exception) -> DbbenchError:
    return LiveServerUnreadable(
        f"{socket}: {' '.join(str(error).split())}", effect="Nothing was written."
    )
