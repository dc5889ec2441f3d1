"""What a full scan is on each engine: which tables there are, the statement that reads all of one, its plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from dbbench.errors import DriverFailed


@dataclass(frozen=True)
class Table:
    """A table and the logical bytes that a scan of it reads."""

    name: str  # with its schema, where that is not the one that is looked in first
    size_bytes: int
    tablespace: str = ""  # PostgreSQL: its own one


@dataclass(frozen=True)
class Dialect:
    """One engine's way. `statement` also prepares its session; neither counts to the scan's time."""

    tables: Callable[[Any], list[Table]]
    statement: Callable[[Any, str], str]  # (connection, table)
    scan: Callable[[Any, str], str]  # (connection, statement): the plan, or "" where the scan does not give it
    explain: Callable[[Any, str], str]  # (connection, statement): the plan of such a statement, after the scan


def rows_of(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """All rows of a statement; empty where it has no result."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


# --- PostgreSQL ------------------------------------------------------------------------------------

_POSTGRES_SESSION: Final = {
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",  # one process a table: N sessions mean N readers
    "synchronize_seqscans": "off",  # a scan begins at the first block, not where another one is
    "statement_timeout": "0",
}


def _postgres_tables(connection: Any) -> list[Table]:
    found = rows_of(
        connection,
        "SELECT n.nspname, c.relname, pg_relation_size(c.oid), coalesce(t.spcname, '') FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace"
        " WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%'"
        " AND n.nspname <> 'information_schema' ORDER BY c.oid",
    )
    return [
        Table(name if schema == "public" else f"{schema}.{name}", int(size), space)
        for schema, name, size, space in found
    ]


def _postgres_statement(connection: Any, table: str) -> str:
    for name, value in _POSTGRES_SESSION.items():
        rows_of(connection, f"SET {name} = '{value}'")
    # TIMING OFF: a clock reading for each row would make the scan wait for the processor, not for the disk.
    return f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM {_quoted(table)}"


def _quoted(table: str) -> str:
    return ".".join('"' + word.replace('"', '""') + '"' for word in table.split(".", 1))


def _postgres_scan(connection: Any, statement: str) -> str:
    plan = rows_of(connection, statement)[0][0]
    plan = json.loads(plan) if isinstance(plan, str) else plan
    node = plan[0]["Plan"]["Node Type"]
    if node != "Seq Scan":
        raise DriverFailed(f"not a sequential scan but a {node}: {statement}")
    return json.dumps(plan, indent=1)


# --- MariaDB and MySQL -----------------------------------------------------------------------------


def _innodb_tables(connection: Any) -> list[Table]:
    found = rows_of(
        connection,
        "SELECT table_name, data_length FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY LENGTH(table_name), table_name",
    )
    return [Table(str(name), int(size)) for name, size in found]


def _mysql_tables(connection: Any) -> list[Table]:
    rows_of(connection, "SET SESSION information_schema_stats_expiry = 0")  # else sizes may be a day old
    return _innodb_tables(connection)


def _innodb_statement(connection: Any, table: str) -> str:
    """A condition on a column that no index has, true for no row: every row of the clustered index is read.

    Where every column has an index, the clustered one is named instead.
    """
    columns = rows_of(
        connection,
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
        f" AND table_name = '{table}' AND column_key = '' ORDER BY ordinal_position DESC LIMIT 1",
    )
    if columns:
        return f"SELECT SQL_NO_CACHE COUNT(*) FROM `{table}` WHERE LENGTH(`{columns[0][0]}`) < 0"
    key = rows_of(
        connection,
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
        f" AND table_name = '{table}' AND column_key = 'PRI' LIMIT 1",
    )
    if not key:
        raise DriverFailed(f"every column of {table} is in an index and none is its primary key: no full scan")
    return f"SELECT SQL_NO_CACHE COUNT(*) FROM `{table}` USE INDEX (PRIMARY) WHERE LENGTH(`{key[0][0]}`) < 0"


def _innodb_scan(connection: Any, statement: str) -> str:
    rows_of(connection, statement)
    return ""


def _innodb_explain(connection: Any, statement: str) -> str:
    return str(rows_of(connection, f"EXPLAIN FORMAT=JSON {statement}")[0][0])


DIALECTS: Final[dict[str, Dialect]] = {
    "postgres": Dialect(_postgres_tables, _postgres_statement, _postgres_scan, lambda _connection, _statement: ""),
    "mariadb": Dialect(_innodb_tables, _innodb_statement, _innodb_scan, _innodb_explain),
    "mysql": Dialect(_mysql_tables, _innodb_statement, _innodb_scan, _innodb_explain),
}
