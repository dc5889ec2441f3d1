"""Rows of which a given share compresses away: noise that does not, and a constant that does.

`share` is 1 − compressed ÷ whole, of a table's file under zlib level 1. What a page has beside its columns compresses
well, and indexes do not as well: constants below are measured, and what came of it stands in the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dbbench.catalog import PACKED
from dbbench.engines.asking import execute
from dbbench.engines.port import Server
from dbbench.errors import PlanInvalid

KINDS: Final = PACKED
NAME: Final = "compressibility"
HASH_BYTES: Final = 64  # of SHA-512
BODY: Final = 208  # bytes of a clone table's column: with PostgreSQL's 48 beside it a row has CLONE_ROW_BYTES
COLUMNS: Final = (119, 59)  # characters of sysbench's c and pad
CHUNK_ROWS: Final = 20_000  # InnoDB: rows of a transaction

# Share of the table's file that compresses away when all of the columns is noise, and when none is: measured on
# PostgreSQL 15, MariaDB 10.11 and MySQL 9.7 with 100 000 rows. sysbench's rows are text, of which a quarter of base64
# always goes; InnoDB's files have room that was never written.
MEASURED: Final[dict[tuple[str, str], tuple[float, float]]] = {
    ("clone-tables", "postgres"): (0.13, 0.95),
    ("clone-tables", "mariadb"): (0.45, 0.95),
    ("clone-tables", "mysql"): (0.45, 0.95),
    ("sysbench", "postgres"): (0.30, 0.95),
    ("sysbench", "mariadb"): (0.53, 0.93),
    ("sysbench", "mysql"): (0.53, 0.93),
}


def share_of(value: object) -> float:
    """The parameter's value. PlanInvalid."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise PlanInvalid(f'"{NAME}" of the dataset should be a share between 0 and 1, not {value!r}')
    return float(value)


def noise(kind: str, engine: str, share: float) -> float:
    """The part of the columns, 0 to 1, that is to be noise; the nearest possible one."""
    all_noise, no_noise = MEASURED[kind, engine]
    return min(1.0, max(0.0, (no_noise - share) / (no_noise - all_noise)))


def fill_clones(server: Server, tables: Sequence[str], rows: int, share: float) -> None:
    """Make the clone tables; all are equal."""
    row = f"n, n * 48271 % 10000, {body(server.engine, share)}"
    columns = "id bigint NOT NULL{key}, k integer NOT NULL, body {kind} NOT NULL"
    for table in tables:
        if server.engine == "postgres":
            made = columns.format(key="", kind="bytea")
            execute(
                server,
                "BEGIN",  # with wal_level = minimal, rows of a table made in the same transaction are not logged
                f"CREATE TABLE {table} ({made})",
                # as it is, not compressed by the server: that is what the filesystem is asked about
                f"ALTER TABLE {table} ALTER body SET STORAGE EXTERNAL",
                f"INSERT INTO {table} SELECT {row} FROM generate_series(1::bigint, {rows}) AS n",
                "COMMIT",
            )
        else:
            made = columns.format(key=" PRIMARY KEY", kind="varbinary(400)")
            execute(server, f"CREATE TABLE {table} ({made}) ENGINE=InnoDB",
                    *_chunks(server.engine, f"INSERT INTO {table}", row, rows), f"ANALYZE TABLE {table}")  # fmt: skip


def body(engine: str, share: float) -> str:
    """The SQL of a clone table's last column, of the row number `n`: bytes."""
    size = round(BODY * noise("clone-tables", engine, share))
    if engine == "postgres":
        return f"substring({_hashes(engine, size)} from 1 for {size}) || decode(repeat('00', {BODY - size}), 'hex')"
    return f"concat(left({_hashes(engine, size)}, {size}), repeat(char(0), {BODY - size}))"


def fill_sysbench(server: Server, tables: int, rows: int, share: float) -> None:
    """Rows for sysbench's tables, which are there and empty."""
    for number in range(1, tables + 1):
        table = f"sbtest{number}"
        columns = ", ".join(_text(server.engine, length, share, at) for at, length in enumerate(COLUMNS))
        row = f"n, n * 48271 % {rows} + 1, {columns}"
        if server.engine == "postgres":
            execute(
                server,
                f"INSERT INTO {table} (id, k, c, pad) SELECT {row} FROM generate_series(1::bigint, {rows}) AS n",
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {rows})",
            )
        else:
            execute(server, *_chunks(server.engine, f"INSERT INTO {table} (id, k, c, pad)", row, rows))


def _chunks(engine: str, insert: str, row: str, rows: int) -> list[str]:
    depth = "max_recursive_iterations" if engine == "mariadb" else "cte_max_recursion_depth"
    return [
        f"SET SESSION {depth} = {CHUNK_ROWS + 1}",
        *(
            f"{insert} WITH RECURSIVE numbers AS (SELECT CAST({first} AS SIGNED) AS n UNION ALL "
            f"SELECT n + 1 FROM numbers WHERE n < {min(first + CHUNK_ROWS - 1, rows)}) SELECT {row} FROM numbers"
            for first in range(1, rows + 1, CHUNK_ROWS)
        ),
    ]


def _text(engine: str, length: int, share: float, salt: int) -> str:
    """The SQL of `length` characters, of which a part is base64 of hashes."""
    size = round(length * noise("sysbench", engine, share))
    hashes = _hashes(engine, size * 3 // 4 + 3, salt * 10)
    if engine == "postgres":
        shown = f"replace(encode({hashes}, 'base64'), E'\\n', '')"
        return f"left({shown}, {size}) || repeat('0', {length - size})"
    return f"concat(left(replace(to_base64({hashes}), '\\n', ''), {size}), repeat('0', {length - size}))"


def _hashes(engine: str, size: int, salt: int = 0) -> str:
    """The SQL of `size` bytes or more that follow from the row number alone."""
    count = max(1, -(-size // HASH_BYTES))
    if engine == "postgres":
        return "(" + " || ".join(f"sha512((n || '.{salt + i}')::bytea)" for i in range(count)) + ")"
    return "concat(" + ", ".join(f"unhex(sha2(concat(n, '.{salt + i}'), 512))" for i in range(count)) + ")"
