"""A PostgreSQL server that is up: connections, counters, checkpoints."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Final

from dbbench.engines.postgres_counters import CAUSES, DATABASE, RENAMED, CheckpointLog, grown_between, statement
from dbbench.engines.settings import Reported
from dbbench.errors import DeadlinePassed, EngineDied
from dbbench.model import CheckpointFacts
from dbbench.process import Running

USER: Final = "dbbench"
PORT: Final = 5432  # part of the socket's name; nothing listens on it, unless a client of another host wants it
SETTLE_S: Final = 600.0  # an autovacuum of a large table at fixed costs
EXTENSIONS: Final = ("amcheck", "pg_buffercache")  # from the contrib package; used where they are there
BLOCK: Final = 8192  # as packages are built; the server's own block_size is read
# A background process that has nothing to do waits for an event of the type Activity, each in a loop of its own
# ("CheckpointerMain"); the manual's table of wait events. io workers and the like of later versions do as well.
# A standby's startup process waits for log by a timer, and what it applies is a load's own work.
_AT_WORK: Final = """SELECT coalesce(backend_type, 'process'), pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()
AND CASE backend_type WHEN 'client backend' THEN state NOT IN ('idle', 'idle in transaction')
WHEN 'walsender' THEN false WHEN 'startup' THEN false ELSE wait_event_type IS DISTINCT FROM 'Activity' END"""

_SCHEMAS: Final = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"


def ready(pid: int, datadir: Path) -> bool:
    """Whether the postmaster says that it takes connections: line 8 of its pid file, as pg_ctl reads it.

    Asking by connecting alone would leave a FATAL line in the log for every attempt during recovery.
    """
    try:
        lines = (datadir / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


class PostgresServer:
    """See `port.Server`."""

    engine = "postgres"
    user = USER
    database = DATABASE

    def __init__(
        self, program: Running, version: str, sockets: Path, log: Path, offset: int, bin: Path, port: int = PORT
    ) -> None:
        self.version = version
        self.socket_dir = sockets
        self.socket = sockets / f".s.PGSQL.{port}"
        self.port = port
        self.log = log
        self.bin = bin
        self._program = program
        self._checkpoints = CheckpointLog(log, offset)
        self._lock = threading.Lock()
        self._own: Any = None  # the connection that counters are read on
        self._block = BLOCK

    @property
    def pid(self) -> int:
        return self._program.pid

    def alive(self) -> bool:
        """Whether the postmaster runs. It ends when a backend crashes (restart_after_crash is off)."""
        return self._program.poll() is None

    def connect(self, database: str | None = None) -> Any:
        """A psycopg2 connection in autocommit mode."""
        import psycopg2

        connection = psycopg2.connect(
            host=str(self.socket_dir),
            port=self.port,
            user=USER,
            dbname=database or DATABASE,
            application_name="dbbench",
            options="-c statement_timeout=0",  # named, so that PGOPTIONS of the caller's shell has no say
            sslmode="disable",
            gssencmode="disable",
        )
        connection.autocommit = True
        return connection

    def answers(self) -> bool:
        """Whether it takes connections. psycopg2.OperationalError where it refuses for good."""
        import psycopg2

        try:
            self.connect("postgres").close()
        except psycopg2.OperationalError as error:
            if "FATAL" in str(error) and "starting up" not in str(error):
                raise
            return False  # the pid file was that of a server that crashed and had the same pid
        return True

    def prepare(self) -> None:
        """Database and extensions come with the first start."""
        with contextlib.closing(self.connect("postgres")) as first, first.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_database WHERE datname = %s", (DATABASE,))
            made = cursor.fetchone()[0] == 0
            if made:
                cursor.execute(f"CREATE DATABASE {DATABASE}")
        if made:
            with contextlib.closing(self.connect()) as own, own.cursor() as cursor:
                cursor.execute("SELECT name FROM pg_available_extensions WHERE name = ANY(%s)", (list(EXTENSIONS),))
                for (name,) in cursor.fetchall():
                    cursor.execute(f"CREATE EXTENSION {name}")

    def admit(self, role: str, password: str) -> None:
        """A role that may work on everything in the dataset's database and is no superuser. Only the password's hash
        (SCRAM) reaches the server."""
        from psycopg2.extensions import encrypt_password, quote_ident

        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            name, base = quote_ident(role, cursor), quote_ident(self.database, cursor)
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
            how = "ALTER" if cursor.fetchone() else "CREATE"
            hashed = encrypt_password(password, role, connection, "scram-sha-256")
            cursor.execute(f"{how} ROLE {name} LOGIN NOSUPERUSER BYPASSRLS PASSWORD %s", (hashed,))
            cursor.execute(f"GRANT ALL ON DATABASE {base} TO {name}")
            cursor.execute(_SCHEMAS)
            for (schema,) in cursor.fetchall():
                of = quote_ident(schema, cursor)
                cursor.execute(f"GRANT ALL ON SCHEMA {of} TO {name}")
                for kind in ("TABLES", "SEQUENCES", "ROUTINES"):
                    cursor.execute(f"GRANT ALL ON ALL {kind} IN SCHEMA {of} TO {name}")

    def settle(self) -> None:
        """Wait until pg_stat_activity shows no background work (recovery is over once it answers); then checkpoint.
        A checkpoint that the server spreads over its time, up to an hour, is hurried by one that is asked for."""
        until = time.monotonic() + SETTLE_S
        while busy := self.at_work():
            if time.monotonic() > until:
                raise DeadlinePassed(f"{', '.join(busy)} still at work after {SETTLE_S:.0f} s")
            if any(one.startswith("checkpointer") for one in busy):
                self.checkpoint()
            time.sleep(0.05)
        self.checkpoint()

    def at_work(self) -> list[str]:
        """What pg_stat_activity shows at work beside this session: backends that run a statement, and background
        processes that do not wait in their main loop, autovacuum workers above all. A standby's startup process, which
        waits for the next log between tries, is there for good; recovery after a crash is over before one can ask."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(_AT_WORK)
            return [f"{name} (pid {pid})" for name, pid in cursor.fetchall()]

    def checkpoint(self) -> None:
        """CHECKPOINT, without spreading."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")

    def counters(self) -> dict[str, float]:
        """The statistics views as one flat dict; checkpoints are counted in the server's log."""
        row = self._row(statement(int(self.version.partition(".")[0])))
        found: dict[str, float] = {}
        for part in row:
            for name, value in (part or {}).items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found[RENAMED.get(name, name)] = float(value)
        return {**found, **self._checkpoints.read()}

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        """From the log's lines. Full-page images are counted, not weighed, below version 19: images × block
        size, an upper bound (holes in pages are left out, wal_compression shrinks the rest)."""
        grown = grown_between(before, after)
        ended = int(grown.get("checkpoints_ended", 0))
        fpi = grown.get("wal_fpi_bytes", grown["wal_fpi"] * self._block if "wal_fpi" in grown else None)
        causes = {cause: int(grown.get(f"checkpoints_{cause}", 0)) for cause in CAUSES}
        return CheckpointFacts(
            begun=int(grown.get("checkpoints_begun", 0)),
            ended=ended,
            by_cause={cause: count for cause, count in causes.items() if count},
            fpi_bytes=int(fpi) if fpi is not None else None,
            note="" if ended else "burst: no checkpoint in the window",
        )

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        """WAL records + data pages, whoever wrote them. None below 14, which does not count WAL."""
        grown = grown_between(before, after)
        if "wal_bytes" not in grown:
            return None
        if "data_write_bytes" in grown:  # pg_stat_io
            pages = grown["data_write_bytes"] + grown.get("data_extend_bytes", 0)
        else:
            pages = sum(grown.get(f"buffers_{who}", 0) for who in ("checkpoint", "clean", "backend")) * self._block
        return int(grown["wal_bytes"] + pages)

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        """Blocks found in shared_buffers ÷ blocks asked for, in the dataset's database."""
        grown = grown_between(before, after)
        hit, read = grown.get("blks_hit", 0), grown.get("blks_read", 0)
        return hit / (hit + read) if hit + read else None

    def dirty_bytes(self) -> int | None:
        """Dirty pages in shared_buffers; None without pg_buffercache."""
        if not self.has_extension("pg_buffercache"):
            return None
        return int(self._number("SELECT count(*) FROM pg_buffercache WHERE isdirty")) * self._block

    def effective_settings(self) -> dict[str, str]:
        """What a session of the dataset's database sees, as SHOW prints it."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT name, current_setting(name) FROM pg_settings ORDER BY name")
            return dict(cursor.fetchall())

    def reported(self) -> dict[str, Reported]:
        """Every setting in the server's own unit."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT name, setting, coalesce(unit, '') FROM pg_settings")
            rows = {name: Reported(setting, unit) for name, setting, unit in cursor.fetchall()}
        self._block = int(rows["block_size"].value)
        return rows

    def has_extension(self, name: str) -> bool:
        """Whether the dataset's database has the extension."""
        return bool(self._number("SELECT count(*) FROM pg_extension WHERE extname = %s", name))

    def close(self) -> None:
        """End the connection of the counters."""
        with self._lock, contextlib.suppress(Exception):
            if self._own is not None:
                self._own.close()
            self._own = None

    def _row(self, statement: str) -> Any:
        import psycopg2

        with self._lock:
            try:
                if self._own is None:
                    self._own = self.connect()
                with self._own.cursor() as cursor:
                    cursor.execute(statement)
                    return cursor.fetchone()
            except psycopg2.Error as error:
                self._own = None  # the next reading begins anew
                raise EngineDied(f"its counters could not be read: {str(error).strip()}") from error

    def _number(self, statement: str, *values: object) -> float:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return float(cursor.fetchone()[0])
