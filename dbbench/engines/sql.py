"""Run statements on a running server, with one session per call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dbbench.engines.port import Server


@contextlib.contextmanager
def cursor_of(server: Server, database: str | None = None) -> Iterator[Any]:
    """Yield a cursor of a new session in a database (None: the server's own), in autocommit mode."""
    with contextlib.closing(server.connect(database)) as connection, contextlib.closing(connection.cursor()) as cursor:
        yield cursor


def execute(server: Server, *statements: str, database: str | None = None) -> None:
    """Run statements in one session, each as its own transaction."""
    rows(server, *statements, database=database)


def rows(server: Server, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
    """Return all rows of the last of the statements; [] if it has no result."""
    fetched: list[tuple[Any, ...]] = []
    with cursor_of(server, database) as cursor:
        for statement in statements:
            cursor.execute(statement)
            fetched = list(cursor.fetchall()) if cursor.description is not None else []
    return fetched


def rows_of(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """Return all rows of a statement in an existing session; [] if it has no result."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []
