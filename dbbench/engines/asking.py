"""Statements to a server that runs, one session a call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dbbench.engines.port import Server


@contextlib.contextmanager
def cursor_of(server: Server, database: str | None = None) -> Iterator[Any]:
    """A cursor of a session of its own in a database (None: the server's own), in autocommit mode."""
    with contextlib.closing(server.connect(database)) as connection, contextlib.closing(connection.cursor()) as cursor:
        yield cursor


def execute(server: Server, *statements: str, database: str | None = None) -> None:
    """Statements one after the other in one session, each its own transaction."""
    rows(server, *statements, database=database)


def rows(server: Server, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
    """All rows that the last of the statements answers; [] where it has no result."""
    found: list[tuple[Any, ...]] = []
    with cursor_of(server, database) as cursor:
        for statement in statements:
            cursor.execute(statement)
            found = list(cursor.fetchall()) if cursor.description is not None else []
    return found
