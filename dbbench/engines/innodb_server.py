"""A MariaDB or MySQL server that is up: connections, counters, flushing."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from dbbench.engines.mysqld import Mysqld
from dbbench.engines.settings import Reported
from dbbench.errors import DeadlinePassed, EngineDied
from dbbench.model import CheckpointFacts
from dbbench.process import Running

DATABASE: Final = "dbbench"
USER: Final = "dbbench"
SETTLE_S: Final = 600.0
FLUSH_S: Final = 1800.0  # a large buffer pool on a slow disk
NEARLY_FULL: Final = 0.75  # of the redo: from about there on both servers flush whatever else they were told
_STEP_S: Final = 0.02
_CALM_S: Final = 0.3  # purge works in batches; a history that has not shrunk for this long is done
_CANNOT_CONNECT: Final = (2002, 2003, 2013, 2055)  # no socket yet, nobody listens, closed while it starts

# Names as counters have them: units where there is one.
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
    "innodb_buffer_pool_read_requests", "innodb_buffer_pool_reads", "innodb_buffer_pool_pages_flushed",
    "innodb_buffer_pool_pages_free", "innodb_buffer_pool_wait_free", "innodb_data_fsyncs", "innodb_data_reads",
    "innodb_data_writes", "innodb_dblwr_pages_written", "innodb_dblwr_writes", "innodb_history_list_length",
    "innodb_log_waits", "innodb_log_writes", "innodb_pages_created", "innodb_pages_read", "innodb_pages_written",
    "innodb_row_lock_waits", "innodb_deadlocks", "binlog_bytes_written", "binlog_commits", "com_commit",
    "com_rollback", "com_select", "com_insert", "com_update", "com_delete", "threads_running",
}  # fmt: skip


_UNKNOWN_ACCOUNT: Final = 1396  # ER_CANNOT_USER
_FROM_ELSEWHERE: Final = "SELECT user, host FROM mysql.user WHERE host NOT IN ('localhost', '')"  # '': MariaDB's roles


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "''")


def _lock(connection: Any, account: str) -> None:
    """Nobody logs in as that account. One of a host's name is not even known to a server that resolves no names."""
    import mysql.connector

    try:
        _rows(connection, f"ALTER USER {account} ACCOUNT LOCK")
    except mysql.connector.Error as error:
        if error.errno != _UNKNOWN_ACCOUNT:
            raise


def _native(password: str) -> str:
    """The hash that mysql_native_password keeps: SHA-1 of SHA-1."""
    return "*" + hashlib.sha1(hashlib.sha1(password.encode()).digest()).hexdigest().upper()


class InnodbServer:
    """See `port.Server`."""

    user = USER

    def __init__(
        self, engine: str, running: Running, program: Mysqld, socket: Path, log: Path, database: str = DATABASE
    ) -> None:
        self.engine = engine
        self.database = database
        self.version = program.version
        self.socket_dir = socket.parent
        self.socket = socket
        self.log = log
        self.bin = program.path.parent
        self._running = running
        self._lock = threading.Lock()
        self._own: Any = None  # the connection that counters are read on
        self._page = 16384
        self._redo: int | None = None  # bytes of redo that the server may have
        self._cycles = 0
        self._full = 0  # cycles in which the redo was nearly full
        self._oldest = 0.0  # the redo's largest age in the cycle under way
        self._under_way = (0.0, 0.0)  # the cycle: InnoDB's checkpoint and the end of the redo when it began

    @classmethod
    def when_ready(
        cls, engine: str, running: Running, program: Mysqld, socket: Path, log: Path, database: str
    ) -> InnodbServer | None:
        """The server once it answers, None before. mysql.connector.Error where it refuses for good."""
        import mysql.connector

        server = cls(engine, running, program, socket, log, database)
        if not socket.exists():
            return None
        try:
            server.connect().close()
        except mysql.connector.Error as error:
            if error.errno not in _CANNOT_CONNECT:
                raise
            return None
        return server

    @property
    def pid(self) -> int:
        return self._running.pid

    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._running.poll() is None

    def connect(self, database: str | None = None) -> Any:
        """A mysql.connector connection in autocommit mode; `""` for no database."""
        import mysql.connector

        return mysql.connector.connect(
            unix_socket=str(self.socket),
            user=USER,
            database=(self.database if database is None else database) or None,
            autocommit=True,
            use_pure=True,
            ssl_disabled=True,
            allow_local_infile=True,  # LOAD DATA LOCAL, where the server allows it too
            charset="utf8mb4",
            collation="utf8mb4_general_ci",  # the client's own default is one that MariaDB does not know
        )

    def admit(self, role: str, peer: str, password: str) -> None:
        """An account that may work on the dataset's database, from that address, with a certificate of ours and the
        password. What reaches a log is its hash. Accounts of a user's own data that could log in from elsewhere are
        locked; what is defined by them goes on."""
        user, grant = f"'{role}'@'{peer}'", self.database.replace("`", "``")
        if self.engine == "mariadb":
            known = f"VIA mysql_native_password USING '{_native(password)}'"
        else:  # the hash of this method is salted by the server, which writes it in the place of the password
            known = f"WITH caching_sha2_password BY '{password}'"
        with contextlib.closing(self.connect("")) as connection:
            _rows(connection, "SET SESSION sql_log_bin = OFF")
            for name, host in _rows(connection, _FROM_ELSEWHERE):
                _lock(connection, f"'{_quoted(name)}'@'{_quoted(host)}'")
            for statement in (
                f"DROP USER IF EXISTS {user}",
                f"CREATE USER {user} IDENTIFIED {known} REQUIRE X509",
                f"GRANT ALL ON `{grant}`.* TO {user}",
            ):
                _rows(connection, statement)

    def settle(self) -> None:
        """Wait until purge has caught up, then write all dirty pages."""
        until, shortest, since = time.monotonic() + SETTLE_S, float("inf"), time.monotonic()
        while time.monotonic() - since < _CALM_S:
            length = self.counters().get("innodb_history_list_length", 0)
            if length == 0:
                break
            if length < shortest:
                shortest, since = length, time.monotonic()
            if time.monotonic() > until:
                raise DeadlinePassed(f"{length:.0f} transactions wait for purge after {SETTLE_S:.0f} s")
            time.sleep(_STEP_S)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Flush until no page is dirty. MariaDB can be told to; MySQL is allowed no dirty page and all I/O."""
        with contextlib.closing(self.connect("")) as connection:
            known = dict(_rows(connection, "SHOW GLOBAL VARIABLES LIKE 'innodb%'"))
            if "innodb_log_checkpoint_now" in known:
                _rows(connection, "SET GLOBAL innodb_log_checkpoint_now = ON")
            wanted = {
                "innodb_max_dirty_pages_pct_lwm": "0",
                "innodb_max_dirty_pages_pct": "0",
                "innodb_io_capacity_max": "1000000",
                "innodb_io_capacity": "1000000",
            }
            try:
                for name, value in wanted.items():
                    _rows(connection, f"SET GLOBAL {name} = {value}")
                self._wait_until_clean()
            finally:
                for name in reversed(wanted):
                    _rows(connection, f"SET GLOBAL {name} = {known[name]}")

    def counters(self) -> dict[str, float]:
        """InnoDB's status variables, in lower case, with units; LSNs are byte positions in the redo log.

        `checkpoints_ended` counts cycles: one ends when InnoDB's checkpoint has passed the end that the redo
        had when the cycle began, that is when all pages dirty at its begin are on disk. A reading counts at
        most one, so cycles shorter than the time between readings are counted once a reading.
        """
        found = named(self._read("SHOW GLOBAL STATUS"))
        if "innodb_history_list_length" not in found:  # MySQL has it in a table only
            rows = self._read("SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'")
            found["innodb_history_list_length"] = float(rows[0][0]) if rows else 0.0
        written, checkpoint = (found.get(f"innodb_redo_{word}_bytes") for word in ("written", "checkpoint"))
        if written is not None and checkpoint is not None:
            found["innodb_redo_age_bytes"] = max(0.0, written - checkpoint)
            found["checkpoints_ended"] = self._cycle(written, checkpoint)
            found["checkpoints_redo_full"] = float(self._full)
        return found

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        """InnoDB's checkpoint has no begin: it moves on as pages are flushed. What drives it is the adaptive
        flushing, or a redo log that is nearly full."""
        if "checkpoints_ended" not in before or "checkpoints_ended" not in after:
            return CheckpointFacts(note="this version does not tell where its checkpoint is")
        ended = int(after["checkpoints_ended"] - before["checkpoints_ended"])
        moved = after["innodb_redo_checkpoint_bytes"] - before["innodb_redo_checkpoint_bytes"]
        grown = after["innodb_redo_written_bytes"] - before["innodb_redo_written_bytes"]
        told = f"the checkpoint moved by {moved / 1e6:.0f} MB while {grown / 1e6:.0f} MB of redo were written"
        full = int(after.get("checkpoints_redo_full", 0) - before.get("checkpoints_redo_full", 0))
        causes = {name: count for name, count in (("redo full", full), ("flushing", ended - full)) if count > 0}
        note = told if ended else f"burst: no checkpoint in the window; {told}"
        return CheckpointFacts(ended=ended, by_cause=causes, note=note)

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        """Redo + data pages + their doublewrite copies (+ MariaDB's binary log).

        From page counts: whether innodb_data_written holds doublewrite and log differs between versions.
        """
        counted = {name: after[name] - before[name] for name in after if name in before}
        if "innodb_log_written_bytes" not in counted:
            return None
        pages = counted.get("innodb_pages_written", 0) + counted.get("innodb_dblwr_pages_written", 0)
        log = counted["innodb_log_written_bytes"] + counted.get("binlog_bytes_written", 0)
        return int(log + pages * self._page)

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        """1 - pages read from disk ÷ pages asked for."""
        asked, read = (
            after.get(name, 0) - before.get(name, 0)
            for name in ("innodb_buffer_pool_read_requests", "innodb_buffer_pool_reads")
        )
        return 1 - read / asked if asked > 0 else None

    def dirty_bytes(self) -> int | None:
        """Dirty pages in the buffer pool."""
        dirty = self.counters().get("innodb_dirty_bytes")
        return int(dirty) if dirty is not None else None

    def effective_settings(self) -> dict[str, str]:
        """All global variables."""
        with contextlib.closing(self.connect("")) as connection:
            return dict(_rows(connection, "SHOW GLOBAL VARIABLES"))

    def reported(self) -> dict[str, Reported]:
        """The same for comparing. Session values of the role are not looked at: it has none."""
        found = self.effective_settings()
        self._page = int(found.get("innodb_page_size", self._page))
        redo = found.get("innodb_redo_log_capacity", found.get("innodb_log_file_size"))
        self._redo = int(redo) if redo is not None else None
        return {name: Reported(value) for name, value in found.items()}

    def tables(self, without: tuple[str, ...]) -> list[str]:
        """Quoted names of all base tables in other schemas, the largest first."""
        schemas = ", ".join(f"'{name}'" for name in without)
        with contextlib.closing(self.connect("")) as connection:
            rows = _rows(
                connection,
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
                f" AND table_schema NOT IN ({schemas}) ORDER BY data_length DESC",
            )
        return [".".join("`" + part.replace("`", "``") + "`" for part in row) for row in rows]

    def check_table(self, table: str) -> list[str]:
        """What CHECK TABLE found wrong, one line each. EngineDied where the server fell over it."""
        import mysql.connector

        try:
            with contextlib.closing(self.connect("")) as connection:
                rows = _rows(connection, f"CHECK TABLE {table}")
        except mysql.connector.Error as error:
            if error.errno in (*_CANNOT_CONNECT, 2006, 2026, -1) or not self.alive():
                self._wait_dead()
                raise EngineDied(f"the server died while it checked {table}: {error}") from error
            return [f"{table}: {error}"]
        return [f"{row[0]}: {row[3]}" for row in rows if row[2] not in ("status", "note") or row[3] != "OK"]

    def close(self) -> None:
        """End the connection of the counters."""
        with self._lock, contextlib.suppress(Exception):
            if self._own is not None:
                self._own.close()
            self._own = None

    def _read(self, statement: str) -> list[Any]:
        import mysql.connector

        with self._lock:
            try:
                if self._own is None:
                    self._own = self.connect("")
                return _rows(self._own, statement)
            except mysql.connector.Error as error:
                self._own = None  # the next reading begins anew
                raise EngineDied(f"its counters could not be read: {error}") from error

    def _cycle(self, written: float, checkpoint: float) -> float:
        """Count the cycle under way where it has ended, and begin the next; where nothing is dirty none runs."""
        begun_at, ends_at = self._under_way
        self._oldest = max(self._oldest, written - checkpoint)
        if checkpoint >= ends_at:
            self._cycles += begun_at < ends_at
            self._full += begun_at < ends_at and self._redo is not None and self._oldest > NEARLY_FULL * self._redo
            self._oldest = 0.0
            self._under_way = (checkpoint, written)
        return float(self._cycles)

    def _wait_until_clean(self) -> None:
        until = time.monotonic() + FLUSH_S
        while dirty := self.dirty_bytes():
            if time.monotonic() > until:
                raise DeadlinePassed(f"{dirty} bytes of pages are still dirty after {FLUSH_S:.0f} s")
            time.sleep(_STEP_S)

    def _wait_dead(self) -> None:
        until = time.monotonic() + 5.0  # a core dump or a back trace may be under way
        while self.alive() and time.monotonic() < until:
            time.sleep(_STEP_S)


def named(status: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Rows of SHOW GLOBAL STATUS as counters."""
    found = {}
    for name, value in status:
        key = name.lower()
        if key in _KEPT:
            with contextlib.suppress(ValueError):  # a gap is better than a zero
                found[_RENAMED.get(key, key)] = float(value)
    return found


def _rows(connection: Any, statement: str) -> list[Any]:
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.with_rows else []
