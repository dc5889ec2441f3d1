"""MariaDB, 10.5 or later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import innodb, mysqld
from dbbench.engines.innodb_server import InnodbServer
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import Place
from dbbench.engines.serving import own, put
from dbbench.errors import CommandFailed, EngineStartFailed, ProgramMissing
from dbbench.model import Durability, Scalar, Settings, merged

BOOTSTRAP_S: Final = 120.0
BUILD_LOG: Final = 96 * 2**20  # the server's own default: what is made once is small, a window asks for more

account = innodb.account
data_bytes = innodb.data_bytes
data_files = innodb.data_files
log_files = innodb.log_files
move_data = innodb.move_data
move_log = innodb.move_log


def programs(bin: Path | None = None) -> tuple[str, ...]:
    """The server alone."""
    server = mysqld.find("mariadb", bin)
    return (str(server.path),) if server else ("mariadbd",)


def installed(bin: Path | None = None) -> str | None:
    """ "10.11.19", or None."""
    server = mysqld.find("mariadb", bin)
    return server.version if server else None


def defaults(memory_bytes: int | None) -> dict[str, Scalar]:
    """InnoDB's, and what only MariaDB has."""
    return {
        **innodb.defaults(memory_bytes),
        "innodb_log_file_size": BUILD_LOG,
        # The server can write its log past the page cache only where it finds a block device below the file; on btrfs
        # it does not. What one filesystem cannot have, none gets.
        "innodb_log_file_buffering": True,
        "innodb_checksum_algorithm": "full_crc32",
        "innodb_purge_batch_size": 127,
        "innodb_snapshot_isolation": False,
        "aria_pagecache_buffer_size": 16 * 2**20,
    }


def window_settings(warmup_s: float, measure_s: float) -> dict[str, Scalar]:
    """Redo out of reach."""
    return {"innodb_log_file_size": innodb.redo_bytes(warmup_s, measure_s)}


def create(datadir: Path, place: Place) -> None:
    """The system tables, made by the server's own SQL files in bootstrap mode.

    That is what mariadb-install-db does; the script itself is left alone because it needs a program of another
    package and, run by root, changes the owner of files below /usr/lib.
    """
    program, owner = mysqld.found("mariadb", place.bin), account()
    own(datadir, owner)
    sockets = own(place.sockets, owner)
    private: dict[str, Scalar] = {
        "datadir": str(datadir), "socket": str(sockets / "bootstrap.sock"), "tmpdir": str(sockets),
        "max_allowed_packet": "8M", "net_buffer_length": "16K", **innodb.one_tablespace(datadir, place),
    }  # fmt: skip
    config = put(
        innodb.configuration(merged(("default", defaults(None))), private),
        "bootstrap.cnf", sockets, place.logs, owner,
    )  # fmt: skip
    argv = program.argv(config, "--bootstrap", "--silent-startup", "--log-warnings=0", "--enforce-storage-engine=")
    try:
        done = process.run(argv, timeout_s=BOOTSTRAP_S, as_user=owner, stdin=_system_tables(program))
    except CommandFailed as error:
        raise EngineStartFailed(f"no data directory could be made in {datadir}: {error}") from error
    if "ERROR" in done.stderr:
        raise EngineStartFailed(f"no data directory could be made in {datadir}: {done.stderr.strip()[-800:]}")


@contextlib.contextmanager
def serving(datadir: Path, settings: Settings, place: Place) -> Iterator[InnodbServer]:
    """See the port."""
    program = mysqld.found("mariadb", place.bin)
    with innodb.serving("mariadb", program, datadir, settings, place, {}) as server:
        yield server


def check(datadir: Path, settings: Settings, place: Place) -> str:
    """See `innodb.check`."""
    return innodb.check(serving, datadir, settings, place)


def durability(effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
    """See `innodb.durability`."""
    return innodb.durability(effective, tears)


def _system_tables(program: Mysqld) -> str:
    share = program.share()
    if share is None:
        raise ProgramMissing(
            f"the SQL files of {program.path} are not found", effect="Nothing was changed.", remedy="dbbench doctor"
        )
    # Versions from 11 on call them mariadb_*.
    files = [
        next(share.glob(f"m*_{name}.sql")) for name in ("system_tables", "performance_tables", "system_tables_data")
    ]
    head = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
    return head + "\n".join(path.read_text() for path in files)
