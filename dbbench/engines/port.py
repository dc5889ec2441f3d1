"""An engine: what it declares (`Profile`), what every one does (`Engine`), what some can do, its
running `Server`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

from dbbench.engines.settings import Versions, numbers_of
from dbbench.engines.sql import Endpoint, Sql, rows_of
from dbbench.errors import DriverFailed, EngineDied
from dbbench.model import CheckpointFacts, Durability, Scalar, Scalars, Settings, TrialWarning, Work
from dbbench.model.base import PRODUCTION, STANDALONE
from dbbench.process import Running, User
from dbbench.remote import Network

# The log size that starts a checkpoint. At the few MB/s of log that a disk of 2025 sustains it is
# small enough for several checkpoints in a window of a minute, and large enough that a single
# checkpoint does not fill the window. PostgreSQL starts a checkpoint after about half of this size.
LOG_BYTES: Final = 128 * 2**20
NAME: Final = "dbbench"  # of the role, and of the database unless the dataset has one of its own

Values = Mapping[str, Scalar]  # values of settings by name
# the increase of a server's counters between two readings, if both have them
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Place:
    """The location of a server's files outside of its data directory."""

    # private directory of the server's socket and pid file; short, because a socket's path is
    # limited
    sockets: Path
    # directory for the server log and a copy of the configuration; not on the device under test
    logs: Path
    # directory of the programs, or the mysqld itself; None: the newest installed version
    bin: Path | None = None
    # directory of the write-ahead log if it was moved out of the data directory
    log_dir: Path | None = None
    # InnoDB: size of the single file with all tables, which can be moved to a device
    tablespace_bytes: int = 0
    # address and keys for a load generator on another host; None: only the socket
    network: Network | None = None

    @property
    def log(self) -> Path:
        return self.logs / "server.log"


@dataclass(frozen=True)
class Sessions:
    """The sessions of a server that `Server.connect` did not open: those of the load generator and
    of anyone else.
    """

    # by session id (PostgreSQL: pid): the client's name and its latest statement
    present: dict[int, str]
    # sessions opened since the first reading; None: this server version does not count them
    opened: int | None = None
    # time at which the server last read its configuration; "": the server does not report it
    configured: str = ""


@dataclass(frozen=True)
class Weakening:
    """Settings with which a power loss loses commits or tears pages, and the cuts that show it."""

    name: str
    what: str
    cuts: tuple[Literal["drop", "subset", "commit", "checkpoint"], ...]
    settings: Mapping[str, Scalar]


@dataclass(frozen=True)
class SmallCluster:
    """What makes a data directory small, which the power-loss lab copies and reads for each cut:
    options of `create`, statements that remove what no session uses, settings.
    """

    creation: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    settings: Values = field(default_factory=dict)


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
    # versions with the same leading numbers, this many, can read each other's data files
    release_numbers: int = 2
    oldest: tuple[int, ...] = ()  # the oldest release that dbbench starts; (): any
    # the newest release whose counters and settings were checked on a real server
    newest: tuple[int, ...] = ()
    # status variables that it must have; see `SOURCES` for PostgreSQL
    counters: frozenset[str] = frozenset()
    native_password: bool = False  # new accounts log in with mysql_native_password
    locale: str = ""
    page_bytes: int = 16384
    page_setting: str = "innodb_page_size"  # the setting in which the server reports its page size
    direct_io: bool = False  # it bypasses the page cache, so that data is only in its own cache
    # Data
    datasets: tuple[str, ...] = ("none",)  # the kinds of dataset that can be loaded
    # the kind used when only a size is given
    generated: Literal["pgbench", "sysbench", "none"] = "none"
    # size of an empty data directory, including the most log that a build keeps
    empty_bytes: int = 0
    # by kind of dataset: compressibility with incompressible columns and with constant ones;
    # `datasets.generated.noise`
    compressed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    tablespaces: bool = False  # data can be in additional tablespaces
    chosen_checksums: bool = False  # data checksums can be switched while the server is stopped
    # a standby's recovery applies a primary's log; False: a client program does
    standby: bool = False
    # a server can recover from files copied one by one while it was running
    copied_running: bool = False
    # the command, shown to the user, that copies a running server's data directory
    copying: str = ""
    # Queries of a user's running server: name, text, number, unit of its settings and whether it
    # was set; bytes of the data and data directory. `live_names`: the settings that affect storage
    # and that a plan for a copy may contain.
    live_settings: str = ""
    live_data: str = ""
    live_names: str = ""
    # Settings
    # By setting or "setting=value", for those that some versions lack.
    versions: Mapping[str, Versions] = field(default_factory=dict)
    # settings that decide how it reads and writes; shown with the results
    features: tuple[str, ...] = ()
    settings_profiles: Mapping[str, Values] = field(
        default_factory=lambda: {PRODUCTION: {}, STANDALONE: {}}
    )
    # factors that set several settings
    switches: Mapping[str, Mapping[bool, Values]] = field(default_factory=dict)
    io_uring: Values = field(default_factory=dict)  # settings whose value requires io_uring
    # settings that plans, workloads and fs setups may not have, with the reason
    reserved: Mapping[str, str] = field(default_factory=dict)
    # settings of a plan that also apply to building, because a user's own data may require them
    required: tuple[str, ...] = ()
    # override the profile if a control group limits the memory
    limited: Values = field(default_factory=dict)
    # settings that a settings profile decides; the plan and the page show their values
    stated: tuple[str, ...] = ()
    # by which an InnoDB server opens nothing but its socket
    private: Values = field(default_factory=dict)
    building: Values = field(default_factory=dict)  # for building a golden copy
    # in addition to `building`, to leave a physical copy unchanged
    unsettled: Values = field(default_factory=dict)
    # put all tables into one file; {}: not possible
    one_tablespace: Values = field(default_factory=dict)
    # in addition to `building`, for a primary that writes an archive
    primary: Values = field(default_factory=dict)
    # settings of a plan that also apply to building: bounds of what a server may open
    limits: tuple[str, ...] = ()
    by_log: Values = field(default_factory=dict)  # make the size of the log start checkpoints
    # for a second server that runs at the same time as the trial's
    small: Values = field(default_factory=dict)
    # for the power-loss lab: several checkpoints within seconds
    lab: Values = field(default_factory=dict)
    lab_cluster: SmallCluster = SmallCluster()
    # How the lab partitions a table: each partition is a table, or a clause. "": schema changes are
    # not crash-safe.
    lab_partitions: Literal["", "tables", "clause"] = ""
    # recovery uses each intact copy of a torn page, see `Durability.LAB_UNSAFE`
    restores_pages: bool = True
    # recovery from a crash flushes all files: a killed server's writes are only in the page cache
    syncs_after_crash: bool = False
    # `check_pages` can read the files of a server that was killed after a checkpoint
    checks_killed: bool = False
    # statement that causes checkpoints in the lab, where the settings alone do not
    lab_checkpoint: str = ""
    weakenings: tuple[Weakening, ...] = ()

    def shown(self, effective: Mapping[str, str]) -> dict[str, str]:
        """Return the server settings that are `features`, by name; those that its version does not
        have are omitted.
        """
        return {name: effective[name] for name in self.features if name in effective}

    def statement(self, effective: Mapping[str, str]) -> str:
        """Return the settings that are `stated` in words: "log_bin = ON, sync_binlog = 1"; "" if
        there are none.
        """
        return ", ".join(f"{name} = {effective[name]}" for name in self.stated if name in effective)


class Server(Endpoint):
    """A private running server on a unix socket, and on the network only if `Place` says so. What
    follows `effective_settings` are abilities: those that an engine does not have report
    nothing. `programs`: the directory of its clients (pgbench, psql, ...).
    """

    user = NAME  # database role
    database = NAME

    def __init__(
        self,
        profile: Profile,
        place: Place,
        version: str = "",
        programs: Path = Path(),
        running: Running | None = None,
    ) -> None:
        self.profile = profile
        self.engine = profile.name
        self.version = version
        self.bin = programs
        self.socket_dir = place.sockets
        self.log = place.log
        self.socket = place.sockets / f"{profile.name}.sock"
        # environment variables with which its client programs log in on the socket
        self.env: dict[str, str] = {}
        self.left_out: tuple[str, ...] = ()  # defaults that this version does not have
        self._running = running
        self._lock = threading.RLock()
        self._counting: Any = None  # the open connection on which counters are read
        self._opened: list[int] = []  # ids of all connections that `connect` has opened
        # sessions of others before the first call of `sessions`
        self._opened_before: int | None = None
        # counters that this version should have, in the order of their discovery
        self._lacking: dict[str, None] = {}

    @property
    def pid(self) -> int | None:
        """Return the pid of the server's first process; None without a server."""
        if self._running is not None:
            return self._running.pid
        return None

    def alive(self) -> bool:
        return self._running is None or self._running.poll() is None

    def connect(self, database: str | None = None) -> Any:
        raise DriverFailed(f"{self.engine} has no server that accepts statements")

    def settle(self) -> None:
        """Wait until background work of a restore or start is complete (recovery, autovacuum,
        purge, flush backlog), then checkpoint. Raises DeadlinePassed.
        """

    def effective_settings(self) -> dict[str, str]:
        """Return every setting as the running server reports it."""
        return {}

    def volatile_tables(self) -> list[str]:
        """Return the tables of the load whose commits need neither log nor flush."""
        return []

    def checkpoint(self) -> None:
        """Write all dirty pages (PostgreSQL: CHECKPOINT; InnoDB: flush until no page is dirty)."""

    def purge_log(self) -> None:
        """Remove the log that a server keeps for others only (binary logs), so that it does not
        fill the device.
        """

    def counters(self) -> dict[str, float]:
        """Return cumulative counters, with their units in the names (wal_bytes); cheap enough for
        once per second.
        """
        return {}

    def sessions(self) -> Sessions:
        """Return the sessions that others have opened; as cheap as `counters`."""
        return Sessions({})

    def session_threads(self) -> frozenset[int]:
        """Return the thread ids of sessions whose names do not say that they are sessions."""
        return frozenset()

    def checkpoints(self, grown: Counts) -> CheckpointFacts:
        """Return checkpoints begun and ended between two readings of `counters`, by cause."""
        return CheckpointFacts(note="no server, no checkpoints")

    def written_bytes(self, grown: Counts) -> int | None:
        """Return bytes that the engine wrote between two readings (log + data files), or None if
        not measurable.
        """
        return None

    def work(self, grown: Counts, explicit: bool) -> Work:
        """Count the work between two readings; `explicit`: the load ends each transaction with
        COMMIT or ROLLBACK.
        """
        return Work()

    def hit_ratio(self, grown: Counts) -> float | None:
        """Return the share of page requests that the engine's own cache served."""
        return None

    def dirty_bytes(self) -> int | None:
        """Return the size of dirty pages in the engine's cache, or None if not measurable."""
        return None

    def recovery_bytes(self) -> int | None:
        """Return the size of the log that a start after a crash now would have to read, or None if
        not measurable.
        """
        return None

    def warnings(self) -> tuple[TrialWarning, ...]:
        """Return warnings about a version that is newer than all that dbbench was tested with, and
        about counters and default settings that it does not have.
        """
        newest = self.profile.newest
        server = f"{self.engine} {self.version}"
        warnings = []
        if newest and numbers_of(self.version)[: len(newest)] > newest:
            release = ".".join(map(str, newest))
            text = f"is newer than {release}, the newest release that dbbench was tested with"
            warnings.append(TrialWarning("W147", f"{server} {text}"))
        if self._lacking:
            names = ", ".join(self._lacking)
            text = f"should have {names}; the counters read from there are missing"
            warnings.append(TrialWarning("W140", f"{server} {text}"))
        if self.left_out:
            text = f"does not have the setting {', '.join(self.left_out)}"
            warnings.append(TrialWarning("W147", f"{server} {text}"))
        return tuple(warnings)

    def close(self) -> None:
        with self._lock, contextlib.suppress(Exception):
            if self._counting is not None:
                self._counting.close()
            self._counting = None

    def _open(self) -> Any:
        return self.connect()

    def _read(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement for counters. Raises EngineDied."""
        with self._lock:
            try:
                if self._counting is None:
                    self._counting = self._open()
                return rows_of(self._counting, statement)
            except Exception as error:  # of psycopg2 or mysql.connector
                self._counting = None  # the next reading opens a new connection
                raise EngineDied(
                    f"the counters of the server could not be read: {str(error).strip()}"
                ) from error


class Engine(Protocol):
    """A kind of server. Satisfied by a module or an object."""

    @property
    def PROFILE(self) -> Profile: ...

    def programs(self, bin: Path | None = None) -> tuple[str, ...]:
        """Return the required programs (names or paths), for `doctor` and for checks before a run."""

    def installed_version(self, bin: Path | None = None) -> str | None:
        """Return the version of the installed programs ("15.18"), or None."""

    def refusal(self, settings: Settings, bin: Path | None = None) -> str:
        """Return what the installed server prints about settings that it does not accept, or "".
        Nothing is started.
        """

    def account(self) -> User:
        """Return the unprivileged account that the server runs as."""

    def defaults(self, memory_bytes: int | None) -> Scalars:
        """Return durable, private settings, explicit wherever versions differ; a trial has those of
        a profile over them (`Profile.settings_profiles`). `memory_bytes`: the plan's memory.
        """

    def window_settings(self, warmup_s: float, measure_s: float) -> Scalars:
        """Return settings that follow from the window: checkpoints every window ÷ 2, a log size
        that is not reached.
        """

    def create(self, datadir: Path, place: Place, *options: str) -> None:
        """Make an empty data directory with data checksums, in the locale C.UTF-8 or utf8mb4; the
        first start adds database and role `dbbench`. `options`: more of the program that makes
        it. Raises EngineStartFailed.
        """

    def serving(
        self,
        datadir: Path,
        settings: Settings,
        place: Place,
    ) -> AbstractContextManager[Server]:
        """Start the server, wait until it answers, ensure database and role; stop it cleanly at the
        end of the block. Raises EngineStartFailed with the last lines of the log, SettingRefused
        if the server reports another value than the requested one, EngineDied if it had to be
        killed.
        """

    def check(self, datadir: Path, settings: Settings, place: Place) -> str:
        """Check the stopped data (it may start the server); return what was checked. Raises
        DataCorrupt.
        """

    def data_files(self, datadir: Path) -> list[Path]:
        """Return the files that hold the dataset: tables and indexes, not logs. For cold proofs and
        for space.
        """

    def durability(self, effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
        """Return the durability flags of the effective settings; `tears`: a page can tear on this
        filesystem.
        """


@runtime_checkable
class HasLog(Protocol):
    """An engine with a write-ahead log, which can lie in a directory of its own."""

    def place_log(self, datadir: Path, folder: Path) -> None:
        """Move the stopped server's log into the directory, which `Place.log_dir` names from then
        on.
        """

    def log_files(self, datadir: Path, effective: dict[str, str]) -> list[Path]:
        """Return the files of the write-ahead log (and of the binary log) of the running server."""


def log_files_of(
    engine: Engine,
    datadir: Path,
    effective: dict[str, str],
) -> list[Path]:
    """Return the engine's log files; [] if it has no log."""
    if isinstance(engine, HasLog):
        return engine.log_files(datadir, effective)
    return []


@runtime_checkable
class ChecksData(Protocol):
    """An engine that checks its data while the server runs, and each page's checksum after it was
    stopped.
    """

    def check_running(self, server: Server) -> None:
        """Check every page of tables and indexes against each other. Raises DataCorrupt."""

    def check_pages(
        self,
        datadir: Path,
        settings: Settings,
        place: Place,
    ) -> str:
        """Check the checksum of each page of tables and indexes, also of those that no query reads
        (InnoDB: not of the doublewrite buffer). Return what was checked. Raises DataCorrupt.
        """


@runtime_checkable
class BacksUp(Protocol):
    """An engine with a program for physical backups."""

    def backup(self, server: Server, room: Path) -> list[str] | str:
        """Return the command that writes a backup to standard output, or why there is none; `room`:
        for its notes.
        """


@runtime_checkable
class UsesBareDevice(Protocol):
    """An engine whose tables can all be on a device without a filesystem."""

    def move_data(self, datadir: Path, device: Path) -> None:
        """Move the stopped server's only tablespace to the device."""

    def data_bytes(self, file: Path) -> int:
        """Return the size of a data file; of a bare device, what its tablespace has used so far."""
