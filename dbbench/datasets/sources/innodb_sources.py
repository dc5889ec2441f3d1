"""Convert dumps and physical copies of MariaDB and MySQL. A physical copy loses what identified the
original server: its server id, its logs, its replication sources, and settings persisted by
MySQL. Dumps are loaded with MariaDB's client: myloader continues after errors, with status 0.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import shlex
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.datasets.sources import safe_files
from dbbench.datasets.sources.look import has_applied_log
from dbbench.datasets.sources.scripts import (
    Tables,
    compare,
    feed,
    incomplete,
    left_out,
    lines_of,
    refuse_empty,
    refuse_message,
    shown,
)
from dbbench.datasets.sources.source import AGAIN, Source, unusable
from dbbench.engines import innodb, sql_of
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.engines.port import NAME, Place, Server
from dbbench.engines.serving import own, remember_database
from dbbench.engines.sql import execute, rows
from dbbench.errors import CommandFailed, DatasetBuildFailed, SourceUnusable
from dbbench.model import SourceChange, SourceChangeKind
from dbbench.results.fileio import NotRegular, open_file

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
_ROWS_BEGIN: Final = (b"INSERT ", b"REPLACE ")
BACKTICKS: Final = rb"`((?:[^`]|``)+)`"
_USE: Final = re.compile(rb"(USE|CREATE DATABASE(?: /\*.*?\*/)?) " + BACKTICKS)
_CREATE_MYSQL: Final = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?" + BACKTICKS)
_SET_MYSQL: Final = re.compile(rb"(?:/\*[!M]+\d* )?SET ")
_ASSIGNED: Final = re.compile(
    rb"(?<![@\w.])(?:@@(?:session\.|global\.)?)?([a-z_]\w*) *=|@@(?!global|session)(\w+)", re.I
)
_OF_SERVER: Final = re.compile(
    rb"CHANGE (?:MASTER|REPLICATION)|(?:/\*[!M]+\d* )?SET (?:.*?, *)??(?:@@)?(?:GLOBAL|PERSIST(?:_ONLY)?)[. ]|"
    rb"(?:/\*!\d+ )?DROP DATABASE |"
    rb"(?:CREATE|ALTER|DROP)(?: /\*.*?\*/)? (?:USER|ROLE) |GRANT |REVOKE |(?:/\*!?M?!?\d* )?SET (?:DEFAULT )?ROLE ",
    re.I,
)
_MARK_MYSQL: Final = re.compile(rb"-- (?:(?:MySQL|MariaDB) dump |(Dump completed))")
_ENGINE: Final = re.compile(rb"\) ENGINE ?= ?(\w+)")
# The account of a view, trigger, routine or event, which is left out. Without it, each use fails.
_DEFINER: Final = re.compile(rb"\bDEFINER ?= ?" + BACKTICKS + rb"@" + BACKTICKS)
_EVENT: Final = re.compile(
    rb"(?:CREATE|/\*!).*?\bEVENT (?:IF NOT EXISTS )?" + BACKTICKS + rb" ON SCHEDULE"
)
_WARNING: Final = re.compile(r"(?:Warning|Note) \(Code (\d+)\)[: ]*(.*)")
# Warnings with which a server leaves out a row, which mysqldump --insert-ignore asks for, or uses
# another storage engine.
_ALTERING: Final = frozenset(("1062", "1286", "1452", "1526", "4025"))
_MOST_TEXTS: Final = 100  # different warnings that are kept
_ROW: Final = re.compile(r" at row \d+$")
_MOST_WARNINGS: Final = 6  # that are listed
_LAST_LINES: Final = 10  # of what the client printed in a message
_AT: Final = re.compile(r"ERROR\b.*? at line (\d+).*")
# Kinds of files of mydumper in the order in which they are loaded; "" are the rows.
_CREATE, _SEQUENCE, _TABLE, _ROWS, _VIEW = range(5)
_STEPS: Final = (
    "-schema-create",
    "-schema-sequence",
    "-schema",
    "",
    "-schema-view",
    "-schema-triggers",
    "-schema-post",
)
_NUMBERED: Final = re.compile(r"(.+)\.\d{5,}\.sql(?:\.\w+)?$")
_COUNTS: Final = re.compile(r"^\[`(.+)`\.`(.+)`\]\n(?:(?!\[).*\n)*?rows ?= ?(\d+)", re.MULTILINE)
_DATABASE: Final = re.compile(rb"CREATE DATABASE .*?" + BACKTICKS)
_CREATED: Final = re.compile(
    rb"^CREATE (?:TABLE|SEQUENCE)(?: IF NOT EXISTS)? " + BACKTICKS, re.MULTILINE
)
_SAVED: Final = re.compile(rb"SET .*@PREV_COLLATION_CONNECTION\b")
# in no statement: a line of mydumper that ends with ";" ends a statement
_DELIMITER: Final = "//dbbench//"


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
    return (*changes, SourceChange(SourceChangeKind.CHOSEN, {"database": chosen}))


def _list_other_tables(tables: Iterable[str]) -> tuple[SourceChange, ...]:
    """Return these tables, which are not InnoDB's, as a change."""
    text = ", ".join(tables)
    if text:
        return (SourceChange(SourceChangeKind.NOT_MEASURED, {"tables": text}),)
    return ()


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
        step_of, database_of, _maker_of = _files_of(source.path)
        for path in database_of:
            for _line in _lines(source.path, path, step_of[path] >= _VIEW):
                pass
        return _without_counts(source.path, _tables_of(source.path, step_of, database_of))
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


def _without_counts(folder: Path, tables: Tables) -> tuple[SourceChange, ...]:
    """Return the tables in several files of which nothing tells whether the last one is there."""
    counted = set()
    for table, number in tables.items():
        if number is not None:
            counted.add(".".join(table))
    matches = (_NUMBERED.match(path.name) for path in sorted(folder.iterdir()))
    parts = Counter(match[1] for match in matches if match)
    unknown = [name for name, files in parts.items() if files > 1 and name not in counted]
    text = ", ".join(f"{name} ({parts[name]} files)" for name in unknown[:_MOST_WARNINGS])
    if text:
        return (SourceChange(SourceChangeKind.NOT_COUNTED, {"tables": text}),)
    return ()


class MysqlScript:
    """A dump for the client, line by line, without the original server's accounts, system schemas
    and replication.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        unknown: Callable[[str], bool],
        database: str,
    ) -> None:
        """`unknown`: whether the server does not have a variable. `database`: that of a dump that
        names none.
        """
        self.tables: Tables = {}
        self.engines: dict[tuple[str, str], str] = {}
        self.has_rows = False
        self.skipped: dict[str, None] = {}
        self.line = 0
        self._table: tuple[str, str] | None = None  # that the current statement creates
        self._lines = lines_of(lines)
        self._unknown = unknown
        self._database = database
        self._made = {database}  # databases that exist
        self._marks = 0
        self._routine = False
        self._hidden = False
        self._until_end = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.line += 1
            # MariaDB's program writes each row on a line of its own.
            if line[:1] == b"(" and not self._hidden:
                yield line
                continue
            if line.startswith(_ROWS_BEGIN) and not self._hidden and not self._until_end:
                self.has_rows = True
                yield line
                continue
            yield self._keep(line)
        if self._marks:
            raise incomplete('its closing line "-- Dump completed" is missing')

    def _keep(self, line: bytes) -> bytes:
        # nothing in the body of a routine is a statement
        if self._routine or line.startswith(b"DELIMITER "):
            self._routine = not re.match(rb"DELIMITER ;\s*$", line)
            if event := _EVENT.match(line):
                self.skipped[f"event {unquote(event[1])} (it does not run)"] = None
            hides = self._hidden and line[:9] != b"DELIMITER"
            return b"\n" if hides else without_definer(line)
        refuse_message(line, self.line)
        mark = _MARK_MYSQL.match(line)
        use = _USE.match(line)
        table = _CREATE_MYSQL.match(line)
        if mark:
            self._marks += -1 if mark[1] else 1
        elif use:
            self._database = unquote(use[2])
            # a dump made with --no-create-db
            if use[1] == b"USE" and self._database not in self._made:
                line = b"CREATE DATABASE IF NOT EXISTS `" + use[2] + b"`; " + line
            self._made.add(self._database)
            self._hidden = self._database in SYSTEM_SCHEMAS
            if self._hidden:
                self.skipped[f"database {self._database}"] = None
        elif table and not self._hidden:
            self._table = (self._database, unquote(table[1]))
            self.tables[self._table] = None
        elif self._table and (engine := _ENGINE.match(line)):
            self.engines[self._table] = engine[1].decode()
            self._table = None
        if self._hidden or self._is_left_out(line):
            return b"\n"
        return without_definer(line)

    def _is_left_out(self, line: bytes) -> bool:
        leaves_out = bool(self._until_end or _OF_SERVER.match(line.lstrip()))
        if not leaves_out and _SET_MYSQL.match(line):
            names = [assigned or read for assigned, read in _ASSIGNED.findall(line)]
            leaves_out = any(self._unknown(name.decode().lower()) for name in names)
        if not leaves_out:
            return False
        if not self._until_end:
            self.skipped[shown(line)] = None
        self._until_end = not line.rstrip().endswith(b";")
        return True


def _load_dump(source: Source, server: Server) -> tuple[SourceChange, ...]:
    """Load the dump and compare it with the copy; return what was left out. Raises
    DatasetBuildFailed.
    """
    tables, changes = (_mysqldump if source.form == "mysqldump" else _mydumper)(source.path, server)
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


def without_definer(line: bytes) -> bytes:
    """Return the line with the account that loads the dump in place of a definer's."""
    if not line.startswith((b"CREATE", b"/*!")):
        return line
    return _DEFINER.sub(b"DEFINER=CURRENT_USER", line, count=1)


def unquote(name: bytes) -> str:
    """Return the name between the quotes, as BACKTICKS matched it."""
    return name.replace(b"``", b"`").decode(errors="replace")


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
    if not several:
        return ()
    text = "; ".join(several[:_MOST_WARNINGS])
    if len(several) > _MOST_WARNINGS:
        text += f"; and {len(several) - _MOST_WARNINGS} more"
    return (SourceChange(SourceChangeKind.WARNED, {"warnings": text}),)


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
    step_of, database_of, maker_of = _files_of(folder)
    tables = _tables_of(folder, step_of, database_of)
    warnings: list[str] = []
    # Make the databases that do not exist.
    present = {str(name) for (name,) in rows(server, "SHOW DATABASES", database="")}
    for database in sorted({*database_of.values()} - present):
        if database in maker_of:
            maker = maker_of[database]
            _run(server, _lines(folder, maker), maker, "")
        else:
            execute(server, f"CREATE DATABASE {sql_of(server).quote(database)}", database="")

    def run(path: Path) -> None:
        routines = step_of[path] >= _VIEW
        delimiter = _DELIMITER if routines else ";"
        warnings.extend(
            _run(
                server,
                _lines(folder, path, routines),
                path,
                database_of[path],
                delimiter,
            )
        )

    # Only rows are loaded by several clients at a time.
    for step in range(_SEQUENCE, len(_STEPS)):
        paths = [path for path in database_of if step_of[path] == step]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if step == _ROWS else 1) as pool:
            try:
                list(pool.map(run, paths))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return tables, (*_without_counts(folder, tables), *_list_warnings(warnings))


def _tables_of(
    folder: Path,
    step_of: dict[Path, int],
    database_of: dict[Path, str],
) -> Tables:
    """Return the tables and sequences, with the numbers of rows that newer versions of mydumper
    write down. Raises SourceUnusable if a file of rows is missing. An older version writes no
    file for an empty table or a part of a table without rows, so its files do not say which is
    the case.
    """
    tables: Tables = {}
    counts = _COUNTS.findall((folder / "metadata").read_text(errors="replace"))
    numbers = {(database, table): int(number) for database, table, number in counts}
    parts: dict[str, set[int]] = defaultdict(set)
    views = {path.name.partition("-schema-view.")[0] for path in step_of if step_of[path] == _VIEW}
    for path, step in step_of.items():
        if step == _ROWS:
            name = re.sub(r"\.sql(\.\w+)?$", "", path.name)
            table, _, part = name.rpartition(".")
            if part.isdigit() and table.partition(".")[2]:
                parts[re.sub(r"\.\d{5,}$", "", table)].add(int(part))
            else:
                parts[name].add(0)
    refuse_empty(folder, _TABLE in step_of.values(), bool(parts))
    for path, database in database_of.items():
        name = path.name.partition("-schema.")[0]
        if step_of[path] not in (_SEQUENCE, _TABLE):
            continue
        table_of_file = (database, _name_in(folder, path, _CREATED))
        number = numbers.get(table_of_file)
        tables[table_of_file] = number
        if step_of[path] != _TABLE or name in views:
            continue
        missing = ""
        if not parts[name] and number != 0:
            missing = f"{name}.sql"
        gaps = set(range(max(parts[name], default=0))) - parts[name]
        if gaps and number is None:
            missing = f"{name}.{min(gaps):05}.sql"
        if missing:
            empty = shlex.quote(str(folder / missing))
            raise unusable(
                f"{folder} has no {missing}, and its metadata do not say that it has no rows",
                f"{AGAIN} If there were no rows:  touch {empty}",
            )
    return tables


def _files_of(folder: Path) -> tuple[dict[Path, int], dict[Path, str], dict[str, Path]]:
    """Return the step and the database of each file, and the file that makes each database."""
    step_of: dict[Path, int] = {}
    by_prefix: dict[str, str] = {}  # databases by the beginning of the names of their files
    maker_of: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        step = _step(path.name)
        if step is None:
            continue
        step_of[path] = step
        if step == _CREATE:
            database = _name_in(folder, path, _DATABASE)
            maker_of[database] = path
            by_prefix[path.name.partition(f"{_STEPS[_CREATE]}.")[0]] = database
    database_of = {}
    for path in step_of:
        database = path.name.partition(".")[0].partition("-schema-")[0]
        for prefix in sorted(by_prefix, key=len):  # the longest that fits counts
            if path.name.startswith((f"{prefix}.", f"{prefix}-schema")):
                database = by_prefix[prefix]
        if database not in SYSTEM_SCHEMAS:
            database_of[path] = database
    return step_of, database_of, maker_of


def _step(name: str) -> int | None:
    """Return the position in _STEPS of a file; None for files without statements."""
    stem = re.sub(r"\.(gz|zst|bz2|xz|lz4)$", "", name)
    if not stem.endswith(".sql"):
        return None
    fitting = []
    for step, word in enumerate(_STEPS):
        if word and stem.endswith(f"{word}.sql"):
            fitting.append(step)
    return fitting[0] if fitting else _ROWS


def _name_in(folder: Path, path: Path, create: re.Pattern[bytes]) -> str:
    """Return the name of the first database or table that the statements of a file create."""
    match = create.search(b"".join(_lines(folder, path)))
    if match is None:
        what = "DATABASE" if create is _DATABASE else "TABLE"
        raise incomplete(f"{path.name} contains no CREATE {what}")
    return unquote(match[1])


def _lines(
    folder: Path,
    path: Path,
    routines: bool = False,
) -> Iterator[bytes]:
    """Yield the lines of a file. Raises SourceRefused, and SourceUnusable if it ends too early.
    `routines`: views, triggers and routines. Lines end with ";" also within a statement, with a
    space after it. Each CREATE stands between statements that save and restore the character
    set.
    """
    # until the first CREATE
    last = b""
    end = f"{_DELIMITER}\n".encode()
    open_ = routines
    try:
        file: Any = open_file(path, sys.maxsize, folder)
    except NotRegular as error:
        raise safe_files.unsafe(f"{path}: {error.strerror}") from error
    with file, safe_files.decompress(file, path.name) as content:
        for line in content:
            last = line if line.strip() else last
            if routines and _SAVED.match(line):
                open_ = b"=@@" in line
            if routines:
                line = without_definer(line)
            yield line.removesuffix(b";\n") + end if routines and line.endswith(b";\n") else line
    empty = not path.stat().st_size  # a file that the user made for a table without rows
    if open_ or not (empty or last.endswith(b";\n")):
        raise incomplete(f"{path.name} ends too early")
