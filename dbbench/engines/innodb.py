"""What MariaDB and MySQL share: InnoDB's settings, a private server, the check of its tables, its
files.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Final

from dbbench import process
from dbbench.engines import mysqld
from dbbench.engines import settings as text
from dbbench.engines.accounts import of_server
from dbbench.engines.innodb_server import SYSBENCH_OPTIONS, InnodbServer
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import NAME, Place, Profile, Server, Values, Weakening
from dbbench.engines.serving import (
    Launch,
    database_of,
    forget,
    log_size,
    move,
    own,
    put,
    put_aside,
    refuse_corrupt,
    serving_program,
    tail,
)
from dbbench.errors import (
    CommandFailed,
    EngineDied,
    EngineStartFailed,
    FilesystemFull,
    ProgramMissing,
    RestoreFailed,
)
from dbbench.model import Durability, Scalar, Settings
from dbbench.model.base import PRODUCTION, STANDALONE
from dbbench.remote import Network
from dbbench.remote.network import ROLE
from dbbench.results.fileio import open_fd

INITIALIZE_S: Final = 300.0
# Redo log that a load writes per second: twice the 12 MB/s that 16 clients of oltp_read_write wrote
# on two cores of 2025. REDO_MOST limits the size, because both servers allocate the whole log at
# start, also on a small test device.
REDO_RATE: Final = 24 * 2**20
REDO_LEAST: Final = 512 * 2**20
REDO_MOST: Final = 4 * 2**30
REDO_STEP: Final = 64 * 2**20

# Settings that make the server private. Plans, workloads and fs setups may not set them.
PRIVATE: Final = (
    "datadir",
    "socket",
    "pid_file",
    "skip_networking",
    "port",
    "bind_address",
    "user",
    "log_error",
    "tmpdir",
    "init_file",
    "secure_file_priv",
    "defaults_file",
    "basedir",
    "mysqlx",
    "innodb_log_group_home_dir",
    "ssl_ca",
    "ssl_cert",
    "ssl_key",
    "require_secure_transport",
    "skip_name_resolve",
)
# The server runs these statements at each start, before it accepts connections. They stay out of
# the binary log. The account gets a new password each time; `root` is locked, because it has no
# password in a new data directory.
_ROLE: Final = f"""SET SESSION sql_log_bin = OFF;
CREATE DATABASE IF NOT EXISTS {NAME} CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS {NAME}@localhost;
ALTER USER {NAME}@localhost IDENTIFIED BY '{{password}}';
GRANT ALL PRIVILEGES ON *.* TO {NAME}@localhost;
ALTER USER IF EXISTS root@localhost ACCOUNT LOCK;
"""
_HIDDEN: Final = "(a new one at each start, not stored)"
SYSTEM_SCHEMAS: Final = ("mysql", "sys", "performance_schema", "information_schema")
_TABLE_FILES: Final = (".ibd", ".MYD", ".MYI", ".MAD", ".MAI")
_CORRUPT: Final = re.compile(
    r"corrupt|checksum mismatch|Unable to read page|page_cleaner.*crash", re.IGNORECASE
)
# MySQL's messages begin with [number] [subsystem]
_ERROR: Final = re.compile(r"\[ERROR\] (?:\[[^]]*\] )*(.*)")
_CHECKERS: Final = 4
_PAGE_CHECKER: Final = "innochecksum"
# Files of pages, and in which parts they are checked: pages 64 to 191 of ibdata1 are MariaDB's
# doublewrite buffer. Its copies of other pages may be torn.
_WHOLE: Final = ("--start-page=0",)
_TABLESPACES: Final = {
    "*.ibd": _WHOLE,
    "undo*[0-9]": _WHOLE,
    "ibdata1": ("--end-page=63", "--start-page=192"),
}
CHECK_S: Final = 3600.0  # long enough for a terabyte from a disk
SYSTEM_TABLESPACE: Final = "ibdata1"
_PAGE: Final = 16384  # InnoDB's default; dbbench does not change it
# offset in page 0: 38 bytes of page header, then 8 bytes of tablespace header (fsp0fsp.h)
_FSP_SIZE: Final = 46
_FSP_FREE_LIMIT: Final = 50
_OFF: Final = ("off", "0", "false")
_MIB: Final = 2**20
_CHUNK: Final = 128 * _MIB  # MySQL rounds a larger buffer pool up to multiples of this
_POOL_LEAST: Final = 16 * _MIB
# files of MariaDB and older MySQL; directory of MySQL since 8.0.30
_REDO: Final = ("ib_logfile*", "#innodb_redo")
_PIECE: Final = 2**20
_APPARMOR: Final = Path("/etc/apparmor.d")

# Building uses a slow shutdown, which purges undo and merges the change buffer, so that no trial
# has to do this work. Binary logs are kept short, and MariaDB's system tablespace grows in steps of
# 8 MiB instead of 64, because each trial restores all of these files.
PROFILE: Final = Profile(
    name="innodb",
    title="InnoDB",
    dialect="mysql",
    locale="utf8mb4",
    page_bytes=_PAGE,
    direct_io=True,
    datasets=("sysbench", "clone-tables", "tpcc", "archive", "none"),
    generated="sysbench",
    compressed={"clone-tables": (0.45, 0.95), "sysbench": (0.53, 0.93)},
    features=(
        "innodb_doublewrite",
        "innodb_flush_method",
        "innodb_use_native_aio",
        "innodb_page_size",
        "innodb_checksum_algorithm",
    ),
    live_data="""
SELECT sum(data_length + index_length), @@datadir FROM information_schema.tables WHERE table_type = 'BASE TABLE'
AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')""",
    # Without paths and state; a loaded buffer pool would make the cache warm.
    live_names=r"(?!\w*(_dirs?|dir|directory|directories|path|file|filename|version)$)(?!innodb_("
    r"buffer_pool_(dump|load)|(undo|temp|force)_|page_size|read_only$))(innodb_\w+|sync_binlog|max_connections"
    r"|binlog_(format|row_image|order_commits|\w*group_commit\w*)|table_open_cache|\w+_buffer_size"
    r"|tmp_table_size|max_heap_table_size)",
    settings_profiles={PRODUCTION: mysqld.BINLOG_PRODUCTION, STANDALONE: {}},
    switches={"binlog": {True: mysqld.BINLOG_PRODUCTION, False: {"log_bin": False}}},
    stated=mysqld.BINLOG_STATED,
    building={
        "innodb_flush_log_at_trx_commit": 0,
        "innodb_doublewrite": "OFF",
        "innodb_buffer_pool_size": 512 * _MIB,
        "innodb_fast_shutdown": 0,
    },
    unsettled={"innodb_fast_shutdown": 1},
    one_tablespace={"innodb_file_per_table": False},
    primary={"log_bin": True, "sync_binlog": 0, "max_binlog_size": 16 * _MIB},
    limits=(
        "table_open_cache",
        "max_connections",
        "open_files_limit",
        "table_definition_cache",
        "max_prepared_stmt_count",
    ),
    small={"innodb_buffer_pool_size": 32 * _MIB},
    lab={
        "innodb_buffer_pool_size": _CHUNK,
        "innodb_max_dirty_pages_pct": 0,
        "innodb_max_dirty_pages_pct_lwm": 0,
        "innodb_log_buffer_size": 4 * _MIB,
        "max_connections": 30,
        "key_buffer_size": _MIB,
    },
    weakenings=(
        Weakening(
            "innodb_flush_log_at_trx_commit=2",
            "a server that does not flush at commit",
            ("drop",),
            {"innodb_flush_log_at_trx_commit": 2},
        ),
        Weakening(
            "innodb_doublewrite=off",
            "a server without protection from torn pages",
            ("checkpoint",),
            {"innodb_doublewrite": False},
        ),
    ),
)


def account() -> process.User:
    """Return the account of the server. See `accounts.of_server`."""
    return of_server("mysql", "nobody")


def defaults(memory_bytes: int | None) -> dict[str, Scalar]:
    """Return durable settings, explicit wherever versions differ. With direct I/O the buffer pool
    is the only cache, of 60 % of the memory. The log buffer, of which MariaDB has two, is
    smaller if there is little memory. The binary log is off here; the production profile turns
    it on.
    """
    pool = 2 * _CHUNK
    log_buffer = 64 * _MIB
    if memory_bytes:
        wanted = memory_bytes * 6 // 10
        pool = wanted // _CHUNK * _CHUNK or max(_POOL_LEAST, wanted // _MIB * _MIB)
        log_buffer = min(log_buffer, max(2 * _MIB, memory_bytes // 32 // _MIB * _MIB))
    return {
        "innodb_buffer_pool_size": pool,
        # the buffer pool is empty after each start
        "innodb_buffer_pool_dump_at_shutdown": False,
        "innodb_buffer_pool_load_at_startup": False,
        "innodb_flush_method": "O_DIRECT",
        "innodb_use_native_aio": True,
        "innodb_read_io_threads": 4,
        "innodb_write_io_threads": 4,
        # commits: on disk before they are acknowledged
        "innodb_flush_log_at_trx_commit": 1,
        "innodb_doublewrite": True,
        "sync_binlog": 1,
        "log_bin": False,
        # flushing
        "innodb_io_capacity": 2000,
        "innodb_io_capacity_max": 4000,
        "innodb_flush_neighbors": 0,
        "innodb_flush_sync": True,
        "innodb_adaptive_flushing": True,
        "innodb_adaptive_flushing_lwm": 10,
        "innodb_max_dirty_pages_pct": 90,
        "innodb_max_dirty_pages_pct_lwm": 0,
        "innodb_log_buffer_size": log_buffer,
        # purge, caches and bookkeeping
        "innodb_purge_threads": 4,
        "innodb_max_purge_lag": 0,
        "innodb_adaptive_hash_index": False,
        "innodb_change_buffering": "none",
        "innodb_file_per_table": True,
        "innodb_fast_shutdown": 1,
        "innodb_stats_persistent": True,
        "innodb_stats_auto_recalc": True,
        "innodb_undo_log_truncate": False,
        "large_pages": False,
        "performance_schema": False,
        "character_set_server": "utf8mb4",
        "max_connections": 300,
        "table_open_cache": 2000,
        "max_prepared_stmt_count": 1_000_000,
        "event_scheduler": "OFF",  # MySQL would run the events that a user's data may contain
    }


def refusal(
    profile: Profile, checking: Sequence[str], settings: Settings, bin: Path | None = None
) -> str:
    """Return the server's errors about settings that it refuses. `checking`: options with which it
    reads all others and ends, with status 0 also for a wrong value. log_bin is left out, because
    dbbench names its files.
    """
    options = [
        f"--{name}={text.word(setting.value)}"
        for name, setting in settings.items()
        if name != "log_bin"
    ]
    argv = mysqld.require(profile, bin).argv(Path("/dev/null"), *options, *checking)
    done = process.run(argv, note=False, ok=range(256), as_user=account())
    wrong = [match[1] for match in _ERROR.finditer(done.stderr)]
    return "; ".join(dict.fromkeys(wrong)) or (
        done.stderr.strip()[-400:] if done.returncode else ""
    )


def redo_bytes(warmup_s: float, measure_s: float) -> int:
    """Return the size of a redo log that the window does not fill: no arm flushes because of its
    own speed.
    """
    needed = int(REDO_RATE * (warmup_s + measure_s))
    return min(REDO_MOST, max(REDO_LEAST, -(-needed // REDO_STEP) * REDO_STEP))


@contextlib.contextmanager
def serving(
    profile: Profile, datadir: Path, settings: Settings, place: Place
) -> Iterator[InnodbServer]:
    """Start the server within the block. See `port.Engine.serving`."""
    program = mysqld.require(profile, place.bin)
    wanted = {name.replace("-", "_"): setting for name, setting in settings.items()}
    text.keep_private(wanted, PRIVATE)
    owner = account()
    sockets = own(place.sockets, account())
    network = place.network
    forget(sockets, f"{profile.name}.sock*")
    # large sorts write to the filesystem under test
    scratch = own(datadir.with_name(datadir.name + ".tmp"), owner)
    password = secrets.token_urlsafe(24)
    role = (
        _ROLE
        if network is None
        else f"{_ROLE}GRANT ALL PRIVILEGES ON *.* TO {NAME}@localhost WITH GRANT OPTION;\n"
    )
    init = put(
        role.format(password=password), "init.sql", place, owner, role.format(password=_HIDDEN)
    )
    # sysbench runs as that account
    put_aside(f'mysql-password="{password}"\n', SYSBENCH_OPTIONS, sockets, owner)
    private = {
        "datadir": str(datadir),
        "socket": str(sockets / f"{profile.name}.sock"),
        "pid_file": str(sockets / f"{profile.name}.pid"),
        "tmpdir": str(scratch),
        "init_file": str(init),
        **({"innodb_log_group_home_dir": str(place.log_dir)} if place.log_dir else {}),
        **one_tablespace(datadir, place),
        **profile.private,
        **_listening(network, owner),
    }
    config = put(
        configuration(wanted, private, place.log_dir, network is not None), "my.cnf", place, owner
    )
    launch = Launch(
        name=f"{profile.name} {program.version}",
        argv=program.argv(config),
        datadir=datadir,
        log=place.log,
        account=owner,
        stop=signal.SIGTERM,
        abort=signal.SIGKILL,  # enough for a server that is a single process
        remedy=_apparmor_hint(program),
        open_files=text.open_files(wanted),
        offset=log_size(place.log),
    )

    def answer(running: process.Running) -> InnodbServer | None:
        server = InnodbServer(profile, place, program, running, password)
        server.database = database_of(datadir)
        return server.when_ready()

    try:
        with serving_program(launch, answer) as server, closing(server):
            # the server has read it, and processes of its account could read the password in it
            init.unlink()
            reported = server.report_settings()
            server.left_out = text.absent_defaults(
                wanted, reported, program.version, profile.versions
            )
            # log_bin may name the log's files, but the server reports ON
            comparable = {
                name: s
                for name, s in wanted.items()
                if name != "log_bin" or isinstance(s.value, bool)
            }
            text.refuse_differences(
                comparable, reported, text.same_in_mysql, launch.tail("warning")
            )
            if network:
                server.admit(ROLE, network.peer, network.password)
            yield server
    finally:
        rmtree(scratch, ignore_errors=True)


def _listening(network: Network | None, owner: process.User) -> dict[str, Scalar]:
    if network is None:
        return {}
    network.own(owner.uid, owner.gid)
    return {
        "bind_address": network.address,
        "port": network.port,
        "require_secure_transport": True,
        "skip_name_resolve": True,
        "ssl_ca": str(network.ca),
        "ssl_cert": str(network.cert),
        "ssl_key": str(network.key),
    }


def configuration(
    settings: Settings, private: dict[str, Scalar], log: Path | None = None, listens: bool = False
) -> str:
    """Return my.cnf. A version may not know defaults (`loose_`), but must know requested settings.
    `log`: the directory of the binary log; None: the data directory.
    """
    lines = ["# This file is complete: the configuration of the system is not read.", "[mysqld]"]
    lines += [] if listens else ["skip_networking"]
    # a copy of a replica would connect to its primary
    lines += ["loose_skip_slave_start", "loose_skip_replica_start"]
    lines += [f'{name} = "{text.word(value)}"' for name, value in private.items()]
    files = log / "binlog" if log else "binlog"
    for name, setting in settings.items():
        lines.append(f"# {setting.origin}")
        if name == "log_bin":
            on = text.word(setting.value)
            lines.append("skip_log_bin" if on.lower() in _OFF else f"log_bin = {files}")
        else:
            loose = "loose_" if setting.origin == "default" else ""
            value = text.word(setting.value).replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'{loose}{name} = "{value}"')
    return "\n".join(lines) + "\n"


def check(profile: Profile, datadir: Path, settings: Settings, place: Place) -> str:
    """Run CHECK TABLE on every user table: it reads each page of each index, checks checksum, order
    and links, and compares the numbers of entries. Raises DataCorrupt, also for versions that
    crash on a damaged page.
    """
    offset = log_size(place.log)
    try:
        with serving(profile, datadir, settings, place) as server:
            tables, bad = _table_faults(server)
    except (EngineStartFailed, EngineDied) as error:
        damage = [
            line
            for line in tail(place.log, offset, lines=1000, better="").splitlines()
            if _CORRUPT.search(line)
        ]
        if not damage:
            raise
        bad = [str(error).splitlines()[0], *damage]
    refuse_corrupt("CHECK TABLE", bad)
    return f"CHECK TABLE of {tables} table{'' if tables == 1 else 's'}"


def check_running(server: Server) -> None:
    """Run CHECK TABLE on every user table of a running server. Raises DataCorrupt, or EngineDied if
    it crashes.
    """
    assert isinstance(server, InnodbServer)
    refuse_corrupt("CHECK TABLE", _table_faults(server)[1])


def check_pages(
    profile: Profile, options: Sequence[str], datadir: Path, settings: Settings, place: Place
) -> str:
    """Run innochecksum, with these options, on each tablespace of the stopped server but the
    temporary one, and not on the doublewrite buffer.
    """
    server = mysqld.require(profile, place.bin)
    folders = (server.path.parent, server.path.parent.parent / "bin", Path("/usr/bin"))
    beside = (folder / _PAGE_CHECKER for folder in folders)
    program = next(filter(Path.is_file, beside), None) or process.find(_PAGE_CHECKER)
    if program is None:
        raise ProgramMissing(f"{_PAGE_CHECKER} is not installed")
    files = [
        (path, parts)
        for pattern, parts in _TABLESPACES.items()
        for path in sorted(datadir.rglob(pattern))
    ]
    checks = [(part, file) for file, parts in files for part in parts]
    checker: list[str | Path] = [*server.loader, program, *options]
    everything = "\0".join(f"{part}\0{file}" for part, file in checks)
    # starting each from here would take longer
    all_of_them = ["xargs", "--null", "--max-args=2", *checker]
    if process.run(
        all_of_them, stdin=everything, timeout_s=CHECK_S, ok=(0, 123), as_user=account()
    ).returncode:
        for part, file in checks:
            done = process.run(
                [*checker, part, file], timeout_s=CHECK_S, ok=(0, 1), as_user=account()
            )
            wrong = (done.stdout + done.stderr).splitlines() if done.returncode else ()
            refuse_corrupt(f"{_PAGE_CHECKER} {file.name}", wrong)
    return f"checksums of {len(files)} tablespaces"


def _table_faults(server: InnodbServer) -> tuple[int, list[str]]:
    tables = server.tables(SYSTEM_SCHEMAS)
    with ThreadPoolExecutor(min(_CHECKERS, os.cpu_count() or 1)) as pool:
        return len(tables), [
            line for lines in pool.map(server.check_table, tables) for line in lines
        ]


def initialize(
    program: Mysqld,
    private: Values,
    settings: Settings,
    place: Place,
    *options: str,
    stdin: str = "",
) -> str:
    """Run the server once, which makes the data directory; return what it printed. Raises
    EngineStartFailed.
    """
    owner = account()
    datadir = Path(str(private["datadir"]))
    own(datadir, owner)
    own(place.sockets, owner)
    whole = {"tmpdir": str(place.sockets), **one_tablespace(datadir, place), **private}
    config = put(configuration(settings, whole), "initialize.cnf", place, owner)
    try:
        return process.run(
            program.argv(config, *options), timeout_s=INITIALIZE_S, as_user=owner, stdin=stdin
        ).stderr
    except CommandFailed as error:
        raise EngineStartFailed(
            f"the data directory {datadir} could not be initialized: {error}"
        ) from error


def one_tablespace(datadir: Path, place: Place) -> dict[str, Scalar]:
    """Return private settings for a single system tablespace: a file of fixed size, or the bare
    device in its place, whose first page has its size (FSP_SIZE, in pages).
    """
    file = datadir / SYSTEM_TABLESPACE
    if file.is_block_device():
        return {
            "innodb_data_file_path": f"{SYSTEM_TABLESPACE}:{_pages(file, _FSP_SIZE) * _PAGE // 2**20}Mraw"
        }
    if place.tablespace_bytes:
        return {"innodb_data_file_path": f"{SYSTEM_TABLESPACE}:{place.tablespace_bytes // 2**20}M"}
    return {}


def data_bytes(file: Path) -> int:
    """Return the size of a file; of a bare device, up to FSP_FREE_LIMIT, beyond which no page was
    ever used.
    """
    return _pages(file, _FSP_FREE_LIMIT) * _PAGE if file.is_block_device() else file.stat().st_size


def _pages(tablespace: Path, field: int) -> int:
    with tablespace.open("rb") as file:
        return int.from_bytes(file.read(_PAGE)[field : field + 4])


def move_data(datadir: Path, device: Path) -> None:
    """Move the tablespace to the device, compare all bytes, and leave a link. Raises
    FilesystemFull, RestoreFailed.
    """
    file = datadir / SYSTEM_TABLESPACE
    # page-aligned, as direct I/O requires
    size = file.stat().st_size
    buffer = mmap.mmap(-1, _PIECE)
    with open_fd(device, os.O_RDWR | os.O_DIRECT) as target:
        if (room := os.lseek(target, 0, os.SEEK_END)) < size:
            raise FilesystemFull(
                f"the tablespace needs {size} bytes, but the device has {room}",
                effect="Nothing was measured.",
                remedy="Use a larger device or a smaller dataset.",
            )
        with file.open("rb", buffering=0) as source:
            for offset in range(0, size, _PIECE):
                # always whole blocks: a tablespace's size is a multiple of 1 MiB
                count = source.readinto(buffer)
                os.pwritev(target, [memoryview(buffer)[:count]], offset)
            os.fsync(target)
            source.seek(0)
            for offset in range(0, size, _PIECE):
                piece = source.read(_PIECE)
                os.preadv(target, [buffer], offset)
                if buffer[: len(piece)] != piece:
                    raise RestoreFailed(f"{device} at byte {offset} differs from what was written")
    file.unlink()
    file.symlink_to(device)
    if os.geteuid() == 0:
        os.chown(device, account().uid, account().gid)


def place_log(datadir: Path, folder: Path) -> None:
    """Move the redo log. A golden copy has no binary log; one made later is made there."""
    move([path for pattern in _REDO for path in sorted(datadir.glob(pattern))], folder, account())


def log_files(datadir: Path, effective: dict[str, str]) -> list[Path]:
    """Return redo and binary logs at the places that the server's variables name."""
    redo = (datadir / effective.get("innodb_log_group_home_dir", ".")).resolve()
    found = [path for pattern in _REDO for path in redo.glob(pattern)]
    files = [inner for path in found for inner in (path.iterdir() if path.is_dir() else (path,))]
    if (base := mysqld.binlog_place(effective, datadir)) is not None:
        files += mysqld.binlog_files(base)
    return sorted(path.resolve() for path in files)


def data_files(datadir: Path) -> list[Path]:
    """Return tables and indexes of user schemas and the system tablespace, without log, undo and
    doublewrite files.
    """
    schemas = [
        entry
        for entry in datadir.glob("[!#]*")
        if entry.is_dir() and entry.name not in SYSTEM_SCHEMAS
    ]
    tables = sorted(
        path for schema in schemas for path in schema.iterdir() if path.suffix in _TABLE_FILES
    )
    return tables + sorted(datadir.glob("ibdata*"))


def durability(effective: dict[str, str], _tears: bool) -> tuple[Durability, ...]:
    """Return the flags of the effective settings. Flush methods without fsync are `no-barrier`: the
    disk is never told to flush. innodb_flush_log_at_trx_commit 0 and 2, and with a binary log
    sync_binlog other than 1, lose the last commits; MariaDB's 3 flushes at prepare and at
    commit. Without doublewrite pages are damaged, also with copy-on-write: a page is several
    blocks, and MariaDB's checkpoint flushes files before it determines which pages it counts as
    durable (buf0flu.cc, `log_checkpoint`). DETECT_ONLY and MariaDB's "fast" do not keep a
    reliable copy.
    """
    flags = []
    method = effective.get("innodb_flush_method", "").lower()
    if (
        "no_fsync" in method
        or method in ("nosync", "littlesync")
        or effective.get("debug_no_sync") == "ON"
    ):
        flags.append(Durability.NO_BARRIER)
    late = (
        effective.get("log_bin", "").upper() in ("ON", "1") and effective.get("sync_binlog") != "1"
    )
    if effective.get("innodb_flush_log_at_trx_commit", "1") not in ("1", "3") or late:
        flags.append(Durability.ASYNC_COMMIT)
    if effective.get("innodb_doublewrite", "ON").upper() not in ("ON", "1", "DETECT_AND_RECOVER"):
        flags.append(Durability.TORN_PAGES)
    return tuple(flags)


def _apparmor_hint(program: Mysqld) -> str | None:
    profile = _APPARMOR / "usr.sbin.mysqld"
    disabled = _APPARMOR / "disable/usr.sbin.mysqld"
    if str(program.path) != "/usr/sbin/mysqld" or not profile.exists() or disabled.exists():
        return None
    return (
        f"If the log says 'Permission denied': AppArmor confines {program.path} ({profile}); see "
        "aa-complain(8)."
    )
