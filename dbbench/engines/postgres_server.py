"""A running PostgreSQL server: connections, settling, counters, checkpoints."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.engines import postgres_counters
from dbbench.engines.port import NAME, Counts, Place, Profile, Server, Sessions
from dbbench.engines.serving import total
from dbbench.engines.settings import Reported, numbers_of
from dbbench.engines.sql import execute, rows, rows_of
from dbbench.model import CheckpointFacts, Work
from dbbench.process import Running

# only part of the socket's name: without a load generator on another host no port is open
PORT: Final = 5432
SETTLE_S: Final = 600.0  # enough for an autovacuum of a large table at fixed cost limits
# extensions of the contrib package; used if they are installed
EXTENSIONS: Final = ("amcheck", "pg_buffercache")
BLOCK: Final = 8192  # the default of packages; the server's block_size replaces it
# enough for the size of a database with very many files; longer would burden a user's server
_FOREIGN_S: Final = 60
SLOT: Final = "dbbench.replication_slot"  # a setting of dbbench; the server has none for it
_LEAVING_S: Final = 1.0  # ample: a backend ends milliseconds after its connection was closed
# An idle background process waits for an event of the type Activity in its main loop
# ("CheckpointerMain"; see the table of wait events in the manual). This also covers the io workers
# of later versions. The startup process is ignored: on a standby it waits for log with a timer, and
# applying the log is the work of the load; crash recovery is over before a session can ask.
_AT_WORK: Final = """SELECT coalesce(backend_type, 'process'), pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()
AND CASE backend_type WHEN 'client backend' THEN state NOT IN ('idle', 'idle in transaction')
WHEN 'walsender' THEN false WHEN 'startup' THEN false ELSE wait_event_type IS DISTINCT FROM 'Activity' END"""
# The settings of other sessions: this one has no timeouts, whatever the file says.
_SETTINGS: Final = """SELECT s.name, coalesce(f.setting, s.setting),
CASE WHEN f.setting IS NULL THEN coalesce(s.unit, '') ELSE '' END FROM pg_settings s
LEFT JOIN pg_file_settings f ON f.name = s.name AND f.applied AND s.source = 'client'"""
_EFFECTIVE: Final = """SELECT s.name, coalesce(f.setting, current_setting(s.name)) FROM pg_settings s
LEFT JOIN pg_file_settings f ON f.name = s.name AND f.applied AND s.source = 'client' ORDER BY s.name"""
_TIMEOUTS: Final = {  # and the version that introduced them
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 14,
    "transaction_timeout": 17,
}
_RESERVE: Final = f"""SELECT pg_create_physical_replication_slot('{NAME}', true)
WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = '{NAME}')"""
_SCHEMAS: Final = (
    "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
)


def ready(pid: int, datadir: Path) -> bool:
    """Whether the postmaster accepts connections: line 8 of its pid file, as pg_ctl reads it. Each
    attempt to connect would leave a FATAL line in the log.
    """
    try:
        lines = (datadir / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    if len(lines) < 8 or lines[0] != str(pid):
        return False
    return lines[7].strip() == "ready"


def connect_read_only(socket: Path, user: str, database: str | None) -> Any:
    """Return a session of a user's server, in autocommit mode."""
    import psycopg2

    connection = psycopg2.connect(
        host=str(socket.parent),
        port=socket.suffix[1:],
        user=user,
        dbname=database or "postgres",
        application_name="dbbench",
        connect_timeout=10,
        options=f"-c statement_timeout={_FOREIGN_S}s",
    )
    connection.set_session(readonly=True, autocommit=True)
    return connection


class PostgresServer(Server):
    """A running server without a password (the kernel reports the account); it ends when a backend
    crashes.
    """

    def __init__(
        self,
        profile: Profile,
        place: Place,
        version: str,
        programs: Path,
        running: Running | None,
        offset: int = 0,
    ) -> None:
        """`offset`: the byte in the server's log at which the lines of this start begin."""
        super().__init__(profile, place, version, programs, running)
        self.port = place.network.port if place.network else PORT
        self.socket = place.sockets / f".s.PGSQL.{self.port}"
        self._checkpoints = postgres_counters.CheckpointLog(self.log, offset)
        # replaced according to the columns that the server's views have
        self._reading = postgres_counters.Reading()
        self._block = BLOCK
        self._tracks = True  # the setting track_counts
        self._slot = False  # a replication slot keeps the log
        # why its own database cannot be used, at the first start
        self._refusal: Exception | None = None
        self.reported: dict[str, Reported] = {}  # all settings in its own database, at its start

    def connect(self, database: str | None = None) -> Any:
        import psycopg2

        # These settings could end dbbench's own statements and sessions.
        version = numbers_of(self.version)
        timeouts = [name for name, since in _TIMEOUTS.items() if version >= (since,)]
        # A session that is not noted yet would look like that of another program.
        with self._lock:
            connection = psycopg2.connect(
                host=str(self.socket_dir),
                port=self.port,
                user=self.user,
                dbname=database or self.database,
                application_name="dbbench",
                # explicit, so that PGOPTIONS in the caller's environment has no effect
                options=" ".join(f"-c {name}=0" for name in timeouts),
                sslmode="disable",
                gssencmode="disable",
            )
            connection.autocommit = True
            self._opened.append(connection.info.backend_pid)
        return connection

    def answers(self) -> bool:
        """Whether it accepts connections, to its own database or, before that exists, to
        `postgres`. Raises psycopg2.OperationalError if it refuses permanently, psycopg2.Error if
        it cannot read its catalogue.
        """
        import psycopg2

        for database in (self.database, "postgres"):
            try:
                connection = self.connect(database)
            except psycopg2.OperationalError as error:
                if "FATAL" not in str(error) or "starting up" in str(error):
                    return False  # the pid file is from a crashed server that had the same pid
                self._refusal = self._refusal or error
            else:
                with contextlib.closing(connection):
                    self._read_settings(connection)
                return True
        assert self._refusal is not None
        raise self._refusal

    def prepare(self, slot: bool = False) -> None:
        """Create database and extensions at the first start; `slot`: and a replication slot that
        keeps the log.
        """
        if self._refusal:
            if rows(
                self,
                f"SELECT 1 FROM pg_database WHERE datname = '{NAME}'",
                database="postgres",
            ):
                raise self._refusal
            execute(self, f"CREATE DATABASE {NAME}", database="postgres")
            with contextlib.closing(self.connect()) as connection:
                # in a user's cluster, `postgres` may have settings of its own
                self._read_settings(connection)
                there = f"SELECT name FROM pg_available_extensions WHERE name IN {EXTENSIONS}"
                for (name,) in rows_of(connection, there):
                    rows_of(connection, f"CREATE EXTENSION {name}")
        self._slot = slot
        if slot:
            execute(self, _RESERVE)

    def _read_settings(self, connection: Any) -> None:
        answer = rows_of(connection, _SETTINGS)
        self.reported = {name: Reported(setting, unit) for name, setting, unit in answer}
        self._block = int(self.reported["block_size"].value)
        self._tracks = self.reported["track_counts"].value == "on"

    def admit(self, role: str, password: str) -> None:
        """Create a role, not a superuser, for everything in the dataset's database; only a SCRAM
        hash is sent.
        """
        from psycopg2.extensions import encrypt_password, quote_ident

        with contextlib.closing(self.connect()) as connection:
            name = quote_ident(role, connection)
            base = quote_ident(self.database, connection)
            # The golden copy may have a role of that name.
            how = (
                "ALTER"
                if rows_of(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
                else "CREATE"
            )
            secret = encrypt_password(password, role, connection, "scram-sha-256")
            rows_of(
                connection,
                f"{how} ROLE {name} LOGIN NOSUPERUSER BYPASSRLS PASSWORD %s",
                (secret,),
            )
            rows_of(connection, f"GRANT ALL ON DATABASE {base} TO {name}")
            # Tables of a user's own data can be in any schema.
            for (schema,) in rows_of(connection, _SCHEMAS):
                of = quote_ident(schema, connection)
                rows_of(connection, f"GRANT ALL ON SCHEMA {of} TO {name}")
                for kind in ("TABLES", "SEQUENCES", "ROUTINES"):
                    rows_of(connection, f"GRANT ALL ON ALL {kind} IN SCHEMA {of} TO {name}")

    def settle(self) -> None:
        """Wait until pg_stat_activity shows no background work; then checkpoint. A requested
        checkpoint speeds up one that the server spreads over up to an hour.
        """

        def busy() -> list[str]:
            activity = self.at_work()
            if any(name.startswith("checkpointer") for name in activity):
                self.checkpoint()
            return activity

        activity = process.wait_while(busy, SETTLE_S)
        if activity:
            text = f"{', '.join(activity)} still running after more than {SETTLE_S:.0f} s"
            raise process.too_late(text)
        self.checkpoint()

    def at_work(self) -> list[str]:
        """Return the processes other than this session's that run a statement or do not wait in
        their main loop.
        """
        return [f"{name} (pid {pid})" for name, pid in rows(self, _AT_WORK)]

    def checkpoint(self) -> None:
        execute(self, "CHECKPOINT")

    def counters(self) -> dict[str, float]:
        if self._counting is None:
            self._read("SELECT 1")  # connects, and learns the columns of this server's views
        values = self._reading.counters(self._read(self._reading.statement)[0])
        self._lacking.update(
            dict.fromkeys((*self._reading.lacking, *self._reading.without_value(values)))
        )
        return {**values, **self._checkpoints.read()}

    def sessions(self) -> Sessions:
        ask = postgres_counters.sessions_statement(numbers_of(self.version)[0])
        with self._lock:  # no session of dbbench begins between the answers
            if self._opened_before is None:
                # the server counts a session, also this one, at the end of its first statement
                self._read(ask)
            ((present, opened, configured),) = self._read(ask)
            if self._opened_before is None and opened is not None:
                until = time.monotonic() + _LEAVING_S
                # an ending session of dbbench may not be counted yet
                while len(present) > 1 and time.monotonic() < until:
                    time.sleep(0.01)
                    ((present, opened, configured),) = self._read(ask)
                self._opened_before = opened - len(self._opened)
            others = {}
            for pid, text in (present or {}).items():
                if int(pid) not in self._opened:
                    others[int(pid)] = text
            count = (
                None
                if opened is None or self._opened_before is None
                else opened - len(self._opened)
            )
        return Sessions(
            others,
            None if count is None else count - (self._opened_before or 0),
            configured,
        )

    def recovery_bytes(self) -> int | None:
        redo = (
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) FROM "
            "pg_control_checkpoint()"
        )
        return int(rows(self, redo)[0][0])

    def checkpoints(self, grown: Counts) -> CheckpointFacts:
        """Return the checkpoints in the log between two readings. Below version 19, full-page
        images are counted and not measured: images × block size is an upper bound (images omit
        holes, and wal_compression shrinks them).
        """
        ended = int(grown.get("checkpoints_ended", 0))
        fpi = grown.get(
            "wal_fpi_bytes", grown["wal_fpi"] * self._block if "wal_fpi" in grown else None
        )
        causes = {
            cause: int(grown.get(f"checkpoints_{cause}", 0)) for cause in postgres_counters.CAUSES
        }
        return CheckpointFacts(
            begun=int(grown.get("checkpoints_begun", 0)),
            ended=ended,
            by_cause={cause: count for cause, count in causes.items() if count},
            fpi_bytes=int(fpi) if fpi is not None else None,
            note="" if ended else "burst: no checkpoint in the window",
        )

    def written_bytes(self, grown: Counts) -> int | None:
        """Return WAL records + data pages of all processes; None below version 14 or without a
        counter.
        """
        pages = total(grown, "data_write_bytes", "data_extend_bytes")  # pg_stat_io
        if pages is None:
            buffers = total(grown, "buffers_checkpoint", "buffers_clean", "buffers_backend")
            pages = None if buffers is None else buffers * self._block
        if pages is None or "wal_bytes" not in grown:
            return None
        return int(grown["wal_bytes"] + pages)

    def work(self, grown: Counts, explicit: bool) -> Work:
        """A transaction gets an identifier (xid) with its first change, and so does a
        subtransaction: the number of commits limits how many of them count as writes.
        """
        counted = {name: int(value) for name, value in grown.items()}
        ended = total(counted, "xact_commit", "xact_rollback")
        blocks = total(counted, "blks_read", "blks_hit")
        if ended is None or not self._tracks:
            return Work()
        # A rolled back transaction may have got an identifier, too.
        writes = min(counted["xids"] - counted["xact_rollback"], counted["xact_commit"])
        return Work(
            transactions=ended,
            statements=ended,
            rows=counted.get("tup_inserted"),
            updated=counted.get("tup_updated"),
            deleted=counted.get("tup_deleted"),
            read=blocks,
            pages=counted.get("blks_read"),
            table_bytes=None if blocks is None else blocks * self._block,
            log_bytes=counted.get("wal_bytes"),
            writes=max(0, writes),
        )

    def hit_ratio(self, grown: Counts) -> float | None:
        """Return blocks found in shared_buffers ÷ blocks requested, in the dataset's database."""
        requests = total(grown, "blks_hit", "blks_read")
        return grown["blks_hit"] / requests if requests else None

    def dirty_bytes(self) -> int | None:
        """Return the size of dirty pages in shared_buffers, or None without pg_buffercache."""
        if not self.has_extension("pg_buffercache"):
            return None
        return (
            int(rows(self, "SELECT count(*) FROM pg_buffercache WHERE isdirty")[0][0]) * self._block
        )

    def effective_settings(self) -> dict[str, str]:
        """Return what SHOW prints, `huge_pages_status` also before version 17, and dbbench's
        setting for the slot.
        """
        settings = dict(rows(self, _EFFECTIVE))
        settings.setdefault("huge_pages_status", huge_pages(self.pid))
        if self._slot:
            return {**settings, SLOT: "on"}
        return settings

    def volatile_tables(self) -> list[str]:
        names = rows(
            self,
            "SELECT relname || ' (unlogged)' FROM pg_class"
            " WHERE relpersistence = 'u' AND relkind = 'r' ORDER BY 1",
        )
        return [str(name) for (name,) in names]

    def has_extension(self, name: str) -> bool:
        return bool(rows(self, f"SELECT 1 FROM pg_extension WHERE extname = '{name}'"))

    def _open(self) -> Any:
        connection = self.connect()
        columns = dict(rows_of(connection, postgres_counters.COLUMNS))
        off = [name for (name,) in rows_of(connection, postgres_counters.OFF)]
        self._reading = postgres_counters.reading(self.version, columns, off)
        return connection


def huge_pages(pid: int | None) -> str:
    """Return "on" or "off" by the huge pages of the process; what PostgreSQL 17 and later report
    themselves.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "unknown"
    for line in lines:
        if line.startswith("HugetlbPages:"):
            if int(line.split()[1]):
                return "on"
            return "off"
    return "unknown"
