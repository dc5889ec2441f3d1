"""A dump of MariaDB or MySQL, line by line: what is left out of it, and which tables it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from dbbench.datasets.sources.scripts import Tables, incomplete, lines_of, refuse_message, shown
from dbbench.datasets.sources.source import unusable
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.errors import DbbenchError

ROWS_BEGIN: Final = (b"INSERT ", b"REPLACE ")
BACKTICKS: Final = rb"`((?:[^`]|``)+)`"
_USE: Final = re.compile(rb"(USE|CREATE DATABASE(?: /\*.*?\*/)?) " + BACKTICKS)
_CREATE_MYSQL: Final = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?" + BACKTICKS)
# where a statement begins in what `_words` returns
_BEGIN: Final = rb"(?:^|; ?)"
_SET_MYSQL: Final = re.compile(_BEGIN + rb"SET\b", re.I)
_ASSIGNED: Final = re.compile(
    rb"(?<![@\w.])(?:@@(?:session\.|global\.)?)?([a-z_]\w*) *=|@@(?!global|session)(\w+)", re.I
)
_OF_SERVER: Final = re.compile(
    _BEGIN + rb"(?:CHANGE (?:MASTER|REPLICATION)|"
    rb"SET (?:[^;]*?(?:,| FOR) ?(?:SET )?)??(?:@@ ?`?)?(?:GLOBAL|PERSIST(?:_ONLY)?)[.` ]|"
    rb"DROP DATABASE |(?:CREATE|ALTER|DROP) (?:USER|ROLE) |GRANT |REVOKE |SET (?:DEFAULT )?ROLE |"
    rb"PREPARE |EXECUTE |CALL |"
    rb"SET(?: [^;]*)?$|(?:CHANGE|CREATE|ALTER|DROP) ?$)",  # the rest is in the next line
    re.I,
)
# What may be between the words of a statement: blanks, comments and strings. A comment with a version
# is executed, so only the marks at its ends are.
_BETWEEN: Final = re.compile(
    rb"(?:\s|/\*M?!\d*|/\*.*?(?:\*/|$)|\*/|'(?:[^'\\]++|\\.)*'|\"(?:[^\"\\]++|\\.)*\"|\\.)++"
)
# Rows without another statement behind them: the only semicolon outside of texts is at the end. A
# text ends at a quote, unless one backslash is before it; `is_of_server` decides about two of them.
_TEXT: Final = rb"'[^']*+(?:(?<=[^\\]\\)'[^']*+)*+(?<!\\)'"
_ROWS_ALONE: Final = re.compile(
    rb"[^;]*+;?\s*+|"
    rb"(?:[^;'\"`/]++|" + _TEXT + rb"|" + _TEXT.replace(b"'", b'"') + rb"|`[^`]*+`|/(?!\*))*+;?\s*+"
)
_MARK_MYSQL: Final = re.compile(rb"-- (?:(?:MySQL|MariaDB) dump |(Dump completed))")
_ENGINE: Final = re.compile(rb"\) ENGINE ?= ?(\w+)")
# The account of a view, trigger, routine or event, which is left out. Without it, each use fails.
_DEFINER: Final = re.compile(rb"\bDEFINER ?= ?" + BACKTICKS + rb"@" + BACKTICKS)
_EVENT: Final = re.compile(
    rb"(?:CREATE|/\*!).*?\bEVENT (?:IF NOT EXISTS )?" + BACKTICKS + rb" ON SCHEDULE"
)


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
        self._end = b";"  # of a statement
        self._begins = False  # whether a statement begins in the next line, if its end is not ";"
        self._hidden = False
        self._until_end = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.line += 1
            inserts = line.startswith(ROWS_BEGIN) and not self._until_end
            # MariaDB's program writes each row on a line of its own.
            if self._hidden or not (inserts or line[:1] == b"("):
                yield self._keep(line)
                continue
            if changes_server(line):
                raise refusal(f"line {self.line} of the dump")
            self.has_rows |= inserts
            yield line
        if self._marks:
            raise incomplete('its closing line "-- Dump completed" is missing')

    def _keep(self, line: bytes) -> bytes:
        if self._end != b";" or line.startswith(b"DELIMITER "):
            return self._keep_routine(line)
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

    def _keep_routine(self, line: bytes) -> bytes:
        """Return a line of a section with another delimiter: nothing in a body is a statement."""
        # What a routine contains does not run while the dump is loaded.
        if self._begins and not _words(line).startswith(b"CREATE") and is_of_server(line):
            raise refusal(f"line {self.line} of the dump")
        is_delimiter = line.startswith(b"DELIMITER ")
        if is_delimiter:
            self._end = line[9:].strip()
        self._begins = line.rstrip().endswith(self._end)
        if event := _EVENT.match(line):
            self.skipped[f"event {unquote(event[1])} (it does not run)"] = None
        hides = self._hidden and not is_delimiter
        return b"\n" if hides else without_definer(line)

    def _is_left_out(self, line: bytes) -> bool:
        leaves_out = self._until_end or is_of_server(line)
        if not leaves_out and _SET_MYSQL.search(_words(line)):
            names = [assigned or read for assigned, read in _ASSIGNED.findall(line)]
            leaves_out = any(self._unknown(name.decode().lower()) for name in names)
        if not leaves_out:
            return False
        if not self._until_end:
            self.skipped[shown(line)] = None
        self._until_end = not line.rstrip().endswith(b";")
        return True


def is_of_server(line: bytes) -> bool:
    """Whether a statement of the line changes the server, its accounts, or its replication."""
    return _OF_SERVER.search(_words(line)) is not None


def changes_server(rows: bytes) -> bool:
    """Whether a line with rows has a statement that changes the server, too."""
    return _ROWS_ALONE.fullmatch(rows) is None and is_of_server(rows)


def refusal(where: str) -> DbbenchError:
    """Return the error for a statement of the server that cannot be left out with its line."""
    return unusable(
        f"{where} changes settings or accounts of the server, beside rows or a routine",
        "Remove that statement from the dump.",
    )


def _words(line: bytes) -> bytes:
    """Return the line with a blank between words, without comments and strings."""
    return _BETWEEN.sub(b" ", line).lstrip()


def without_definer(line: bytes) -> bytes:
    """Return the line with the account that loads the dump in place of a definer's."""
    if not line.startswith((b"CREATE", b"/*!")):
        return line
    return _DEFINER.sub(b"DEFINER=CURRENT_USER", line, count=1)


def unquote(name: bytes) -> str:
    """Return the name between the quotes, as BACKTICKS matched it."""
    return name.replace(b"``", b"`").decode(errors="replace")
