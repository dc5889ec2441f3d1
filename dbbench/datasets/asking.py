"""Statements to a server that runs, one session a call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dbbench.engines.port import Server


@contextlib.contextmanager
def cursor_of(server: Server) -> Iterator[Any]:
    """A cursor of a session of its own, in autocommit mode."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        yield cursor


def execute(server: Server, *statements: str) -> None:
    """Statements one after the other in one session, each its own transaction."""
    with cursor_of(server) as cursor:
        for statement in statements:
            cursor.execute(statement)
            if cursor.description is not None:
                cursor.fetchall()


def rows(server: Server, query: str) -> list[tuple[Any, ...]]:
    """All rows of the query's answer."""
    with cursor_of(server) as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())
