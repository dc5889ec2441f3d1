"""Statements for the engines' servers: what an engine must write its own way (`Sql`), and how
statements are run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

HASH_BYTES: Final = 64  # length of a SHA-512 hash
NULL: Final = "\\N"  # a missing value in the rows of `Sql.put`, as COPY writes it

# (statement, *values) -> rows of a user's server; LiveServerUnreadable
Ask = Callable[..., list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Table:
    """A table and the logical bytes that a scan of it reads."""

    name: str  # with its schema, unless that is the default schema
    size_bytes: int
    tablespace: str = ""  # PostgreSQL: the table's tablespace if it is not that of the database


class Endpoint:
    """Where the clients of a server log in."""

    user: str  # database role
    database: str
    socket: Path
    socket_dir: Path

    def connect(self, database: str | None = None) -> Any:
        """Return a DB-API connection in autocommit mode. The caller closes it."""
        raise NotImplementedError


class Sql(Protocol):
    """How statements for an engine are written, and how its clients log in. A list of statements
    may be empty.
    """

    time_type: ClassVar[str]  # the type of a column with date and time
    # expression: at least 32 hexadecimal digits that depend only on the number `n`
    row_hash: ClassVar[str]
    rewriting: ClassVar[str]  # the statement that rewrites a table, without the table's name
    one_message: ClassVar[bool]  # whether a session can send a whole transaction in one message
    sysbench: ClassVar[str]  # the engine's name in sysbench's options: --NAME-host
    # options that enable TLS; (): environment variables enable it
    sysbench_tls: ClassVar[tuple[str, ...]]

    def login(self, server: Endpoint) -> list[str]:
        """Return the options with which sysbench connects to the socket. A password is read from a
        file.
        """

    def quote(self, table: str) -> str:
        """Quote the name of a table, as returned by `tables`, for a statement."""

    def tables(self, connection: Any) -> list[Table]:
        """Return the tables of the dataset's database."""

    def checksums(self, cursor: Any) -> dict[str, str]:
        """Return a checksum over all rows, in any order, per table; comparable within a version.
        Writes nothing.
        """

    def cancel(self, server: Endpoint, connection: Any) -> None:
        """Cancel the statement of a session."""

    def refusals(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return the errors in the result rows of a maintenance statement; [] if the engine raises
        them.
        """
        return []

    def other_plan(
        self,
        ask: Ask,
        recorded: str,
        sample: str,
        database: str,
    ) -> str:
        """Return how the plan of a sample differs from that of the recorded statement, with $1; ""
        if it does not. Raises LiveServerUnreadable if the server refuses the sample.
        """

    def scan(self, connection: Any, table: str) -> str:
        """Return a statement that reads a whole table, and prepare the session for it."""

    def scan_plan(self, connection: Any, statement: str) -> str:
        """Run a statement from `scan`; return its plan, or "" if only `explain` can return it."""

    def explain(self, connection: Any, statement: str) -> str:
        """Return the plan of a statement from `scan` after it was run; "" if `scan_plan` returned
        it.
        """
        return ""

    def dirtied_blocks(self, plan: str) -> int | None:
        """Return how many pages a scan with this plan changed, although it only reads; None: not in
        the plan.
        """
        return None

    def create(self, table: str, columns: str, key: str = "") -> str:
        """Return the statement that makes a table; with primary key `key` if rows are best loaded
        with it.
        """

    def add_key(self, table: str, key: str) -> list[str]:
        """Return the statements that add the primary key to a loaded table, if `create` has not."""
        return []

    def analyse(self, *tables: str) -> list[str]:
        """Return the statements that update the statistics of these tables."""

    def finish(self, *tables: str) -> list[str]:
        """Return the statements to run once in a database that was loaded, which has these tables."""

    def clone(
        self,
        table: str,
        row: str,
        rows: int,
        join: str = "",
        packed: bool = False,
    ) -> list[str]:
        """Return the statements that make a clone table (id, k, body) and fill it; `packed`: body
        is bytes, stored as they are.
        """

    def fill(self, table: str, columns: str, row: str, rows: int) -> list[str]:
        """Return the statements that fill a table with rows numbered `n`, from 1."""

    def set_number(self, table: str, rows: int) -> list[str]:
        """Return the statements that set the next automatic `id` after so many rows."""
        return []

    def noisy_bytes(self, noise: int, zeros: int) -> str:
        """Return an expression: so many incompressible bytes that depend on the number `n`, then so
        many zeros.
        """

    def noisy_text(self, noise: int, zeros: int, salt: int) -> str:
        """Return an expression for such a mixture as text; another `salt` gives another text."""

    def put(
        self,
        cursor: Any,
        table: str,
        batch: Sequence[Sequence[str]],
    ) -> None:
        """Insert rows of texts that need no quoting; the text `NULL` stands for a missing value."""


def hashes(expression: str, size: int, salt: int) -> list[str]:
    """Return as many hashes as give `size` bytes; `expression` has a place for the salt."""
    count = max(1, -(-size // HASH_BYTES))
    return [expression.format(salt + number) for number in range(count)]


@contextlib.contextmanager
def cursor_of(server: Endpoint) -> Iterator[Any]:
    """Yield a cursor of a new session in the server's own database, in autocommit mode."""
    with (
        contextlib.closing(server.connect()) as connection,
        contextlib.closing(connection.cursor()) as cursor,
    ):
        yield cursor


def execute(server: Endpoint, *statements: str, database: str | None = None) -> None:
    """Run statements in one session, each as its own transaction."""
    rows(server, *statements, database=database)


def rows(server: Endpoint, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
    """Return all rows of the last of the statements; [] if it has no result."""
    fetched: list[tuple[Any, ...]] = []
    with contextlib.closing(server.connect(database)) as connection:
        for statement in statements:
            fetched = rows_of(connection, statement)
    return fetched


def rows_of(
    connection: Any,
    statement: str,
    values: Sequence[object] = (),
) -> list[tuple[Any, ...]]:
    """Return all rows of a statement in an existing session; [] if it has no result."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement, values or None)
        if cursor.description:
            return list(cursor.fetchall())
        return []
