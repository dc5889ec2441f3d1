"""Rows that tell which moment a copy is of: some that were acknowledged before it, one that came after."""

from __future__ import annotations

import contextlib
from typing import Final

from dbbench.engines.port import Server
from dbbench.errors import CopyWrong

TABLE: Final = "dbbench_witness"
DOUBLINGS: Final = 14  # 16 384 rows, some MB of log: something that recovery has to do
ROWS: Final = 2**DOUBLINGS
LATER: Final = -1


def written(server: Server) -> None:
    """The rows from before, committed; the last thing that the server acknowledges."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, filler VARCHAR(120) NOT NULL)")
        cursor.execute(f"INSERT INTO {TABLE} VALUES (0, %s)", ("x" * 120,))
        for power in range(DOUBLINGS):
            cursor.execute(f"INSERT INTO {TABLE} SELECT id + {2**power}, filler FROM {TABLE}")


def written_later(server: Server) -> None:
    """The row from after."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(f"INSERT INTO {TABLE} VALUES ({LATER}, 'later')")


def proved(server: Server, what: str) -> str:
    """The query on a copy; what it found. CopyWrong where it is not the moment that it should be."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT COUNT(*), COALESCE(MIN(id), 0) FROM {TABLE}")
        count, first = cursor.fetchone()
    if int(count) != ROWS or int(first) == LATER:
        raise CopyWrong(
            f"{what}: {count} rows, the first of id {first}; {ROWS} were acknowledged before it, from 0 on",
            effect="The trial does not count.",
        )
    return f"{count} rows, all from before"
