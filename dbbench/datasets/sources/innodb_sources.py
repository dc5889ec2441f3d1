"""Convert dumps and physical copies of MariaDB and MySQL. A physical copy loses what identified the
original server: its server id, its logs, its replication sources, and settings persisted by
MySQL. Dumps are loaded with MariaDB's client: myloader continues after errors, with status 0.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.datasets.sources import safe_files
from dbbench.datasets.sources.look import has_applied_log
from dbbench.datasets.sources.scripts import Tables, compare, feed, incomplete, lines_of, shown
from dbbench.datasets.sources.source import Source
from dbbench.engines import innodb, sql_of
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.engines.port import NAME, Place, Server
from dbbench.engines.serving import own, remember_database
from dbbench.engines.sql import execute, rows
from dbbench.errors import CommandFailed, DatasetBuildFailed, SourceUnusable
from dbbench.model import SourceChange, SourceChangeKind
from dbbench.results.fileio import NotRegular, open_file

_LEFT: Final = (
    "auto.cnf",
    "mysqld-auto.cnf",
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
    " WHERE table_type = 'BASE TABLE' GROUP BY table_schema"
)
BACKTICKS: Final = rb"`((?:[^`]|``)+)`"
_USE: Final = re.compile(rb"(USE|CREATE DATABASE(?: /\*.*?\*/)?) " + BACKTICKS)
_CREATE_MYSQL: Final = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?" + BACKTICKS)
_SET_MYSQL: Final = re.compile(rb"(?:/\*[!M]+\d* )?SET ")
_ASSIGNED: Final = re.compile(
    rb"(?<![@\w.])(?:@@(?:session\.|global\.)?)?([a-z_]\w*) *=|@@(?!global|session)(\w+)", re.I
)
_OF_SERVER: Final = re.compile(
    rb"CHANGE (?:MASTER|REPLICATION)|SET (?:@@)?GLOBAL[. ](?:gtid_|rpl_)|(?:/\*!\d+ )?DROP DATABASE |"
    rb"(?:CREATE|ALTER|DROP)(?: /\*.*?\*/)? (?:USER|ROLE) |GRANT |REVOKE |(?:/\*!?M?!?\d* )?SET (?:DEFAULT )?ROLE ",
    re.I,
)
_MARK_MYSQL: Final = re.compile(rb"-- (?:(?:MySQL|MariaDB) dump |(Dump completed))")
# A dump turns strict mode off; then a value that does not fit would be changed, with a warning.
STRICT: Final = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ALLOW_INVALID_DATES"
# Warnings with which a server has changed or left out a row: mysqldump --insert-ignore asks for
# them.
_ALTERING: Final = re.compile(
    r"^Warning \(Code (?:1048|1062|1264|1265|1286|1292|1366|1364|1406|1411|1441|1452|1526|4025)\).*",
    re.MULTILINE,
)
_AT: Final = re.compile(r"^ERROR\b.*? at line (\d+).*", re.MULTILINE)
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
    kept = (source.path / "mysqld-auto.cnf").is_file()
    return (SourceChange(SourceChangeKind.PERSISTED),) if kept else ()


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
    databases = {
        str(name): int(size)
        for name, size in rows(server, _SIZES, database="")
        if str(name) not in SYSTEM_SCHEMAS
    }
    if wanted and wanted not in databases:
        raise SourceUnusable(
            f'the source has no database "{wanted}" (databases: {", ".join(databases) or "none"})'
        )
    if not databases:
        raise SourceUnusable(f"{source.path} contains no tables")
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
        self.skipped: dict[str, None] = {}
        self.line = 0
        self._lines = lines_of(lines)
        self._unknown = unknown
        self._database = database
        self._marks = 0
        self._routine = False
        self._hidden = False
        self._until_end = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.line += 1
            yield line if line.startswith(b"INSERT ") and not self._hidden else self._keep(line)
        if self._marks:
            raise incomplete('its closing line "-- Dump completed" is missing')

    def _keep(self, line: bytes) -> bytes:
        # nothing in the body of a routine is a statement
        if self._routine or line.startswith(b"DELIMITER "):
            self._routine = not re.match(rb"DELIMITER ;\s*$", line)
            return b"\n" if self._hidden and line[:9] != b"DELIMITER" else line
        mark = _MARK_MYSQL.match(line)
        use = _USE.match(line)
        table = _CREATE_MYSQL.match(line)
        if mark:
            self._marks += -1 if mark[1] else 1
        elif use:
            self._database = unquote(use[2])
            self._hidden = self._database in SYSTEM_SCHEMAS
            if self._hidden:
                self.skipped[f"database {self._database}"] = None
        elif table and not self._hidden:
            self.tables[self._database, unquote(table[1])] = None
        if self._hidden or self._is_left_out(line):
            return b"\n"
        strict = line.replace(b"SQL_MODE='", b"SQL_MODE='" + STRICT.encode() + b",")
        return strict.replace(b",' */", b"' */")

    def _is_left_out(self, line: bytes) -> bool:
        names = [a or b for a, b in _ASSIGNED.findall(line)] if _SET_MYSQL.match(line) else []
        leaves_out = self._until_end or _OF_SERVER.match(line)
        if not leaves_out and not any(self._unknown(name.decode().lower()) for name in names):
            return False
        if not self._until_end:
            self.skipped[shown(line)] = None
        self._until_end = not line.rstrip().endswith(b";")
        return True


def _load_dump(source: Source, server: Server) -> tuple[SourceChange, ...]:
    """Load the dump and compare it with the copy; return what was left out. Raises
    DatasetBuildFailed.
    """
    tables, skipped = (_mysqldump if source.form == "mysqldump" else _mydumper)(source.path, server)
    existing = set(
        rows(server, "SELECT table_schema, table_name FROM information_schema.tables", database="")
    )

    def rows_of(database: str, table: str, count: bool) -> int | None:
        if (database, table) not in existing:
            return None
        statement = (
            f"SELECT count(*) FROM {sql_of(server).quote(database)}.{sql_of(server).quote(table)}"
        )
        return int(rows(server, statement, database="")[0][0]) if count else 0

    return compare(source.path, tables, skipped, rows_of)


def unquote(name: bytes) -> str:
    """Return the name between the quotes, as BACKTICKS matched it."""
    return name.replace(b"``", b"`").decode(errors="replace")


def _mysqldump(path: Path, server: Server) -> tuple[Tables, dict[str, None]]:
    variables = {str(name) for name, _value in rows(server, "SHOW SESSION VARIABLES", database="")}
    with path.open("rb") as file:
        script = MysqlScript(
            file,
            lambda name: name not in variables,
            server.database,
        )
        _run(server, script, path, server.database)
    return script.tables, script.skipped


def _run(
    server: Server,
    lines: Iterable[bytes],
    path: Path,
    database: str,
    delimiter: str = ";",
) -> None:
    session = (
        f"SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO,{STRICT}', foreign_key_checks=0, "
        "unique_checks=0"
    )
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
    status, printed = feed(argv, lines, innodb.account(), server.env)
    where = str(path)
    answer = printed[-1000:].strip()
    error = _AT.search(printed)
    altering = _ALTERING.search(printed)
    if error:
        with path.open("rb") as file, safe_files.decompress(file, path.name) as content:
            statement = next(itertools.islice(content, int(error[1]) - 1, None), b"")
        where = f"{path}, line {error[1]}: {shown(statement)}"
        answer = error[0]
    elif altering:
        answer = f"a row was changed or left out: {altering[0]}"
    elif status == 0:
        return
    raise DatasetBuildFailed(
        f"{where}\n  {answer}",
        effect="The copy was removed; nothing was measured.",
        remedy="Correct the dump or make it again, or use a server that accepts the statement. "
        "Then run the same command.",
    )


def _mydumper(folder: Path, server: Server) -> tuple[Tables, dict[str, None]]:
    step_of, database_of, maker_of = _files_of(folder)
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
        _run(
            server,
            _lines(folder, path, routines),
            path,
            database_of[path],
            delimiter,
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
    # Newer versions of mydumper write down the numbers of rows.
    counts = _COUNTS.findall((folder / "metadata").read_text(errors="replace"))
    numbers = {(database, table): int(number) for database, table, number in counts}
    tables: Tables = {}
    for path, database in database_of.items():
        if step_of[path] in (_SEQUENCE, _TABLE):
            table = (database, _name_in(folder, path, _CREATED))
            tables[table] = numbers.get(table)
    return tables, {}


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
        database = path.name.partition(".")[0]
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
    fitting = [step for step, word in enumerate(_STEPS) if word and stem.endswith(f"{word}.sql")]
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
            yield line.removesuffix(b";\n") + end if routines and line.endswith(b";\n") else line
    if open_ or not last.endswith(b";\n"):
        raise incomplete(f"{path.name} ends too early")
