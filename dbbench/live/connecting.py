"""One read-only session with a running server, over its unix socket.

PostgreSQL: `default_transaction_read_only`; MariaDB and MySQL: one transaction that was started READ ONLY. Passwords
come from where the servers' own clients have them: PGPASSWORD and .pgpass, MYSQL_PWD; none from the command line.
"""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.errors import LiveServerUnreadable

STATEMENT_S: Final = 60  # a size of a database with very many files takes its time; more would be a burden
PLACES: Final = (
    "/run/postgresql/.s.PGSQL.*", "/tmp/.s.PGSQL.*", "/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock",
)  # fmt: skip


@dataclass(frozen=True)
class Live:
    """A server that answers. `engine`: postgres, mariadb, mysql."""

    engine: str
    version: str
    socket: Path
    database: str
    _connection: Any

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of an answer; the server's own error, as LiveServerUnreadable."""
        with contextlib.closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(statement, values or None)
                return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            except Exception as error:
                raise _unreadable(self.socket, error) from error


def sockets() -> list[Path]:
    """Sockets where packages put them."""
    found = [path for place in PLACES for path in Path("/").glob(place.lstrip("/"))]
    return sorted(path for path in found if path.is_socket())


@contextlib.contextmanager
def reading(socket: Path, user: str | None = None, database: str | None = None) -> Iterator[Live]:
    """A read-only session while the block lasts. `socket`: the socket, or PostgreSQL's folder of it.

    LiveServerUnreadable where nothing answers or the server refuses.
    """
    path = next(iter(sorted(socket.glob(".s.PGSQL.[0-9]*"))), socket) if socket.is_dir() else socket
    path = Path(str(path).removesuffix(".lock"))
    if not path.is_socket():
        raise LiveServerUnreadable(
            f"{socket} is no socket of a server", effect="Nothing was read or written.",
            remedy="Name it:  --socket /run/postgresql  or  --socket /run/mysqld/mysqld.sock",
        )  # fmt: skip
    kind = _postgres if path.name.startswith(".s.PGSQL.") else _innodb
    with kind(path, user or getpass.getuser(), database) as live:
        yield live


@contextlib.contextmanager
def _postgres(socket: Path, user: str, database: str | None) -> Iterator[Live]:
    import psycopg2

    try:
        connection = psycopg2.connect(
            host=str(socket.parent), port=socket.name.rpartition(".")[2], user=user, dbname=database or "postgres",
            application_name="dbbench", connect_timeout=10,
            options=f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_S}s",
        )  # fmt: skip
    except psycopg2.Error as error:
        raise _unreadable(socket, error) from error
    with contextlib.closing(connection):
        connection.set_session(readonly=True, autocommit=True)
        live = Live("postgres", "", socket, database or "postgres", connection)
        version = str(live.rows("SHOW server_version")[0][0]).split()[0]
        yield Live("postgres", version, socket, database or "postgres", connection)


@contextlib.contextmanager
def _innodb(socket: Path, user: str, database: str | None) -> Iterator[Live]:
    import mysql.connector

    try:
        connection = mysql.connector.connect(
            unix_socket=str(socket), user=user, password=os.environ.get("MYSQL_PWD", ""), database=database,
            use_pure=True, ssl_disabled=True, connection_timeout=10, charset="utf8mb4",
            collation="utf8mb4_general_ci",
        )  # fmt: skip
    except mysql.connector.Error as error:
        raise _unreadable(socket, error) from error
    with contextlib.closing(connection):
        live = Live("mysql", "", socket, database or "", connection)
        live.rows("START TRANSACTION READ ONLY")
        said = str(live.rows("SELECT VERSION()")[0][0])
        yield Live("mariadb" if "MariaDB" in said else "mysql", said.split("-")[0], socket, database or "", connection)


def _unreadable(socket: Path, error: Exception) -> LiveServerUnreadable:
    return LiveServerUnreadable(
        f"{socket}: {' '.join(str(error).split())}",
        effect="Nothing was written.",
        remedy="A role that may read its settings is enough: --user NAME, or as the server's account:  "
        "sudo -u postgres dbbench ...",
    )
