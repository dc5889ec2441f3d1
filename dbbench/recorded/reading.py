"""What a server has recorded: an export of pg_stat_statements (CSV, JSON), or the slow log of MariaDB or MySQL."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench.errors import FileMissing, RecordingUnreadable
from dbbench.recorded.tokens import Token, tokens_of
from dbbench.units import size_text

_SLOW: Final = re.compile(r"^# (?:Time: |User@Host: |Query_time: )", re.MULTILINE)
_ENDS: Final = re.compile(
    r"^(?:# (?:Time|User@Host|Query_time|Thread_id|Schema|Bytes_sent|Rows_affected|QC_hit|Full_scan|Filesort|explain"
    r"|administrator command)\b|\S*mysqld\S*, Version: |\S*mariadbd\S*, Version: |Tcp port: |Time\s+Id Command)"
)
LARGEST: Final = 2**28  # bytes: some hours of a busy server's slow log, and some seconds of reading
_STRINGS: Final = 16  # different texts that are kept of one parameter: a choice, not a copy of the data
_LONGEST: Final = 200  # letters of one of them


@dataclass
class Seen:
    """The values that a parameter was seen with (slow log only)."""

    least: float | None = None
    most: float | None = None
    apart: tuple[float, float] | None = None  # least and most of what it was more than the literal before it
    texts: list[str] = field(default_factory=list)  # literals as written, with their quotes

    def add(self, token: Token, before: Token | None) -> None:
        """One more value, and the literal in front of it."""
        if token.kind == "number":
            value = number_of(token)
            if before is not None and before.kind == "number":
                more = value - number_of(before)
                least, most = self.apart or (more, more)
                self.apart = min(least, more), max(most, more)
            self.least = value if self.least is None else min(self.least, value)
            self.most = value if self.most is None else max(self.most, value)
        elif token.text not in self.texts and len(self.texts) < _STRINGS and len(token.text) <= _LONGEST:
            self.texts.append(token.text)


def number_of(token: Token) -> float:
    """The number of a literal."""
    return float(int(token.text, 16)) if token.text[:2].lower() == "0x" else float(token.text)


@dataclass
class Statement:
    """One kind of statement: its text with parameters ($1, ?) and how often it was called."""

    text: str
    calls: int
    seen: list[Seen] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """All that a file tells. `dialect`: postgres or mysql."""

    source: str
    dialect: str
    statements: tuple[Statement, ...]

    @property
    def calls(self) -> int:
        """Of all statements together."""
        return sum(statement.calls for statement in self.statements)


def read(path: Path) -> Recording:
    """The file's statements, those called most often first. FileMissing; RecordingUnreadable where it is neither."""
    try:
        if path.stat().st_size > LARGEST:
            raise _unreadable(path, f"it has more than {size_text(LARGEST)}; take a part:  head -c 200M")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileMissing(f"{path} cannot be read: {error.strerror}", effect="Nothing was changed.") from None
    if _SLOW.search(text):
        dialect, found = "mysql", _slow_log(text)
    else:
        dialect, found = "postgres", _counted(_rows(text.lstrip("\ufeff"), path), path)
    if not found:
        raise _unreadable(path, "there is no statement in it")
    return Recording(str(path), dialect, tuple(sorted(found, key=lambda each: -each.calls)))


def _unreadable(path: Path, why: str) -> RecordingUnreadable:
    return RecordingUnreadable(
        f"{path} is no recording of statements: {why}",
        effect="Nothing was written.",
        remedy="PostgreSQL:  psql --csv -c 'SELECT query, calls FROM pg_stat_statements' > statements.csv   "
        "MariaDB, MySQL: the slow query log, with long_query_time = 0 for some minutes.",
    )


def _rows(text: str, path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file with a header, of a JSON array, or of JSON lines."""
    if text.lstrip().startswith(("[", "{")):
        try:
            return _json_rows(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable(path, f"not JSON ({error})") from None
    csv.field_size_limit(2**24)  # a statement may be longer than the module's default of 128 KiB
    try:
        return list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise _unreadable(path, f"not CSV ({error})") from None


def _json_rows(text: str) -> list[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError:
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(whole, dict):
        whole = next((value for value in whole.values() if isinstance(value, list)), [whole])
    if not all(isinstance(row, dict) for row in whole):
        raise ValueError("its elements are no objects")
    return list(whole)


def _counted(rows: list[dict[str, Any]], path: Path) -> list[Statement]:
    """Statements with their calls; the same text of several users or databases is one."""
    calls: Counter[str] = Counter()
    for number, row in enumerate(rows, 1):
        query, count = row.get("query"), row.get("calls")
        if not isinstance(query, str) or count is None:
            raise _unreadable(path, f"row {number} has no `query` or no `calls`")
        try:
            calls[query] += max(0, int(float(count)))
        except (TypeError, ValueError, OverflowError):
            raise _unreadable(path, f"`calls` of row {number} is no number") from None
    return [Statement(query, count) for query, count in calls.items() if count]


def _slow_log(text: str) -> list[Statement]:
    """Statements with `?` in the place of literals, and the values that stood there."""
    found: dict[str, Statement] = {}
    for written in _written(text):
        try:
            tokens = tokens_of(written, "mysql")
        except ValueError:
            tokens = [Token("word", written)]  # told later, as what was left out
        literals = [token for token in tokens if token.kind in ("string", "number")]
        whole = "".join("?" if token.kind in ("string", "number") else token.text for token in tokens)
        shape = _shortened(whole)
        statement = found.setdefault(shape, Statement(shape, 0, [Seen() for _ in range(shape.count("?"))]))
        statement.calls += 1
        if shape == whole:  # of a shortened one it is not known which value stood where
            for seen, token, before in zip(statement.seen, literals, [None, *literals], strict=False):
                seen.add(token, before)
    return list(found.values())


def _shortened(shape: str) -> str:
    """Lists of values of different lengths are one statement: the first of VALUES, five of IN."""
    shape = re.sub(r"(\bvalues\s*)(\([^()]*\))(?:\s*,\s*\([^()]*\))+", r"\1\2", shape, flags=re.IGNORECASE)
    return re.sub(r"(\bin\s*)\(\s*\?(?:\s*,\s*\?){5,}\s*\)", r"\1(?, ?, ?, ?, ?)", shape, flags=re.IGNORECASE)


def _written(text: str) -> list[str]:
    """Each statement as it was logged: from behind the heading lines to the next heading."""
    found: list[str] = []
    lines: list[str] = []

    def finish() -> None:
        whole = "\n".join(lines).strip()
        lines.clear()
        while match := re.match(
            r"(?:use \S+;|SET timestamp=\d+;|SET (?:last_)?insert_id=\d+[^;]*;)\s*", whole, re.IGNORECASE
        ):
            whole = whole[match.end() :]
        if whole:
            found.append(whole)

    for line in text.splitlines():
        if _ENDS.match(line):
            finish()
        else:
            lines.append(line)
    finish()
    return found
