"""A running MariaDB or MySQL server: connections, counters, flushing.

The file is long because it is one class, the counterpart of `postgres_server`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.engines import mysqld
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import Counts, Place, Profile, Server, Sessions
from dbbench.engines.serving import total
from dbbench.engines.settings import Reported
from dbbench.engines.sql import rows, rows_of
from dbbench.errors import EngineDied
from dbbench.machine import namespaces
from dbbench.model import CheckpointFacts, Work
from dbbench.process import Running

# file with the password; all users could see it on a command line
SYSBENCH_OPTIONS: Final = "sysbench.cnf"
SETTLE_S: Final = 600.0
FLUSH_S: Final = 1800.0  # enough for a large buffer pool on a slow disk
# share of the redo log; above about this, both servers flush regardless of their settings
NEARLY_FULL: Final = 0.75
_STEP_S: Final = 0.02
# purge works in batches; if the history has not shrunk for this long, purge is complete
_CALM_S: Final = 0.3
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
# no socket yet, connection refused, connection lost during the start
_CANNOT_CONNECT: Final = (2002, 2003, 2013, 2055)

# Names of counters with their units.
_RENAMED: Final = {
    "innodb_data_written": "innodb_data_written_bytes",
    "innodb_data_read": "innodb_data_read_bytes",
    "innodb_os_log_written": "innodb_log_written_bytes",
    "innodb_buffer_pool_bytes_dirty": "innodb_dirty_bytes",
    "innodb_buffer_pool_bytes_data": "innodb_pool_data_size_bytes",
    "innodb_checkpoint_age": "innodb_redo_age_bytes",
    "innodb_lsn_current": "innodb_redo_written_bytes",  # the log sequence number: a byte position
    "innodb_redo_log_current_lsn": "innodb_redo_written_bytes",
    "innodb_lsn_last_checkpoint": "innodb_redo_checkpoint_bytes",
    "innodb_redo_log_checkpoint_lsn": "innodb_redo_checkpoint_bytes",
    "innodb_row_lock_time": "innodb_row_lock_ms",
}
_KEPT: Final = frozenset(_RENAMED) | {
    "innodb_buffer_pool_read_requests",
    "innodb_buffer_pool_reads",
    "innodb_buffer_pool_pages_flushed",
    "innodb_buffer_pool_pages_free",
    "innodb_buffer_pool_wait_free",
    "innodb_data_fsyncs",
    "innodb_data_reads",
    "innodb_data_writes",
    "innodb_dblwr_pages_written",
    "innodb_dblwr_writes",
    "innodb_history_list_length",
    "innodb_log_waits",
    "innodb_log_writes",
    "innodb_pages_created",
    "innodb_pages_read",
    "innodb_pages_written",
    "innodb_row_lock_waits",
    "innodb_deadlocks",
    "binlog_bytes_written",
    "binlog_commits",
    "com_commit",
    "com_rollback",
    "com_select",
    "com_insert",
    "com_update",
    "com_delete",
    "com_replace",
    "threads_running",
    "innodb_max_trx_id",
    "handler_write",
    "handler_update",
    "handler_delete",
    "questions",
    "innodb_rows_inserted",
    "innodb_rows_updated",
    "innodb_rows_deleted",
}
# users of the server's internal threads in SHOW PROCESSLIST
_SERVERS_OWN: Final = ("system user", "event_scheduler")
# Status variables that only MariaDB has, and those that only MySQL has.
_OF_MARIADB: Final = frozenset(
    {
        "innodb_checkpoint_age",
        "innodb_deadlocks",
        "innodb_history_list_length",
        "innodb_lsn_current",
        "innodb_lsn_last_checkpoint",
        "innodb_max_trx_id",
        "binlog_bytes_written",
        "binlog_commits",
        "handler_write",
        "handler_update",
        "handler_delete",
    }
)
_OF_MYSQL: Final = frozenset(
    {
        "innodb_redo_log_current_lsn",
        "innodb_redo_log_checkpoint_lsn",
        "innodb_rows_inserted",
        "innodb_rows_updated",
        "innodb_rows_deleted",
    }
)
COUNTERS_OF_MARIADB: Final = _KEPT - _OF_MYSQL
COUNTERS_OF_MYSQL: Final = _KEPT - _OF_MARIADB
_HISTORY: Final = (
    "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
)
_SESSION_THREADS: Final = "SELECT tid FROM information_schema.processlist WHERE command <> 'Daemon'"
_UNKNOWN_ACCOUNT: Final = 1396  # ER_CANNOT_USER
# '': MariaDB's roles
_FROM_ELSEWHERE: Final = "SELECT user, host FROM mysql.user WHERE host NOT IN ('localhost', '')"


def connect_read_only(socket: Path, user: str, database: str | None) -> Any:
    """Return a session of a user's server, in a read-only transaction."""
    import mysql.connector

    connection = mysql.connector.connect(
        unix_socket=str(socket),
        user=user,
        password=os.environ.get("MYSQL_PWD", ""),
        database=database,
        use_pure=True,
        ssl_disabled=True,
        connection_timeout=10,
        charset="utf8mb4",
        collation="utf8mb4_general_ci",
    )
    rows_of(connection, "START TRANSACTION READ ONLY")
    return connection


class InnodbServer(Server):
    """A running MariaDB or MySQL server."""

    def __init__(
        self,
        profile: Profile,
        place: Place,
        program: Mysqld,
        running: Running | None,
        password: str = "",
    ) -> None:
        super().__init__(profile, place, program.version, program.path.parent, running)
        self.env = {"MYSQL_PWD": password}
        self._page = 16384
        # size of the redo log in bytes; None: the server does not report it
        self._redo: int | None = None
        # path of the binary log's files without their numbers; None: no binary log
        self._binlog: Path | None = None
        self._cycles = 0
        self._full = 0  # cycles in which the redo log was nearly full
        self._first_threads = frozenset[int]()  # before the first session
        self._oldest = 0.0  # the largest age of the redo log, in bytes, during the current cycle
        # InnoDB's checkpoint and the end of the redo log when the current cycle began
        self._under_way = (0.0, 0.0)

    def when_ready(self) -> InnodbServer | None:
        """Return the server if it answers, otherwise None. Raises mysql.connector.Error if it
        refuses permanently.
        """
        import mysql.connector

        if not self.socket.exists():
            return None
        self._first_threads = self._threads()
        try:
            self.connect().close()
        except mysql.connector.Error as error:
            if error.errno not in _CANNOT_CONNECT:
                raise
            return None
        return self

    def connect(self, database: str | None = None) -> Any:
        """Return a mysql.connector connection in autocommit mode; `""` for no database."""
        import mysql.connector

        # For LOAD DATA LOCAL, which the server must allow as well. In a trial, this process may be
        # root.
        in_trial = {
            "allow_local_infile": False,
            "allow_local_infile_in_path": str(namespaces.RUNTIME / "scratch"),
        }
        local_files = in_trial if namespaces.mounts_are_private() else {"allow_local_infile": True}
        # A session that is not noted yet would look like that of another program.
        with self._lock:
            connection = mysql.connector.connect(
                unix_socket=str(self.socket),
                user=self.user,
                password=self.env["MYSQL_PWD"],
                database=(self.database if database is None else database) or None,
                autocommit=True,
                use_pure=True,
                ssl_disabled=True,
                **local_files,
                charset="utf8mb4",
                collation="utf8mb4_general_ci",  # MariaDB does not know the client's default
            )
            self._opened.append(int(connection.connection_id or 0))
        return connection

    def admit(self, role: str, peer: str, password: str) -> None:
        """Create an account that can use the dataset's database from that address with a
        certificate and the password, of which only the hash can reach a log. Accounts in the
        user's data that could log in from elsewhere are locked; what they define still works.
        """
        import mysql.connector

        user = f"'{role}'@'{peer}'"
        grant = self.database.replace("`", "``")
        if self.profile.native_password:  # it stores SHA-1 of SHA-1
            once = hashlib.sha1(password.encode()).digest()
            twice = hashlib.sha1(once).hexdigest()
            method = f"VIA mysql_native_password USING '*{twice.upper()}'"
        # the server salts the hash itself; its logs contain the hash in place of the password
        else:
            method = f"WITH caching_sha2_password BY '{password}'"
        with contextlib.closing(self.connect("")) as connection:
            rows_of(connection, "SET SESSION sql_log_bin = OFF")
            for account in rows_of(connection, _FROM_ELSEWHERE):
                name, host = (word.replace("\\", "\\\\").replace("'", "''") for word in account)
                try:
                    rows_of(connection, f"ALTER USER '{name}'@'{host}' ACCOUNT LOCK")
                except mysql.connector.Error as error:
                    # that of a host name, if the server resolves no names
                    if error.errno != _UNKNOWN_ACCOUNT:
                        raise
            rows_of(connection, f"DROP USER IF EXISTS {user}")
            rows_of(connection, f"CREATE USER {user} IDENTIFIED {method} REQUIRE X509")
            rows_of(connection, f"GRANT ALL ON `{grant}`.* TO {user}")

    def settle(self) -> None:
        began = time.monotonic()
        shortest = float("inf")
        since = began
        while time.monotonic() - since < _CALM_S:
            length = self.counters().get("innodb_history_list_length", 0)
            if length == 0:
                break
            if length < shortest:
                shortest = length
                since = time.monotonic()
            if process.overdue(began, SETTLE_S):
                raise process.too_late(
                    f"{length:.0f} transactions still wait for purge after more than {SETTLE_S:.0f} s"
                )
            time.sleep(_STEP_S)
        self.checkpoint()

    def checkpoint(self) -> None:
        """MariaDB has a command for it; MySQL gets a limit of zero dirty pages and maximum I/O."""
        with contextlib.closing(self.connect("")) as connection:
            before = dict(rows_of(connection, "SHOW GLOBAL VARIABLES LIKE 'innodb%'"))
            if "innodb_log_checkpoint_now" in before:
                rows_of(connection, "SET GLOBAL innodb_log_checkpoint_now = ON")
            # MySQL has no command: the settings that make it flush everything, for a moment.
            changes = {
                "innodb_max_dirty_pages_pct_lwm": "0",
                "innodb_max_dirty_pages_pct": "0",
                "innodb_io_capacity_max": "1000000",
                "innodb_io_capacity": "1000000",
            }
            try:
                for name, value in changes.items():
                    rows_of(connection, f"SET GLOBAL {name} = {value}")
                dirty = process.wait_while(self.dirty_bytes, FLUSH_S, _STEP_S)
                if dirty:
                    raise process.too_late(
                        f"{dirty} bytes of pages are still dirty after more than {FLUSH_S:.0f} s"
                    )
            finally:
                for name in reversed(changes):
                    rows_of(connection, f"SET GLOBAL {name} = {before[name]}")

    def purge_log(self) -> None:
        if self._binlog is not None:
            mysqld.purge_binlog(lambda statement: rows(self, statement, database=""))

    def counters(self) -> dict[str, float]:
        """Return InnoDB's status variables in lower case, with units; LSNs are byte positions in
        the redo log. MySQL does not count the bytes of its binary log: `binlog_bytes_written` is
        then the size of its files. `checkpoints_ended` counts cycles: one ends when the
        checkpoint has passed the end that the redo log had at its beginning, so that all pages
        that were dirty then are on disk. A reading counts at most one.
        """
        status = self._read("SHOW GLOBAL STATUS")
        values = to_counters(status)
        lacks = lacking(self.profile, status)
        # MySQL reports it only in a table
        if "innodb_history_list_length" not in self.profile.counters:
            history = self._read(_HISTORY)
            if history:
                values["innodb_history_list_length"] = float(history[0][0])
            else:
                lacks = (*lacks, "trx_rseg_history_len in information_schema.innodb_metrics")
        self._lacking.update(dict.fromkeys(lacks))
        if "binlog_bytes_written" not in values and self._binlog is not None:
            # the server may have removed a file since they were listed
            with contextlib.suppress(OSError):
                files = mysqld.binlog_files(self._binlog)
                values["binlog_bytes_written"] = float(sum(path.stat().st_size for path in files))
        written, checkpoint = (
            values.get(f"innodb_redo_{word}_bytes") for word in ("written", "checkpoint")
        )
        if written is not None and checkpoint is not None:
            values["innodb_redo_age_bytes"] = max(0.0, written - checkpoint)
            values["checkpoints_ended"] = self._cycle(written, checkpoint)
            values["checkpoints_redo_full"] = float(self._full)
        return values

    def sessions(self) -> Sessions:
        with self._lock:  # no session of dbbench begins between the answers
            connections = self._read("SHOW GLOBAL STATUS LIKE 'Connections'")
            rows = self._read("SHOW PROCESSLIST")
            ours = frozenset(self._opened)
        opened = int(connections[0][1]) - len(ours)
        if self._opened_before is None:
            self._opened_before = opened
        present = {}
        for row in rows:
            number, user, _host, _database, command, _time, _state, statement = row[:8]
            if user in _SERVERS_OWN or command == "Daemon" or int(number) in ours:
                continue
            present[int(number)] = f"{user}: {statement or command}"
        return Sessions(present, opened - self._opened_before)

    def session_threads(self) -> frozenset[int]:
        """MySQL names threads, and knows their ids, only with performance_schema: its sessions are
        those that began later than the server's own.
        """
        if self.engine != "mariadb":
            return self._threads() - self._first_threads
        return frozenset(int(row[0]) for row in self._read(_SESSION_THREADS))

    def _threads(self) -> frozenset[int]:
        try:
            # once a second: no Path per thread
            names = os.listdir(f"/proc/{self.pid}/task")  # noqa: PTH208
            return frozenset(map(int, names))
        except OSError:
            return frozenset()

    def recovery_bytes(self) -> int | None:
        age = self.counters().get("innodb_redo_age_bytes")
        return None if age is None else int(age)

    def checkpoints(self, grown: Counts) -> CheckpointFacts:
        """InnoDB's checkpoint has no start: it advances as pages are flushed, driven by adaptive
        flushing or by a redo log that is nearly full.
        """
        if "checkpoints_ended" not in grown:
            return CheckpointFacts(
                note="this version does not report the position of its checkpoint"
            )
        # A cycle that the redo log drove is counted apart from the others.
        ended = int(grown["checkpoints_ended"])
        full = int(grown.get("checkpoints_redo_full", 0))
        moved = grown["innodb_redo_checkpoint_bytes"]
        written = grown["innodb_redo_written_bytes"]
        movement = (
            f"the checkpoint moved by {moved / 1e6:.0f} MB while {written / 1e6:.0f} MB of redo "
            "were written"
        )
        causes = {"redo full": full, "flushing": ended - full}
        return CheckpointFacts(
            ended=ended,
            by_cause={cause: count for cause, count in causes.items() if count > 0},
            note=movement if ended else f"burst: no checkpoint in the window; {movement}",
        )

    def written_bytes(self, grown: Counts) -> int | None:
        """Return redo + data pages + their doublewrite copies + the binary log, from page counts:
        versions differ in whether innodb_data_written includes doublewrite and log.
        """
        pages = total(grown, "innodb_pages_written", "innodb_dblwr_pages_written")
        if pages is None or "innodb_log_written_bytes" not in grown:
            return None
        log = grown["innodb_log_written_bytes"] + grown.get("binlog_bytes_written", 0)
        return int(log + pages * self._page)

    def work(self, grown: Counts, explicit: bool) -> Work:
        """MariaDB counts transactions that may write when they begin, and again at the end if they
        changed something; MySQL does not report that count. MySQL's handler_write includes the
        temporary tables of SHOW STATUS, which MariaDB counts elsewhere, without
        innodb_rows_inserted.
        """
        counted = {name: int(value) for name, value in grown.items()}
        ended = total(counted, "com_commit", "com_rollback")
        changing = total(counted, "com_insert", "com_update", "com_delete", "com_replace")
        if ended is None or changing is None:
            return Work()
        # Identifiers beyond those of ended transactions belong to transactions that wrote.
        begun = ended if explicit else ended + changing
        ids = counted.get("innodb_max_trx_id")
        read = counted.get("innodb_buffer_pool_read_requests")
        return Work(
            transactions=ended,
            statements=counted.get("questions"),
            rows=counted.get("innodb_rows_inserted", counted.get("handler_write")),
            updated=counted.get("innodb_rows_updated", counted.get("handler_update")),
            deleted=counted.get("innodb_rows_deleted", counted.get("handler_delete")),
            read=read,
            pages=counted.get("innodb_pages_read"),
            table_bytes=None if read is None else read * self._page,
            log_bytes=counted.get("innodb_redo_written_bytes"),
            binlog_bytes=None if self._binlog is None else counted.get("binlog_bytes_written"),
            writes=None if ids is None else max(0, ids - begun),
        )

    def hit_ratio(self, grown: Counts) -> float | None:
        requests = grown.get("innodb_buffer_pool_read_requests")
        read = grown.get("innodb_buffer_pool_reads")
        if requests and read is not None:
            return 1 - read / requests
        return None

    def dirty_bytes(self) -> int | None:
        dirty = self.counters().get("innodb_dirty_bytes")
        return int(dirty) if dirty is not None else None

    def effective_settings(self) -> dict[str, str]:
        return dict(rows(self, "SHOW GLOBAL VARIABLES", database=""))

    def volatile_tables(self) -> list[str]:
        names = rows(
            self,
            "SELECT concat(table_name, ' (', engine, ')') FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND engine <> 'InnoDB' ORDER BY 1",
        )
        return [str(name) for (name,) in names]

    def report_settings(self) -> dict[str, Reported]:
        settings = self.effective_settings()
        self._page = int(settings.get("innodb_page_size", self._page))
        # before MySQL 8.0.30, and in MariaDB
        one_file = settings.get("innodb_log_file_size")
        redo = settings.get("innodb_redo_log_capacity", one_file)
        self._redo = int(redo) if redo is not None else None
        self._binlog = mysqld.binlog_place(settings)
        return {name: Reported(value) for name, value in settings.items()}

    def tables(self, without: tuple[str, ...]) -> list[str]:
        """Return quoted names of all base tables in other schemas, the largest first."""
        tables = rows(
            self,
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = "
            "'BASE TABLE'"
            f" AND table_schema NOT IN {without} ORDER BY data_length DESC",
            database="",
        )
        names = []
        for schema, table in tables:
            names.append(f"{_quote(schema)}.{_quote(table)}")
        return names

    def check_table(self, table: str) -> list[str]:
        """Return what CHECK TABLE reports, one line per error. Raises EngineDied if the server
        crashed.
        """
        import mysql.connector

        try:
            answer = rows(self, f"CHECK TABLE {table}", database="")
        except mysql.connector.Error as error:
            if error.errno in (*_CANNOT_CONNECT, 2006, 2026, -1) or not self.alive():
                # it may still write a core dump or a backtrace
                process.wait_while(self.alive, 5.0, _STEP_S)
                raise EngineDied(f"the server died during CHECK TABLE {table}: {error}") from error
            return [f"{table}: {error}"]
        return [
            f"{row[0]}: {row[3]}"
            for row in answer
            if row[2] not in ("status", "note") or row[3] != "OK"
        ]

    def _open(self) -> Any:
        return self.connect("")

    def _cycle(self, written: float, checkpoint: float) -> float:
        """Count the current cycle if it has ended and begin the next; without dirty pages there is
        no cycle.
        """
        begun_at, ends_at = self._under_way
        self._oldest = max(self._oldest, written - checkpoint)
        if checkpoint >= ends_at:
            if begun_at < ends_at:
                self._cycles += 1
                if self._redo is not None and self._oldest > NEARLY_FULL * self._redo:
                    self._full += 1
            self._oldest = 0.0
            self._under_way = (checkpoint, written)
        return float(self._cycles)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def to_counters(status: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Convert rows of SHOW GLOBAL STATUS to counters."""
    values = {}
    for name, value in status:
        key = name.lower()
        if key in _KEPT:
            # a value that is not a number is omitted, not counted as 0
            with contextlib.suppress(ValueError):
                values[_RENAMED.get(key, key)] = float(value)
    return values


def lacking(profile: Profile, status: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the status variables that the server should report as numbers but does not."""
    there = {name.lower() for name, value in status if _NUMBER.fullmatch(value)}
    return tuple(sorted(f"the status variable {name}" for name in profile.counters - there))
