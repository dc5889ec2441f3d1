"""MariaDB, 10.5 or later."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import innodb, mysqld
from dbbench.engines.innodb_server import COUNTERS_OF_MARIADB
from dbbench.engines.innodb_sql import InnodbSql
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import LOG_BYTES, Place, Server
from dbbench.engines.settings import Versions
from dbbench.errors import EngineStartFailed, ProgramMissing
from dbbench.model import Scalar, merge_settings

# the server's default, which keeps golden copies small; `window_settings` enlarges it
BUILD_LOG: Final = 96 * 2**20

PROFILE: Final = replace(
    innodb.PROFILE,
    name="mariadb",
    title="MariaDB",
    sql=InnodbSql("max_recursive_iterations"),
    package="mariadb-server-core",
    excluded_by=("mysql",),
    programs=("mariadbd", "mysqld"),
    newest=(11, 8),
    counters=COUNTERS_OF_MARIADB,
    banner="MariaDB",
    native_password=True,
    versions={
        "innodb_doublewrite=fast": Versions((11, 4, 2)),
        "innodb_change_buffering": Versions(last=(10,)),
        "innodb_log_file_buffering": Versions((10, 8, 4)),
        "innodb_snapshot_isolation": Versions((10, 11, 8)),
    },
    # size with 11.8, whose three undo tablespaces of 10 MiB 10.11 does not have
    empty_bytes=162_000_000,
    copying="mariadb-backup --backup --socket={socket} --target-dir={copy}, then "
    "mariadb-backup --prepare --target-dir={copy}",
    live_settings="""
SELECT lower(VARIABLE_NAME), GLOBAL_VALUE, GLOBAL_VALUE, '', GLOBAL_VALUE_ORIGIN IN ('CONFIG', 'SQL', 'AUTO-CONFIG')
AND GLOBAL_VALUE <> DEFAULT_VALUE FROM information_schema.SYSTEM_VARIABLES WHERE GLOBAL_VALUE IS NOT NULL ORDER BY 1""",
    features=(
        *innodb.PROFILE.features,
        "innodb_use_atomic_writes",
        "innodb_log_file_buffering",
        "innodb_data_file_buffering",
        "innodb_log_write_ahead_size",
        "innodb_linux_aio",
    ),
    building={**innodb.PROFILE.building, "innodb_autoextend_increment": 8},
    primary={**innodb.PROFILE.primary, "binlog_format": "ROW"},
    by_log={"innodb_log_file_size": LOG_BYTES},
    lab={
        **innodb.PROFILE.lab,
        "innodb_log_file_size": 16 * 2**20,
        "aria_pagecache_buffer_size": 2**20,
    },
)

account = innodb.account
check_running = innodb.check_running
data_files = innodb.data_files
durability = innodb.durability
log_files = innodb.log_files
place_log = innodb.place_log
data_bytes = innodb.data_bytes
move_data = innodb.move_data
programs = partial(mysqld.programs, PROFILE)
installed_version = partial(mysqld.installed_version, PROFILE)
serving = partial(innodb.serving, PROFILE)
check = partial(innodb.check, PROFILE)
# they are not protected by doublewrite
check_pages = partial(innodb.check_pages, PROFILE, ("--skip-freed-pages",))
refusal = partial(innodb.refusal, PROFILE, ("--verbose", "--help"))


def defaults(memory_bytes: int | None) -> dict[str, Scalar]:
    """Return InnoDB's defaults and those that only MariaDB has."""
    return {
        **innodb.defaults(memory_bytes),
        "innodb_log_file_size": BUILD_LOG,
        # The server can bypass the page cache for its log only if it finds the block device of the
        # file, which it does not on btrfs. Buffering is therefore on for all filesystems, so that
        # they are comparable.
        "innodb_log_file_buffering": True,
        "innodb_checksum_algorithm": "full_crc32",
        "innodb_purge_batch_size": 127,
        "innodb_snapshot_isolation": False,
        "aria_pagecache_buffer_size": 16 * 2**20,
    }


def window_settings(warmup_s: float, measure_s: float) -> dict[str, Scalar]:
    """Return a redo log size that the window does not reach."""
    return {"innodb_log_file_size": innodb.redo_bytes(warmup_s, measure_s)}


def create(datadir: Path, place: Place, *options: str) -> None:
    """Make the system tables with the server's SQL files in bootstrap mode, as mariadb-install-db
    does; the script itself needs another package and, run by root, changes the owner of files
    below /usr/lib.
    """
    program = mysqld.require(PROFILE, place.bin)
    private = {
        "datadir": str(datadir),
        "socket": str(place.sockets / "bootstrap.sock"),
        "max_allowed_packet": "8M",
        "net_buffer_length": "16K",
    }
    options = (
        "--bootstrap",
        "--silent-startup",
        "--log-warnings=0",
        "--enforce-storage-engine=",
        *options,
    )
    settings = merge_settings(("default", defaults(None)))
    tables = _system_tables(program)
    printed = innodb.initialize(program, private, settings, place, *options, stdin=tables)
    if "ERROR" in printed:
        raise EngineStartFailed(
            f"the data directory {datadir} could not be initialized: {printed.strip()[-800:]}"
        )


def backup(server: Server, room: Path) -> list[str] | str:
    """Return the mariadb-backup command, which needs a directory for its notes."""
    program = next((name for name in ("mariadb-backup", "mariabackup") if process.find(name)), None)
    if program is None:
        return "mariadb-backup is not installed"
    (work := room / "backup").mkdir(exist_ok=True)
    return [
        program,
        "--no-defaults",
        "--backup",
        "--stream=xbstream",
        f"--socket={server.socket}",
        f"--user={server.user}",
        f"--target-dir={work}",
    ]


def _system_tables(program: Mysqld) -> str:
    base = program.path.resolve().parent.parent
    folders = (base / "share/mysql", base / "share/mariadb", base / "share")
    share = next((folder for folder in folders if any(folder.glob("*_system_tables.sql"))), None)
    if share is None:
        raise ProgramMissing(f"the SQL files of {program.path} were not found")
    # Since version 11 the files are named mariadb_* instead of mysql_*.
    files = [
        next(share.glob(f"m*_{name}.sql"))
        for name in ("system_tables", "performance_tables", "system_tables_data")
    ]
    head = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
    return head + "\n".join(path.read_text() for path in files)
