"""Statements for MariaDB and MySQL."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dbbench.engines.innodb_server import SYSBENCH_OPTIONS
from dbbench.engines.port import NULL, Server, Table, rows_of
from dbbench.errors import DriverFailed

CHUNK_ROWS: Final = 20_000  # rows per transaction, so that undo and temporary tables stay in memory
HASH_BYTES: Final = 64  # length of a SHA-512 hash


@dataclass(frozen=True)
class InnodbSql:
    """InnoDB's dialect; implements `port.Sql`."""

    recursion: str  # the variable that limits the depth of a recursive query
    fresh_sizes: str = ""  # the statement that makes the session report current table sizes; "": it always does

    time_type: str = "datetime"
    row_hash: str = "sha2(n, 256)"  # MySQL 9.6 and later have no md5
    rewriting: str = "OPTIMIZE TABLE"
    one_message: bool = False
    sysbench: str = "mysql"
    sysbench_tls: tuple[str, ...] = ("--mysql-ssl=on",)  # 1.0 reads the certificates from its working directory

    def login(self, server: Server) -> list[str]:
        """Return sysbench's connection options. See `port.Sql.login`."""
        where = [f"--mysql-socket={server.socket}", f"--mysql-user={server.user}", f"--mysql-db={server.database}"]
        return [f"--config-file={server.socket_dir / SYSBENCH_OPTIONS}", "--db-driver=mysql", *where]

    def quoted(self, table: str) -> str:
        """Quote the name of a table."""
        return "`" + table.replace("`", "``") + "`"

    def tables(self, connection: Any) -> list[Table]:
        """Return the tables of the dataset's database."""
        if self.fresh_sizes:
            rows_of(connection, self.fresh_sizes)
        answer = rows_of(
            connection,
            "SELECT table_name, data_length FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY LENGTH(table_name), table_name",
        )
        return [Table(str(name), int(size)) for name, size in answer]

    def checksums(self, cursor: Any) -> dict[str, str]:
        """Return CHECKSUM TABLE, which reads every row, for each table. Comparable only for one version and
        row format."""
        cursor.execute("SELECT table_name FROM information_schema.tables"
                       " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY 1")  # fmt: skip
        sums = {}
        for (name,) in cursor.fetchall():
            table = self.quoted(str(name))
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            count = cursor.fetchone()[0]
            cursor.execute(f"CHECKSUM TABLE {table} EXTENDED")
            sums[str(name)] = f"{count} rows, {cursor.fetchone()[1]}"
        return sums

    def cancel(self, server: Server, connection: Any) -> None:
        """Cancel the statement from another session."""
        with contextlib.closing(server.connect()) as other:
            rows_of(other, f"KILL QUERY {connection.connection_id}")

    def refused(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return the errors in the result rows of OPTIMIZE TABLE and similar statements."""
        return [str(row[3]) for row in rows if len(row) == 4 and str(row[2]).lower() == "error"]

    def scan(self, connection: Any, table: str) -> str:
        """Return a statement with a condition on an unindexed column that no row meets, so that every row of the
        clustered index is read.

        If every column has an index, the statement names the clustered index instead.
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

    def scanned(self, connection: Any, statement: str) -> str:
        """Run a scan; return its plan if the scan itself gives it."""
        rows_of(connection, statement)
        return ""

    def explained(self, connection: Any, statement: str) -> str:
        """Return the plan of a scan."""
        return str(rows_of(connection, f"EXPLAIN FORMAT=JSON {statement}")[0][0])

    def dirtied_blocks(self, plan: str) -> int | None:
        """Return None: the plan does not contain it."""
        return None

    def created(self, table: str, columns: str, key: str = "") -> str:
        """Return the statement that makes a table with its primary key, which is the order in which InnoDB
        stores rows."""
        return f"CREATE TABLE {table} ({columns}{f', PRIMARY KEY ({key})' if key else ''}) ENGINE=InnoDB"

    def keyed(self, table: str, key: str) -> list[str]:
        """Return []: the table already has its key."""
        return []

    def analysed(self, *tables: str) -> list[str]:
        """Return the statements that update statistics."""
        return [f"ANALYZE TABLE {table}" for table in tables]

    def finished(self, *tables: str) -> list[str]:
        """Return the statements to run on each table after it was loaded."""
        return self.analysed(*tables)

    def settled(self) -> list[str]:
        """Return []: purge works by itself."""
        return []

    def cloned(self, table: str, row: str, rows: int, join: str = "", packed: bool = False) -> list[str]:
        """Return the statements that make and fill a clone table."""
        kind = "varbinary(400)" if packed else "varchar(400)"
        columns = f"id bigint NOT NULL PRIMARY KEY, k integer NOT NULL, body {kind} NOT NULL"
        chunks = self._chunks(f"INSERT INTO {table}", f"{row} FROM numbers {join}".rstrip(), rows, bool(join))
        return [self.created(table, columns), *chunks, *self.analysed(table)]

    def filled(self, table: str, columns: str, row: str, rows: int) -> list[str]:
        """Return the statements that fill a table with numbered rows."""
        return self._chunks(f"INSERT INTO {table} ({columns})", f"{row} FROM numbers", rows)

    def numbered(self, table: str, rows: int) -> list[str]:
        """Return []: AUTO_INCREMENT already continues after the largest value."""
        return []

    def noisy_bytes(self, noise: int, zeros: int) -> str:
        """Return an expression for incompressible bytes followed by zeros."""
        return f"concat(left({_hashes(noise)}, {noise}), repeat(char(0), {zeros}))"

    def noisy_text(self, noise: int, zeros: int, salt: int) -> str:
        """Return an expression for Base64 text of hashes."""
        hashes = _hashes(noise * 3 // 4 + 3, salt * 10)
        return f"concat(left(replace(to_base64({hashes}), '\\n', ''), {noise}), repeat('0', {zeros}))"

    def put(self, cursor: Any, table: str, batch: Sequence[Sequence[str]]) -> None:
        """Insert rows with one INSERT."""
        values = ",".join("('" + "','".join(row) + "')" for row in batch).replace(f"'{NULL}'", "NULL")
        cursor.execute(f"INSERT INTO {table} VALUES {values}")

    def _chunks(self, insert: str, select: str, rows: int, joined: bool = False) -> list[str]:
        """Return inserts of CHUNK_ROWS rows each, generated by a recursive query."""
        order = "STRAIGHT_JOIN " if joined else ""
        return [
            f"SET SESSION {self.recursion} = {CHUNK_ROWS + 1}",
            *(
                f"{insert} WITH RECURSIVE numbers AS (SELECT CAST({first} AS SIGNED) AS n UNION ALL "
                f"SELECT n + 1 FROM numbers WHERE n < {min(first + CHUNK_ROWS - 1, rows)}) SELECT {order}{select}"
                for first in range(1, rows + 1, CHUNK_ROWS)
            ),
        ]


def _hashes(size: int, salt: int = 0) -> str:
    """Return an expression for at least `size` bytes that depend only on the row number `n`."""
    count = max(1, -(-size // HASH_BYTES))
    return "concat(" + ", ".join(f"unhex(sha2(concat(n, '.{salt + i}'), 512))" for i in range(count)) + ")"
