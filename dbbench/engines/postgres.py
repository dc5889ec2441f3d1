"""PostgreSQL, 13 or later: a private cluster with data checksums, on one socket; for a load
generator on another host also on one address, over TLS with its certificate and a password. The
socket is `trust`: only the server's account and root can enter its directory. The cluster's
pg_hba.conf rejects everyone, so that a copy of the data gives no access.

The file is long because the profile, which is a table, and the functions of `port.Engine` are read
together; the running server and its counters have files of their own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import packages, process
from dbbench.engines import settings as text
from dbbench.engines.accounts import of_server
from dbbench.engines.port import (
    LOG_BYTES,
    NAME,
    Place,
    Profile,
    Server,
    SmallCluster,
    Values,
    Weakening,
)
from dbbench.engines.postgres_server import BLOCK, PORT, SLOT, PostgresServer, ready
from dbbench.engines.postgres_sql import PostgresSql
from dbbench.engines.serving import (
    Launch,
    forget,
    log_size,
    move,
    own,
    put,
    refuse_corrupt,
    serving_program,
)
from dbbench.engines.settings import Versions, switched_on
from dbbench.engines.sql import cursor_of
from dbbench.errors import CommandFailed, EngineStartFailed, ProgramMissing
from dbbench.model import Durability, Scalars, Setting, Settings
from dbbench.model.base import PRODUCTION, STANDALONE
from dbbench.remote import Network
from dbbench.remote.network import ROLE

INITDB_S: Final = 120.0
CHECK_S: Final = 3600.0  # long enough for a terabyte from a disk; 578 MB from memory take 0.2 s
# The socket accepts only the account that dbbench runs as (the kernel reports it), not even the
# server's account.
_MAP: Final = "dbbench"
_HBA: Final = f"local all,replication {NAME} peer map={_MAP}\n"
_RELATION: Final = re.compile(r"[0-9]+(_[a-z]+)?(\.[0-9]+)?")  # 16384, 16384_fsm, 16384.1
# As pg_amcheck selects relations. Before version 14, the extension cannot check heaps.
_CAN_CHECK: Final = "SELECT EXISTS (SELECT FROM pg_proc WHERE proname = 'verify_heapam')"
_BTREES: Final = """SELECT bt_index_check(indexrelid, true) FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND relkind = 'i' AND relpersistence <> 't'
AND indisvalid AND indisready AND indislive AND indrelid NOT IN (SELECT oid FROM pg_class WHERE relkind = 't')"""
_HEAPS: Final = """SELECT pg_class.oid::regclass, blkno, offnum, attnum, msg
FROM pg_class, verify_heapam(pg_class.oid, check_toast => true)
WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'heap') AND relkind IN ('r', 'm') AND relpersistence <> 't'"""

# Settings that make the server private and its log readable.
_LOGGING: Final[Scalars] = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "ssl": False,
    "logging_collector": False,
    "log_destination": "stderr",
    "log_checkpoints": True,
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "lc_messages": "C",
    "restart_after_crash": False,
}
_RESERVED: Final = (
    *_LOGGING,
    "ssl_ca_file",
    "ssl_cert_file",
    "ssl_key_file",
    "data_directory",
    "config_file",
    "hba_file",
    "ident_file",
    "unix_socket_directories",
    "external_pid_file",
)
_LIBRARIES: Final = (
    "shared_preload_libraries",
    "session_preload_libraries",
    "local_preload_libraries",
)
_SEGMENT: Final = re.compile("[0-9A-F]{24}")  # a file of the write-ahead log
_PRODUCTION: Final[Values] = {"wal_level": "replica", "archive_mode": "off", "huge_pages": "try"}

PROFILE: Final = Profile(
    name="postgres",
    title="PostgreSQL",
    sql=PostgresSql(),
    dialect="postgres",
    package="postgresql",
    programs=("postgres",),
    release_numbers=1,
    newest=(19,),
    versions={
        "default_toast_compression": Versions((14,)),
        "vacuum_buffer_usage_limit": Versions((16,)),
        "io_combine_limit": Versions((17,)),
        "autovacuum_worker_slots": Versions((18,)),
        "io_method": Versions((18,)),
        "io_workers": Versions((18,), (18,)),  # version 19 has two limits instead
        "io_min_workers": Versions((19,)),
        "io_max_workers": Versions((19,)),
        "file_copy_method": Versions((18,)),
        "file_extend_method": Versions((18, 2), backported=((16, 12), (17, 8))),
    },
    reserved={
        **dict.fromkeys(_RESERVED, text.KEEPS_PRIVATE),
        "default_transaction_read_only": text.WRITES_NOTHING,
        "transaction_read_only": text.WRITES_NOTHING,
    },
    required=_LIBRARIES,
    locale="C.UTF-8",
    page_bytes=BLOCK,
    page_setting="block_size",
    datasets=("pgbench", "sysbench", "clone-tables", "tpcc", "archive", "none"),
    generated="pgbench",
    empty_bytes=200_000_000,
    compressed={"clone-tables": (0.13, 0.95), "sysbench": (0.30, 0.95)},
    tablespaces=True,
    chosen_checksums=True,
    standby=True,
    copied_running=True,
    copying="pg_basebackup --host={host} --port={port} --pgdata={copy} --checkpoint=fast --progress",
    live_settings="""
SELECT name, current_setting(name), setting, coalesce(unit, ''), setting IS DISTINCT FROM boot_val
AND source NOT IN ('default', 'override', 'client', 'session') FROM pg_settings
WHERE context <> 'internal' AND split_part(category, ' / ', 1) IN
('Resource Usage', 'Write-Ahead Log', 'Query Tuning', 'Autovacuum', 'Vacuuming') ORDER BY name""",
    live_data="""
SELECT pg_database_size(current_database()), (SELECT setting FROM pg_settings WHERE name = 'data_directory')""",
    live_names=r"(?!archive_|recovery_|restore_command|wal_level|\w*shared_memory_type).*",
    features=(
        "io_method",
        "io_workers",
        "io_min_workers",
        "io_max_workers",
        "io_combine_limit",
        "effective_io_concurrency",
        "debug_io_direct",
        "wal_sync_method",
        "full_page_writes",
        "wal_init_zero",
        "wal_recycle",
        "wal_compression",
        "data_checksums",
        "block_size",
        "file_extend_method",
        "file_copy_method",
        "huge_pages_status",
    ),
    settings_profiles={
        PRODUCTION: _PRODUCTION,
        # each segment is copied next to the data
        f"{PRODUCTION}-archive": {**_PRODUCTION, "archive_mode": "on"},
        # the slot keeps the server from recycling or removing segments
        f"{PRODUCTION}-slot": {**_PRODUCTION, SLOT: True},
        STANDALONE: {},
    },
    io_uring={"io_method": "io_uring"},
    # A control group does not count huge pages, so the server would have more memory than the plan
    # allows.
    limited={"huge_pages": "off"},
    stated=("wal_level", "archive_mode", SLOT, "huge_pages", "huge_pages_status"),
    building={
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "wal_level": "minimal",
        "max_wal_senders": 0,
        "shared_buffers": "512MB",
        "maintenance_work_mem": "512MB",
        "max_wal_size": "128MB",
        "min_wal_size": "32MB",
        "checkpoint_timeout": "1h",
        "autovacuum": "off",
    },
    # The log contains full pages, as on a primary that must survive a crash. max_connections is
    # small because a standby does not start with a lower value than its primary's.
    primary={
        "wal_level": "replica",
        "full_page_writes": "on",
        "max_connections": 20,
        "max_wal_senders": 0,
        "max_worker_processes": 2,
        "max_parallel_workers": 0,
        "max_wal_size": "1GB",
        "wal_keep_size": "1TB",
    },
    limits=("max_files_per_process", "max_locks_per_transaction"),
    by_log={"checkpoint_timeout": "1d", "max_wal_size": f"{LOG_BYTES // 2**20}MB"},
    small={"shared_buffers": "16MB", "archive_mode": "off"},
    # After a crash, one call syncs all files, of which there are hundreds.
    lab={
        "recovery_init_sync_method": "syncfs",
        "shared_buffers": "32MB",
        "effective_cache_size": "64MB",
        "max_wal_size": "32MB",
        "checkpoint_timeout": "5min",
        "wal_buffers": "1MB",
        "max_connections": 30,
    },
    lab_cluster=SmallCluster(
        ("--wal-segsize=1",),
        (
            "ALTER DATABASE template0 IS_TEMPLATE false",
            "DROP DATABASE template0",
            "ALTER DATABASE template1 IS_TEMPLATE false",
            "DROP DATABASE template1",
            "DROP DATABASE postgres",
        ),
        {"min_wal_size": "2MB"},
    ),
    lab_checkpoint="CHECKPOINT",
    lab_partitions="tables",
    syncs_after_crash=True,
    weakenings=(
        Weakening("fsync=off", "a server that never flushes", ("drop", "subset"), {"fsync": False}),
        Weakening(
            "full_page_writes=off",
            "a server without protection from torn pages",
            ("checkpoint",),
            {"full_page_writes": False},
        ),
    ),
)


def programs(bin: Path | None = None) -> tuple[str, ...]:
    """Return server, initdb, clients and checkers; paths if a server is installed, otherwise names."""
    folder = _folder(bin)
    needed = ("postgres", "initdb", "pg_checksums", "pgbench")
    if folder:
        return tuple(str(folder / name) for name in needed)
    return needed


def installed_version(bin: Path | None = None) -> str | None:
    """Return the version, for example "15.18" or "19rc1", or None."""
    folder = _folder(bin)
    return _version(folder) if folder else None


def refusal(settings: Settings, bin: Path | None = None) -> str:
    """Return the server's message about the first of the settings that it refuses."""
    # The server is asked for one setting and thereby reads all of them.
    argv = [
        str(_require(bin) / "postgres"),
        "-C",
        "block_size",
        "-D",
        "/",
        "--config-file=/dev/null",
    ]
    for name, setting in settings.items():
        if name != SLOT:
            argv.append(f"--{name}={text.word(setting.value)}")
    # A library that is missing stops the server only when it starts.
    missing = _missing_libraries(settings, bin)
    if missing:
        return f"its library {missing[0]} is not installed"
    done = process.run(argv, note=False, ok=range(256))
    if not done.returncode:
        return ""
    # after "FATAL" or "HINT"
    messages = [line.partition(":  ")[2] for line in done.stderr.splitlines()]
    return "; ".join(filter(None, messages)) or done.stderr.strip()


def _missing_libraries(settings: Settings, bin: Path | None) -> list[str]:
    """Return the libraries that the server would load but does not have, if it is known where it
    looks for them.
    """
    folder = _require(bin).parent / "lib"
    if not (folder / "plpgsql.so").is_file():
        return []
    names: list[str] = []
    for setting in _LIBRARIES:
        if setting in settings:
            names += re.findall(r"[^\s,\"']+", text.word(settings[setting].value))
    return [
        name
        for name in names
        if "/" not in name and not (folder / f"{name.removesuffix('.so')}.so").is_file()
    ]


def account() -> process.User:
    """Return the account of the server. See `accounts.of_server`."""
    return of_server("postgres")


def defaults(memory_bytes: int | None) -> Scalars:
    """Return durable settings, explicit wherever versions differ; a quarter of the memory as the
    manual recommends.
    """
    cache = memory_bytes // 4 if memory_bytes else 256 * 2**20
    return {
        "shared_buffers": f"{cache // 2**20}MB",
        "effective_cache_size": f"{3 * cache // 2**20}MB",
        "huge_pages": "off",
        "shared_memory_type": "mmap",
        "dynamic_shared_memory_type": "posix",
        "max_connections": 300,
        "work_mem": "4MB",
        "maintenance_work_mem": "64MB",
        # commits are on disk before they are acknowledged
        "fsync": True,
        "synchronous_commit": "on",
        "full_page_writes": True,
        "wal_sync_method": "fdatasync",
        "data_sync_retry": False,
        "commit_delay": 0,
        # log
        "wal_level": "replica",
        "archive_mode": "off",
        "max_wal_senders": 10,
        "wal_compression": "off",
        "wal_log_hints": False,
        "wal_init_zero": True,
        "wal_recycle": True,
        "wal_buffers": "16MB",
        "max_wal_size": "4GB",
        "min_wal_size": "80MB",
        # checkpoints and the background writer
        "checkpoint_timeout": "5min",
        "checkpoint_completion_target": 0.9,
        "checkpoint_flush_after": "256kB",
        "bgwriter_delay": "200ms",
        "bgwriter_lru_maxpages": 100,
        "bgwriter_lru_multiplier": 2.0,
        "bgwriter_flush_after": "512kB",
        "backend_flush_after": 0,
        # autovacuum: on, at fixed costs
        "autovacuum": True,
        "autovacuum_max_workers": 3,
        "autovacuum_worker_slots": 16,
        "autovacuum_naptime": "1min",
        "autovacuum_vacuum_cost_delay": "2ms",
        "autovacuum_vacuum_cost_limit": 200,
        "vacuum_cost_delay": 0,
        "vacuum_buffer_usage_limit": "2MB",
        "log_autovacuum_min_duration": 0,
        # plans and reads
        "jit": False,
        "random_page_cost": 1.1,
        "effective_io_concurrency": 16,
        "maintenance_io_concurrency": 16,
        "io_method": "worker",
        "io_workers": 3,
        "io_min_workers": 3,
        "io_max_workers": 3,
        "io_combine_limit": "128kB",
        "max_parallel_workers_per_gather": 2,
        "max_parallel_workers": 8,
        "max_worker_processes": 8,
        # a copy of a user's cluster would connect to its publishers
        "max_logical_replication_workers": 0,
        "track_io_timing": False,
        "default_toast_compression": "pglz",
        "timezone": "UTC",
    }


def window_settings(warmup_s: float, measure_s: float) -> Scalars:
    """Return timed checkpoints, two per window; the log size never triggers one (30 s is the
    server's minimum).
    """
    return {"checkpoint_timeout": f"{max(30, int(measure_s / 2))}s", "max_wal_size": "1TB"}


def create(datadir: Path, place: Place, *options: str) -> None:
    """Run initdb. The files are not synced: the copy is synced as a whole later."""
    folder = _require(place.bin)
    owner = account()
    own(datadir, owner)
    # Accounts come from the socket, the locale from C, so that nothing depends on the host.
    argv: list[str | Path] = [
        folder / "initdb",
        f"--pgdata={datadir}",
        "--data-checksums",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        f"--username={NAME}",
        "--auth=reject",
        "--wal-segsize=16",
        "--no-sync",
        *options,
    ]
    if _major(_version(folder)) >= 15:
        argv.append("--locale-provider=libc")
    try:
        process.run(argv, timeout_s=INITDB_S, as_user=owner)
    except CommandFailed as error:
        raise EngineStartFailed(
            f"the data directory {datadir} could not be initialized: {error}"
        ) from error


@contextlib.contextmanager
def serving(
    datadir: Path,
    settings: Settings,
    place: Place,
    profile: Profile = PROFILE,
) -> Iterator[PostgresServer]:
    """Start the server within the block, after any recovery. `profile`: that of an engine based on
    PostgreSQL.
    """
    text.refuse_reservations(settings, profile.reserved)
    folder = _require(place.bin)
    owner = account()
    version = _version(folder)
    slot = switched_on(settings, SLOT)
    settings = {name: setting for name, setting in settings.items() if name != SLOT}
    # the server would refuse to start with others
    existing = text.keep_existing(settings, _describe_settings(folder))
    existing = text.raise_sizes(existing, ("min_wal_size", "max_wal_size"), least_log(datadir))
    sockets = own(place.sockets, owner)
    forget(sockets, ".s.PGSQL.*")

    # The accounts that may log in: clients run as the server's account.
    names = dict.fromkeys((pwd.getpwuid(os.geteuid()).pw_name, owner.name))
    logins = "".join(f'{_MAP} "{name}" {NAME}\n' for name in names)
    ident = put(logins, "pg_ident.conf", place, owner)
    private: Scalars = {
        **_LOGGING,
        **_listening(place.network, owner),
        "unix_socket_directories": str(sockets),
        "hba_file": str(put(_hba(place.network), "pg_hba.conf", place, owner)),
        "ident_file": str(ident),
        **archiving(existing, datadir, owner),
    }
    # a copy has directories in place of links to tablespaces
    tablespaces = (datadir / "pg_tblspc").glob("*")
    if any(entry.is_dir() and not entry.is_symlink() for entry in tablespaces):
        private["allow_in_place_tablespaces"] = True
    config = put(_config(existing, private), "postgresql.conf", place, owner)
    # Also on the command line, because postgresql.auto.conf of a restored cluster overrides the
    # configuration file.
    fixed = [f"--{name}={text.word(value)}" for name, value in private.items()]
    launch = Launch(
        name=f"PostgreSQL {version}",
        argv=(str(folder / "postgres"), "-D", str(datadir), f"--config-file={config}", *fixed),
        datadir=datadir,
        log=place.log,
        account=owner,
        stop=signal.SIGINT,  # "fast" shutdown: ends sessions, then runs a checkpoint
        abort=signal.SIGQUIT,  # "immediate" shutdown: ends the backends too, unlike SIGKILL
        offset=log_size(place.log),
    )

    def answer(program: process.Running) -> PostgresServer | None:
        if not ready(program.pid, datadir):
            return None
        server = PostgresServer(profile, place, version, folder, program, launch.offset)
        return server if server.answers() else None

    with serving_program(launch, answer) as server, contextlib.closing(server):
        server.prepare(slot)
        server.left_out = text.absent_defaults(settings, existing, version, PROFILE.versions)
        warnings = launch.tail("warning")
        text.refuse_differences(existing, server.reported, text.same_in_postgres, warnings)
        if place.network:
            server.admit(ROLE, place.network.password)
        yield server


def check(datadir: Path, settings: Settings, place: Place) -> str:
    """Check every block's checksum if there are any (pg_checksums, server stopped), heap and
    B-trees (pg_amcheck).
    """
    blocks = check_pages(datadir, settings, place)
    with serving(datadir, settings, place) as server:
        amcheck = server.bin / "pg_amcheck"
        if not amcheck.exists() or not server.has_extension("amcheck"):
            return blocks
        # Pages have been checked; this looks at what rows and indexes say.
        argv: list[str | Path] = [
            amcheck,
            f"--host={server.socket_dir}",
            f"--port={server.port}",
            f"--username={NAME}",
            f"--database={NAME}",
            "--jobs=2",
            "--no-dependent-toast",
        ]
        faults = []
        # Status 2 is damage; 1 says that it could not look, unless what it read ended the server.
        try:
            done = process.run(argv, timeout_s=CHECK_S, ok=(0, 2), as_user=account())
            if done.returncode:
                faults = (done.stdout + done.stderr).splitlines()
        except CommandFailed as error:
            if server.alive():
                raise
            faults = str(error).splitlines()
    refuse_corrupt("pg_amcheck", faults)
    return f"{blocks}; pg_amcheck"


def check_pages(datadir: Path, settings: Settings, place: Place) -> str:
    """Run pg_checksums, after a recovery if the server was not stopped cleanly."""
    argv = [str(_require(place.bin) / "pg_checksums"), "--check", f"--pgdata={datadir}"]
    run = functools.partial(process.run, argv, timeout_s=CHECK_S, ok=(0, 1), as_user=account())
    done = run()
    if "must be shut down" in done.stderr:
        with serving(datadir, settings, place):
            pass
        done = run()
    if "data checksums are not enabled" in done.stderr:  # a copy of a cluster without them
        return "no data checksums"
    refuse_corrupt("pg_checksums", done.stderr.splitlines() if done.returncode else [])
    scanned = re.search(r"Blocks scanned:\s+(\d+)", done.stdout)
    return f"checksums of {scanned[1] if scanned else 'all'} blocks"


def check_running(server: Server) -> None:
    """Check heap and B-trees of a running server, and that each row is in its indexes: what
    `pg_amcheck
    --heapallindexed` checks, in half of its time because it is one session. Nothing without the
    extension.
    """
    import psycopg2

    assert isinstance(server, PostgresServer)
    with cursor_of(server) as cursor:
        try:
            cursor.execute(_CAN_CHECK)
            if cursor.fetchone()[0]:
                cursor.execute(_BTREES)
                cursor.execute(_HEAPS)
                refuse_corrupt(
                    "amcheck", [": ".join(map(str, fault)) for fault in cursor.fetchall()]
                )
        except psycopg2.Error as error:  # bt_index_check raises what it finds
            refuse_corrupt("amcheck", str(error).splitlines() or [repr(error)])


def backup(server: Server, room: Path) -> list[str] | str:
    """Return the pg_basebackup command: WAL at the end, and an immediate checkpoint, which is not
    measured.
    """
    return [
        str(server.bin / "pg_basebackup"),
        f"--host={server.socket_dir}",
        f"--username={server.user}",
        "--pgdata=-",
        "--format=tar",
        "--wal-method=fetch",
        "--checkpoint=fast",
    ]


def least_log(datadir: Path) -> int:
    """Return the smallest size in bytes that the server accepts for its log: two segments."""
    log = (datadir / "pg_wal").iterdir()
    sizes = [file.stat().st_size for file in log if _SEGMENT.fullmatch(file.name)]
    return 2 * max(sizes, default=0)


def place_log(datadir: Path, folder: Path) -> None:
    """Move pg_wal and leave a link, as `initdb --waldir` does."""
    log = datadir / "pg_wal"
    move(sorted(log.iterdir()), folder, account())
    log.rmdir()
    log.symlink_to(folder)


def log_files(datadir: Path, effective: dict[str, str]) -> list[Path]:
    """Return WAL segments and related files by their real paths."""
    return sorted(path.resolve() for path in (datadir / "pg_wal").iterdir() if path.is_file())


def data_files(datadir: Path) -> list[Path]:
    """Return tables, indexes and their maps; if a tablespace is a link, only its files: it alone is
    under test.
    """
    spaces = sorted((datadir / "pg_tblspc").glob("*"))
    linked = [space for space in spaces if space.is_symlink()]
    files = []
    for root in linked or [datadir / "base", *spaces]:
        for folder, _folders, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                if _RELATION.fullmatch(name) and path.is_file():
                    files.append(path)
    return sorted(files, key=str)  # comparing paths takes four times as long


def durability(effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
    """Return the flags: fsync=off writes in any order, like a disk without barriers;
    synchronous_commit may lose the last commits; full_page_writes=off leaves torn pages on
    filesystems that can tear them.
    """
    flags = {"fsync": Durability.NO_BARRIER, "synchronous_commit": Durability.ASYNC_COMMIT}
    if tears:
        flags["full_page_writes"] = Durability.TORN_PAGES
    return tuple(flag for name, flag in flags.items() if effective.get(name) == "off")


@functools.lru_cache
def _describe_settings(folder: Path) -> frozenset[str]:
    done = process.run((folder / "postgres", "--describe-config"), note=False)
    names = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    return frozenset(map(str.lower, names))


def archiving(
    settings: Settings,
    datadir: Path,
    owner: process.User,
) -> Scalars:
    """Return private settings of an archive next to the data if the settings ask for one without
    their own command.
    """
    own_command = not {"archive_command", "archive_library"}.isdisjoint(settings)
    if own_command or not switched_on(settings, "archive_mode"):
        return {}
    archive = own(datadir.with_name(f"{datadir.name}.archive"), owner)
    target = f"{shlex.quote(str(archive))}/%f"
    return {"archive_command": f"test ! -f {target} && cp %p {target}"}


def _hba(network: Network | None) -> str:
    if network is None:
        return _HBA
    bits = 128 if ":" in network.peer else 32
    return f"{_HBA}hostssl {NAME} {ROLE} {network.peer}/{bits} scram-sha-256 clientcert=verify-ca\n"


def _listening(network: Network | None, owner: process.User) -> Scalars:
    if network is None:
        return {}
    network.own(owner.uid, owner.gid)
    return {
        "listen_addresses": network.address,
        "port": network.port,
        "ssl": True,
        "ssl_ca_file": str(network.ca),
        "ssl_cert_file": str(network.cert),
        "ssl_key_file": str(network.key),
    }


def _config(settings: Settings, private: Scalars) -> str:
    lines = ["# This file is complete: the configuration of the system is not read."]
    whole = {name: Setting(value, "private") for name, value in private.items()}
    whole.update(settings)
    for name, setting in whole.items():
        quoted = text.word(setting.value).replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'  # {setting.origin}")
    return "\n".join(lines) + "\n"


def _folder(given: Path | None) -> Path | None:
    """Return the given directory, or that of the newest version from packages of Debian, PGDG or
    Fedora.
    """
    if given is not None:
        places = [given, given / "bin"]
    else:
        places = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    folders = [place for place in places if (place / "postgres").is_file()]
    if given is not None:
        return folders[0] if folders else None
    if folders:
        return max(folders, key=lambda place: _major(place.parent.name.removeprefix("pgsql-")))
    program = process.find("postgres")
    return program.parent if program else None


def _require(given: Path | None) -> Path:
    folder = _folder(given)
    if folder is None:
        raise ProgramMissing(
            f"no PostgreSQL server in {given}" if given else "no PostgreSQL server is installed",
            remedy=f"{packages.install(['postgresql'])}, or name the folder of its programs as "
            "`bin`.",
        )
    return folder


@functools.lru_cache
def _version(folder: Path) -> str:
    printed = process.run((folder / "postgres", "--version"), note=False).stdout
    # "19rc1" of "postgres (PostgreSQL) 19rc1 (Debian 19~rc1-1)"
    match = re.search(r"\d\S*", printed)
    if match:
        return match[0]
    return printed.strip()


def _major(version: str) -> int:
    return next(iter(text.numbers_of(version)), 0)
