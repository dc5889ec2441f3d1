"""PostgreSQL's dialect."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from dbbench.engines.sql import Ask, Endpoint, Sql, Table, hashes, rows_of
from dbbench.errors import DriverFailed, LiveServerUnreadable

_SCAN_SESSION: Final = {
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    # one process per scan, so that N sessions are N readers
    "max_parallel_workers_per_gather": "0",
    # each scan starts at the first block, not at the position of a concurrent scan
    "synchronize_seqscans": "off",
    "statement_timeout": "0",
}


class PostgresSql(Sql):
    """See `sql.Sql`."""

    time_type = "timestamp"
    row_hash = "encode(sha256(n::text::bytea), 'hex')"
    rewriting = "VACUUM (FULL, ANALYZE)"
    one_message = True
    sysbench = "pgsql"
    sysbench_tls = ()

    def login(self, server: Endpoint) -> list[str]:
        port = server.socket.name.rpartition(".")[2]
        where = [f"--pgsql-host={server.socket_dir}", f"--pgsql-port={port}"]
        return [
            "--db-driver=pgsql",
            *where,
            f"--pgsql-user={server.user}",
            f"--pgsql-db={server.database}",
        ]

    def quote(self, table: str) -> str:
        names = ['"' + word.replace('"', '""') + '"' for word in table.split(".", 1)]
        return ".".join(names)

    def tables(self, connection: Any) -> list[Table]:
        answer = rows_of(
            connection,
            "SELECT n.nspname, c.relname, pg_relation_size(c.oid), coalesce(t.spcname, '') FROM "
            "pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace t ON t.oid = "
            "c.reltablespace"
            " WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%'"
            " AND n.nspname <> 'information_schema' ORDER BY c.oid",
        )
        return [
            Table(name if schema == "public" else f"{schema}.{name}", int(size), space)
            for schema, name, size, space in answer
        ]

    def checksums(self, cursor: Any) -> dict[str, str]:
        # hashtextextended exists from version 11 on
        cursor.execute(
            "SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND relpersistence = "
            "'p'"
            " AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%' ORDER BY 1"
        )
        sums = {}
        for (table,) in cursor.fetchall():
            rows = "coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)"
            cursor.execute(f"SELECT count(*) || ' rows, ' || {rows} FROM {table} t")
            sums[str(table)] = str(cursor.fetchone()[0])
        return sums

    def cancel(self, server: Endpoint, connection: Any) -> None:
        connection.cancel()

    def other_plan(
        self,
        ask: Ask,
        recorded: str,
        sample: str,
        database: str,
    ) -> str:
        plan = _nodes(ask(f"EXPLAIN (FORMAT JSON) {sample}"))
        numbers = set(re.findall(r"\$\d+", recorded))
        execute = f"EXECUTE dbbench_asked({', '.join(['NULL'] * len(numbers))})".replace("()", "")
        with contextlib.suppress(LiveServerUnreadable):  # `interval $1` cannot be prepared
            force = "SET plan_cache_mode = force_generic_plan"  # it is planned for any values
            recorded_plan = _nodes(
                _prepare(ask, recorded, force, f"EXPLAIN (FORMAT JSON) {execute}")
            )
            if plan != recorded_plan:
                return f"another plan: {plan} instead of {recorded_plan}"
            return ""
        return ""

    def scan(self, connection: Any, table: str) -> str:
        for name, value in _SCAN_SESSION.items():
            rows_of(connection, f"SET {name} = '{value}'")
        # TIMING OFF, because reading the clock for each row would make the CPU the bottleneck
        # instead of the disk.
        return (
            f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM {self.quote(table)}"
        )

    def scan_plan(self, connection: Any, statement: str) -> str:
        """Raise DriverFailed if the scan was not sequential."""
        plan = rows_of(connection, statement)[0][0]
        plan = json.loads(plan) if isinstance(plan, str) else plan
        node = plan[0]["Plan"]["Node Type"]
        if node != "Seq Scan":
            raise DriverFailed(f"not a sequential scan but a {node}: {statement}")
        return json.dumps(plan, indent=1)

    def dirtied_blocks(self, plan: str) -> int | None:
        return int(json.loads(plan)[0]["Plan"].get("Shared Dirtied Blocks", 0))

    def create(self, table: str, columns: str, key: str = "") -> str:
        # an index over all rows is built faster than row by row
        return f"CREATE TABLE {table} ({columns})"

    def add_key(self, table: str, key: str) -> list[str]:
        return [f"ALTER TABLE {table} ADD PRIMARY KEY ({key})"]

    def analyse(self, *tables: str) -> list[str]:
        return [f"ANALYZE {table}" for table in tables]

    def finish(self, *tables: str) -> list[str]:
        return ["VACUUM (FREEZE, ANALYZE)"]

    def clone(
        self,
        table: str,
        row: str,
        rows: int,
        join: str = "",
        packed: bool = False,
    ) -> list[str]:
        kind = "bytea" if packed else "varchar(400)"
        columns = f"id bigint NOT NULL, k integer NOT NULL, body {kind} NOT NULL"
        # Stored without the server's compression, because the filesystem's compression is measured.
        stored = [f"ALTER TABLE {table} ALTER body SET STORAGE EXTERNAL"] if packed else []
        insert = (
            f"INSERT INTO {table} SELECT {row} FROM generate_series(1::bigint, {rows}) AS n {join}"
        )
        # One transaction: with wal_level = minimal, rows of a table that was made in it are not
        # logged.
        return ["BEGIN", self.create(table, columns), *stored, insert, "COMMIT"]

    def fill(self, table: str, columns: str, row: str, rows: int) -> list[str]:
        return [
            f"INSERT INTO {table} ({columns}) SELECT {row} FROM generate_series(1::bigint, "
            f"{rows}) AS n"
        ]

    def set_number(self, table: str, rows: int) -> list[str]:
        return [f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {rows})"]

    def noisy_bytes(self, noise: int, zeros: int) -> str:
        return (
            f"substring({_hashes(noise)} from 1 for {noise}) || decode(repeat('00', {zeros}), "
            "'hex')"
        )

    def noisy_text(self, noise: int, zeros: int, salt: int) -> str:
        shown = f"replace(encode({_hashes(noise * 3 // 4 + 3, salt * 10)}, 'base64'), E'\\n', '')"
        return f"left({shown}, {noise}) || repeat('0', {zeros})"

    def put(
        self,
        cursor: Any,
        table: str,
        batch: Sequence[Sequence[str]],
    ) -> None:
        cursor.copy_expert(
            f"COPY {table} FROM STDIN", io.StringIO("".join("\t".join(row) + "\n" for row in batch))
        )


def _hashes(size: int, salt: int = 0) -> str:
    return "(" + " || ".join(hashes("sha512((n || '.{}')::bytea)", size, salt)) + ")"


def parameter_types(ask: Ask, statement: str) -> list[str]:
    """Return the types of $1, $2, ... of a statement. Raises LiveServerUnreadable if the server
    refuses it.
    """
    types = (
        "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'dbbench_asked'"
    )
    return list(_prepare(ask, statement, types)[0][0])


def describe_type(ask: Ask, name: str) -> tuple[str, list[str]]:
    """Return the type on which a domain is based, otherwise `name`; and the labels of an enum."""
    element = name.removesuffix("[]")
    answer = ask(
        "SELECT CASE typtype WHEN 'd' THEN format_type(typbasetype, NULL) ELSE %s END, ARRAY(SELECT "
        "enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)"
        " FROM pg_type t WHERE t.oid = to_regtype(%s)",
        element,
        element,
    )
    base, labels = answer[0] if answer else (element, [])
    return str(base) + name[len(element) :], list(labels)


def common_values(ask: Ask, column: str, tables: Sequence[str]) -> list[str]:
    """Return the values of a column of one of the tables in the server's statistics."""
    return [
        value
        for (value,) in ask(
            "SELECT unnest(coalesce(most_common_vals::text::text[], '{}') || "
            "coalesce(histogram_bounds::text::text[], '{}')) FROM pg_stats WHERE attname = %s AND "
            "tablename = ANY(%s)",
            column,
            list(tables),
        )
    ]


def _prepare(ask: Ask, statement: str, *questions: str) -> list[tuple[Any, ...]]:
    """Prepare a statement and return the answer to the last question."""
    ask(f"PREPARE dbbench_asked AS {statement}")
    try:
        return [ask(question) for question in questions][-1]
    finally:
        ask("DEALLOCATE dbbench_asked")


def _nodes(answer: list[tuple[Any, ...]]) -> str:
    """Return the nodes of a plan, with their tables and indexes."""
    nodes = [answer[0][0][0]["Plan"]]
    parts = list[str]()
    while nodes:
        node = nodes.pop()
        parts.append(
            " ".join(
                str(node[key])
                for key in ("Node Type", "Relation Name", "Index Name")
                if key in node
            )
        )
        nodes += node.get("Plans", ())
    return ", ".join(parts)
