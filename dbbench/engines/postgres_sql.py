"""Statements for PostgreSQL; its counters, in one statement for all its views, and the checkpoints in its log."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.engines.port import Server, Table, rows_of
from dbbench.engines.settings import EVERY_VERSION, Versions, numbers_of
from dbbench.errors import DriverFailed

HASH_BYTES: Final = 64  # length of a SHA-512 hash
_SCAN_SESSION: Final = {
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",  # one process per scan, so that N sessions are N readers
    "synchronize_seqscans": "off",  # each scan starts at the first block, not at the position of a concurrent scan
    "statement_timeout": "0",
}


class PostgresSql:
    """PostgreSQL's dialect; implements `port.Sql`."""

    time_type = "timestamp"
    row_hash = "encode(sha256(n::text::bytea), 'hex')"
    rewriting = "VACUUM (FULL, ANALYZE)"
    one_message = True
    sysbench = "pgsql"
    sysbench_tls = ()

    def login(self, server: Server) -> list[str]:
        """Return sysbench's connection options. See `port.Sql.login`."""
        port = server.socket.name.rpartition(".")[2]
        where = [f"--pgsql-host={server.socket_dir}", f"--pgsql-port={port}"]
        return ["--db-driver=pgsql", *where, f"--pgsql-user={server.user}", f"--pgsql-db={server.database}"]

    def quoted(self, table: str) -> str:
        """Quote the name of a table. The first dot ends the schema's name."""
        return ".".join('"' + word.replace('"', '""') + '"' for word in table.split(".", 1))

    def tables(self, connection: Any) -> list[Table]:
        """Return the tables of all user schemas."""
        answer = rows_of(
            connection,
            "SELECT n.nspname, c.relname, pg_relation_size(c.oid), coalesce(t.spcname, '') FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace"
            " WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%'"
            " AND n.nspname <> 'information_schema' ORDER BY c.oid",
        )
        return [
            Table(name if schema == "public" else f"{schema}.{name}", int(size), space)
            for schema, name, size, space in answer
        ]

    def checksums(self, cursor: Any) -> dict[str, str]:
        """Return rows and the sum of their 64-bit hashes; hashtextextended exists from version 11 on."""
        cursor.execute(
            "SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND relpersistence = 'p'"
            " AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%' ORDER BY 1"
        )
        sums = {}
        for (table,) in cursor.fetchall():
            hashes = "coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)"
            cursor.execute(f"SELECT count(*) || ' rows, ' || {hashes} FROM {table} t")
            sums[str(table)] = str(cursor.fetchone()[0])
        return sums

    def cancel(self, server: Server, connection: Any) -> None:
        """Cancel the statement with libpq, which opens a connection for it."""
        connection.cancel()

    def refused(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return []: errors are raised."""
        return []

    def scan(self, connection: Any, table: str) -> str:
        """Return EXPLAIN ANALYZE, which discards the rows."""
        for name, value in _SCAN_SESSION.items():
            rows_of(connection, f"SET {name} = '{value}'")
        # TIMING OFF, because reading the clock for each row would make the CPU the bottleneck instead of the disk.
        return f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM {self.quoted(table)}"

    def scanned(self, connection: Any, statement: str) -> str:
        """Run the scan and return its plan. Raises DriverFailed if it was not a sequential scan."""
        plan = rows_of(connection, statement)[0][0]
        plan = json.loads(plan) if isinstance(plan, str) else plan
        node = plan[0]["Plan"]["Node Type"]
        if node != "Seq Scan":
            raise DriverFailed(f"not a sequential scan but a {node}: {statement}")
        return json.dumps(plan, indent=1)

    def explained(self, connection: Any, statement: str) -> str:
        """Return ""; the scan gives its plan."""
        return ""

    def dirtied_blocks(self, plan: str) -> int | None:
        """Return the dirtied blocks in the plan's BUFFERS: the scan set hint bits or pruned rows in them."""
        return int(json.loads(plan)[0]["Plan"].get("Shared Dirtied Blocks", 0))

    def created(self, table: str, columns: str, key: str = "") -> str:
        """Return the statement without the key: building an index over all rows is faster than row by row."""
        return f"CREATE TABLE {table} ({columns})"

    def keyed(self, table: str, key: str) -> list[str]:
        """Return the statements that add the primary key."""
        return [f"ALTER TABLE {table} ADD PRIMARY KEY ({key})"]

    def analysed(self, *tables: str) -> list[str]:
        """Return the statements that update statistics."""
        return [f"ANALYZE {table}" for table in tables]

    def finished(self, *tables: str) -> list[str]:
        """Return []; `settled` handles all tables."""
        return []

    def settled(self) -> list[str]:
        """Return the statements to run once after loading."""
        return ["VACUUM (FREEZE, ANALYZE)"]

    def cloned(self, table: str, row: str, rows: int, join: str = "", packed: bool = False) -> list[str]:
        """Return one transaction: with wal_level = minimal, rows of a table created in it are not logged."""
        kind = "bytea" if packed else "varchar(400)"
        columns = f"id bigint NOT NULL, k integer NOT NULL, body {kind} NOT NULL"
        # Stored without the server's compression, because the filesystem's compression is measured.
        stored = [f"ALTER TABLE {table} ALTER body SET STORAGE EXTERNAL"] if packed else []
        insert = f"INSERT INTO {table} SELECT {row} FROM generate_series(1::bigint, {rows}) AS n {join}"
        return ["BEGIN", self.created(table, columns), *stored, insert, "COMMIT"]

    def filled(self, table: str, columns: str, row: str, rows: int) -> list[str]:
        """Return the statements that fill a table with numbered rows."""
        return [f"INSERT INTO {table} ({columns}) SELECT {row} FROM generate_series(1::bigint, {rows}) AS n"]

    def numbered(self, table: str, rows: int) -> list[str]:
        """Return the statements that set the sequence."""
        return [f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {rows})"]

    def noisy_bytes(self, noise: int, zeros: int) -> str:
        """Return an expression for incompressible bytes followed by zeros."""
        return f"substring({_hashes(noise)} from 1 for {noise}) || decode(repeat('00', {zeros}), 'hex')"

    def noisy_text(self, noise: int, zeros: int, salt: int) -> str:
        """Return an expression for Base64 text of hashes."""
        shown = f"replace(encode({_hashes(noise * 3 // 4 + 3, salt * 10)}, 'base64'), E'\\n', '')"
        return f"left({shown}, {noise}) || repeat('0', {zeros})"

    def put(self, cursor: Any, table: str, batch: Sequence[Sequence[str]]) -> None:
        """Insert rows with COPY."""
        cursor.copy_expert(f"COPY {table} FROM STDIN", io.StringIO("".join("\t".join(row) + "\n" for row in batch)))


def _hashes(size: int, salt: int = 0) -> str:
    """Return an expression for at least `size` bytes that depend only on the row number `n`."""
    count = max(1, -(-size // HASH_BYTES))
    return "(" + " || ".join(f"sha512((n || '.{salt + i}')::bytea)" for i in range(count)) + ")"


DATABASE: Final = "dbbench"

_BEGUN: Final = re.compile(r" LOG:  (?:checkpoint|restartpoint) starting:(.*)")
_ENDED: Final = re.compile(r" LOG:  (?:checkpoint|restartpoint) complete:")
_CAUSES: Final = {"time": "timed", "wal": "wal", "xlog": "wal", "shutdown": "shutdown", "end-of-recovery": "recovery"}
CAUSES: Final = ("timed", "wal", "requested", "shutdown", "recovery")


# The application name and the latest statement of each session. Once a session is no longer listed, its statistics are
# complete.
_PRESENT: Final = """(SELECT json_object_agg(pid, left(concat_ws(': ', nullif(application_name, ''), query), 100))
FROM pg_stat_activity WHERE backend_type = 'client backend')"""


def sessions_statement(major: int) -> str:
    """Return a statement with one row: client sessions by pid, sessions opened (NULL below 14), time of the last
    reload."""
    opened = "(SELECT sum(sessions)::bigint FROM pg_stat_database)" if major >= 14 else "NULL"
    return f"SELECT {_PRESENT}, {opened}, pg_conf_load_time()::text"


@dataclass(frozen=True)
class PgView:
    """Counters that some versions have in the same columns of one view."""

    view: str
    columns: Mapping[str, str]  # counter -> column
    versions: Versions = EVERY_VERSION
    where: str = ""
    formula: str = "{}"  # an expression with the column in place of {}
    also: tuple[str, ...] = ()  # further columns that `where` and `formula` use
    setting: str = ""  # if it is off, the server does not measure them, and the view has 0


@dataclass(frozen=True)
class Reading:
    """How to read the counters from one server, and which columns it lacks."""

    statement: str  # one row of jsonb objects, counter -> number
    origins: Mapping[str, str]  # counter -> view.column
    lacking: tuple[str, ...]  # view.column that its version should have but does not

    def counters(self, row: Iterable[Mapping[str, object] | None]) -> dict[str, float]:
        """Return the numbers of a row; a counter without a value is omitted."""
        values = {name: value for part in row for name, value in (part or {}).items()}
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}

    def without_value(self, counters: Mapping[str, float]) -> tuple[str, ...]:
        """Return view.column of every counter without a number in the row."""
        return tuple(origin for name, origin in self.origins.items() if name not in counters)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_DATA: Final = {"data_write_bytes": "writes", "data_extend_bytes": "extends", "data_read_bytes": "reads"}
_WAL: Final = "object = 'wal' AND context = 'normal'"
_BY_BACKENDS: Final = "object = 'relation' AND backend_type NOT IN ('checkpointer', 'background writer')"
SOURCES: Final = (
    PgView("pg_stat_database", _same("xact_commit", "xact_rollback", "blks_read", "blks_hit", "tup_inserted",
           "tup_updated", "tup_deleted", "temp_bytes", "deadlocks"),
           where=f"datname = '{DATABASE}'", also=("datname",)),
    PgView("pg_stat_bgwriter", _same("buffers_clean", "maxwritten_clean", "buffers_alloc")),
    PgView("pg_stat_bgwriter", {**_same("buffers_checkpoint", "buffers_backend", "buffers_backend_fsync"),
           "checkpointer_write_ms": "checkpoint_write_time", "checkpointer_sync_ms": "checkpoint_sync_time"},
           Versions(last=(16,))),
    PgView("pg_stat_checkpointer", {"buffers_checkpoint": "buffers_written", "checkpointer_write_ms": "write_time",
           "checkpointer_sync_ms": "sync_time"}, Versions((17,))),
    PgView("pg_stat_wal", _same("wal_records", "wal_fpi", "wal_bytes", "wal_buffers_full"), Versions((14,))),
    PgView("pg_stat_wal", _same("wal_write", "wal_sync"), Versions((14,), (17,))),
    PgView("pg_stat_wal", {"wal_write_ms": "wal_write_time", "wal_sync_ms": "wal_sync_time"}, Versions((14,), (17,)),
           setting="track_wal_io_timing"),
    # Excludes the context "init", the filling of new segments with zeros, which pg_stat_wal never counted.
    PgView("pg_stat_io", {"wal_write": "writes", "wal_sync": "fsyncs"}, Versions((18,)), where=_WAL, formula="sum({})",
           also=("object", "context")),
    PgView("pg_stat_io", {"wal_write_ms": "write_time", "wal_sync_ms": "fsync_time"}, Versions((18,)), where=_WAL,
           formula="sum({})", also=("object", "context"), setting="track_wal_io_timing"),
    PgView("pg_stat_wal", _same("wal_fpi_bytes"), Versions((19,))),
    # pg_stat_io counts bytes since version 18; before, operations and the size of one.
    PgView("pg_stat_io", _DATA, Versions((16,), (17,)), where="object = 'relation'",
           formula="sum({} * op_bytes)", also=("object", "op_bytes")),
    PgView("pg_stat_io", {"data_write_bytes": "write_bytes", "data_extend_bytes": "extend_bytes",
           "data_read_bytes": "read_bytes"}, Versions((18,)), where="object = 'relation'",
           formula="sum({})", also=("object",)),
    # Pages that sessions write themselves; up to version 16 pg_stat_bgwriter counts them.
    PgView("pg_stat_io", {"buffers_backend": "writes"}, Versions((17,), (17,)), where=_BY_BACKENDS,
           formula="sum({} + coalesce(extends, 0))", also=("object", "backend_type", "extends")),
    PgView("pg_stat_io", {"buffers_backend": "write_bytes"}, Versions((18,)), where=_BY_BACKENDS,
           formula="sum({} + coalesce(extend_bytes, 0)) / current_setting('block_size')::int",
           also=("object", "backend_type", "extend_bytes")),
    PgView("pg_stat_io", {"buffers_backend_fsync": "fsyncs"}, Versions((17,)), where=_BY_BACKENDS,
           formula="sum({})", also=("object", "backend_type")),
)  # fmt: skip
VIEWS: Final = tuple(dict.fromkeys(source.view for source in SOURCES))
COLUMNS: Final = (
    "SELECT view, array_agg(attname::text) FROM unnest(%s::text[]) view"
    " JOIN pg_attribute ON attrelid = to_regclass(view) AND attnum > 0 AND NOT attisdropped GROUP BY view"
)
"""Asks a server for the columns that its views have."""
OFF: Final = "SELECT name FROM pg_settings WHERE setting = 'off'"
_AUTOVACUUM: Final = (
    "(SELECT jsonb_build_object('autovacuum_workers_running', count(*)) FROM pg_stat_activity"
    " WHERE backend_type = 'autovacuum worker')"
)
_SESSIONS: Final = (
    "(SELECT jsonb_build_object('sessions_connected', count(*)) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend')"
)
_XIDS: Final = "(SELECT jsonb_build_object('xids', txid_snapshot_xmax(txid_current_snapshot())))"


def reading(version: str, columns: Mapping[str, Collection[str]], off: Collection[str] = ()) -> Reading:
    """Return how to read the counters of a server of that version whose views have those columns.

    `off`: its settings that are off; what it does not measure because of them is not read.

    Only existing columns are queried: a missing one would make the whole statement fail.
    """
    parts, origins, lacking = [_AUTOVACUUM, _SESSIONS, _XIDS], {}, []
    for source in SOURCES:
        if numbers_of(version) not in source.versions or source.setting in off:
            continue
        there = columns.get(source.view, ())
        wanted = dict.fromkeys((*source.columns.values(), *source.also))
        lacking += [f"{source.view}.{column}" for column in wanted if column not in there]
        usable = {name: column for name, column in source.columns.items() if column in there}
        if usable and all(column in there for column in source.also):
            parts.append(_object(source, usable))
            origins.update({name: f"{source.view}.{column}" for name, column in usable.items()})
    return Reading("SELECT " + ", ".join(parts), origins, tuple(dict.fromkeys(lacking)))


def _object(source: PgView, columns: Mapping[str, str]) -> str:
    pairs = ", ".join(f"'{name}', {source.formula.format(column)}" for name, column in columns.items())
    where = f" WHERE {source.where}" if source.where else ""
    return f"(SELECT jsonb_build_object({pairs}) FROM {source.view}{where})"


class CheckpointLog:
    """Counts checkpoints by the lines of log_checkpoints, which is exact in every version.

    The statistics views count only by cause; some versions count at the beginning of a checkpoint, some at its end.
    """

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self._offset = offset
        self._rest = b""
        self._counts: Counter[str] = Counter()

    def read(self) -> dict[str, float]:
        """Return cumulative counts since the server's start."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        self._counts.update(checkpoint_events(line.decode(errors="replace") for line in lines))
        names = ("begun", "ended", *CAUSES)
        return {f"checkpoints_{name}": float(self._counts[name]) for name in names}


def checkpoint_events(lines: Iterable[str]) -> list[str]:
    """Return `begun`, its cause, and `ended`, in the order of the log."""
    events = []
    for line in lines:
        if begun := _BEGUN.search(line):
            causes = (_CAUSES[word] for word in begun[1].split() if word in _CAUSES)
            events += ["begun", next(causes, "requested")]
        elif _ENDED.search(line):
            events.append("ended")
    return events
