"""The interface of a database engine: what it declares (`Profile`) and what it does (`Engine`, `Server`, `Sql`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from dbbench.engines.settings import Versions
from dbbench.model import CheckpointFacts, Durability, Scalar, Settings, TrialWarning, Work
from dbbench.model.base import PRODUCTION, STANDALONE
from dbbench.process import User
from dbbench.remote import Network


@dataclass(frozen=True)
class Place:
    """The location of a server's files outside of its data directory."""

    sockets: Path  # private directory of the server's socket and pid file; short, because a socket's path is limited
    logs: Path  # directory for the server log and a copy of the configuration; not on the device under test
    bin: Path | None = None  # directory of the programs, or the mysqld itself; None: the newest installed version
    wal: Path | None = None  # directory of the write-ahead log if it was moved out of the data directory
    tablespace_bytes: int = 0  # InnoDB: size of the single file with all tables, which can be moved to a device
    network: Network | None = None  # address and keys for a load generator on another host; None: only the socket


@dataclass(frozen=True)
class Sessions:
    """The sessions of a server that `Server.connect` did not open: those of the load generator and of anyone else."""

    present: dict[int, str]  # by session id (PostgreSQL: pid): the client's name and its latest statement
    opened: int | None = None  # sessions opened since the first reading; None: this server version does not count them
    configured: str = ""  # time at which the server last read its configuration; "": the server does not report it


@dataclass(frozen=True)
class Table:
    """A table and the logical bytes that a scan of it reads."""

    name: str  # with its schema, unless that is the default schema
    size_bytes: int
    tablespace: str = ""  # PostgreSQL: the table's tablespace if it is not that of the database


class Server(Protocol):
    """A private running server on a unix socket, and on the network only if `Place` says so."""

    @property
    def engine(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def pid(self) -> int | None: ...  # None: there is no server process (`files`)
    @property
    def socket_dir(self) -> Path: ...
    @property
    def socket(self) -> Path: ...  # mysql: the socket file; postgres: .s.PGSQL.5432 in socket_dir
    @property
    def user(self) -> str: ...  # database role
    @property
    def env(self) -> dict[str, str]: ...  # environment variables with which its client programs log in on the socket
    @property
    def database(self) -> str: ...  # the database of the dataset, usually "dbbench"
    @property
    def log(self) -> Path: ...
    @property
    def bin(self) -> Path: ...  # directory of its programs (pgbench, psql, ...)

    def connect(self, database: str | None = None) -> Any:
        """Return a DB-API connection in autocommit mode. The caller closes it."""
        ...

    def alive(self) -> bool:
        """Whether the server's process still runs."""
        ...

    def settle(self) -> None:
        """Wait until background work of a restore or start is complete (recovery, autovacuum, purge, flush backlog),
        then checkpoint. Raises DeadlinePassed."""
        ...

    def checkpoint(self) -> None:
        """Write all dirty pages (PostgreSQL: CHECKPOINT; InnoDB: flush until no page is dirty)."""
        ...

    def purge_log(self) -> None:
        """Remove the log that a server keeps for others only (binary logs), so that it does not fill the device."""
        ...

    def counters(self) -> dict[str, float]:
        """Return the engine's cumulative counters as a flat dict; cheap enough for once per second.

        Names contain units where they have one, for example wal_bytes, checkpoints_timed, innodb_data_written_bytes.
        """
        ...

    def sessions(self) -> Sessions:
        """Return the sessions that others have opened; as cheap as `counters`."""
        ...

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        """Return checkpoints begun and ended between two readings of `counters`, by cause."""
        ...

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        """Return bytes that the engine wrote between two readings (log + data files), or None if not measurable."""
        ...

    def work(self, before: dict[str, float], after: dict[str, float], explicit: bool) -> Work:
        """Count the work between two readings of `counters`.

        `explicit`: the load ends each transaction with COMMIT or ROLLBACK.
        """
        ...

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        """Return the share of page requests that the engine's own cache served."""
        ...

    def dirty_bytes(self) -> int | None:
        """Return the size of dirty pages in the engine's cache, or None if not measurable."""
        ...

    def recovery_bytes(self) -> int | None:
        """Return the size of the log that a start after a crash now would have to read, or None if not measurable."""
        ...

    def warnings(self) -> tuple[TrialWarning, ...]:
        """Return warnings about differences from what its version should have: a view without a column, an unknown
        version, an unknown default setting."""
        ...

    def effective_settings(self) -> dict[str, str]:
        """Return every setting as the running server reports it."""
        ...


class Sql(Protocol):
    """How statements for an engine are written, and how its clients log in."""

    @property
    def time_type(self) -> str: ...  # the type of a column with date and time
    @property
    def row_hash(self) -> str: ...  # expression: at least 32 hexadecimal digits that depend only on the number `n`
    @property
    def rewriting(self) -> str: ...  # the statement that rewrites a table, without the table's name
    @property
    def one_message(self) -> bool: ...  # whether a session can send a whole transaction in one message
    @property
    def sysbench(self) -> str: ...  # the engine's name in sysbench's options: --NAME-host
    @property
    def sysbench_tls(self) -> tuple[str, ...]: ...  # options that enable TLS; (): environment variables enable it

    def login(self, server: Server) -> list[str]:
        """Return the options with which sysbench connects to the socket. A password is read from a file."""
        ...

    def quoted(self, table: str) -> str:
        """Quote the name of a table, as returned by `tables`, for a statement."""
        ...

    def tables(self, connection: Any) -> list[Table]:
        """Return the tables of the dataset's database."""
        ...

    def checksums(self, cursor: Any) -> dict[str, str]:
        """Return a checksum over all rows, in any order, for each table of the dataset's database.

        Writes nothing. Comparable between servers of one version.
        """
        ...

    def cancel(self, server: Server, connection: Any) -> None:
        """Cancel the statement of a session."""
        ...

    def refused(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return the errors in the result rows of a maintenance statement."""
        ...

    def scan(self, connection: Any, table: str) -> str:
        """Return a statement that reads a whole table, and prepare the session for it."""
        ...

    def scanned(self, connection: Any, statement: str) -> str:
        """Run a statement from `scan`; return its plan, or "" if only `explained` can return it."""
        ...

    def explained(self, connection: Any, statement: str) -> str:
        """Return the plan of a statement from `scan` after it was run; "" if `scanned` returned it."""
        ...

    def dirtied_blocks(self, plan: str) -> int | None:
        """Return how many pages a scan with this plan changed, although it only reads; None: not in the plan."""
        ...

    def created(self, table: str, columns: str, key: str = "") -> str:
        """Return the statement that makes a table; with primary key `key` if rows are best loaded with it."""
        ...

    def keyed(self, table: str, key: str) -> list[str]:
        """Return the statements that add the primary key to a loaded table, if `created` has not."""
        ...

    def analysed(self, *tables: str) -> list[str]:
        """Return the statements that update the statistics of these tables."""
        ...

    def finished(self, *tables: str) -> list[str]:
        """Return the statements to run on each of these tables after clients have loaded them."""
        ...

    def settled(self) -> list[str]:
        """Return the statements to run once in a database that was loaded."""
        ...

    def cloned(self, table: str, row: str, rows: int, join: str = "", packed: bool = False) -> list[str]:
        """Return the statements that make a clone table (id, k, body) and fill it; `packed`: body is bytes, stored as
        they are."""
        ...

    def filled(self, table: str, columns: str, row: str, rows: int) -> list[str]:
        """Return the statements that fill a table with rows numbered `n`, from 1."""
        ...

    def numbered(self, table: str, rows: int) -> list[str]:
        """Return the statements that set the next automatic `id` after so many rows."""
        ...

    def noisy_bytes(self, noise: int, zeros: int) -> str:
        """Return an expression: so many incompressible bytes that depend on the number `n`, then so many zeros."""
        ...

    def noisy_text(self, noise: int, zeros: int, salt: int) -> str:
        """Return an expression for such a mixture as text; another `salt` gives another text."""
        ...

    def put(self, cursor: Any, table: str, batch: Sequence[Sequence[str]]) -> None:
        """Insert rows of texts that need no quoting; the text `NULL` stands for a missing value."""
        ...


NULL = "\\N"  # a missing value in the rows of `Sql.put`, as COPY writes it
# The log size that starts a checkpoint. At the few MB/s of log that a disk of 2025 sustains it is small enough for
# several checkpoints in a window of a minute, and large enough that a single checkpoint does not fill the window.
# PostgreSQL starts a checkpoint after about half of this size.
LOG_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Weakening:
    """Settings with which a power loss loses commits or tears pages, and the cuts that show it."""

    name: str
    what: str
    cuts: tuple[Literal["drop", "subset", "commit", "checkpoint"], ...]
    settings: Mapping[str, Scalar]


Values = Mapping[str, Scalar]  # values of settings by name


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What the rest of the program needs to know about an engine without a running server."""

    name: str  # name of the engine in plans
    title: str  # name of the engine in texts
    has_server: bool = True  # False: its loads use files directly
    sql: Sql | None = None  # None: there is no server
    # dialect of the dumps, backups and recorded statements that it accepts
    dialect: Literal["postgres", "mysql", ""] = ""
    package: str = ""  # Debian's package of the server; "": Debian has none
    excluded_by: tuple[str, ...] = ()  # engines whose packages conflict with this one's
    programs: tuple[str, ...] = ()  # possible names of the server program
    banner: str = ""  # a word that the server program prints with --version
    release_numbers: int = 2  # versions with the same leading numbers, this many, can read each other's data files
    newest: tuple[int, ...] = ()  # the newest release whose counters and settings were checked on a real server
    counters: frozenset[str] = frozenset()  # status variables that it must have; see `SOURCES` for PostgreSQL
    native_password: bool = False  # new accounts log in with mysql_native_password
    plan: str = ""  # the commented [[engine]] table of a first plan
    locale: str = ""
    page_bytes: int = 16384
    page_setting: str = "innodb_page_size"  # the setting in which the server reports its page size
    direct_io: bool = False  # it bypasses the page cache, so that data is only in its own cache
    # Data
    datasets: tuple[str, ...] = ("none",)  # the kinds of dataset that can be loaded
    generated: Literal["pgbench", "sysbench", "none"] = "none"  # the kind used when only a size is given
    empty_bytes: int = 0  # size of an empty data directory, including the most log that a build keeps
    # by kind of dataset: compressibility with incompressible columns and with constant ones; `datasets.generated.noise`
    compressed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    tablespaces: bool = False  # data can be in additional tablespaces
    chosen_checksums: bool = False  # data checksums can be switched while the server is stopped
    standby: bool = False  # a standby's recovery applies a primary's log; False: a client program does
    copied_running: bool = False  # a server can recover from files copied one by one while it was running
    copying: str = ""  # the command, shown to the user, that copies a running server's data directory
    live_settings: str = ""  # query of a running server: name, text, number, unit, and whether it was set
    # Settings
    versions: Mapping[str, Versions] = field(default_factory=dict)  # by setting, for those that some versions lack
    features: tuple[str, ...] = ()  # settings that decide how it reads and writes; shown with the results
    settings_profiles: Mapping[str, Values] = field(default_factory=lambda: {PRODUCTION: {}, STANDALONE: {}})
    switches: Mapping[str, Mapping[bool, Values]] = field(default_factory=dict)  # factors that set several settings
    io_uring: Values = field(default_factory=dict)  # settings whose value requires io_uring
    limited: Values = field(default_factory=dict)  # override the profile if a control group limits the memory
    stated: tuple[str, ...] = ()  # settings that a settings profile decides; the plan and the page show their values
    private: Values = field(default_factory=dict)  # by which an InnoDB server opens nothing but its socket
    building: Values = field(default_factory=dict)  # for building a golden copy
    unsettled: Values = field(default_factory=dict)  # in addition to `building`, to leave a physical copy unchanged
    one_tablespace: Values = field(default_factory=dict)  # put all tables into one file; {}: not possible
    primary: Values = field(default_factory=dict)  # in addition to `building`, for a primary that writes an archive
    limits: tuple[str, ...] = ()  # settings of a plan that also apply to building: bounds of what a server may open
    by_log: Values = field(default_factory=dict)  # make the size of the log start checkpoints
    small: Values = field(default_factory=dict)  # for a second server that runs at the same time as the trial's
    lab: Values = field(default_factory=dict)  # for the power-loss lab: several checkpoints within seconds
    lab_checkpoints: bool = False  # the lab must request checkpoints, because the settings alone do not cause them
    weakenings: tuple[Weakening, ...] = ()

    def shown(self, effective: Mapping[str, str]) -> dict[str, str]:
        """Return the server settings that are `features`, by name; those that its version does not have are omitted."""
        return {name: effective[name] for name in self.features if name in effective}

    def statement(self, effective: Mapping[str, str]) -> str:
        """Return the settings that are `stated` in words: "log_bin = ON, sync_binlog = 1"; "" if there are none."""
        return ", ".join(f"{name} = {effective[name]}" for name in self.stated if name in effective)


class Engine(Protocol):
    """A kind of server. Satisfied by a module."""

    @property
    def PROFILE(self) -> Profile: ...

    def programs(self, bin: Path | None = None) -> tuple[str, ...]:
        """Return the required programs (names or paths), for `doctor` and for checks before a run."""
        ...

    def installed(self, bin: Path | None = None) -> str | None:
        """Return the version of the installed programs ("15.18"), or None."""
        ...

    def refused(self, settings: Settings, bin: Path | None = None) -> str:
        """Return what the installed server prints about settings that it does not have, or whose values it does not
        accept; "" if it accepts all. No data is needed, and nothing is started."""
        ...

    def account(self) -> User:
        """Return the unprivileged account that the server runs as."""
        ...

    def defaults(self, memory_bytes: int | None) -> dict[str, Scalar]:
        """Return the default settings of a server: durable, private, explicit wherever versions differ.

        A trial has those of a profile over them (`Profile.settings_profiles`). `memory_bytes` is the plan's memory, or
        None.
        """
        ...

    def window_settings(self, warmup_s: float, measure_s: float) -> dict[str, Scalar]:
        """Return settings that follow from the window: checkpoints by time, window ÷ 2, a log size that is
        not reached."""
        ...

    def create(self, datadir: Path, place: Place) -> None:
        """Make an empty data directory (initdb, mariadb-install-db, mysqld --initialize-insecure).

        Data checksums are on and the locale is C.UTF-8 or utf8mb4; the first start adds database and role `dbbench`.
        """
        ...

    def serving(self, datadir: Path, settings: Settings, place: Place) -> AbstractContextManager[Server]:
        """Start the server, wait until it answers, ensure database and role; stop it cleanly at the end of the block.

        Raises EngineStartFailed with the last lines of the log, SettingRefused if the server reports another value than
        the requested one, and EngineStopFailed if it had to be killed.
        """
        ...

    def check(self, datadir: Path, settings: Settings, place: Place) -> str:
        """Check the integrity of the stopped data (it may start the server for it); return what was checked.

        Raises DataCorrupt with the tool's lines.
        """
        ...

    def check_running(self, server: Server) -> None:
        """Check every page of tables and indexes of a running server against each other. Raises DataCorrupt."""
        ...

    def backup(self, server: Server, room: Path) -> list[str] | str:
        """Return the command that writes a physical backup of the running server to its standard output, or the reason
        why there is none."""
        ...

    def move_log(self, datadir: Path, to: Path) -> None:
        """Move the stopped server's write-ahead log into the directory `to`, which `Place.wal` names from then on."""
        ...

    def move_data(self, datadir: Path, device: Path) -> None:
        """Move the stopped server's only tablespace to the bare device. Raises EngineStartFailed if it has none."""
        ...

    def log_files(self, datadir: Path, effective: dict[str, str]) -> list[Path]:
        """Return the files of the write-ahead log (and of the binary log) of the running server."""
        ...

    def data_files(self, datadir: Path) -> list[Path]:
        """Return the files that hold the dataset: tables and indexes, not logs. For cold proofs and for space."""
        ...

    def data_bytes(self, file: Path) -> int:
        """Return the size of a data file; of a bare device, what its tablespace has used so far."""
        ...

    def durability(self, effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
        """Return the durability flags of the effective settings; `tears`: a page can tear on this filesystem."""
        ...


@contextlib.contextmanager
def cursor_of(server: Server, database: str | None = None) -> Iterator[Any]:
    """Yield a cursor of a new session in a database (None: the server's own), in autocommit mode."""
    with contextlib.closing(server.connect(database)) as connection, contextlib.closing(connection.cursor()) as cursor:
        yield cursor


def execute(server: Server, *statements: str, database: str | None = None) -> None:
    """Run statements in one session, each as its own transaction."""
    rows(server, *statements, database=database)


def rows(server: Server, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
    """Return all rows of the last of the statements; [] if it has no result."""
    fetched: list[tuple[Any, ...]] = []
    with cursor_of(server, database) as cursor:
        for statement in statements:
            cursor.execute(statement)
            fetched = list(cursor.fetchall()) if cursor.description is not None else []
    return fetched


def rows_of(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """Return all rows of a statement in an existing session; [] if it has no result."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []
