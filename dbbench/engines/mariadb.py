"""MariaDB, 10.5 or later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import innodb, mysqld
from dbbench.engines.innodb import Innodb
from dbbench.engines.innodb_server import COUNTERS_OF_MARIADB
from dbbench.engines.innodb_sql import InnodbSql
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import LOG_BYTES, Place, Server
from dbbench.engines.settings import Versions
from dbbench.errors import EngineStartFailed, ProgramMissing
from dbbench.model import Scalars, merge_settings

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


class MariaDb(Innodb):
    """MariaDB, with its own program for backups."""

    checking = ("--verbose", "--help")
    # they are not protected by doublewrite
    page_options = ("--skip-freed-pages",)

    def defaults(self, memory_bytes: int | None) -> Scalars:
        """Return InnoDB's defaults and those that only MariaDB has."""
        return {
            **innodb.defaults(memory_bytes),
            "innodb_log_file_size": BUILD_LOG,
            # The server can bypass the page cache for its log only if it finds the block device of
            # the file, which it does not on btrfs. Buffering is therefore on for all filesystems,
            # so that they are comparable.
            "innodb_log_file_buffering": True,
            "innodb_checksum_algorithm": "full_crc32",
            "innodb_purge_batch_size": 127,
            "innodb_snapshot_isolation": False,
            "aria_pagecache_buffer_size": 16 * 2**20,
        }

    def create(self, datadir: Path, place: Place, *options: str) -> None:
        """Make the system tables with the server's SQL files in bootstrap mode, as
        mariadb-install-db does; the script itself needs another package and, run by root, changes
        the owner of files below /usr/lib.
        """
        program = mysqld.require(PROFILE, place.bin)
        # The server's limits for a statement are small, since only its own files are read.
        printed = self.initialize(
            program,
            {
                "datadir": str(datadir),
                "socket": str(place.sockets / "bootstrap.sock"),
                "max_allowed_packet": "8M",
                "net_buffer_length": "16K",
            },
            merge_settings(("default", self.defaults(None))),
            place,
            "--bootstrap",
            "--silent-startup",
            "--log-warnings=0",
            "--enforce-storage-engine=",
            *options,
            stdin=_system_tables(program),
        )
        if "ERROR" in printed:
            raise EngineStartFailed(
                f"the data directory {datadir} could not be initialized: {printed.strip()[-800:]}"
            )

    def backup(self, server: Server, room: Path) -> list[str] | str:
        """Return the mariadb-backup command, which needs a directory for its notes."""
        notes = room / "backup"
        notes.mkdir(exist_ok=True)
        for program in ("mariadb-backup", "mariabackup"):
            if process.find(program):
                return [
                    program,
                    "--no-defaults",
                    "--backup",
                    "--stream=xbstream",
                    f"--socket={server.socket}",
                    f"--user={server.user}",
                    f"--target-dir={notes}",
                ]
        return "mariadb-backup is not installed"


ENGINE: Final = MariaDb(PROFILE)


def _system_tables(program: Mysqld) -> str:
    base = program.path.resolve().parent.parent
    for share in (base / "share/mysql", base / "share/mariadb", base / "share"):
        if not any(share.glob("*_system_tables.sql")):
            continue
        statements = [
            "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;"
        ]
        # Since version 11 the files are named mariadb_* instead of mysql_*.
        for name in ("system_tables", "performance_tables", "system_tables_data"):
            file = next(share.glob(f"m*_{name}.sql"))
            statements.append(file.read_text())
        return "\n".join(statements)
    raise ProgramMissing(f"the SQL files of {program.path} were not found")
