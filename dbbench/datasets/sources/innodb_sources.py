"""Convert dumps and physical copies of MariaDB and MySQL. A physical copy loses what identified the
original server: its server id, its logs, its replication sources, and settings persisted by
MySQL. Dumps are loaded with MariaDB's client: myloader continues after errors, with status 0.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources import mydumper, safe_files
from dbbench.datasets.sources.look import has_applied_log
from dbbench.datasets.sources.mysql_script import MysqlScript
from dbbench.datasets.sources.scripts import (
    Tables,
    change_of,
    compare,
    feed,
    left_out,
    refuse_empty,
    shown,
)
from dbbench.datasets.sources.source import Source, unusable
from dbbench.engines import innodb, sql_of
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.engines.port import NAME, Place, Server
from dbbench.engines.serving import own, remember_database
from dbbench.engines.sql import execute, rows
from dbbench.errors import CommandFailed, DatasetBuildFailed, SourceUnusable
from dbbench.model import SourceChange, SourceChangeKind

_PERSISTED: Final = "mysqld-auto.cnf"
_LEFT: Final = (
    "auto.cnf",
    _PERSISTED,
    "ib_buffer_pool",
    "ibtmp1",
    "tc.log",
    "*.pid",
    "*.err",
    "*.sock",
    "*.sock.lock",
    "*.pem",
    "#innodb_temp",
    "master.info",
    "relay-log.info",
    "multi-master.info",
    "*relay*.[0-9]*",
    "*relay*.index",
    "binlog.*",
    "*-bin.[0-9]*",
    "*-bin.index",
    "*-bin.state",
    "debian-*.flag",
)
_PREPARED_BY: Final = {"mariabackup": "mariadb-backup", "xtrabackup": "xtrabackup"}
_MEMORY: Final = "--use-memory=256M"
_TABLES: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
)
_SIZES: Final = (
    "SELECT table_schema, coalesce(sum(data_length), 0) FROM information_schema.tables"
    " WHERE table_type = 'BASE TABLE' AND engine = 'InnoDB' GROUP BY table_schema"
)
_OTHER_ENGINES: Final = (
    "SELECT table_schema, table_name, engine FROM information_schema.tables"
    " WHERE table_type = 'BASE TABLE' AND engine <> 'InnoDB' ORDER BY 1, 2"
)
# Endings of the files of tables that are not InnoDB's.
_FILES_OF_OTHERS: Final = {".MYI": "MyISAM", ".MAI": "Aria", ".CSM": "CSV", ".ARZ": "ARCHIVE"}
_WARNING: Final = re.compile(r"(?:Warning|Note) \(Code (\d+)\)[: ]*(.*)")
# Warnings with which a server leaves out a row, which mysqldump --insert-ignore asks for, or uses
# another storage engine.
_ALTERING: Final = frozenset(("1062", "1286", "1452", "1526", "4025"))
_MOST_TEXTS: Final = 100  # different warnings that are kept
_ROW: Final = re.compile(r" at row \d+$")
_MOST_WARNINGS: Final = 6  # that are listed
_LAST_LINES: Final = 10  # of what the client printed in a message
_AT: Final = re.compile(r"ERROR\b.*? at line (\d+).*")


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
    safe_files.copy_tree(
        source.path,
        data,
        lambda path: len(path.parts) == 1 and any(fnmatch(path.name, p) for p in _LEFT),
    )
    safe_files.hand_over(data, account)
    if source.form in _PREPARED_BY and not has_applied_log(data):
        argv = [
            _PREPARED_BY[source.form],
            "--prepare",
            _MEMORY,
            f"--target-dir={data}",
        ]
        try:
            process.run(argv, timeout_s=safe_files.LOAD_S, as_user=account, cwd=data)
        except CommandFailed as error:
            raise DatasetBuildFailed(
                f"{source.path} could not be prepared: {error.evidence}"
            ) from error
    for pattern in ("xtrabackup_*", "mariadb_backup_*", "backup-my.cnf"):
        for file in data.glob(pattern):
            file.unlink()
    kept = (source.path / _PERSISTED).is_file()
    if kept:
        return (SourceChange(SourceChangeKind.PERSISTED),)
    return ()


def load(
    source: Source,
    server: Server,
    data: Path,
    wanted: str,
    tablespace: str,
) -> tuple[SourceChange, ...]:
    """Load the dump. A schema keeps its name: statements may contain it, and no command renames
    one.
    """
    changes = () if source.physical else _load_dump(source, server)
    if (data / _PERSISTED).exists():  # by SET PERSIST within a line of the dump
        (data / _PERSISTED).unlink()
        changes += (SourceChange(SourceChangeKind.PERSISTED),)
    others = rows(server, _OTHER_ENGINES, database="")
    changes += _list_other_tables(
        f"{database}.{table} ({engine})"
        for database, table, engine in others
        if database not in SYSTEM_SCHEMAS
    )
    databases = {}
    for name, size in rows(server, _SIZES, database=""):
        if str(name) not in SYSTEM_SCHEMAS:
            databases[str(name)] = int(size)
    if wanted and wanted not in databases:
        raise SourceUnusable(
            f'the source has no database "{wanted}" (databases: {", ".join(databases) or "none"})'
        )
    if not databases:
        raise SourceUnusable(f"{source.path} contains no tables of InnoDB")
    chosen = wanted or max(databases, key=databases.__getitem__)
    quote = sql_of(server).quote
    tables = [] if source.physical else rows(server, _TABLES, database="")
    for database, table in tables:
        if database == chosen:
            execute(server, f"ANALYZE TABLE {quote(chosen)}.{quote(table)}", database="")
    if chosen == NAME:
        return changes
    remember_database(data, chosen)
    if wanted:
        return changes
    return changes + change_of(SourceChangeKind.CHOSEN, database=chosen)


def _list_other_tables(tables: Iterable[str]) -> tuple[SourceChange, ...]:
    """Return these tables, which are not InnoDB's, as a change."""
    return change_of(SourceChangeKind.NOT_MEASURED, tables=", ".join(tables))


def examine(source: Source, bin: Path | None) -> tuple[SourceChange, ...]:
    """Read a dump without a server; return what loading it would leave out. Raises what `load`
    raises for a dump that is incomplete or has no rows.
    """
    del bin
    if source.physical:
        files_of_others = []
        for path in sorted(source.path.glob("*/*")):
            if path.suffix in _FILES_OF_OTHERS and path.parent.name not in SYSTEM_SCHEMAS:
                table = f"{path.parent.name}.{path.stem}"
                files_of_others.append(f"{table} ({_FILES_OF_OTHERS[path.suffix]})")
        return _list_other_tables(files_of_others)
    if source.form == "mydumper":
        files = mydumper.files_of(source.path)
        for path in files.database_of:
            for _line in files.lines(path):
                pass
        return files.changes(files.tables())
    with source.path.open("rb") as file:
        script = MysqlScript(file, lambda _: False, NAME)
        for _line in script:
            pass
    refuse_empty(source.path, bool(script.tables), script.has_rows)
    others = [
        f"{database}.{table} ({engine})"
        for (database, table), engine in script.engines.items()
        if engine.lower() != "innodb"
    ]
    if len(others) == len(script.tables):
        raise unusable(
            f"none of the tables of {source.path} is InnoDB's: {', '.join(others[:_MOST_WARNINGS])}",
            "Convert them before the dump: ALTER TABLE ... ENGINE = InnoDB",
        )
    return (*left_out(script.skipped), *_list_other_tables(others))


def _load_dump(source: Source, server: Server) -> tuple[SourceChange, ...]:
    """Load the dump and compare it with the copy; return what was left out. Raises
    DatasetBuildFailed.
    """
    before = server.effective_settings()
    tables, changes = (_mysqldump if source.form == "mysqldump" else _mydumper)(source.path, server)
    # A trigger or a function can do what `MysqlScript` leaves out.
    after = server.effective_settings().items() - before.items()
    if changed := sorted(name for name, _ in after if not name.startswith("gtid_")):
        raise unusable(
            f"the routines of {source.path} change settings of the server while it is loaded: "
            f"{', '.join(changed)}",
            "Remove these statements from the dump.",
        )
    existing = set(
        rows(server, "SELECT table_schema, table_name FROM information_schema.tables", database="")
    )

    def rows_of(database: str, table: str, count: bool) -> int | None:
        if (database, table) not in existing:
            return None
        statement = (
            f"SELECT count(*) FROM {sql_of(server).quote(database)}.{sql_of(server).quote(table)}"
        )
        if count:
            return int(rows(server, statement, database="")[0][0])
        return 0

    return (*changes, *compare(source.path, tables, (), rows_of))


def _mysqldump(path: Path, server: Server) -> tuple[Tables, tuple[SourceChange, ...]]:
    variables = {str(name) for name, _value in rows(server, "SHOW SESSION VARIABLES", database="")}
    with path.open("rb") as file:
        script = MysqlScript(
            file,
            lambda name: name not in variables,
            server.database,
        )
        warnings = _run(server, script, path, server.database)
    refuse_empty(path, bool(script.tables), script.has_rows)
    return script.tables, (*left_out(script.skipped), *_list_warnings(warnings))


def _list_warnings(warnings: Iterable[str]) -> tuple[SourceChange, ...]:
    """Return warnings of the server as a change."""
    several = list(dict.fromkeys(warnings))
    text = "; ".join(several[:_MOST_WARNINGS])
    if len(several) > _MOST_WARNINGS:
        text += f"; and {len(several) - _MOST_WARNINGS} more"
    return change_of(SourceChangeKind.WARNED, warnings=text)


def _run(
    server: Server,
    lines: Iterable[bytes],
    path: Path,
    database: str,
    delimiter: str = ";",
) -> list[str]:
    """Run the statements in the mode that dumps set for themselves; return the server's warnings.
    Raises DatasetBuildFailed.
    """
    session = "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO', foreign_key_checks=0, unique_checks=0"
    # Since 11.4 the client requires TLS even on a socket, which a private MySQL does not offer. In
    # binary mode it does not run client commands (\!, source) and does not change line ends within
    # strings.
    argv = [
        "mariadb",
        "--no-defaults",
        "--skip-ssl",
        f"--socket={server.socket}",
        f"--user={NAME}",
        "--batch",
        "--binary-mode",
        "--local-infile=0",
        "--show-warnings",
        "--max-allowed-packet=1G",
        "--default-character-set=utf8mb4",
        f"--init-command={session}",
        f"--delimiter={delimiter}",
        f"--database={database}",
    ]
    where = str(path)
    answer = ""
    warnings: dict[str, None] = {}
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with feed(argv, lines, innodb.account(), server.env) as (status, printed):
        for line in io.TextIOWrapper(printed, errors="replace"):
            last.append(line)
            if error := _AT.match(line):
                with path.open("rb") as file, safe_files.decompress(file, path.name) as content:
                    statement = next(itertools.islice(content, int(error[1]) - 1, None), b"")
                where = f"{path}, line {error[1]}: {shown(statement)}"
                answer = error[0]
            elif warning := _WARNING.match(line):
                if warning[1] in _ALTERING:
                    answer = f"a row was left out, or a table changed: {line.strip()}"
                elif len(warnings) < _MOST_TEXTS:
                    warnings[f"{warning[1]} {_ROW.sub('', warning[2].strip())}"] = None
    if status == 0 and not answer:
        return list(warnings)
    answer = answer or "".join(last).strip()
    raise DatasetBuildFailed(
        f"{where}\n  {answer}",
        effect="The copy was removed; nothing was measured.",
        remedy="Correct the dump or make it again, or use a server that accepts the statement. "
        "Then run the same command.",
    )


def _mydumper(folder: Path, server: Server) -> tuple[Tables, tuple[SourceChange, ...]]:
    files = mydumper.files_of(folder)
    tables = files.tables()
    warnings: list[str] = []
    # Make the databases that do not exist.
    present = {str(name) for (name,) in rows(server, "SHOW DATABASES", database="")}
    for database in sorted({*files.database_of.values()} - present):
        if database in files.maker_of:
            maker = files.maker_of[database]
            _run(server, files.lines(maker), maker, "")
        else:
            execute(server, f"CREATE DATABASE {sql_of(server).quote(database)}", database="")

    def run(path: Path) -> None:
        delimiter = mydumper.DELIMITER if files.has_routines(path) else ";"
        warnings.extend(_run(server, files.lines(path), path, files.database_of[path], delimiter))

    # Only rows are loaded by several clients at a time.
    for step in range(mydumper.SEQUENCE, len(mydumper.STEPS)):
        paths = [path for path in files.database_of if files.step_of[path] == step]
        clients = len(os.sched_getaffinity(0)) if step == mydumper.ROWS else 1
        with ThreadPoolExecutor(clients) as pool:
            try:
                list(pool.map(run, paths))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return tables, (*files.changes(tables), *_list_warnings(warnings))
