"""Read recordings: an export of pg_stat_statements (CSV, JSON), or the slow log of MariaDB or MySQL.

SQL is split into tokens, without parsing its grammar: this is enough to find parameters and literals, and to be sure
where a statement ends. Text that two parsers could split differently (see `faults`) is refused: it comes from an
unknown source and goes into scripts that pgbench and sysbench read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench.errors import DbbenchError, RecordingUnreadable
from dbbench.results.fileio import given

_SLOW: Final = re.compile(r"^# (?:Time: |User@Host: |Query_time: )", re.MULTILINE)
_ENDS: Final = re.compile(
    r"^(?:# (?:Time|User@Host|Query_time|Thread_id|Schema|Bytes_sent|Rows_affected|QC_hit|Full_scan|Filesort|explain"
    r"|administrator command)\b|\S*mysqld\S*, Version: |\S*mariadbd\S*, Version: |Tcp port: |Time\s+Id Command)"
)
LARGEST: Final = 2**28  # bytes: a busy server logs this in some hours, and reading it takes some seconds
_LARGEST_TABLE: Final = 2**24  # bytes of an export: pg_stat_statements keeps some thousand statements
_HEAD: Final = 2**20  # bytes: a slow log must have its first heading within these
_LINE: Final = re.compile(r"([^\n]*?)\r?(?:\n|\Z)")
_STRINGS: Final = 16  # different texts kept per parameter: a sample, not a copy of the data
_LONGEST: Final = 200  # characters; a longer text is not kept
_KINDS: Final = {
    "blank": r"\s+",
    "comment": r"--(?=\s|$)[^\n]*|#[^\n]*|/\*.*?\*/",
    "quoted": r'"(?:[^"]|"")*"|`(?:[^`]|``)*`',
    "string": r"'(?:[^']|'')*'",
    "dollar": r"\$([A-Za-z_]\w*)?\$.*?\$\1?\$",
    "parameter": r"\$\d+|\?",
    "number": r"0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?",
    "word": r"[^\W\d][\w$]*",
    "sign": r"::|[^\s\w]",
}
_MYSQL: Final = {**_KINDS, "quoted": r"`(?:[^`]|``)*`", "string": r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""}
_POSTGRES: Final = {**_KINDS, "comment": r"--[^\n]*|/\*.*?\*/", "parameter": r"\$\d+"}


@dataclass
class SeenValues:
    """The values of a parameter in the recording (slow log only)."""

    least: float | None = None
    most: float | None = None
    apart: tuple[float, float] | None = None  # smallest and largest difference to the literal before it
    texts: list[str] = field(default_factory=list)  # literals as written, with their quotes

    def add(self, token: Token, before: Token | None) -> None:
        """Add a value, and the literal before it."""
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
    """Return the number of a literal."""
    return float(int(token.text, 16)) if token.text[:2].lower() == "0x" else float(token.text)


@dataclass
class Statement:
    """One kind of statement: its text with parameters ($1, ?) and the number of calls."""

    text: str
    calls: int
    seen: list[SeenValues] = field(default_factory=list)


@dataclass(frozen=True)
class RecordedStatements:
    """The content of a file. `dialect`: postgres or mysql."""

    source: str
    dialect: str
    statements: tuple[Statement, ...]

    @property
    def calls(self) -> int:
        """Return the number of calls of all statements together."""
        return sum(statement.calls for statement in self.statements)


def read(path: Path) -> RecordedStatements:
    """Return the file's statements, most frequent first.

    Raises FileMissing, InputNotRegular, InputTooLarge, and RecordingUnreadable if it is neither format.
    """
    slow = _SLOW.search(given(path, LARGEST, _HEAD).decode("utf-8", errors="replace"))
    text = given(path, LARGEST if slow else _LARGEST_TABLE).decode("utf-8", errors="replace")
    if slow:
        dialect, statements = "mysql", _slow_log(text)
    else:
        dialect, statements = "postgres", _counted(_rows(text.lstrip("\ufeff"), path), path)
    if not statements:
        raise _unreadable(path, "it contains no statements")
    return RecordedStatements(str(path), dialect, tuple(sorted(statements, key=lambda each: -each.calls)))


def _unreadable(path: Path, why: str) -> DbbenchError:
    return RecordingUnreadable(
        f"{path} is not a recording of statements: {why}",
        effect="Nothing was written.",
        remedy="PostgreSQL:  psql --csv -c 'SELECT query, calls FROM pg_stat_statements' > statements.csv   "
        "MariaDB, MySQL: the slow query log, with long_query_time = 0 for some minutes.",
    )


def _rows(text: str, path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with a header, of a JSON array, or of JSON lines."""
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
        raise ValueError("its elements are not objects")
    return list(whole)


def _counted(rows: list[dict[str, Any]], path: Path) -> list[Statement]:
    """Return statements with their calls; the same text of several users or databases counts as one."""
    calls: Counter[str] = Counter()
    for number, row in enumerate(rows, 1):
        query, count = row.get("query"), row.get("calls")
        if not isinstance(query, str) or count is None:
            raise _unreadable(path, f"row {number} has no `query` or no `calls`")
        try:
            calls[query] += max(0, int(float(count)))
        except (TypeError, ValueError, OverflowError):
            raise _unreadable(path, f"`calls` of row {number} is not a number") from None
    return [Statement(query, count) for query, count in calls.items() if count]


def _slow_log(text: str) -> list[Statement]:
    """Return statements with `?` instead of literals, and the values of the literals."""
    statements: dict[str, Statement] = {}
    for written in _written(text):
        try:
            tokens = tokens_of(written, "mysql")
        except ValueError:
            tokens = [Token("word", written)]  # `sorted_out` reports it as left out
        literals = [token for token in tokens if token.kind in ("string", "number")]
        whole = "".join("?" if token.kind in ("string", "number") else token.text for token in tokens)
        shape = _shortened(whole)
        statement = statements.setdefault(shape, Statement(shape, 0, [SeenValues() for _ in range(shape.count("?"))]))
        statement.calls += 1
        if shape == whole:  # in a shortened statement, values cannot be assigned to parameters
            for seen, token, before in zip(statement.seen, literals, [None, *literals], strict=False):
                seen.add(token, before)
    return list(statements.values())


def _shortened(shape: str) -> str:
    """Treat lists of values of different lengths as one statement: keep the first of VALUES, five of IN."""
    shape = re.sub(r"(\bvalues\s*)(\([^()]*\))(?:\s*,\s*\([^()]*\))+", r"\1\2", shape, flags=re.IGNORECASE)
    return re.sub(r"(\bin\s*)\(\s*\?(?:\s*,\s*\?){5,}\s*\)", r"\1(?, ?, ?, ?, ?)", shape, flags=re.IGNORECASE)


def _written(text: str) -> Iterator[str]:
    """Yield each statement as it was logged: from the end of the heading lines to the next heading."""
    lines: list[str] = []

    def finish() -> str:
        whole = "\n".join(lines).strip()
        lines.clear()
        while match := re.match(
            r"(?:use \S+;|SET timestamp=\d+;|SET (?:last_)?insert_id=\d+[^;]*;)\s*", whole, re.IGNORECASE
        ):
            whole = whole[match.end() :]
        return whole

    for match in _LINE.finditer(text):  # not splitlines(), whose list would be as large as the log
        if not _ENDS.match(match[1]):
            lines.append(match[1])
        elif whole := finish():
            yield whole
    if whole := finish():
        yield whole


def _pattern(kinds: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in kinds.items()), re.DOTALL)


def _with_tag(kinds: dict[str, str]) -> dict[str, str]:
    return {**kinds, "dollar": r"\$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?(tag)(?P=tag))\$"}


_PATTERNS: Final = {
    "postgres": _pattern(_with_tag(_POSTGRES)),
    "mysql": _pattern({name: kind for name, kind in _MYSQL.items() if name != "dollar"}),
}


_OPEN: Final = ("'", '"', "`", "$")  # a token of one of these begins a quote that does not end


@dataclass(frozen=True)
class Token:
    """A piece of a statement. `kind` is a key of `_KINDS`."""

    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, in any case."""
        return self.kind == "word" and self.text.lower() in words


def tokens_of(statement: str, dialect: str) -> list[Token]:
    """Return the statement's tokens, without comments and with single blanks. `dialect`: postgres, mysql.

    The joined texts are the statement again. Raises ValueError for a piece of unknown kind (an open quote).
    """
    tokens: list[Token] = []
    position = 0
    pattern = _PATTERNS[dialect]
    while position < len(statement):
        match = pattern.match(statement, position)
        if match is None or (match.lastgroup == "sign" and match[0] in _OPEN):
            raise ValueError("an unterminated quote")
        kind = match.lastgroup if match.lastgroup != "tag" else "dollar"
        position = match.end()
        if kind in ("blank", "comment"):
            kind, text = "blank", " "
            if tokens and tokens[-1].kind == "blank":
                continue
        else:
            text = match[0]
        tokens.append(Token(str(kind), text))
    while tokens and (tokens[-1].kind == "blank" or tokens[-1].text == ";"):
        tokens.pop()
    return tokens[1:] if tokens and tokens[0].kind == "blank" else tokens


def faults(statement: str, tokens: list[Token]) -> str:
    """Return why the statement may not be written into a script; "" if it may.

    A backslash outside of a literal is a command to pgbench, and inside one its effect depends on the server's
    settings; a colon before a name is a variable to pgbench; comments of MySQL may be executed.
    """
    if re.search(r"/\*[!M]", statement):
        return "an executable comment"
    if any(token.text == ";" for token in tokens):
        return "several statements in one"
    text = "".join(token.text for token in tokens)
    if "/*" in text or "*/" in text or re.search(r"/\*(?:(?!\*/).)*/\*", statement, re.DOTALL):
        return "an unterminated or nested comment"
    if "\\" in text:
        return "a backslash"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return "a line break or control character in a literal"
    if re.search(r"(?<!:):[A-Za-z_]", text):
        return "a colon before a name"
    return ""
