"""One checksum for each table of the dataset, the same wherever the same rows are: of two servers of one version."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from dbbench.engines.port import Server


def of_tables(server: Server) -> dict[str, str]:
    """Table -> checksum over all its rows, of all tables of the dataset's database. Nothing is written for it, so it
    works on a standby. Whatever order rows lie in, it is the same."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        return _OF[server.engine](cursor)


def _postgres(cursor: Any) -> dict[str, str]:
    """Rows and the sum of their 64-bit hashes: hashtextextended is in every version from 11 on."""
    cursor.execute(
        "SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND relpersistence = 'p'"
        " AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%' ORDER BY 1"
    )
    found = {}
    for (table,) in cursor.fetchall():
        cursor.execute(
            f"SELECT count(*) || ' rows, ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM {table} t"
        )
        found[str(table)] = str(cursor.fetchone()[0])
    return found


def _innodb(cursor: Any) -> dict[str, str]:
    """CHECKSUM TABLE reads every row. Equal between servers of one version and row format alone."""
    cursor.execute("SELECT table_name FROM information_schema.tables"
                   " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY 1")  # fmt: skip
    found = {}
    for (name,) in cursor.fetchall():
        table = str(name).replace("`", "``")
        cursor.execute(f"SELECT COUNT(*) FROM `{table}`")
        count = cursor.fetchone()[0]
        cursor.execute(f"CHECKSUM TABLE `{table}` EXTENDED")
        found[str(name)] = f"{count} rows, {cursor.fetchone()[1]}"
    return found


_OF: Final[dict[str, Callable[[Any], dict[str, str]]]] = {"postgres": _postgres, "mariadb": _innodb, "mysql": _innodb}
