"""Read recordings: an export of pg_stat_statements (CSV, JSON), or the slow log of MariaDB or MySQL.

pt-query-digest reads slow logs. A filter makes it print each event as hexadecimal words, so that no text of the log can
be mistaken for another event. The statements come from an unknown source: see `rules.refusal`.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import random
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import DbbenchError, RecordingUnreadable
from dbbench.introspect.rules import CONTROL, Statement, refusal, shape_of, shown, words_of
from dbbench.results.fileio import given

LARGEST: Final = 2**28  # bytes: a busy server logs this in some hours, and reading it takes some minutes
DIGEST_S: Final = 1800.0  # limit for pt-query-digest, which reads some MB per second
SAMPLES: Final = 10_000  # statements kept per kind: a sample, not a copy of the log
READER: Final = "pt-query-digest"
_SLOW: Final = re.compile(rb"^# (?:Time: |User@Host: |Query_time: )", re.MULTILINE)
_HEAD: Final = 2**20  # bytes: a slow log must have its first heading within these
# Headings that pt-query-digest does not recognise: those of a server's start, also of mariadbd and of Windows, and
# Percona's attributes without #.
_STARTS: Final = re.compile(
    rb"^(?:\S.*(?:mysqld|mariadbd)[\w.-]*, Version: .*|T[Cc][Pp] [Pp]ort: \d+.*|Time +Id +Command.*)\n", re.MULTILINE
)
_BARE: Final = re.compile(rb"(?<=\n)(?=[ \t]*(?:[A-Z]\w+: +\S+[ \t]*)+\n(?:#|SET timestamp=|use ))")
_EVENT: Final = (
    'print(join("\\t", map { unpack("H*", defined $_ ? $_ : "") } '
    '($event->{db} || $event->{Schema}, @$event{qw(Query_time cmd arg)})), "\\n") && 0'
)
_DIGITS: Final = re.compile(r"(?<![\w.!])\d+(?![\w.])")  # numbers, which do not change the kind of a statement
_FIELDS: Final = 3  # tabs of a line
_TIMED: Final = re.compile(rb"^# Query_time: ", re.MULTILINE)
_PACKED: Final = {b"\x1f\x8b": "gzip -dc", b"\x28\xb5\x2f\xfd": "zstd -dc", b"BZh": "bzip2 -dc", b"\xfd7zXZ": "xz -dc",
                  b"PK\x03\x04": "unzip -p"}  # fmt: skip
_HIDDEN: Final = "<insufficient privilege>"
_GRANT: Final = "GRANT pg_read_all_stats TO the role that exports pg_stat_statements"


@dataclass(frozen=True)
class RecordedStatements:
    """The content of a file. `dialect`: postgres or mysql. `kept`, most frequent first, and `left_out` with reasons;
    statements that begin and end transactions are in neither."""

    source: str
    dialect: str
    kept: list[Statement] = field(default_factory=list)
    left_out: list[Statement] = field(default_factory=list)

    def leave_out(self, statement: Statement, why: str) -> None:
        """Move a statement to `left_out`."""
        statement.why = why
        self.kept.remove(statement)
        self.left_out.append(statement)

    def shares(self, statements: list[Statement]) -> tuple[float, float | None]:
        """Return the share of all calls, and of all time (None if it was not recorded)."""
        whole = [*self.kept, *self.left_out]
        times = [statement.seconds for statement in whole]
        calls = sum(each.calls for each in statements) / max(1, sum(each.calls for each in whole))
        known = [each for each in times if each is not None]
        if len(known) < len(times) or not sum(known):
            return calls, None
        return calls, sum(each.seconds or 0 for each in statements) / sum(known)


def read(path: Path) -> RecordedStatements:
    """Return the file's statements.

    Raises FileMissing, InputNotRegular, InputTooLarge, ProgramMissing, and RecordingUnreadable if it is neither format.
    """
    head = given(path, LARGEST, _HEAD)
    if command := next((command for magic, command in _PACKED.items() if head.startswith(magic)), ""):
        raise _unreadable(path, "it is compressed", f"Unpack it:  {command} {path} > recording")
    slow = _SLOW.search(head.replace(b"\r\n", b"\n"))
    data = given(path, LARGEST)
    if slow:
        dialect, statements = "mysql", _slow_log(data)
    else:
        dialect, statements = "postgres", _counted(_rows(data, path), path)
    if not statements:
        raise _unreadable(path, "it contains no statements")
    recording = RecordedStatements(str(path), dialect)
    for statement in sorted(statements, key=lambda each: -each.calls):
        (recording.left_out if statement.why else recording.kept).append(statement)
    if statements and all(statement.text == _HIDDEN for statement in statements):
        raise _unreadable(path, f"all texts are {_HIDDEN}", _GRANT)
    return recording


def _unreadable(path: Path, why: str, remedy: str = "") -> DbbenchError:
    return RecordingUnreadable(
        f"{path} is not a recording of statements: {why}",
        effect="Nothing was written.",
        remedy=remedy
        or "PostgreSQL:  psql --csv -c 'SELECT query, calls, total_exec_time FROM pg_stat_statements' > statements.csv "
        "  MariaDB, MySQL: the slow query log, with long_query_time = 0 for some minutes.",
    )


def _rows(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with a header, or of a JSON array of objects."""
    text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig", errors="replace")
    csv.field_size_limit(2**24)  # a statement may be longer than the module's default of 128 KiB
    try:
        if text.lstrip().startswith("["):
            return [dict(row) for row in json.loads(text)]
        return list(csv.DictReader(io.StringIO(text, newline="")))
    except (csv.Error, ValueError, TypeError, RecursionError) as error:
        raise _unreadable(path, f"neither CSV nor a JSON array ({error})") from None


def _counted(rows: list[dict[str, Any]], path: Path) -> list[Statement]:
    """Return statements with their calls; the same text of several users counts as one. pgbench uses one database: of
    those that the rows name, the one with the most calls."""
    statements: dict[tuple[str, str], Statement] = {}
    for number, row in enumerate(rows, 1):
        if "query" not in row or row.get("calls") is None:
            raise _unreadable(path, f"row {number} has no `query` or no `calls`")
        text, database = str(row["query"] or ""), str(row.get("datname") or row.get("dbid") or "")
        try:
            calls = max(0, int(float(row["calls"])))
            ms = row.get("total_exec_time") or row.get("total_time")
            seconds = None if ms is None else float(ms) / 1000
        except (TypeError, ValueError, OverflowError):
            raise _unreadable(path, f"`calls` or `total_exec_time` of row {number} is not a number") from None
        if calls and not CONTROL.match(text.strip()):
            _add(statements.setdefault((database, text), Statement(text, database=database)), calls, seconds)
    totals = {base: sum(each.calls for each in statements.values() if each.database == base) for base, _ in statements}
    for statement in statements.values():
        statement.why = _reason(statement.text)
        if statement.database != max(totals, key=lambda base: totals[base]):
            statement.why = statement.why or f"of another database ({shown(statement.database)})"
    return list(statements.values())


def _reason(text: str) -> str:
    if not text.strip():
        return "the recording does not contain its text"
    if text == _HIDDEN:
        return f"its text is hidden: {_GRANT}"
    try:
        return refusal(text, words_of(text, "postgres"), "postgres")
    except ValueError as error:
        return str(error)


def _add(statement: Statement, calls: int, seconds: float | None) -> None:
    statement.calls += calls
    if seconds is not None:
        statement.seconds = (statement.seconds or 0.0) + seconds


def _slow_log(data: bytes) -> list[Statement]:
    """Return one statement per kind (see `rules.shape_of`), with a random sample of those that were logged."""
    if b";\r\n" in data and b"\r\n# " in data:  # a server on Windows
        data = data.replace(b"\r\n", b"\n")
    data = _BARE.sub(b"# ", _STARTS.sub(b"", data))
    with tempfile.NamedTemporaryFile(prefix="dbbench-slow-") as mended:
        mended.write(data)
        mended.flush()
        argv = [READER, "--config", "/dev/null", "--no-version-check", "--no-report", "--filter", _EVENT, mended.name]
        lines = process.run(argv, timeout_s=DIGEST_S).stdout.splitlines()
    chance, tail, database, lost = random.Random(1), data.rstrip(), "", len(_TIMED.findall(data))
    statements: dict[tuple[str, str, str], Statement] = {}
    for line in lines:
        if line.count("\t") != _FIELDS:
            continue
        base, time, command, text = (bytes.fromhex(word).decode(errors="surrogateescape") for word in line.split("\t"))
        base, text = base.strip("`").replace("``", "`"), text.strip()
        database = base or database  # a server names the database when it changes
        of_server = command == "Admin" and not text.startswith("administrator command")
        lost -= bool(time) and not of_server
        if command == "Admin" or CONTROL.match(text) or text == "/* No query */":
            continue
        shape, why = _sorted(_DIGITS.sub("0", text))
        if tail.endswith(text.encode(errors="surrogateescape")):
            why = "the recording ends within it"
        statement = statements.setdefault((database, shape, why), Statement(shape, database=database, why=why))
        _add(statement, 1, float(time) if re.fullmatch(r"[\d.]+", time) else None)
        if len(statement.samples) < SAMPLES:
            statement.samples.append(text)
        elif (place := chance.randrange(statement.calls)) < SAMPLES:
            statement.samples[place] = text
    unread = [Statement("(unknown)", lost, why=f"{READER} cannot tell where it ends")] if lost > 0 else []
    return [*statements.values(), *unread]


@functools.lru_cache(SAMPLES)
def _sorted(text: str) -> tuple[str, str]:
    """Return the shape of a logged statement, and why it cannot be used."""
    try:
        words = words_of(text, "mysql")
        return shape_of(words), refusal(text, words, "mysql")
    except ValueError as error:
        return shown(text), str(error)
