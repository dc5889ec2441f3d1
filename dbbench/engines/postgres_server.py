"""A running PostgreSQL server: connections, counters, checkpoints; and its write-ahead log: what production does with
it, and its files."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.engines import postgres_sql
from dbbench.engines.port import Place, Profile, Sessions
from dbbench.engines.serving import grown_between, moved, own, total, version_warnings
from dbbench.engines.settings import Reported, numbers_of, switched_on
from dbbench.errors import DeadlinePassed, EngineDied
from dbbench.model import CheckpointFacts, Scalar, Settings, TrialWarning, Work
from dbbench.model.base import PRODUCTION, STANDALONE
from dbbench.process import Running, User

USER: Final = "dbbench"
PORT: Final = 5432  # only part of the socket's name: without a load generator on another host no port is open
SETTLE_S: Final = 600.0  # enough for an autovacuum of a large table at fixed cost limits
EXTENSIONS: Final = ("amcheck", "pg_buffercache")  # extensions of the contrib package; used if they are installed
_LEAVING_S: Final = 1.0  # ample: a backend ends milliseconds after its connection was closed
BLOCK: Final = 8192  # the default of packages; the server's block_size replaces it
# An idle background process waits for an event of the type Activity in its main loop ("CheckpointerMain"; see the table
# of wait events in the manual). This also covers the io workers of later versions. The startup process is ignored: on a
# standby it waits for log with a timer, and applying the log is the work of the load.
_AT_WORK: Final = """SELECT coalesce(backend_type, 'process'), pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()
AND CASE backend_type WHEN 'client backend' THEN state NOT IN ('idle', 'idle in transaction')
WHEN 'walsender' THEN false WHEN 'startup' THEN false ELSE wait_event_type IS DISTINCT FROM 'Activity' END"""

_RESERVED: Final = """SELECT pg_create_physical_replication_slot(%s, true)
WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = %s)"""
_SCHEMAS: Final = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"


def ready(pid: int, datadir: Path) -> bool:
    """Whether the postmaster accepts connections: line 8 of its pid file, as pg_ctl reads it.

    Trying to connect instead would leave a FATAL line in the log for every attempt during recovery.
    """
    try:
        lines = (datadir / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


class PostgresServer:
    """A running PostgreSQL server; implements `port.Server`."""

    user = USER
    database = postgres_sql.DATABASE

    def __init__(
        self, profile: Profile, program: Running, version: str, place: Place, bin: Path, offset: int = 0
    ) -> None:
        """`offset`: the byte in the server's log at which the lines of this start begin."""
        self.profile = profile
        self.engine = profile.name
        self.version = version
        self.env: dict[str, str] = {}  # no password: the kernel reports the client's account
        self.port = place.network.port if place.network else PORT
        self.socket_dir = place.sockets
        self.socket = place.sockets / f".s.PGSQL.{self.port}"
        self.log = place.logs / "server.log"
        self.bin = bin
        self._program = program
        self._checkpoints = postgres_sql.CheckpointLog(self.log, offset)
        self._lock = threading.Lock()
        self._own: Any = None  # the open connection on which counters are read
        self._opened: list[int] = []  # backend pids of all connections that `connect` has opened
        self._opened_before: int | None = None  # sessions of others before the first call of `sessions`
        # Replaced according to the columns that the server's views have.
        self._reading = postgres_sql.Reading("", {}, ())
        self._lacking: dict[str, None] = {}  # missing view.column, in the order of their discovery
        self.left_out: tuple[str, ...] = ()  # defaults that the server does not know
        self._block = BLOCK
        self._counts = True  # the setting track_counts
        self._slot = False  # a replication slot keeps the log

    @property
    def pid(self) -> int:
        return self._program.pid

    def alive(self) -> bool:
        """Whether the postmaster runs. It ends when a backend crashes (restart_after_crash is off)."""
        return self._program.poll() is None

    def connect(self, database: str | None = None) -> Any:
        """Return a psycopg2 connection in autocommit mode."""
        import psycopg2

        connection = psycopg2.connect(
            host=str(self.socket_dir),
            port=self.port,
            user=USER,
            dbname=database or postgres_sql.DATABASE,
            application_name="dbbench",
            options="-c statement_timeout=0",  # explicit, so that PGOPTIONS in the caller's environment has no effect
            sslmode="disable",
            gssencmode="disable",
        )
        connection.autocommit = True
        self._opened.append(connection.info.backend_pid)
        return connection

    def answers(self) -> bool:
        """Whether it accepts connections. Raises psycopg2.OperationalError if it refuses permanently."""
        import psycopg2

        try:
            self.connect("postgres").close()
        except psycopg2.OperationalError as error:
            if "FATAL" in str(error) and "starting up" not in str(error):
                raise
            return False  # the pid file is from a crashed server that had the same pid
        return True

    def prepare(self, slot: bool = False) -> None:
        """Create database and extensions at the first start; `slot`: and a replication slot that keeps the log."""
        with contextlib.closing(self.connect("postgres")) as first, first.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_database WHERE datname = %s", (postgres_sql.DATABASE,))
            made = cursor.fetchone()[0] == 0
            if made:
                cursor.execute(f"CREATE DATABASE {postgres_sql.DATABASE}")
            self._slot = slot
            if slot:
                cursor.execute(_RESERVED, (SLOT_NAME, SLOT_NAME))
        if made:
            with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT name FROM pg_available_extensions WHERE name = ANY(%s)", (list(EXTENSIONS),))
                for (name,) in cursor.fetchall():
                    cursor.execute(f"CREATE EXTENSION {name}")

    def admit(self, role: str, password: str) -> None:
        """Create a role without superuser rights that can use everything in the dataset's database.

        Only the password's hash (SCRAM) reaches the server.
        """
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
        """Wait until pg_stat_activity shows no background work (recovery is over when it answers); then checkpoint.

        A requested checkpoint speeds up one that the server spreads over up to an hour.
        """

        def busy() -> list[str]:
            activity = self.at_work()
            if any(name.startswith("checkpointer") for name in activity):
                self.checkpoint()
            return activity

        if activity := process.wait_while(busy, SETTLE_S):
            raise DeadlinePassed(f"{', '.join(activity)} still running after {SETTLE_S:.0f} s")
        self.checkpoint()

    def at_work(self) -> list[str]:
        """Return the activity in pg_stat_activity other than this session.

        This covers backends that run a statement, and background processes that are not waiting in their main loop,
        such as autovacuum workers. The startup process of a standby, which waits for the next log between attempts, is
        always present; crash recovery is over before a session can ask.
        """
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(_AT_WORK)
            return [f"{name} (pid {pid})" for name, pid in cursor.fetchall()]

    def checkpoint(self) -> None:
        """Run CHECKPOINT, without spreading."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")

    def purge_log(self) -> None:
        """Do nothing: the server recycles its log itself, unless the profile keeps it."""

    def counters(self) -> dict[str, float]:
        """Return the statistics views as one flat dict; checkpoints are counted in the server's log."""
        row = self._row()
        values = self._reading.counters(row)
        self._lacking.update(dict.fromkeys((*self._reading.lacking, *self._reading.without_value(values))))
        return {**values, **self._checkpoints.read()}

    def sessions(self) -> Sessions:
        """Return the sessions in pg_stat_activity, and the number counted by pg_stat_database since version 14."""
        ask = postgres_sql.sessions_statement(numbers_of(self.version)[0])
        if self._opened_before is None:
            self._row(ask)  # the server counts a session, also this one, at the end of its first statement
        present, opened, configured = self._row(ask)
        if self._opened_before is None and opened is not None:
            until = time.monotonic() + _LEAVING_S
            while len(present) > 1 and time.monotonic() < until:  # an ending session of dbbench may not be counted yet
                time.sleep(0.01)
                present, opened, configured = self._row(ask)
            self._opened_before = opened - len(self._opened)
        others = {int(pid): text for pid, text in (present or {}).items() if int(pid) not in self._opened}
        count = None if opened is None or self._opened_before is None else opened - len(self._opened)
        return Sessions(others, None if count is None else count - (self._opened_before or 0), configured)

    def recovery_bytes(self) -> int | None:
        """Return the WAL since the last checkpoint's redo point."""
        return int(
            self._number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) FROM pg_control_checkpoint()")
        )

    def warnings(self) -> tuple[TrialWarning, ...]:
        """Return the warnings for all readings of the counters so far."""
        return tuple(version_warnings(self.profile, self.version, self._lacking, self.left_out))

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        """Return the checkpoints in the log between two readings.

        Below version 19, full-page images are counted and not measured: images × block size is an upper bound (holes in
        pages are omitted, and wal_compression shrinks the rest).
        """
        grown = grown_between(before, after)
        ended = int(grown.get("checkpoints_ended", 0))
        fpi = grown.get("wal_fpi_bytes", grown["wal_fpi"] * self._block if "wal_fpi" in grown else None)
        causes = {cause: int(grown.get(f"checkpoints_{cause}", 0)) for cause in postgres_sql.CAUSES}
        return CheckpointFacts(
            begun=int(grown.get("checkpoints_begun", 0)),
            ended=ended,
            by_cause={cause: count for cause, count in causes.items() if count},
            fpi_bytes=int(fpi) if fpi is not None else None,
            note="" if ended else "burst: no checkpoint in the window",
        )

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        """Return WAL records + data pages, regardless of the process that wrote them.

        None below version 14, which does not count WAL, and if the server lacks one of the counters.
        """
        grown = grown_between(before, after)
        pages = total(grown, "data_write_bytes", "data_extend_bytes")  # pg_stat_io
        if pages is None:
            buffers = total(grown, "buffers_checkpoint", "buffers_clean", "buffers_backend")
            pages = None if buffers is None else buffers * self._block
        return None if pages is None or "wal_bytes" not in grown else int(grown["wal_bytes"] + pages)

    def work(self, before: dict[str, float], after: dict[str, float], explicit: bool) -> Work:
        """Count the work between two readings.

        A transaction gets an identifier (xid) with its first change, and so does a subtransaction: the number of
        commits limits how many of them count as writes.
        """
        grown = {name: int(value) for name, value in grown_between(before, after).items()}
        ended, blocks = total(grown, "xact_commit", "xact_rollback"), total(grown, "blks_read", "blks_hit")
        if ended is None or not self._counts:
            return Work()
        writes = min(grown["xids"] - grown["xact_rollback"], grown["xact_commit"])
        return Work(
            transactions=ended,
            statements=ended,
            rows=grown.get("tup_inserted"),
            updated=grown.get("tup_updated"),
            deleted=grown.get("tup_deleted"),
            read=blocks,
            pages=grown.get("blks_read"),
            table_bytes=None if blocks is None else blocks * self._block,
            log_bytes=grown.get("wal_bytes"),
            writes=max(0, writes),
        )

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        """Return blocks found in shared_buffers ÷ blocks requested, in the dataset's database."""
        grown = grown_between(before, after)
        asked = total(grown, "blks_hit", "blks_read")
        return grown["blks_hit"] / asked if asked else None

    def dirty_bytes(self) -> int | None:
        """Return the size of dirty pages in shared_buffers, or None without pg_buffercache."""
        if not self.has_extension("pg_buffercache"):
            return None
        return int(self._number("SELECT count(*) FROM pg_buffercache WHERE isdirty")) * self._block

    def effective_settings(self) -> dict[str, str]:
        """Return the settings of a session in the dataset's database, as SHOW prints them.

        Adds `huge_pages_status`, which servers before version 17 do not report, and dbbench's setting for the slot.
        """
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT name, current_setting(name) FROM pg_settings ORDER BY name")
            settings = dict(cursor.fetchall())
        settings.setdefault("huge_pages_status", huge_pages(self.pid))
        return {**settings, SLOT: "on"} if self._slot else settings

    def reported(self) -> dict[str, Reported]:
        """Return every setting in the server's own unit."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT name, setting, coalesce(unit, '') FROM pg_settings")
            rows = {name: Reported(setting, unit) for name, setting, unit in cursor.fetchall()}
        self._block = int(rows["block_size"].value)
        self._counts = rows["track_counts"].value == "on"
        return rows

    def has_extension(self, name: str) -> bool:
        """Whether the dataset's database has the extension."""
        return bool(self._number("SELECT count(*) FROM pg_extension WHERE extname = %s", name))

    def close(self) -> None:
        """Close the connection of the counters."""
        with self._lock, contextlib.suppress(Exception):
            if self._own is not None:
                self._own.close()
            self._own = None

    def _row(self, statement: str | None = None) -> Any:
        """Return the result of a statement, by default of the one for the counters, on a connection that stays open."""
        import psycopg2

        with self._lock:
            try:
                if self._own is None:
                    self._own = self.connect()
                    with self._own.cursor() as cursor:
                        cursor.execute(postgres_sql.COLUMNS, (list(postgres_sql.VIEWS),))
                        columns = dict(cursor.fetchall())
                        cursor.execute(postgres_sql.OFF)
                        self._reading = postgres_sql.reading(
                            self.version, columns, [name for (name,) in cursor.fetchall()]
                        )
                with self._own.cursor() as cursor:
                    cursor.execute(statement or self._reading.statement)
                    return cursor.fetchone()
            except psycopg2.Error as error:
                self._own = None  # the next reading opens a new connection
                raise EngineDied(f"the counters of the server could not be read: {str(error).strip()}") from error

    def _number(self, statement: str, *values: object) -> float:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return float(cursor.fetchone()[0])


SLOT: Final = "dbbench.replication_slot"  # a setting of dbbench; the server has none for it
SLOT_NAME: Final = "dbbench"

_PRODUCTION: Final[Mapping[str, Scalar]] = {"wal_level": "replica", "archive_mode": "off", "huge_pages": "try"}
SETTINGS_PROFILES: Final[Mapping[str, Mapping[str, Scalar]]] = {
    PRODUCTION: _PRODUCTION,
    f"{PRODUCTION}-archive": {**_PRODUCTION, "archive_mode": "on"},  # each segment is copied next to the data
    f"{PRODUCTION}-slot": {**_PRODUCTION, SLOT: True},  # the slot keeps the server from recycling or removing segments
    STANDALONE: {},
}
# A control group does not count huge pages, so the server would have more memory than the plan allows.
LIMITED: Final[Mapping[str, Scalar]] = {"huge_pages": "off"}
STATED: Final = ("wal_level", "archive_mode", SLOT, "huge_pages", "huge_pages_status")


def archiving(settings: Settings, datadir: Path, owner: User) -> dict[str, Scalar]:
    """Return the private settings of a local archive if the settings ask for one without naming their own command.

    The archive is a directory next to the data, on the filesystem under test.
    """
    own_command = not {"archive_command", "archive_library"}.isdisjoint(settings)
    if own_command or not switched_on(settings, "archive_mode"):
        return {}
    archive = own(datadir.with_name(f"{datadir.name}.archive"), owner)
    target = f"{shlex.quote(str(archive))}/%f"
    return {"archive_command": f"test ! -f {target} && cp %p {target}"}


def move_log(datadir: Path, to: Path, owner: User) -> None:
    """Move pg_wal and leave a link, as `initdb --waldir` does."""
    log = datadir / "pg_wal"
    moved(sorted(log.iterdir()), to, owner)
    log.rmdir()
    log.symlink_to(to)


def log_files(datadir: Path) -> list[Path]:
    """Return WAL segments and related files by their real paths."""
    return sorted(path.resolve() for path in (datadir / "pg_wal").iterdir() if path.is_file())


def huge_pages(pid: int) -> str:
    """Return "on" or "off" by the huge pages of the process; what PostgreSQL 17 and later report themselves."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "unknown"
    sizes = [line.split()[1] for line in lines if line.startswith("HugetlbPages:")]
    return "unknown" if not sizes else "on" if int(sizes[0]) else "off"
