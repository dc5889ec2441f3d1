"""Convert dumps and physical copies of MariaDB and MySQL into a data directory.

A physical copy loses what identified the original server: its server id, its binary and relay logs, its replication
sources, and settings persisted by MySQL. A backup whose log was not applied is prepared on the copy with the tool that
made it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources.source import Source, is_prepared
from dbbench.engines import innodb
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.engines.innodb_server import DATABASE, USER
from dbbench.engines.port import Place, Server, execute, rows
from dbbench.engines.serving import own, remember_database
from dbbench.errors import CommandFailed, DatasetBuildFailed, SourceIncomplete
from dbbench.model import SourceChange, SourceChangeKind

LOAD_S: Final = 24 * 3600.0  # a day; a longer load is stuck
_LEFT: Final = ("auto.cnf", "mysqld-auto.cnf", "ib_buffer_pool", "ibtmp1", "tc.log", "*.pid", "*.err",
                "*.sock", "*.sock.lock", "*.pem", "#innodb_temp", "master.info", "relay-log.info", "multi-master.info",
                "*relay*.[0-9]*", "*relay*.index", "binlog.*", "*-bin.[0-9]*", "*-bin.index", "*-bin.state",
                "debian-*.flag")  # fmt: skip
_PREPARED_BY: Final = {"mariabackup": "mariadb-backup", "xtrabackup": "xtrabackup"}
_MEMORY: Final = "--use-memory=256M"
_SIZES: Final = ("SELECT table_schema, coalesce(sum(data_length), 0) FROM information_schema.tables"
                 " WHERE table_type = 'BASE TABLE' GROUP BY table_schema")  # fmt: skip


def programs(source: Source) -> tuple[str, ...]:
    """Return the programs that loading the source needs."""
    if source.form == "mysqldump":
        return ("mariadb",)
    if source.form == "mydumper":
        return ("myloader",)
    if source.form in _PREPARED_BY and not is_prepared(source.path):
        return (_PREPARED_BY[source.form],)
    return ()


def block_size(bin: Path | None) -> int:
    """Return the page size of new servers; dbbench always uses InnoDB's default."""
    return innodb.PROFILE.page_bytes


def page_size(source: Source, bin: Path | None) -> int | None:
    """Return the page size from the first tablespace."""
    return source.page_size


def settled(server: Server) -> str:
    """Wait until purge has caught up. The slow shutdown of the build merges the change buffer."""
    server.settle()
    return "purge finished and the change buffer merged"


def sealed(data: Path, place: Place, checksums: bool | None) -> tuple[SourceChange, ...]:
    """Change nothing: InnoDB pages always have checksums."""
    return ()


def tablespaces_of(server: Server) -> dict[str, str]:
    """Return {}: dbbench supports tablespaces only for PostgreSQL."""
    return {}


def laid(source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Copy the source; links of tables that are stored elsewhere become files. See `sources.laid`."""
    del place
    account = innodb.account()
    own(data, account)
    unwanted = shutil.ignore_patterns(*_LEFT)
    shutil.copytree(
        source.path, data, dirs_exist_ok=True,
        ignore=lambda folder, names: unwanted(folder, names) if Path(folder) == source.path else set(),
    )  # fmt: skip
    if source.form in _PREPARED_BY and not is_prepared(data):
        try:
            process.run([_PREPARED_BY[source.form], "--prepare", _MEMORY, f"--target-dir={data}"], timeout_s=LOAD_S)
        except CommandFailed as error:
            raise DatasetBuildFailed(f"{source.path} could not be prepared: {error.evidence}") from error
    for pattern in ("xtrabackup_*", "mariadb_backup_*", "backup-my.cnf"):
        for file in data.glob(pattern):
            file.unlink()
    for path in (data, *data.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, account.uid, account.gid)
        path.chmod(0o700 if path.is_dir() else 0o600)
    kept = (source.path / "mysqld-auto.cnf").is_file()
    return (SourceChange(SourceChangeKind.PERSISTED),) if kept else ()


def loaded(source: Source, server: Server, data: Path, wanted: str, tablespace: str) -> tuple[SourceChange, ...]:
    """Load the dump. A schema keeps its name: statements may contain it, and no command renames one."""
    if source.form == "mysqldump":
        _client(source, server)
    elif source.form == "mydumper":
        _myloader(source, server)
    databases = {
        str(name): int(size) for name, size in rows(server, _SIZES, database="") if str(name) not in SYSTEM_SCHEMAS
    }
    if wanted and wanted not in databases:
        raise SourceIncomplete(f'the source has no database "{wanted}" (databases: {", ".join(databases) or "none"})')
    if not databases:
        raise SourceIncomplete(f"{source.path} contains no tables")
    chosen = wanted or max(databases, key=databases.__getitem__)
    if not source.physical:
        _analyse(server, chosen)
    if chosen == DATABASE:
        return ()
    remember_database(data, chosen)
    return (SourceChange(SourceChangeKind.CHOSEN, {"database": chosen}),) if not wanted else ()


def _client(source: Source, server: Server) -> None:
    # Since 11.4 the client requires TLS even on a socket, which a private MySQL does not offer.
    argv = ["mariadb", "--no-defaults", "--skip-ssl", f"--socket={server.socket}", f"--user={USER}",
            "--max-allowed-packet=1G", "--default-character-set=utf8mb4", f"--execute=source {source.path}",
            server.database]  # fmt: skip
    try:
        process.run(argv, timeout_s=LOAD_S, env=server.env)
    except CommandFailed as error:
        raise DatasetBuildFailed(f"{source.path} could not be loaded: {error.evidence}") from error


def _myloader(source: Source, server: Server) -> None:
    argv = ["myloader", f"--directory={source.path}", f"--socket={server.socket}", f"--user={USER}",
            f"--threads={len(os.sched_getaffinity(0))}", "--overwrite-tables"]  # fmt: skip
    try:
        done = process.run(argv, timeout_s=LOAD_S, env=server.env)
    except CommandFailed as error:
        raise DatasetBuildFailed(f"{source.path} could not be loaded: {error.evidence}") from error
    if wrong := [line for line in done.stderr.splitlines() if "CRITICAL" in line]:
        raise DatasetBuildFailed(f"myloader failed on {source.path}: {wrong[0]}")


def _analyse(server: Server, schema: str) -> None:
    tables = rows(server, "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
                          f" AND table_schema = '{schema}'", database="")  # fmt: skip
    for (table,) in tables:
        execute(server, f"ANALYZE TABLE `{schema}`.`{table}`", database="")
