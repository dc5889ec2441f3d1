"""Dumps that are SQL scripts, on their way to the client that runs them.

A script is read line by line: statements that cannot or must not run here are replaced by empty lines, so that a line
number in the client's message is that of the dump. What the script names (tables, rows of COPY blocks) is collected,
to be compared with the copy; a script that ends too early raises SourceIncomplete.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources.source import UNTOUCHED
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.errors import DatasetBuildFailed, DbbenchError, SourceIncomplete, SourceRefused

LOAD_S: Final = 24 * 3600.0  # a day; a longer load is stuck
Tables = dict[tuple[str, str], int | None]  # (database, table) -> rows that the dump contains; None: it does not tell
_SHOWN: Final = 120  # characters of a statement in a message
_PRINTED: Final = 2**20  # bytes of a client's output that are read
_NAMED: Final = 6  # differences that a message lists

_NAME: Final = rb'(?:"(?:[^"]|"")+"|[^\s".(;]+)'
_TABLE: Final = rb"(" + _NAME + rb"(?:\." + _NAME + rb")?)"
_SET: Final = re.compile(rb"SET (?:SESSION )?(\w+) *(?:=|TO) *(.*?);\s*$")
_PATH: Final = re.compile(rb"SET search_path = (" + _NAME + rb")[,;]")
_COPY: Final = re.compile(rb"COPY (?:ONLY )?" + _TABLE + rb'(?: *\((?:[^()"]|"[^"]*")*\))? FROM stdin(.*);\s*$', re.I)
_CREATE: Final = re.compile(rb"CREATE (?:UNLOGGED |FOREIGN )?TABLE (?:IF NOT EXISTS )?" + _TABLE + rb"[ (]")
_CONNECT: Final = re.compile(rb'\\c(?:onnect)?\s+(?:-reuse-previous=on\s+)?("(?:[^"]|"")*"|[^\s"\\=-][^\s"\\=]*)\s*$')
_CONNINFO: Final = re.compile(r"dbname='((?:[^'\\]|\\.)*)'|dbname=([^\s'\\]*)")
# psql protects itself from the data of a dump with a key; before it connects to an odd name, a dump names the encoding.
_HARMLESS: Final = re.compile(rb"\\(?:(?:un)?restrict|encoding) \w+\s*$")
_POLICY: Final = re.compile(rb"CREATE POLICY .*? TO (?!PUBLIC)(.*?)(?: USING| WITH CHECK|;)")
_MARK: Final = re.compile(rb"-- PostgreSQL database (?:cluster )?dump( complete)?\s*$")
# Owners and privileges name accounts of the original server; in a new database there is nothing to drop.
_LEFT_OUT: Final = re.compile(
    rb"ALTER .* OWNER TO |GRANT |REVOKE |ALTER DEFAULT PRIVILEGES |SET SESSION AUTHORIZATION |CREATE USER MAPPING |"
    rb"DROP |CREATE SCHEMA public;|ALTER TABLE (?:ONLY )?" + _TABLE
    + rb" (?:ALTER COLUMN " + _NAME + rb" )?DROP "
)  # fmt: skip
_TOKEN: Final = re.compile(rb"""['"\\;]|--|/\*|\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$""")
_PLAIN: Final = re.compile(rb"'")
_ESCAPED: Final = re.compile(rb"(?:\\.|''|[^'\\])*?'(?!')", re.DOTALL)
_QUOTED: Final = re.compile(rb'"')
_COMMENT: Final = re.compile(rb"/\*|\*/")


class PostgresScript:
    """A plain dump of pg_dump or pg_dumpall, or the script that pg_restore makes of an archive.

    Iterating yields the lines for psql. `database` is the one that the last line belongs to, "" before the first
    \\connect: where it changes, another session begins. `skipped` has the settings that were left out.
    """

    def __init__(
        self, lines: Iterable[bytes], unknown: Callable[[str], bool], needs: Callable[[str], None], role: str = ""
    ) -> None:
        """`unknown`: whether the server does not have a setting. `needs`: makes a role that a policy names. `role`: the
        superuser and its database, which a dump does not change."""
        self.tables: Tables = {}
        self.skipped: dict[str, None] = {}
        self.database = ""
        self.line, self.begun, self.statement = 0, 0, b""  # the current line; where the current statement begins
        self._lines, self._unknown, self._needs = _without_mark(lines), unknown, needs
        self._ours = re.compile(rb'(?:CREATE|ALTER) (?:ROLE|USER|DATABASE) "?' + role.encode() + rb'"?[ ;]')
        self._schema = b""
        self._open: list[re.Pattern[bytes]] = []  # what ends the string or the comments that a line left open
        self._between, self._escapes, self._marks = True, False, 0  # between two statements; in plain strings; open

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.line += 1
            if self._open or not self._between:
                self._follow(line)
                yield line
                continue
            yield (kept := self._statement(line))
            if copy := _COPY.match(kept):
                yield from self._rows(copy)
        if self._open or not self._between:
            raise incomplete(f"it ends within the statement of line {self.begun}: {shown(self.statement)}")
        if self._marks:
            raise incomplete("its closing comment is missing")

    def _statement(self, line: bytes) -> bytes:
        """Return the line, on which a statement may begin, or an empty one in its place."""
        if mark := _MARK.match(line):
            self._marks += -1 if mark[1] else 1
        if line.startswith(b"\\"):
            self._command(line)
            return b"\n"
        self.begun, self.statement = self.line, line
        if self._is_left_out(line):
            return b"\n"
        if table := _CREATE.match(line):
            self.tables.setdefault((self.database, self._qualified(table[1])), None)
        elif path := _PATH.match(line):
            self._schema = path[1]
        elif policy := _POLICY.match(line):
            for name in re.findall(_NAME, policy[1]):
                self._needs(name.decode(errors="replace").rstrip(","))
        self._follow(line)
        return line

    def _is_left_out(self, line: bytes) -> bool:
        if _LEFT_OUT.match(line) or self._ours.match(line):
            return line.rstrip().endswith(b";")
        if not (set_ := _SET.match(line)):
            return False
        name, value = set_[1].decode(), set_[2].strip(b"'\"")
        if name == "standard_conforming_strings":
            self._escapes = value in (b"off", b"false", b"0")
        if not self._unknown(name) and (name != "default_tablespace" or not value):
            return False
        self.skipped[shown(line)] = None
        return True

    def _rows(self, copy: re.Match[bytes]) -> Iterator[bytes]:
        """Yield the rows of a COPY block and its end, and count them."""
        first = self.line
        for line in self._lines:
            self.line += 1
            yield line
            if line.startswith(b"\\.") and line.rstrip() == b"\\.":
                break
        else:
            raise incomplete(f"it ends within the rows of line {first}: {shown(copy[0])}")
        key = self.database, self._qualified(copy[1])
        plain = not copy[2].strip()  # with options, a row may have several lines
        self.tables[key] = (self.tables.get(key) or 0) + self.line - first - 1 if plain else None

    def _qualified(self, name: bytes) -> str:
        alone = self._schema and re.fullmatch(_NAME, name)
        return (self._schema + b"." + name if alone else name).decode(errors="replace")

    def _command(self, line: bytes) -> None:
        """Follow a command of psql. Raises SourceRefused for others than those that a dump contains."""
        if not (connect := _CONNECT.match(line)):
            if not _HARMLESS.match(line):
                raise self._refused(line)
            return
        name = connect[1].decode(errors="replace")
        name = name[1:-1].replace('""', '"') if name.startswith('"') else name
        if conninfo := _CONNINFO.fullmatch(name):
            name = re.sub(r"\\(.)", r"\1", conninfo[1] or conninfo[2] or "")
        elif "=" in name or "://" in name:  # it could name another server
            raise self._refused(line)
        self.database, self._schema = name, b""

    def _refused(self, line: bytes) -> DbbenchError:
        return SourceRefused(
            f"line {self.line} of the dump contains a command for psql, as no dump does: {shown(line)}",
            effect="It was not run.",
            remedy="Do not use this file unless you know where it comes from.",
        )

    def _follow(self, line: bytes) -> None:
        """Follow strings and comments through the line, and notice where statements end."""
        at = 0
        while True:
            if self._open:
                if (end := self._open[-1].search(line, at)) is None:
                    return
                at = end.end()
                if end[0] == b"/*":
                    self._open.append(_COMMENT)
                else:
                    self._open.pop()
                continue
            token = _TOKEN.search(line, at)
            if line[at : token.start() if token else len(line)].strip():
                self._between = False
            if token is None or token[0] == b"--":
                return
            at = token.end()
            if token[0] in (b";", b"/*"):
                self._between = self._between or token[0] == b";"
                self._open += [_COMMENT] if token[0] == b"/*" else []
            elif token[0] == b"\\":
                raise self._refused(line)
            else:
                self._between = False
                self._begin_string(token, line[max(0, token.start() - 2) : token.start()])

    def _begin_string(self, token: re.Match[bytes], before: bytes) -> None:
        if token[0] == b"'":
            escapes = self._escapes or re.search(rb"(?:^|[^\w$])[Ee]$", before)
            self._open.append(_ESCAPED if escapes else _PLAIN)
        elif token[0] == b'"':
            self._open.append(_QUOTED)
        elif not re.search(rb"[\w$\x80-\xff]$", before):  # otherwise the dollar sign belongs to a name
            self._open.append(re.compile(re.escape(token[0])))


# --- MySQL and MariaDB -----------------------------------------------------------------------------

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


class MysqlScript:
    """A dump of mysqldump or mariadb-dump. Iterating yields the lines for the client.

    The accounts of the original server, its system schemas and its place in a replication are left out.
    """

    def __init__(self, lines: Iterable[bytes], unknown: Callable[[str], bool], database: str) -> None:
        """`unknown`: whether the server does not have a variable. `database`: that of a dump that names none."""
        self.tables: Tables = {}
        self.skipped: dict[str, None] = {}
        self.line = 0
        self._lines, self._unknown, self._database = _without_mark(lines), unknown, database
        self._marks, self._routine, self._hidden, self._until_end = 0, False, False, False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.line += 1
            yield line if line.startswith(b"INSERT ") and not self._hidden else self._kept(line)
        if self._marks:
            raise incomplete('its closing line "-- Dump completed" is missing')

    def _kept(self, line: bytes) -> bytes:
        if self._routine or line.startswith(b"DELIMITER "):  # nothing in the body of a routine is a statement
            self._routine = not re.match(rb"DELIMITER ;\s*$", line)
            return b"\n" if self._hidden and line[:9] != b"DELIMITER" else line
        if mark := _MARK_MYSQL.match(line):
            self._marks += -1 if mark[1] else 1
        elif use := _USE.match(line):
            self._database = unquoted(use[2])
            self._hidden = self._database in SYSTEM_SCHEMAS
            if self._hidden:
                self.skipped[f"database {self._database}"] = None
        elif not self._hidden and (table := _CREATE_MYSQL.match(line)):
            self.tables[self._database, unquoted(table[1])] = None
        if self._hidden or self._is_left_out(line):
            return b"\n"
        return line.replace(b"SQL_MODE='", b"SQL_MODE='" + STRICT.encode() + b",").replace(b",' */", b"' */")

    def _is_left_out(self, line: bytes) -> bool:
        names = [a or b for a, b in _ASSIGNED.findall(line)] if _SET_MYSQL.match(line) else []
        leaves_out = self._until_end or _OF_SERVER.match(line)
        if not leaves_out and not any(self._unknown(name.decode().lower()) for name in names):
            return False
        if not self._until_end:
            self.skipped[shown(line)] = None
        self._until_end = not line.rstrip().endswith(b";")
        return True


# --- both ------------------------------------------------------------------------------------------


def _without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without the byte order mark that programs of Windows put at the beginning."""
    whole = iter(lines)
    yield from (line.removeprefix(codecs.BOM_UTF8) for line in itertools.islice(whole, 1))
    yield from whole


def incomplete(why: str) -> DbbenchError:
    """Return the error for a dump that does not contain everything that it should."""
    return SourceIncomplete(
        f"the dump is incomplete: {why}",
        effect=UNTOUCHED,
        remedy="Make the dump again, and check the exit status of the program that makes it.",
    )


def unquoted(name: bytes) -> str:
    """Return a name as it is, of which BACKTICKS matched what is between the quotes."""
    return name.replace(b"``", b"`").decode(errors="replace")


def shown(statement: bytes) -> str:
    """Return the beginning of a statement for a message, without control characters."""
    text = " ".join(statement[: 4 * _SHOWN].decode(errors="replace").split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def fed(argv: list[str], pieces: Iterable[bytes], account: process.User, env: dict[str, str]) -> tuple[int, str]:
    """Run a client with these pieces as its input, as the server's account; return its status and what it printed."""
    with tempfile.TemporaryFile() as printed:
        with process.running(argv, stdin=subprocess.PIPE, stdout=printed.fileno(), as_user=account, env=env) as client:
            assert client.popen.stdin is not None
            with contextlib.suppress(BrokenPipeError), client.popen.stdin as stream:  # it ended: its status tells why
                stream.writelines(pieces)
            status = client.wait(LOAD_S)
        printed.seek(0)
        return status, printed.read(_PRINTED).decode(errors="replace")


def compared(path: Path, tables: Tables, rows_of: Callable[[str, str, bool], int | None]) -> None:
    """Compare the tables that the dump names, and the rows that it contains, with the copy. Raises DatasetBuildFailed.

    `rows_of` returns the rows of a table (0 unless they are to be counted), or None if it does not exist.
    """
    wrong = []
    for (database, table), rows in tables.items():
        present = rows_of(database, table, rows is not None)
        if present is None:
            wrong.append(f"{table} is missing")
        elif rows not in (None, present):
            wrong.append(f"{table} has {present} rows, in the dump {rows}")
    if wrong:
        raise DatasetBuildFailed(
            f"{path} was loaded, but the copy differs from it: " + "; ".join(wrong[:_NAMED]),
            effect="The copy was removed.",
            remedy="Make the dump again.",
        )
