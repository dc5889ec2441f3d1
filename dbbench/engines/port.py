"""What a database engine must be able to do. PostgreSQL, MariaDB and MySQL each are one module."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dbbench.model import CheckpointFacts, Durability, Scalar, Settings
from dbbench.process import User
from dbbench.remote import Network


@dataclass(frozen=True)
class Place:
    """Where a server lives apart from its data directory."""

    sockets: Path  # short path, private; the server's socket and pid file
    logs: Path  # server log and configuration as used are kept here; not on the device under test
    bin: Path | None = None  # folder of the programs, or the mysqld itself; None: the newest that is installed
    wal: Path | None = None  # folder of the write-ahead log, where it was moved out of the data directory
    tablespace_bytes: int = 0  # InnoDB: all tables in one file of that size, so that it can be moved to a device
    network: Network | None = None  # by which it is reached from another host, beside its socket


class Server(Protocol):
    """A private server that is up and answers on a unix socket; over the network only where `Place` says so."""

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
    def user(self) -> str: ...  # database role; no password is needed on the socket
    @property
    def database(self) -> str: ...  # where the dataset lives: "dbbench"
    @property
    def log(self) -> Path: ...
    @property
    def bin(self) -> Path: ...  # folder of its programs (pgbench, psql, ...)

    def connect(self, database: str | None = None) -> Any:
        """A DB-API connection in autocommit mode. The caller closes it."""
        ...

    def alive(self) -> bool:
        """Whether the server's process still runs."""
        ...

    def settle(self) -> None:
        """Wait until nothing of a restore or start is still being worked on (recovery, autovacuum, purge,
        flush backlog), then checkpoint. DeadlinePassed when it does not end."""
        ...

    def checkpoint(self) -> None:
        """Write all dirty pages (PostgreSQL: CHECKPOINT; InnoDB: flush until no dirty page is left)."""
        ...

    def counters(self) -> dict[str, float]:
        """The engine's own cumulative counters, one flat dict; cheap enough for once a second. Names carry
        units where they have one, e.g. wal_bytes, checkpoints_timed, innodb_data_written_bytes."""
        ...

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        """Checkpoints begun and ended between two readings of `counters`, by cause."""
        ...

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        """Bytes the engine itself wrote between two readings (log + data files); None: not measurable."""
        ...

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        """Share of page requests served by the engine's own cache."""
        ...

    def dirty_bytes(self) -> int | None:
        """Dirty pages in the engine's cache; None: not measurable."""
        ...

    def effective_settings(self) -> dict[str, str]:
        """Every setting as the running server reports it."""
        ...


class Engine(Protocol):
    """A kind of server. Satisfied by a module."""

    def programs(self, bin: Path | None = None) -> tuple[str, ...]:
        """The programs that must be there (names or paths), for `doctor` and for checks before a run."""
        ...

    def installed(self, bin: Path | None = None) -> str | None:
        """The version of the programs found ("15.18"), or None where they are missing."""
        ...

    def account(self) -> User:
        """The unprivileged account that the server runs as."""
        ...

    def defaults(self, memory_bytes: int | None) -> dict[str, Scalar]:
        """The engine's default settings of a trial: durable, private, nothing that differs between versions
        left open. `memory_bytes` is the plan's memory, or None."""
        ...

    def window_settings(self, warmup_s: float, measure_s: float) -> dict[str, Scalar]:
        """Settings that follow from the window: checkpoints by time, window ÷ 2, log size out of reach."""
        ...

    def create(self, datadir: Path, place: Place) -> None:
        """Make an empty data directory (initdb, mariadb-install-db, mysqld --initialize-insecure), data
        checksums on, locale C.UTF-8 or utf8mb4, database and role `dbbench` come with the first start."""
        ...

    def serving(self, datadir: Path, settings: Settings, place: Place) -> AbstractContextManager[Server]:
        """Start the server, wait until it answers, make sure database and role exist; stop it cleanly at the
        end of the block. EngineStartFailed has the last lines of the log; SettingRefused where the server
        reports another value than was asked; EngineStopFailed where it had to be killed."""
        ...

    def check(self, datadir: Path, settings: Settings, place: Place) -> str:
        """Check the integrity of the stopped data (it may start the server for it); what was checked, in a
        few words. DataCorrupt with the tool's lines."""
        ...

    def move_log(self, datadir: Path, to: Path) -> None:
        """Move the stopped server's write-ahead log into the folder `to`; from then on `Place.wal` names it."""
        ...

    def move_data(self, datadir: Path, device: Path) -> None:
        """Move the stopped server's only tablespace onto the bare device. EngineStartFailed where it has none."""
        ...

    def log_files(self, datadir: Path, effective: dict[str, str]) -> list[Path]:
        """The files of the write-ahead log (and of the binary log), where the running server has them."""
        ...

    def data_files(self, datadir: Path) -> list[Path]:
        """The files that hold the dataset: tables and indexes, not logs. For cold proofs and for space."""
        ...

    def data_bytes(self, file: Path) -> int:
        """The size of one of the data files; of a bare device what its tablespace has taken so far."""
        ...

    def durability(self, effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
        """Flags that the server's effective settings bring; `tears`: a page can tear on this filesystem."""
        ...
