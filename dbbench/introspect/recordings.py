"""Read recordings: an export of pg_stat_statements (CSV), or the slow log of MariaDB or MySQL,
which pt-query-digest prints as hexadecimal words, so that no text of the log can be mistaken for
another event.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources import find_packer
from dbbench.errors import DbbenchError, ScriptInvalid
from dbbench.introspect.refusals import CONTROL, refusal
from dbbench.results.fileio import read_input
from dbbench.units import one_line

REPRODUCED, APPROXIMATED, LEFT_OUT = GROUPS = ("reproduced", "approximated", "left out")
_VERBS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "WITH")
# bytes: a busy server logs this in some hours, and reading it takes some minutes
LARGEST: Final = 2**28
DIGEST_S: Final = 1800.0  # limit for pt-query-digest, which reads some MB per second
# Headings that pt-query-digest does not recognise: those of a server's start, also of mariadbd and
# of Windows, and Percona's attributes without #.
_STARTS: Final = re.compile(
    rb"^(?:\S.*(?:mysqld|mariadbd)[\w.-]*, Version: .*|T[Cc][Pp] [Pp]ort: \d+.*|Time +Id +Command.*)\n",
    re.MULTILINE,
)
_BARE: Final = re.compile(rb"(?<=\n)(?=[ \t]*(?:[A-Z]\w+: +\S+[ \t]*)+\n(?:#|SET timestamp=|use ))")
_TIMED: Final = re.compile(rb"^# Query_time: ", re.MULTILINE)
# A statement in PostgreSQL's log (stderr, csvlog, jsonlog).
_OF_POSTGRES: Final = re.compile(rb"\bduration: \d+\.\d+ ms\b")
_EXPORT: Final = (
    "Export pg_stat_statements:  psql --csv -c 'SELECT query, calls, total_exec_time FROM "
    "pg_stat_statements' > statements.csv"
)
_EVENT: Final = (
    'print(join("\\t", map { unpack("H*", defined $_ ? $_ : "") } '
    "($event->{db} || $event->{Schema}, @$event{qw(Query_time cmd arg)}, "
    '$qr->fingerprint(lc($event->{arg} // "")))), "\\n") && 0'
)
_LINE: Final = re.compile(r"(?:[0-9a-f]*\t){4}[0-9a-f]*")


@dataclass
class Statement:
    """One kind of statement."""

    text: str  # with $1 (PostgreSQL), or its fingerprint (slow log)
    calls: int = 0
    seconds: float | None = None  # of all calls; None: not recorded
    group: str = REPRODUCED
    why: str = ""  # it is left out, or what differs from the recording
    database: str = ""
    samples: list[str] = field(default_factory=list)  # statements of this kind that can be sent

    def add(self, calls: int, seconds: float | None, why: str) -> None:
        self.calls += calls
        self.seconds = self.seconds if seconds is None else (self.seconds or 0.0) + seconds
        self.leave_out(why)

    def leave_out(self, why: str) -> None:
        if why:
            self.group = LEFT_OUT
            self.why = why

    def approximate(self, *differences: str) -> None:
        """Add differences from the recording; empty ones do not count."""
        if why := "; ".join(filter(None, (self.why, *differences))):
            self.group = APPROXIMATED
            self.why = why


@dataclass(frozen=True)
class RecordedStatements:
    """The content of a file, most frequent first, without those that begin and end transactions."""

    source: str
    dialect: str  # postgres or mysql
    statements: list[Statement]

    @property
    def in_workload(self) -> list[Statement]:
        return [each for each in self.statements if each.group != LEFT_OUT]

    def missing_verbs(self) -> dict[str, float]:
        """Return the shares of all calls of INSERT, UPDATE and so on that the workload has none of."""
        verbs = {_verb(each.text) for each in self.in_workload}
        missing = Counter[str]()
        for each in self.statements:
            verb = _verb(each.text)
            if verb in _VERBS and verb not in verbs:
                missing[verb] += each.calls
        whole = sum(each.calls for each in self.statements)
        return {verb: calls / whole for verb, calls in missing.most_common()}

    def shares(self, statements: list[Statement]) -> tuple[float, float | None]:
        """Return the share of all calls, and of all time (None if it was not recorded)."""
        all_calls = sum(each.calls for each in self.statements)
        calls = sum(each.calls for each in statements) / max(1, all_calls)
        if any(each.seconds is None for each in self.statements):
            return calls, None
        all_seconds = sum(each.seconds or 0.0 for each in self.statements)
        seconds = sum(each.seconds or 0.0 for each in statements)
        return calls, seconds / all_seconds if all_seconds else None


def _verb(text: str) -> str:
    """Return the first word, in capitals, after comments."""
    word = re.match(r"(?:\s|/\*.*?\*/|--[^\n]*\n|\()*(\w*)", text, re.DOTALL)
    if word:
        return word[1].upper()
    return ""


def read(path: Path) -> RecordedStatements:
    """Return the file's statements. Raises FileUnreadable, ProgramMissing, ScriptInvalid."""
    data = read_input(path, LARGEST)
    if unpacking := find_packer(path, data):
        kind, unpack = unpacking
        raise _unreadable(path, f"it is compressed ({kind})", f"Unpack it:  {unpack}")
    # as PowerShell redirects output
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        remedy = f"Convert it:  iconv -f UTF-16 -t UTF-8 {path}"
        raise _unreadable(path, "it is encoded as UTF-16", remedy)
    if _TIMED.search(data):
        dialect = "mysql"
        statements = _read_slow_log(data)
    else:
        dialect = "postgres"
        statements = _read_export(data, path)
    if not statements:
        raise _unreadable(path, "it contains no statements")
    statements.sort(key=lambda statement: -statement.calls)
    return RecordedStatements(str(path), dialect, statements)


def _unreadable(
    path: Path,
    why: str,
    remedy: str | None = None,
) -> DbbenchError:
    return ScriptInvalid(
        f"{path} is not a recording of statements: {why}",
        effect="Nothing was written.",
        remedy=remedy,
    )


def _read_export(data: bytes, path: Path) -> list[Statement]:
    """Return the statements of a CSV file with a header; the same text of several users counts as
    one. The load has one database: of those that the rows name, the one with the most calls.
    """
    csv.field_size_limit(2**24)  # a statement may be longer than the module's default of 128 KiB
    statements = dict[tuple[str, str], Statement]()
    calls_of = Counter[str]()
    rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig", errors="replace"), newline=""))
    try:
        columns = rows.fieldnames
        if columns is not None and not {"query", "calls"} <= {*columns}:
            if _OF_POSTGRES.search(data):
                raise _unreadable(path, "PostgreSQL's own log is not read", _EXPORT)
            named = one_line(", ".join(columns)) or "none"
            raise _unreadable(
                path, f"its first line names no columns `query` and `calls`, but: {named}"
            )
        # The views of several versions have different names for the same column.
        for row in rows:
            text = row["query"] or ""
            database = row.get("datname") or row.get("dbid") or ""
            calls = int(row["calls"])
            ms = row.get("total_exec_time") or row.get("total_time")
            why = refusal(text, "postgres")
            if why != CONTROL and calls > 0:
                kind = Statement(text, database=database)
                statement = statements.setdefault((database, text), kind)
                statement.add(calls, float(ms) / 1000 if ms else None, why)
                calls_of[database] += calls
    except (csv.Error, TypeError, ValueError):
        why = "no whole number of `calls`, or a time that is not a number such as 52.5"
        raise _unreadable(path, f"line {rows.line_num} has no `query`, {why}") from None
    # The database with the most calls is the one that the load has.
    for statement in statements.values():
        if statement.database != calls_of.most_common(1)[0][0]:
            other = f"of another database ({one_line(statement.database)})"
            statement.leave_out(statement.why or other)
    return list(statements.values())


def _read_slow_log(data: bytes) -> list[Statement]:
    """Return one statement per kind (the fingerprint of pt-query-digest)."""
    if b";\r\n" in data and b"\r\n# " in data:  # a server on Windows
        data = data.replace(b"\r\n", b"\n")
    data = _BARE.sub(b"# ", _STARTS.sub(b"", data))
    argv = [
        "pt-query-digest",
        "--config",
        "/dev/null",
        "--no-version-check",
        "--no-report",
        "--preserve-embedded-numbers",
        "--filter",
        _EVENT,
    ]
    lines = process.run(
        argv,
        stdin=data,
        timeout_s=DIGEST_S,
    ).stdout.splitlines()
    # The last statement may be incomplete, if the file was copied while the server wrote it.
    tail = data.rstrip()
    database = ""
    unread = len(_TIMED.findall(data))
    statements: dict[tuple[str, ...], Statement] = {}
    # One line for each event, with its fields in hexadecimal.
    for line in filter(_LINE.fullmatch, lines):
        words = [bytes.fromhex(word).decode(errors="surrogateescape") for word in line.split("\t")]
        base, time, command, text, kind = (word.strip() for word in words)
        # a server names the database when it changes
        database = base.strip("`").replace("``", "`") or database
        # Every event with a time has one of the lines that were counted as unread.
        if time and (command != "Admin" or text.startswith("administrator command")):
            unread -= 1
        if command == "Admin" or text == "/* No query */":
            continue
        why = refusal(text, "mysql")
        if why == CONTROL:
            continue
        if tail.endswith(text.encode(errors="surrogateescape")):
            why = "the recording ends within it"
        statement = statements.setdefault((database, kind, why), Statement(kind, database=database))
        statement.add(1, float(time) if re.fullmatch(r"\d+(\.\d+)?", time) else None, why)
        statement.samples.append(text)
    # Events that were not found again count as statements that were left out.
    if unread > 0:
        statements[()] = Statement(
            "(unknown)",
            unread,
            None,
            LEFT_OUT,
            "pt-query-digest cannot tell where it ends",
        )
    return list(statements.values())
