"""Statements for MariaDB and MySQL."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dbbench.engines.innodb_server import SYSBENCH_OPTIONS
from dbbench.engines.sql import NULL, Ask, Endpoint, Sql, Table, hashes, rows_of
from dbbench.errors import DriverFailed

CHUNK_ROWS: Final = 20_000  # rows per transaction, so that undo and temporary tables stay in memory


@dataclass(frozen=True)
class InnodbSql(Sql):
    """See `sql.Sql`."""

    recursion: str  # the variable that limits the depth of a recursive query
    # the statement that makes the session report current table sizes; "": it always does
    fresh_sizes: str = ""

    time_type = "datetime"
    row_hash = "sha2(n, 256)"  # MySQL 9.6 and later have no md5
    rewriting = "OPTIMIZE TABLE"
    one_message = False
    sysbench = "mysql"
    sysbench_tls = ("--mysql-ssl=on",)  # 1.0 reads the certificates from its working directory

    def login(self, server: Endpoint) -> list[str]:
        return [
            f"--config-file={server.socket_dir / SYSBENCH_OPTIONS}",
            "--db-driver=mysql",
            f"--mysql-socket={server.socket}",
            f"--mysql-user={server.user}",
            f"--mysql-db={server.database}",
        ]

    def quote(self, table: str) -> str:
        return "`" + table.replace("`", "``") + "`"

    def tables(self, connection: Any) -> list[Table]:
        if self.fresh_sizes:
            rows_of(connection, self.fresh_sizes)
        answer = rows_of(
            connection,
            "SELECT table_name, data_length FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND engine = 'InnoDB'"
            " ORDER BY "
            "LENGTH(table_name), table_name",
        )
        return [Table(str(name), int(size)) for name, size in answer]

    def checksums(self, cursor: Any) -> dict[str, str]:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY 1"
        )
        sums = {}
        for (name,) in cursor.fetchall():
            table = self.quote(str(name))
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            count = cursor.fetchone()[0]
            cursor.execute(f"CHECKSUM TABLE {table} EXTENDED")
            sums[str(name)] = f"{count} rows, {cursor.fetchone()[1]}"
        return sums

    def cancel(self, server: Endpoint, connection: Any) -> None:
        with contextlib.closing(server.connect()) as other:
            rows_of(other, f"KILL QUERY {connection.connection_id}")

    def refusals(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        return [str(row[3]) for row in rows if len(row) == 4 and str(row[2]).lower() == "error"]

    def other_plan(
        self,
        ask: Ask,
        recorded: str,
        sample: str,
        database: str,
    ) -> str:
        if database:
            ask(f"USE {self.quote(database)}")
        ask("COMMIT")  # in a read-only transaction, a change cannot even be prepared
        ask("PREPARE dbbench_asked FROM %s", sample)
        return ""  # the sample is what was recorded

    def scan(self, connection: Any, table: str) -> str:
        """A condition that no row meets on a column without an index makes it read every row of the
        clustered index; if every column has an index, the statement names the clustered one.
        """
        for key, index in (("", ""), ("PRI", " USE INDEX (PRIMARY)")):
            columns = rows_of(
                connection,
                "SELECT column_name FROM information_schema.columns WHERE table_schema = "
                "DATABASE()"
                f" AND table_name = '{table}' AND column_key = '{key}' ORDER BY ordinal_position "
                "DESC LIMIT 1",
            )
            if columns:
                return (
                    f"SELECT SQL_NO_CACHE COUNT(*) FROM `{table}`{index} WHERE "
                    f"LENGTH(`{columns[0][0]}`) < 0"
                )
        raise DriverFailed(
            f"no column forces a full scan of {table} (all are indexed, there is no primary key)"
        )

    def scan_plan(self, connection: Any, statement: str) -> str:
        rows_of(connection, statement)
        return ""

    def explain(self, connection: Any, statement: str) -> str:
        return str(rows_of(connection, f"EXPLAIN FORMAT=JSON {statement}")[0][0])

    def create(self, table: str, columns: str, key: str = "") -> str:
        return (
            f"CREATE TABLE {table} ({columns}{f', PRIMARY KEY ({key})' if key else ''}) "
            "ENGINE=InnoDB"
        )

    def analyse(self, *tables: str) -> list[str]:
        return [f"ANALYZE TABLE {table}" for table in tables]

    def finish(self, *tables: str) -> list[str]:
        return self.analyse(*tables)

    def clone(
        self,
        table: str,
        row: str,
        rows: int,
        join: str = "",
        packed: bool = False,
    ) -> list[str]:
        kind = "varbinary(400)" if packed else "varchar(400)"
        columns = f"id bigint NOT NULL PRIMARY KEY, k integer NOT NULL, body {kind} NOT NULL"
        chunks = self._chunks(
            f"INSERT INTO {table}",
            f"{row} FROM numbers {join}".rstrip(),
            rows,
            bool(join),
        )
        return [self.create(table, columns), *chunks]

    def fill(self, table: str, columns: str, row: str, rows: int) -> list[str]:
        return self._chunks(f"INSERT INTO {table} ({columns})", f"{row} FROM numbers", rows)

    def noisy_bytes(self, noise: int, zeros: int) -> str:
        return f"concat(left({_hashes(noise)}, {noise}), repeat(char(0), {zeros}))"

    def noisy_text(self, noise: int, zeros: int, salt: int) -> str:
        text = _hashes(noise * 3 // 4 + 3, salt * 10)
        return f"concat(left(replace(to_base64({text}), '\\n', ''), {noise}), repeat('0', {zeros}))"

    def put(
        self,
        cursor: Any,
        table: str,
        batch: Sequence[Sequence[str]],
    ) -> None:
        values = ",".join("('" + "','".join(row) + "')" for row in batch).replace(
            f"'{NULL}'", "NULL"
        )
        cursor.execute(f"INSERT INTO {table} VALUES {values}")

    def _chunks(
        self,
        insert: str,
        select: str,
        rows: int,
        joined: bool = False,
    ) -> list[str]:
        order = "STRAIGHT_JOIN " if joined else ""
        return [
            f"SET SESSION {self.recursion} = {CHUNK_ROWS + 1}",
            *(
                f"{insert} WITH RECURSIVE numbers AS (SELECT CAST({first} AS SIGNED) AS n UNION "
                f"ALL SELECT n + 1 FROM numbers WHERE n < {min(first + CHUNK_ROWS - 1, rows)}) "
                f"SELECT {order}{select}"
                for first in range(1, rows + 1, CHUNK_ROWS)
            ),
        ]


def _hashes(size: int, salt: int = 0) -> str:
    return "concat(" + ", ".join(hashes("unhex(sha2(concat(n, '.{}'), 512))", size, salt)) + ")"
