"""PostgreSQL, 13 or later: a private cluster with data checksums, reached through one socket; where the load generator
is on another host, from that one's address too, over TLS with its certificate and a password.

Access is `trust`, because the socket lies in a folder that only the server's account and root can enter; the
cluster's own pg_hba.conf refuses everybody, so that the data directory alone is no open door.
"""

from __future__ import annotations

import contextlib
import functools
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import settings as text
from dbbench.engines.moving import moved
from dbbench.engines.port import Place
from dbbench.engines.postgres_counters import DATABASE
from dbbench.engines.postgres_server import PORT, USER, PostgresServer, ready
from dbbench.engines.serving import Launch, forget, own, put, serving_program
from dbbench.errors import CommandFailed, DataCorrupt, EngineStartFailed, ProgramMissing
from dbbench.model import Durability, Scalar, Setting, Settings
from dbbench.remote import Network
from dbbench.remote.network import ROLE

INITDB_S: Final = 120.0
CHECK_S: Final = 3600.0  # 578 MB take 0.2 s from memory; a terabyte from a disk takes its time
_HBA: Final = (
    "# Only root and the server's account can enter the folder of the socket.\nlocal all,replication all trust\n"
)
_RELATION: Final = re.compile(r"[0-9]+(_[a-z]+)?(\.[0-9]+)?")  # 16384, 16384_fsm, 16384.1

# What makes the server private and its log readable. Nobody may set these.
_LOGGING: Final[dict[str, Scalar]] = {
    "listen_addresses": "", "port": PORT, "unix_socket_permissions": "0700", "ssl": False,
    "logging_collector": False, "log_destination": "stderr", "log_checkpoints": True, "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ", "lc_messages": "C", "restart_after_crash": False,
}  # fmt: skip
PRIVATE: Final = (*_LOGGING, "ssl_ca_file", "ssl_cert_file", "ssl_key_file", "data_directory", "config_file",
                  "hba_file", "ident_file", "unix_socket_directories", "external_pid_file")  # fmt: skip

# Settings that later versions brought; a default is left out where the server does not know it.
SINCE: Final = {"wal_decode_buffer_size": 15, "recovery_init_sync_method": 14, "default_toast_compression": 14,
                "vacuum_buffer_usage_limit": 16, "io_method": 18, "io_workers": 18, "io_combine_limit": 17,
                "autovacuum_worker_slots": 18, "huge_page_size": 14}  # fmt: skip


def programs(bin: Path | None = None) -> tuple[str, ...]:
    """Server, initdb, clients and checkers; paths where a server is found, else names."""
    folder = _folder(bin)
    needed = ("postgres", "initdb", "pg_checksums", "pgbench")
    return tuple(str(folder / name) for name in needed) if folder else needed


def installed(bin: Path | None = None) -> str | None:
    """ "15.18", or None."""
    folder = _folder(bin)
    return _version(folder) if folder else None


def account() -> process.User:
    """`postgres`, which every package of the server makes; the caller where it is not root."""
    return process.user("postgres")


def defaults(memory_bytes: int | None) -> dict[str, Scalar]:
    """Durable, and explicit wherever versions differ; a quarter of the memory as the manual advises."""
    cache = memory_bytes // 4 if memory_bytes else 256 * 2**20
    return {
        "shared_buffers": f"{cache // 2**20}MB",
        "effective_cache_size": f"{3 * cache // 2**20}MB",
        "huge_pages": "off", "shared_memory_type": "mmap", "dynamic_shared_memory_type": "posix",
        "max_connections": 300, "work_mem": "4MB", "maintenance_work_mem": "64MB",
        # commits: on disk before they are acknowledged
        "fsync": True, "synchronous_commit": "on", "full_page_writes": True, "wal_sync_method": "fdatasync",
        "data_sync_retry": False, "commit_delay": 0,
        # log
        "wal_level": "replica", "archive_mode": "off", "max_wal_senders": 10, "wal_compression": "off",
        "wal_log_hints": False, "wal_init_zero": True, "wal_recycle": True, "wal_buffers": "16MB",
        "max_wal_size": "4GB", "min_wal_size": "80MB",
        # checkpoints and the background writer
        "checkpoint_timeout": "5min", "checkpoint_completion_target": 0.9, "checkpoint_flush_after": "256kB",
        "bgwriter_delay": "200ms", "bgwriter_lru_maxpages": 100, "bgwriter_lru_multiplier": 2.0,
        "bgwriter_flush_after": "512kB", "backend_flush_after": 0,
        # autovacuum: on, at fixed costs
        "autovacuum": True, "autovacuum_max_workers": 3, "autovacuum_worker_slots": 16,
        "autovacuum_naptime": "1min", "autovacuum_vacuum_cost_delay": "2ms",
        "autovacuum_vacuum_cost_limit": 200, "vacuum_cost_delay": 0, "vacuum_buffer_usage_limit": "2MB",
        "log_autovacuum_min_duration": 0,
        # plans and reads
        "jit": False, "random_page_cost": 1.1, "effective_io_concurrency": 16, "maintenance_io_concurrency": 16,
        "io_method": "worker", "io_workers": 3, "io_combine_limit": "128kB",
        "max_parallel_workers_per_gather": 2, "max_parallel_workers": 8, "max_worker_processes": 8,
        "max_logical_replication_workers": 0,  # a copy of a user's cluster has publishers to connect to
        "track_io_timing": False, "default_toast_compression": "pglz", "timezone": "UTC",
    }  # fmt: skip


def window_settings(warmup_s: float, measure_s: float) -> dict[str, Scalar]:
    """Checkpoints by time, two in a window; the log's size never starts one (30 s is the server's least)."""
    return {"checkpoint_timeout": f"{max(30, int(measure_s / 2))}s", "max_wal_size": "1TB"}


def create(datadir: Path, place: Place) -> None:
    """initdb. The files are not synced: who makes a copy of them syncs the whole."""
    folder, owner = _found(place.bin), account()
    own(datadir, owner)
    argv: list[str | Path] = [
        folder / "initdb", f"--pgdata={datadir}", "--data-checksums", "--encoding=UTF8", "--locale=C.UTF-8",
        f"--username={USER}", "--auth=reject", "--wal-segsize=16", "--no-sync",
    ]  # fmt: skip
    if _major(_version(folder)) >= 15:
        argv.append("--locale-provider=libc")
    try:
        process.run(argv, timeout_s=INITDB_S, as_user=owner)
    except CommandFailed as error:
        raise EngineStartFailed(f"no cluster could be made in {datadir}: {error}") from error


@contextlib.contextmanager
def serving(datadir: Path, settings: Settings, place: Place) -> Iterator[PostgresServer]:
    """See the port. A start that needs recovery waits for it."""
    text.keep_private(settings, PRIVATE)
    folder, owner = _found(place.bin), account()
    version = _version(folder)
    known = {
        name: setting
        for name, setting in settings.items()
        if setting.origin != "default" or SINCE.get(name, 0) <= _major(version)
    }
    sockets = own(place.sockets, owner)
    port = place.network.port if place.network else PORT
    forget(sockets, ".s.PGSQL.*")
    hba = put(_hba(place.network), "pg_hba.conf", sockets, place.logs, owner)
    ident = put("", "pg_ident.conf", sockets, place.logs, owner)
    private: dict[str, Scalar] = {
        **_LOGGING,
        **_listening(place.network, owner),
        "unix_socket_directories": str(sockets),
        "hba_file": str(hba),
        "ident_file": str(ident),
    }
    if any(entry.is_dir() and not entry.is_symlink() for entry in (datadir / "pg_tblspc").glob("*")):
        private["allow_in_place_tablespaces"] = True  # of a user's cluster: no link of a copy leads out of it
    config = put(_config(known, private), "postgresql.conf", sockets, place.logs, owner)
    # On the command line too: postgresql.auto.conf of a restored cluster would win over the file.
    fixed = [f"--{name}={text.word(value)}" for name, value in private.items()]
    log = place.logs / "server.log"
    launch = Launch(
        name=f"PostgreSQL {version}",
        argv=(str(folder / "postgres"), "-D", str(datadir), f"--config-file={config}", *fixed),
        datadir=datadir,
        log=log,
        account=owner,
        stop=signal.SIGINT,  # "fast": sessions are ended, then a checkpoint
        abort=signal.SIGQUIT,  # "immediate": backends go too, unlike with SIGKILL
    )
    offset = log.stat().st_size if log.exists() else 0

    def answer(program: process.Running) -> PostgresServer | None:
        if not ready(program.pid, datadir):
            return None
        server = PostgresServer(program, version, sockets, log, offset, folder, port)
        return server if server.answers() else None

    with serving_program(launch, answer) as server:
        try:
            server.prepare()
            text.refuse_differences(known, server.reported(), text.same_in_postgres)
            if place.network:
                server.admit(ROLE, place.network.password)
            yield server
        finally:
            server.close()


def check(datadir: Path, settings: Settings, place: Place) -> str:
    """Every block's checksum (pg_checksums, server down), then heap and B-tree structure (pg_amcheck)."""
    blocks = _check_blocks(datadir, settings, place)
    with serving(datadir, settings, place) as server:
        if not amchecked(server):
            return f"checksums of {blocks} blocks"
    return f"checksums of {blocks} blocks; pg_amcheck"


def amchecked(server: PostgresServer, *options: str) -> bool:
    """Heap and B-tree structure of the dataset's database, by pg_amcheck; False where the server has it not.
    DataCorrupt."""
    amcheck = server.bin / "pg_amcheck"
    if not amcheck.exists() or not server.has_extension("amcheck"):
        return False
    argv: list[str | Path] = [amcheck, f"--host={server.socket_dir}", f"--port={server.port}", f"--username={USER}",
            f"--database={DATABASE}", "--jobs=2", "--no-dependent-toast", *options]  # fmt: skip
    done = process.run(argv, timeout_s=CHECK_S, ok=(0, 1, 2))
    if done.returncode:
        raise DataCorrupt("pg_amcheck says:\n" + _lines(done.stdout + done.stderr), effect="The trial does not count.")
    return True


def move_log(datadir: Path, to: Path) -> None:
    """See the port. pg_wal becomes a link, as `initdb --waldir` makes it; nothing else has to know."""
    log = datadir / "pg_wal"
    moved(sorted(log.iterdir()), to, account())
    log.rmdir()
    log.symlink_to(to)


def move_data(datadir: Path, device: Path) -> None:
    """PostgreSQL keeps each table in a file."""
    raise EngineStartFailed("PostgreSQL cannot do without a filesystem", effect="Nothing was measured.")


def log_files(datadir: Path, effective: dict[str, str]) -> list[Path]:
    """Segments and the like, by their real paths."""
    return sorted(path.resolve() for path in (datadir / "pg_wal").iterdir() if path.is_file())


def data_files(datadir: Path) -> list[Path]:
    """Tables, indexes and their maps, in all databases and tablespaces. A tablespace by a link is one that was put
    onto the filesystem under test alone: then its files are meant."""
    spaces = sorted((datadir / "pg_tblspc").glob("*"))
    linked = [space for space in spaces if space.is_symlink()]
    roots = linked or [datadir / "base", *spaces]
    files = (path for root in roots for path in root.rglob("[0-9]*"))
    return sorted(path for path in files if _RELATION.fullmatch(path.name) and path.is_file())


def data_bytes(file: Path) -> int:
    """Its size."""
    return file.stat().st_size


def durability(effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
    """fsync=off writes without any order, like a disk without barriers; the rest as named in METHOD.

    synchronous_commit may lose the last commits, full_page_writes=off leaves torn pages where one can tear.
    """
    flags = []
    if effective.get("fsync") == "off":
        flags.append(Durability.NO_BARRIER)
    if effective.get("synchronous_commit") == "off":
        flags.append(Durability.ASYNC_COMMIT)
    if effective.get("full_page_writes") == "off" and tears:
        flags.append(Durability.TORN_PAGES)
    return tuple(flags)


def _check_blocks(datadir: Path, settings: Settings, place: Place) -> str:
    argv: list[str | Path] = [_found(place.bin) / "pg_checksums", "--check", f"--pgdata={datadir}"]
    done = process.run(argv, timeout_s=CHECK_S, ok=(0, 1), as_user=account())
    if "must be shut down" in done.stderr:  # it crashed: recovery belongs to what is checked
        with serving(datadir, settings, place):
            pass
        done = process.run(argv, timeout_s=CHECK_S, ok=(0, 1), as_user=account())
    if done.returncode:
        raise DataCorrupt("pg_checksums says:\n" + _lines(done.stderr), effect="The trial does not count.")
    scanned = re.search(r"Blocks scanned:\s+(\d+)", done.stdout)
    return scanned[1] if scanned else "all"


def _lines(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[:8]) + (
        f"\n  ({len(lines) - 8} lines more)" if len(lines) > 8 else ""
    )


def _hba(network: Network | None) -> str:
    """pg_hba.conf: the socket; and one host's address, by TLS alone, with a certificate of ours and a password."""
    if network is None:
        return _HBA
    bits = 128 if ":" in network.peer else 32
    return f"{_HBA}hostssl {DATABASE} {ROLE} {network.peer}/{bits} scram-sha-256 clientcert=verify-ca\n"


def _listening(network: Network | None, owner: process.User) -> dict[str, Scalar]:
    """Private settings of a server that listens on one address."""
    if network is None:
        return {}
    network.own(owner.uid, owner.gid)
    return {"listen_addresses": network.address, "port": network.port, "ssl": True, "ssl_ca_file": str(network.ca),
            "ssl_cert_file": str(network.cert), "ssl_key_file": str(network.key)}  # fmt: skip


def _config(settings: Settings, private: dict[str, Scalar]) -> str:
    """postgresql.conf: each setting with its origin."""
    lines = ["# Complete: nothing of the system's configuration is read."]
    whole = {**{name: Setting(value, "private") for name, value in private.items()}, **settings}
    for name, setting in whole.items():
        quoted = text.word(setting.value).replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'  # {setting.origin}")
    return "\n".join(lines) + "\n"


def _folder(given: Path | None) -> Path | None:
    """The folder given, or of the newest version that packages of Debian, PGDG and Fedora have put there."""
    if given is not None:
        return next((place for place in (given, given / "bin") if (place / "postgres").is_file()), None)
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    found = [place for place in places if (place / "postgres").is_file()]
    if found:
        return max(found, key=lambda place: _major(place.parent.name.removeprefix("pgsql-")))
    hit = process.find("postgres")
    return hit.parent if hit else None


def _found(given: Path | None) -> Path:
    folder = _folder(given)
    if folder is None:
        raise ProgramMissing(
            f"no PostgreSQL server in {given}" if given else "no PostgreSQL server is installed",
            effect="Nothing was changed.",
            remedy="apt install postgresql, or name the folder of its programs as `bin`.",
        )
    return folder


@functools.lru_cache
def _version(folder: Path) -> str:
    said = process.run((folder / "postgres", "--version"), note=False).stdout
    match = re.search(r"\d+(?:\.\d+)*", said)
    return match[0] if match else said.strip()


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else 0
