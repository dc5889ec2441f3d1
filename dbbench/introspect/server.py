"""Read a running server through one read-only session on its unix socket, and write a plan that compares its filesystem
with others. Passwords come from where the servers' own clients look for them; never from the command line."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.datasets.generated import SCALE_BYTES, SYSBENCH_ROW_BYTES
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.settings import Reported, same_in_mysql, same_in_postgres
from dbbench.errors import DbbenchError, LiveServerUnreadable
from dbbench.machine import mounts
from dbbench.machine.mounts import Mount
from dbbench.model.base import PRODUCTION, STANDALONE, data_folder
from dbbench.plan.catalog import Catalog
from dbbench.units import size_text

STATEMENT_S: Final = 60  # enough for the size of a database with very many files; longer would burden the server
# Settings that the plan does not contain: paths, replication and names of this server would break a private server; a
# loaded buffer pool would make its cache warm; the others do not affect I/O.
_FOREIGN: Final = re.compile(
    r"innodb_buffer_pool_(dump|load)_.*|archive_.*|recovery_.*|restore_command|primary_.*|synchronous_standby_names"
    r"|cluster_name|.*_(file|directory|library|libraries|path|home_dir)|listen_.*|port|unix_socket.*|log_.*|logging_.*|ssl.*|.*_group_home_dir|innodb_data_file_path"
    r"|innodb_undo_.*|innodb_temp_.*|innodb_page_size|innodb_read_only|innodb_force_.*|innodb_version|hot_standby.*"
    r"|wal_level|.*_preload_.*|data_checksums|config_.*|server_.*|event_source|shared_memory_type|dynamic_shared_.*"
)
_OF_INNODB: Final = re.compile(
    r"innodb_.*|sync_binlog|binlog_(format|row_image|order_commits|.*group_commit.*)|max_connections|table_open_cache"
    r"|.*_buffer_size|tmp_table_size|max_heap_table_size"
)
_WINDOW_S: Final = (60, 120)  # warm-up and window of the plan
_QUERIES: Final = {  # by dialect: bytes of the data, data directory
    "postgres": (
        "SELECT pg_database_size(current_database())",
        "SELECT setting FROM pg_settings WHERE name = 'data_directory'",
    ),
    "mysql": (
        "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
        "AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')",
        "SELECT @@datadir",
    ),
}
SYSBENCH_TABLES: Final = 8  # number of tables of the sysbench workload in the plan
OTHERS: Final = ("ext4", "xfs", "btrfs")  # setups that the baseline is compared with
# Mount options that do not characterise a setup.
_QUIET: Final = {"noatime", "relatime", "discard", "nodiscard", "nodiscard=async", "rw", "defaults"}
FREE: Final = 2.5  # size of the device ÷ size of the data: space for the copy, its log and growth
LEAST_BYTES: Final = 8 * 2**30
COPY: Final = "/srv/copy"
_GENERATED: Final = {
    "pgbench": 'name = "pgbench-tpcb"\nscale = {scale}   # a dataset of the same size',
    "sysbench": 'name = "sysbench-oltp-read-write"\ntables = {tables}\ntable_size = {rows}   # of the same size',
}
PLACES: Final = (
    "/run/postgresql/.s.PGSQL.*", "/tmp/.s.PGSQL.*", "/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock",
)  # fmt: skip


@dataclass(frozen=True)
class LiveServer:
    """A server that answers. `engine`: postgres, mariadb, mysql."""

    engine: str
    version: str
    socket: Path
    _connection: Any

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises LiveServerUnreadable with the server's own error."""
        with contextlib.closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(statement, values or None)
                return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            except Exception as error:
                raise _unreadable(self.socket, error) from error


def sockets() -> list[Path]:
    """Return the sockets at the places that packages use."""
    paths = [path for place in PLACES for path in Path("/").glob(place.lstrip("/"))]
    return sorted(path for path in paths if path.is_socket())


@contextlib.contextmanager
def reading(socket: Path, user: str | None = None, database: str | None = None) -> Iterator[LiveServer]:
    """Yield a read-only session. `socket`: the socket, or PostgreSQL's directory of it. Raises LiveServerUnreadable if
    nothing answers or the server refuses."""
    path = next(iter(sorted(socket.glob(".s.PGSQL.[0-9]*"))), socket) if socket.is_dir() else socket
    path = Path(str(path).removesuffix(".lock"))
    if not path.is_socket():
        raise LiveServerUnreadable(
            f"{socket} is not the socket of a server", effect="Nothing was read or written.",
            remedy="Name it:  --socket /run/postgresql  or  --socket /run/mysqld/mysqld.sock",
        )  # fmt: skip
    postgres = path.name.startswith(".s.PGSQL.")
    try:
        connection = (_postgres if postgres else _innodb)(path, user or getpass.getuser(), database)
    except Exception as error:
        raise _unreadable(path, error) from error
    with contextlib.closing(connection):
        live = LiveServer("postgres", "", path, connection)
        if not postgres:
            live.rows("START TRANSACTION READ ONLY")
        version = str(live.rows("SHOW server_version" if postgres else "SELECT VERSION()")[0][0])
        engine = "postgres" if postgres else "mariadb" if "MariaDB" in version else "mysql"
        yield LiveServer(engine, re.split("[- ]", version)[0], path, connection)


def _postgres(socket: Path, user: str, database: str | None) -> Any:
    import psycopg2

    connection = psycopg2.connect(
        host=str(socket.parent), port=socket.name.rpartition(".")[2], user=user, dbname=database or "postgres",
        application_name="dbbench", connect_timeout=10,
        options=f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_S}s",
    )  # fmt: skip
    connection.set_session(readonly=True, autocommit=True)
    return connection


def _innodb(socket: Path, user: str, database: str | None) -> Any:
    import mysql.connector

    return mysql.connector.connect(
        unix_socket=str(socket), user=user, password=os.environ.get("MYSQL_PWD", ""), database=database, use_pure=True,
        ssl_disabled=True, connection_timeout=10, charset="utf8mb4", collation="utf8mb4_general_ci",
    )  # fmt: skip


def _unreadable(socket: Path, error: Exception) -> DbbenchError:
    return LiveServerUnreadable(
        f"{socket}: {' '.join(str(error).split())}",
        effect="Nothing was written.",
        remedy="Connect as a role that may read the settings: --user NAME. Or run dbbench as the server's account:  "
        "sudo -u postgres dbbench ...",
    )


@dataclass(frozen=True)
class ServerFacts:
    """What was read. None: this role has no permission to see it."""

    engine: str
    version: str
    profile: str  # the settings profile that is closest
    settings: dict[str, str]  # those that matter to storage and differ from what dbbench would set
    data_bytes: int | None
    mount: Mount | None  # the mount that contains the data directory


def facts_of(live: LiveServer, memory_bytes: int | None) -> ServerFacts:
    """Read all facts through the session. `memory_bytes`: the memory on which dbbench's own settings depend."""
    whole, place = map(live.rows, _QUERIES[profile_of(live.engine).dialect])
    datadir = place[0][0] if place else None
    mount = None
    if datadir:
        with contextlib.suppress(OSError):
            mount = mounts.mount_holding(Path(datadir).resolve(), mounts.mounts_of(Path("/proc/self")))
    data_bytes = None if whole[0][0] is None else int(whole[0][0])
    return ServerFacts(live.engine, live.version, *_settings_of(live, memory_bytes), data_bytes, mount)


def _settings_of(live: LiveServer, memory_bytes: int | None) -> tuple[str, dict[str, str]]:
    """Return the nearest settings profile, and the settings that matter to storage and differ from dbbench's."""
    engine, profile = ENGINES[live.engine], profile_of(live.engine)
    rows = live.rows(profile.live_settings)
    same, logs = (same_in_postgres, "archive_mode") if profile.dialect == "postgres" else (same_in_mysql, "log_bin")
    kept = any(name == logs and text.lower() != "off" for name, text, *_ in rows)
    names = {("archive_mode", True): f"{PRODUCTION}-archive", ("log_bin", False): STANDALONE}
    name = names.get((logs, kept), PRODUCTION)
    ours = {**engine.defaults(memory_bytes), **engine.window_settings(*_WINDOW_S), **profile.settings_profiles[name]}
    relevant = re.compile(".*") if profile.dialect == "postgres" else _OF_INNODB
    return name, {
        key: text
        for key, text, number, unit, changed in rows
        if relevant.fullmatch(key) and not _FOREIGN.fullmatch(key)
        and (not same(ours[key], Reported(number, unit)) if key in ours else changed)
    }  # fmt: skip


def setup_of(facts: ServerFacts, catalog: Catalog) -> tuple[str, str]:
    """Return the fs setup that is closest to the mount of the data directory, and in which respects it may differ."""
    if facts.mount is None:
        return "ext4", f"this role cannot read the path of {facts.engine}'s data directory; choose the setup yourself"
    family, options = facts.mount.fstype, set(facts.mount.options)
    if family.startswith("zfs"):
        return "zfs", "choose the nearest zfs setup: `zfs get all` shows record size and compression"
    # The compression of btrfs also in the spelling that people use.
    options |= {re.sub(r"^(compress(?:-force)?=(?:zlib|zstd)):3$", r"\1", option) for option in options}
    nearest: list[tuple[int, int, str]] = []
    for name in catalog.setups:
        with contextlib.suppress(DbbenchError):
            setup = catalog.setup(name)
            special = setup.layers or setup.volumes or setup.attributes or setup.claims or setup.mkfs.options
            own = set(setup.mount) - _QUIET
            if setup.mkfs.family == family and not special and own <= options:
                nearest.append((len(own), -len(name), name))
    if not nearest:
        return "ext4", f"no fs setup uses {family}; choose the nearest one yourself"
    return max(nearest)[2], ""


def plan_text(live: LiveServer, facts: ServerFacts, catalog: Catalog, file: Path, memory_bytes: int | None) -> str:
    """Return the plan, which can be loaded as it is."""
    profile, (baseline, unsure) = profile_of(facts.engine), setup_of(facts, catalog)
    setups = dict.fromkeys((baseline, *OTHERS))
    size, mount = facts.data_bytes or 0, facts.mount
    settings = [
        f"settings.{name} = {json.dumps(value)}" for name, value in facts.settings.items() if name.isidentifier()
    ]
    ground = f"{mount.fstype} ({','.join(mount.options)}) at {mount.point}" if mount else "an unknown filesystem"
    return (data_folder() / "plans/from-running.in").read_text().format(
        engine=facts.engine, profile=facts.profile, version=_plain(facts.version), socket=_plain(str(live.socket)),
        file=_plain(str(file)), name=re.sub(r"[^A-Za-z0-9._-]", "-", file.stem).strip("._-") or "plan",
        ground=_plain(ground), setups=json.dumps(list(setups)), baseline=baseline,
        unsure=f"  # {_plain(unsure)}" if unsure else "",
        memory=f"{memory_bytes // 2**30}GiB" if memory_bytes and memory_bytes >= 2**30 else "8GiB",
        device=f"{-(-int(max(LEAST_BYTES, size * FREE)) // 2**30)}GiB",
        settings="\n".join(row for row in settings if "\\u" not in row) or "# (none)",
        whole="data of unknown size" if facts.data_bytes is None else size_text(facts.data_bytes),
        workload=_GENERATED[profile.generated].format(
            scale=max(1, size // SCALE_BYTES), tables=SYSBENCH_TABLES,
            rows=max(1000, size // SYSBENCH_ROW_BYTES // SYSBENCH_TABLES),
        ),
        command=_plain(profile.copying.format(
            host=shlex.quote(str(live.socket.parent)), port=live.socket.name.rpartition(".")[2],
            socket=shlex.quote(str(live.socket)), copy=COPY,
        )),
        copy=COPY,
    )  # fmt: skip


def _plain(text: str) -> str:
    """Return text of a server for a comment: one line of printable characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
