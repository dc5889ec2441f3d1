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

    sockets: Path  # short path, private; the server's socket and pid file
    logs: Path  # server log and configuration as used are kept here; not on the device under test
    bin: Path | None = None  # folder of the programs, or the mysqld itself; None: the newest that is installed
    wal: Path | None = None  # folder of the write-ahead log, where it was moved out of the data directory
    tablespace_bytes: int = 0  # InnoDB: all tables in one file of that size, so that it can be moved to a device
    network: Network | None = None  # by which it is reached from another host, beside its socket


@dataclass(frozen=True)
class Sessions:
    """The sessions of a server that `Server.connect` did not open: those of the load generator and of anyone else."""

    present: dict[int, str]  # by the server's number of each: what it says of itself and does
    opened: int | None = None  # how many were opened since the first reading; None: this version does not count them
    configured: str = ""  # when the server read its configuration last; "": it does not say


@dataclass(frozen=True)
class Table:
    """A table and the logical bytes that a scan of it reads."""

    name: str  # with its schema, where that is not the one that is looked in first
    size_bytes: int
    tablespace: str = ""  # PostgreSQL: its own one


class Server(Protocol):
    """A private running server on a unix socket, and on the network only if `Place` says so."""

    @property
    def engine(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def pid(self) -> int | None: ...  # None: there is no process, the load does all the work
    @property
    def socket_dir(self) -> Path: ...
    @property
    def socket(self) -> Path: ...  # mysql: the socket file; postgres: .s.PGSQL.5432 in socket_dir
    @property
    def user(self) -> str: ...  # database role
    @property
    def env(self) -> dict[str, str]: ...  # what its client programs need of it to log in on the socket
    @property
    def database(self) -> str: ...  # where the dataset lives: "dbbench"
    @property
    def log(self) -> Path: ...
    @property
    def bin(self) -> Path: ...  # folder of its programs (pgbench, psql, ...)

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
    def time_type(self) -> str: ...  # of a column with date and time
    @property
    def row_hash(self) -> str: ...  # an expression: at least 32 hexadecimal digits that follow from the number `n`
    @property
    def rewriting(self) -> str: ...  # the statement, without a table, that writes a table anew
    @property
    def one_message(self) -> bool: ...  # a session can send a whole transaction at once
    @property
    def sysbench(self) -> str: ...  # the word in its options: --WORD-host
    @property
    def sysbench_tls(self) -> tuple[str, ...]: ...  # options that switch TLS on; (): the client library's environment

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
        """Run such a statement; return its plan, or "" if the scan does not give it."""
        ...

    def explained(self, connection: Any, statement: str) -> str:
        """Return the plan of such a statement, after the scan."""
        ...

    def dirtied_blocks(self, plan: str) -> int | None:
        """Pages that a scan with this plan changed, although it only reads; None: the plan does not tell."""
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
        """Return the same as text."""
        ...

    def put(self, cursor: Any, table: str, batch: Sequence[Sequence[str]]) -> None:
        """Insert rows of plain texts; `NULL` is one of them."""
        ...


NULL = "\\N"  # among the texts of `Sql.put`, as COPY writes it
# Of log, where its size starts checkpoints: small enough that a window of a minute has some, at the few MB/s of log
# that a disk of 2025 takes; large enough that one is not all of the window. PostgreSQL begins one when about half of it
# is written.
LOG_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Weakening:
    """Settings with which a power loss loses commits or tears pages, and the cuts that show it."""

    name: str
    what: str
    cuts: tuple[Literal["drop", "subset", "commit", "checkpoint"], ...]
    settings: Mapping[str, Scalar]


Values = Mapping[str, Scalar]  # of settings


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What the rest of the program needs to know about an engine without a running server."""

    name: str  # in plans
    title: str  # for people
    sql: Sql | None = None  # None: there is no server
    dialect: Literal["postgres", "mysql", ""] = ""  # whose dumps, backups and recorded statements it takes
    package: str = ""  # of Debian, with the server; "": there is none
    excluded_by: tuple[str, ...] = ()  # engines whose packages cannot be installed beside this one's
    programs: tuple[str, ...] = ()  # what the server program is called
    banner: str = ""  # a word of its version line
    release_numbers: int = 2  # so many numbers of a version decide whether its files fit
    newest: tuple[int, ...] = ()  # the newest release whose counters and settings were checked on a real server
    counters: frozenset[str] = frozenset()  # status variables that it must have; PostgreSQL's follow from the version
    native_password: bool = False  # accounts are made with the hash of mysql_native_password
    plan: str = ""  # a commented [[engine]] for a first plan
    locale: str = ""
    page_bytes: int = 16384
    page_setting: str = "innodb_page_size"  # by which the server tells its page size
    direct_io: bool = False  # its own cache is the only one that holds data
    # Data
    datasets: tuple[str, ...] = ("none",)  # the kinds that can be loaded
    generated: Literal["pgbench", "sysbench", "none"] = "none"  # the kind that stands for a database of a given size
    empty_bytes: int = 0  # of an empty server, with the most log that a build keeps
    compressed: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # see `datasets.packed`
    tablespaces: bool = False  # a user's data can have tablespaces of its own
    chosen_checksums: bool = False  # data checksums of a stopped server can be enabled and disabled
    standby: bool = False  # a primary's log is applied by a standby's recovery, else by a client
    copied_running: bool = False  # the files of a running server, copied one after the other, can be recovered
    copying: str = ""  # how a person copies a running server's data directory
    changed_settings: str = ""  # the query for the settings of a running server that are not its defaults
    # Settings
    versions: Mapping[str, Versions] = field(default_factory=dict)  # of defaults that not every version has
    features: tuple[str, ...] = ()  # those that decide how it reads and writes; results show them
    settings_profiles: Mapping[str, Values] = field(default_factory=lambda: {PRODUCTION: {}, STANDALONE: {}})
    switches: Mapping[str, Mapping[bool, Values]] = field(default_factory=dict)  # factors that are several settings
    io_uring: Values = field(default_factory=dict)  # settings whose value requires io_uring
    limited: Values = field(default_factory=dict)  # over the profile, where a control group limits the memory
    stated: tuple[
        str, ...
    ] = ()  # the settings that a profile decides, and what became of them; plan and page show them
    building: Values = field(default_factory=dict)  # of a server that makes a golden copy
    unsettled: Values = field(default_factory=dict)  # over `building`, where a physical copy is kept as it is
    one_tablespace: Values = field(default_factory=dict)  # by which all tables lie in one file; {}: they cannot
    primary: Values = field(default_factory=dict)  # over `building`, of a server that writes an archive
    by_log: Values = field(default_factory=dict)  # under which the log's size starts checkpoints
    small: Values = field(default_factory=dict)  # of a second server beside the trial's
    lab: Values = field(default_factory=dict)  # of the power-cut lab: several checkpoints in seconds
    lab_checkpoints: bool = False  # the lab must ask for them
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
