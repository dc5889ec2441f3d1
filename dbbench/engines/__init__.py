"""Database engines: private servers, and `files`, which has no server. A new engine is a module
(or an object) that satisfies `port.Engine`, and a line here.
"""

from __future__ import annotations

from typing import Final

from dbbench.engines import files, mariadb, mysql, postgres
from dbbench.engines.port import Engine, Profile, Server
from dbbench.engines.sql import Sql, cursor_of
from dbbench.errors import DriverFailed

ENGINES: Final[dict[str, Engine]] = {
    "postgres": postgres,
    "mariadb": mariadb.ENGINE,
    "mysql": mysql.ENGINE,
    "files": files,
}

SERVERS: Final = tuple(name for name, engine in ENGINES.items() if engine.PROFILE.has_server)


def profile_of(engine: str) -> Profile:
    """Return the profile of an engine by name; an empty one for an engine in results that this
    version lacks.
    """
    if engine in ENGINES:
        return ENGINES[engine].PROFILE
    return Profile(name=engine, title=engine)


def sql_of(server: Server) -> Sql:
    """Return how statements for the server are written. Raises DriverFailed if it is not a database
    server.
    """
    sql = ENGINES[server.engine].PROFILE.sql
    if sql is None:
        raise DriverFailed(f"{server.engine} has no server that accepts statements")
    return sql


def checksums_of(server: Server) -> dict[str, str]:
    """Return a checksum per table of the dataset, equal wherever the rows are equal. Also works on
    a standby.
    """
    with cursor_of(server) as cursor:
        return sql_of(server).checksums(cursor)
