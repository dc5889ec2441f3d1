"""What MariaDB and MySQL share: InnoDB's settings, a private server, the check of its tables, its
files.

The file is long because the profile, which is a table, and the functions of `port.Engine` that
both servers share are read together.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import secrets
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import ClassVar, Final

from dbbench import process
from dbbench.durability import flushes_tables
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
from dbbench.machine.host.proc import content
from dbbench.model import Durability, Scalars, Settings
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

# Settings that make the server private.
_PRIVATE: Final = (
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
_REMOVED: Final = re.compile(r"\[Warning\] ('[\w-]+' was removed)")  # and is ignored
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
_ON: Final = ("ON", "1")
_MIB: Final = 2**20
_CHUNK: Final = 128 * _MIB  # MySQL rounds a larger buffer pool up to multiples of this
_POOL_LEAST: Final = 16 * _MIB
# files of MariaDB and older MySQL; directory of MySQL since 8.0.30
_REDO: Final = ("ib_logfile*", "#innodb_redo")
_PIECE: Final = 2**20
_APPARMOR: Final = Path("/sys/kernel/security/apparmor/profiles")
# A server in another directory has no profile.
CONFINED: Final = (Path("/usr/sbin/mysqld"), Path("/usr/sbin/mariadbd"))

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
    checks_killed=True,
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
    reserved={
        **dict.fromkeys(_PRIVATE, text.KEEPS_PRIVATE),
        "autocommit": text.WRITES_NOTHING,
        "innodb_read_only": text.WRITES_NOTHING,
        "super_read_only": text.WRITES_NOTHING,
        "innodb_page_size": text.FROM_CREATION,
    },
    required=(
        "lower_case_table_names",
        "plugin_load",
        "plugin_load_add",
        "file_key_management_filename",
    ),
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


def defaults(memory_bytes: int | None) -> Scalars:
    """Return durable settings, explicit wherever versions differ. With direct I/O the buffer pool
    is the only cache, of 60 % of the memory. The log buffer, of which MariaDB has two, is
    smaller if there is little memory. The binary log is off here; the production profile turns
    it on.
    """
    pool = 2 * _CHUNK
    log_buffer = 64 * _MIB
    if memory_bytes:
        share = memory_bytes * 6 // 10
        pool = share // _CHUNK * _CHUNK or max(_POOL_LEAST, share // _MIB * _MIB)
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


def redo_bytes(warmup_s: float, measure_s: float) -> int:
    """Return the size of a redo log that the window does not fill: no arm flushes because of its
    own speed.
    """
    needed = int(REDO_RATE * (warmup_s + measure_s))
    return min(REDO_MOST, max(REDO_LEAST, -(-needed // REDO_STEP) * REDO_STEP))


def _listening(network: Network | None, owner: process.User) -> Scalars:
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
    settings: Settings,
    private: Scalars,
    log: Path | None = None,
    listens: bool = False,
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


def one_tablespace(datadir: Path, place: Place) -> Scalars:
    """Return private settings for a single system tablespace: a file of fixed size, or the bare
    device in its place, whose first page has its size (FSP_SIZE, in pages).
    """
    file = datadir / SYSTEM_TABLESPACE
    if file.is_block_device():
        size = f"{_pages(file, _FSP_SIZE) * _PAGE // _MIB}Mraw"
    elif place.tablespace_bytes:
        size = f"{place.tablespace_bytes // _MIB}M"
    else:
        return {}
    return {"innodb_data_file_path": f"{SYSTEM_TABLESPACE}:{size}"}


def _pages(tablespace: Path, field: int) -> int:
    with tablespace.open("rb") as file:
        return int.from_bytes(file.read(_PAGE)[field : field + 4])


def apparmor_remedy(program: Path, profiles: Path = _APPARMOR) -> str | None:
    """Return what to do about the profile of AppArmor that is in force for this server: it denies
    data directories elsewhere. None without one, or if the profiles cannot be read.
    """
    names = {f"{program} (enforce)", f"{program.name} (enforce)"}
    loaded = (content(str(profiles)) or "").splitlines()
    if program not in CONFINED or not names & {*loaded}:
        return None
    file = f"/etc/apparmor.d/{str(program).strip('/').replace('/', '.')}"
    return (
        f"AppArmor confines {program} to the directories of its package. Until the next boot:  "
        f"apparmor_parser --remove {file}"
    )


def account() -> process.User:
    """Return the account of the server. See `accounts.of_server`."""
    return of_server("mysql", "nobody")


class Innodb:
    """MariaDB or MySQL: what both do alike. A subclass has the default settings and makes the data
    directory. See `port.Engine`, and the abilities there.
    """

    # options with which the server reads all others and ends, with status 0 also for a wrong value
    checking: ClassVar[tuple[str, ...]]
    page_options: ClassVar[tuple[str, ...]] = ()  # of innochecksum

    def __init__(self, profile: Profile) -> None:
        self.PROFILE = profile

    def programs(self, bin: Path | None = None) -> tuple[str, ...]:
        """Return the server's program: its path, or its name if none is installed."""
        program = mysqld.find(self.PROFILE, bin)
        return (str(program.path) if program else self.PROFILE.programs[0],)

    def installed_version(self, bin: Path | None = None) -> str | None:
        """Return the version, for example "10.11.19", or None."""
        program = mysqld.find(self.PROFILE, bin)
        return program.version if program else None

    account = staticmethod(account)

    def window_settings(self, warmup_s: float, measure_s: float) -> Scalars:
        """Return a redo log size that the window does not reach."""
        return dict.fromkeys(self.PROFILE.by_log, redo_bytes(warmup_s, measure_s))

    def refusal(self, settings: Settings, bin: Path | None = None) -> str:
        """Return the server's errors about settings that it refuses. log_bin is left out, because
        dbbench names its files.
        """
        options = []
        for name, setting in settings.items():
            if name != "log_bin":
                options.append(f"--{name}={text.word(setting.value)}")
        program = mysqld.require(self.PROFILE, bin)
        argv = program.argv(Path("/dev/null"), *options, *self.checking)
        done = process.run(argv, note=False, ok=range(256), as_user=self.account())
        refusals = [match[1] for match in _ERROR.finditer(done.stderr)]
        refusals += [match[1] for match in _REMOVED.finditer(done.stderr)]
        if done.returncode and not refusals:
            return done.stderr.strip()[-400:]
        return "; ".join(dict.fromkeys(refusals))

    def initialize(
        self,
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
        owner = self.account()
        datadir = Path(str(private["datadir"]))
        own(datadir, owner)
        own(place.sockets, owner)
        whole = {"tmpdir": str(place.sockets), **one_tablespace(datadir, place), **private}
        config = put(configuration(settings, whole), "initialize.cnf", place, owner)
        argv = program.argv(config, *options)
        try:
            done = process.run(argv, timeout_s=INITIALIZE_S, as_user=owner, stdin=stdin)
        except CommandFailed as error:
            raise EngineStartFailed(
                f"the data directory {datadir} could not be initialized: {error}",
                remedy=apparmor_remedy(program.path),
            ) from error
        return done.stderr

    @contextlib.contextmanager
    def serving(
        self,
        datadir: Path,
        settings: Settings,
        place: Place,
    ) -> Iterator[InnodbServer]:
        """Start the server within the block. See `port.Engine.serving`."""
        profile = self.PROFILE
        # Only dbbench's own values decide where the server listens and writes.
        program = mysqld.require(profile, place.bin)
        settings = {name.replace("-", "_"): setting for name, setting in settings.items()}
        text.refuse_reservations(settings, profile.reserved)
        owner = self.account()
        network = place.network
        sockets = own(place.sockets, owner)
        forget(sockets, f"{profile.name}.sock*")
        # large sorts write to the filesystem under test
        scratch = own(datadir.with_name(datadir.name + ".tmp"), owner)

        # The role gets its password at the start; sysbench, which runs as the account, reads it.
        password = secrets.token_urlsafe(24)
        statements = _ROLE
        if network is not None:
            statements += f"GRANT ALL PRIVILEGES ON *.* TO {NAME}@localhost WITH GRANT OPTION;\n"
        shown = statements.format(password=_HIDDEN)
        init = put(statements.format(password=password), "init.sql", place, owner, shown)
        put_aside(f'mysql-password="{password}"\n', SYSBENCH_OPTIONS, sockets, owner)

        # What the plan cannot change: places, sockets and the first statements.
        private: Scalars = {
            "datadir": str(datadir),
            "socket": str(sockets / f"{profile.name}.sock"),
            "pid_file": str(sockets / f"{profile.name}.pid"),
            "tmpdir": str(scratch),
            "init_file": str(init),
            **one_tablespace(datadir, place),
            **profile.private,
            **_listening(network, owner),
        }
        if place.log_dir:
            private["innodb_log_group_home_dir"] = str(place.log_dir)
        config = configuration(settings, private, place.log_dir, network is not None)
        # How the program is started, watched and stopped.
        launch = Launch(
            name=f"{profile.name} {program.version}",
            argv=program.argv(put(config, "my.cnf", place, owner)),
            datadir=datadir,
            log=place.log,
            account=owner,
            stop=signal.SIGTERM,
            abort=signal.SIGKILL,  # enough for a server that is a single process
            remedy=apparmor_remedy(program.path),
            open_files=text.open_files(settings),
            offset=log_size(place.log),
        )

        # It is ready when it answers, not when its process exists.
        def answer(running: process.Running) -> InnodbServer | None:
            server = InnodbServer(profile, place, program, running, password)
            server.database = database_of(datadir)
            return server.when_ready()

        try:
            with serving_program(launch, answer) as server, closing(server):
                # the server has read it, and processes of its account could read the password in it
                init.unlink()
                # What the server runs with is compared with what was requested.
                reported = server.report_settings()
                server.left_out = text.absent_defaults(
                    settings,
                    reported,
                    program.version,
                    profile.versions,
                )
                # log_bin may name the log's files, but the server reports ON
                comparable = dict(settings)
                if "log_bin" in settings and not isinstance(settings["log_bin"].value, bool):
                    del comparable["log_bin"]
                warnings = launch.tail("warning")
                text.refuse_differences(comparable, reported, text.same_in_mysql, warnings)
                if network:
                    server.admit(ROLE, network.peer, network.password)
                yield server
        finally:
            rmtree(scratch, ignore_errors=True)

    def check(self, datadir: Path, settings: Settings, place: Place) -> str:
        """Run CHECK TABLE on every user table: it reads each page of each index, checks checksum,
        order and links, and compares the numbers of entries. Raises DataCorrupt, also for versions
        that crash on a damaged page.
        """
        offset = log_size(place.log)
        try:
            with self.serving(datadir, settings, place) as server:
                tables, faults = _table_faults(server)
        except (EngineStartFailed, EngineDied) as error:
            lines = tail(place.log, offset, lines=1000, better="").splitlines()
            damage = [line for line in lines if _CORRUPT.search(line)]
            if not damage:
                raise
            faults = [str(error).splitlines()[0], *damage]
        refuse_corrupt("CHECK TABLE", faults)
        return f"CHECK TABLE of {tables} table{'' if tables == 1 else 's'}"

    def check_running(self, server: Server) -> None:
        """Run CHECK TABLE on every user table of a running server. Raises DataCorrupt, or
        EngineDied if it crashes.
        """
        assert isinstance(server, InnodbServer)
        _, faults = _table_faults(server)
        refuse_corrupt("CHECK TABLE", faults)

    def check_pages(
        self,
        datadir: Path,
        settings: Settings,
        place: Place,
    ) -> str:
        """Run innochecksum on each tablespace of the stopped server but the temporary one, and not
        on the doublewrite buffer.
        """
        # The checker belongs to the server's version, so its own directory comes first.
        server = mysqld.require(self.PROFILE, place.bin)
        folders = (server.path.parent, server.path.parent.parent / "bin", Path("/usr/bin"))
        beside = (folder / _PAGE_CHECKER for folder in folders)
        program = next(filter(Path.is_file, beside), None) or process.find(_PAGE_CHECKER)
        if program is None:
            raise ProgramMissing(f"{_PAGE_CHECKER} is not installed")
        checker: list[str | Path] = [*server.loader, program, *self.page_options]
        # A part is a range of pages: ibdata1 has one before its doublewrite buffer and one behind.
        checks: list[tuple[str, Path]] = []
        files = 0
        for pattern, parts in _TABLESPACES.items():
            for file in sorted(datadir.rglob(pattern)):
                files += 1
                checks += [(part, file) for part in parts]

        result = f"checksums of {files} tablespaces"

        # xargs starts them all, which is faster than from here; one by one only to find the fault.
        owner = self.account()
        everything = "\0".join(f"{part}\0{file}" for part, file in checks)
        xargs = ["xargs", "--null", "--max-args=2", *checker]
        all_checks = process.run(
            xargs,
            stdin=everything,
            timeout_s=CHECK_S,
            ok=(0, 123),
            as_user=owner,
        )
        if all_checks.returncode == 0:
            return result
        # Something failed: which file, and what was printed about it.
        for part, file in checks:
            done = process.run([*checker, part, file], timeout_s=CHECK_S, ok=(0, 1), as_user=owner)
            faults = (done.stdout + done.stderr).splitlines() if done.returncode else ()
            refuse_corrupt(f"{_PAGE_CHECKER} {file.name}", faults)
        return result

    def data_bytes(self, file: Path) -> int:
        """Return the size of a file; of a bare device, up to FSP_FREE_LIMIT, beyond which no page
        was ever used.
        """
        if file.is_block_device():
            return _pages(file, _FSP_FREE_LIMIT) * _PAGE
        return file.stat().st_size

    def move_data(self, datadir: Path, device: Path) -> None:
        """Move the tablespace to the device, compare all bytes, and leave a link. Raises
        FilesystemFull, RestoreFailed.
        """
        file = datadir / SYSTEM_TABLESPACE
        # page-aligned, as direct I/O requires
        size = file.stat().st_size
        buffer = mmap.mmap(-1, _PIECE)
        with open_fd(device, os.O_RDWR | os.O_DIRECT) as target:
            capacity = os.lseek(target, 0, os.SEEK_END)
            if capacity < size:
                raise FilesystemFull(
                    f"the tablespace needs {size} bytes, but the device has {capacity}",
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
                        text = f"{device} at byte {offset} differs from what was written"
                        raise RestoreFailed(text)
        file.unlink()
        file.symlink_to(device)
        if os.geteuid() == 0:
            owner = self.account()
            os.chown(device, owner.uid, owner.gid)

    def place_log(self, datadir: Path, folder: Path) -> None:
        """Move the redo log. A golden copy has no binary log; one made later is made there."""
        files: list[Path] = []
        for pattern in _REDO:
            files += sorted(datadir.glob(pattern))
        move(files, folder, self.account())

    def log_files(self, datadir: Path, effective: dict[str, str]) -> list[Path]:
        """Return redo and binary logs at the places that the server's variables name."""
        redo = (datadir / effective.get("innodb_log_group_home_dir", ".")).resolve()
        files: list[Path] = []
        for pattern in _REDO:
            for path in redo.glob(pattern):
                files += path.iterdir() if path.is_dir() else [path]
        binlog = mysqld.binlog_place(effective, datadir)
        if binlog is not None:
            files += mysqld.binlog_files(binlog)
        return sorted(path.resolve() for path in files)

    def data_files(self, datadir: Path) -> list[Path]:
        """Return tables and indexes of user schemas and the system tablespace, without log, undo
        and doublewrite files.
        """
        tables: list[Path] = []
        for schema in datadir.glob("[!#]*"):
            if schema.is_dir() and schema.name not in SYSTEM_SCHEMAS:
                tables += [path for path in schema.iterdir() if path.suffix in _TABLE_FILES]
        return sorted(tables) + sorted(datadir.glob("ibdata*"))

    def durability(self, effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
        """Return the flags of the effective settings. `nosync` and `littlesync` are `no-barrier`:
        the disk is never told to flush. innodb_flush_log_at_trx_commit 0 and 2, and with a binary
        log sync_binlog other than 1, lose the last commits; MariaDB's 3 flushes at prepare and at
        commit. Without doublewrite pages are damaged, also with copy-on-write: a page is several
        blocks, and MariaDB's checkpoint flushes files before it determines which pages it counts as
        durable (buf0flu.cc, `log_checkpoint`). So are they if tables are never flushed
        (`flushes_tables`). DETECT_ONLY does not keep a copy.
        """
        flags = []
        method = effective.get("innodb_flush_method", "").lower()
        if method in ("nosync", "littlesync") or effective.get("debug_no_sync") == "ON":
            flags.append(Durability.NO_BARRIER)
        has_binlog = effective.get("log_bin", "").upper() in _ON
        late_binlog = has_binlog and effective.get("sync_binlog") != "1"
        if late_binlog or effective.get("innodb_flush_log_at_trx_commit", "1") not in ("1", "3"):
            flags.append(Durability.ASYNC_COMMIT)
        doublewrite = effective.get("innodb_doublewrite", "ON").upper()
        copies = doublewrite in (*_ON, "DETECT_AND_RECOVER")
        if not copies or not flushes_tables(effective):
            flags.append(Durability.TORN_PAGES)
        return tuple(flags)


def _table_faults(server: InnodbServer) -> tuple[int, list[str]]:
    """Return the number of tables, and what CHECK TABLE found."""
    tables = server.tables(SYSTEM_SCHEMAS)
    with ThreadPoolExecutor(min(_CHECKERS, os.cpu_count() or 1)) as pool:
        faults = itertools.chain.from_iterable(pool.map(server.check_table, tables))
        return len(tables), list(faults)
