"""Convert dumps and physical copies of MariaDB and MySQL. A physical copy loses what identified the original server:
its server id, its logs, its replication sources, and settings persisted by MySQL."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources import files, mysql_dumps
from dbbench.datasets.sources.look import has_applied_log
from dbbench.datasets.sources.mysql_dumps import quote
from dbbench.datasets.sources.source import Source
from dbbench.engines import innodb
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.engines.port import NAME as DATABASE
from dbbench.engines.port import Place, Server
from dbbench.engines.serving import own, remember_database
from dbbench.engines.sql import execute, rows
from dbbench.errors import CommandFailed, DatasetBuildFailed, SourceUnusable
from dbbench.model import SourceChange, SourceChangeKind

_LEFT: Final = ("auto.cnf", "mysqld-auto.cnf", "ib_buffer_pool", "ibtmp1", "tc.log", "*.pid", "*.err",
                "*.sock", "*.sock.lock", "*.pem", "#innodb_temp", "master.info", "relay-log.info", "multi-master.info",
                "*relay*.[0-9]*", "*relay*.index", "binlog.*", "*-bin.[0-9]*", "*-bin.index", "*-bin.state",
                "debian-*.flag")  # fmt: skip
_PREPARED_BY: Final = {"mariabackup": "mariadb-backup", "xtrabackup": "xtrabackup"}
_MEMORY: Final = "--use-memory=256M"
_TABLES: Final = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
_SIZES: Final = ("SELECT table_schema, coalesce(sum(data_length), 0) FROM information_schema.tables"
                 " WHERE table_type = 'BASE TABLE' GROUP BY table_schema")  # fmt: skip


def programs(source: Source) -> tuple[str, ...]:
    """Return the programs that loading the source needs."""
    if not source.physical:
        return ("mariadb",)
    if source.form in _PREPARED_BY and not has_applied_log(source.path):
        return (_PREPARED_BY[source.form],)
    return ()


def settle(server: Server) -> str:
    """Wait until purge has caught up. The slow shutdown of the build merges the change buffer."""
    server.settle()
    return "purge finished and the change buffer merged"


def lay(source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Copy the source, and prepare it as the server's account if necessary. See `sources.lay`."""
    del place
    account = innodb.account()
    own(data, account)
    files.copy_tree(source.path, data, lambda path: len(path.parts) == 1 and any(fnmatch(path.name, p) for p in _LEFT))
    files.hand_over(data, account)
    if source.form in _PREPARED_BY and not has_applied_log(data):
        argv = [_PREPARED_BY[source.form], "--prepare", _MEMORY, f"--target-dir={data}"]
        try:
            process.run(argv, timeout_s=files.LOAD_S, as_user=account, cwd=data)
        except CommandFailed as error:
            raise DatasetBuildFailed(f"{source.path} could not be prepared: {error.evidence}") from error
    for pattern in ("xtrabackup_*", "mariadb_backup_*", "backup-my.cnf"):
        for file in data.glob(pattern):
            file.unlink()
    kept = (source.path / "mysqld-auto.cnf").is_file()
    return (SourceChange(SourceChangeKind.PERSISTED),) if kept else ()


def load(source: Source, server: Server, data: Path, wanted: str, tablespace: str) -> tuple[SourceChange, ...]:
    """Load the dump. A schema keeps its name: statements may contain it, and no command renames one."""
    changes = () if source.physical else mysql_dumps.load(source, server)
    databases = {
        str(name): int(size) for name, size in rows(server, _SIZES, database="") if str(name) not in SYSTEM_SCHEMAS
    }
    if wanted and wanted not in databases:
        raise SourceUnusable(f'the source has no database "{wanted}" (databases: {", ".join(databases) or "none"})')
    if not databases:
        raise SourceUnusable(f"{source.path} contains no tables")
    chosen = wanted or max(databases, key=databases.__getitem__)
    if not source.physical:
        tables = rows(server, _TABLES, database="")
        for table in (table for database, table in tables if database == chosen):
            execute(server, f"ANALYZE TABLE {quote(chosen)}.{quote(table)}", database="")
    if chosen == DATABASE:
        return changes
    remember_database(data, chosen)
    return changes if wanted else (*changes, SourceChange(SourceChangeKind.CHOSEN, {"database": chosen}))
