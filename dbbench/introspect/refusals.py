"""Which recorded statements can be sent again. Their source is unknown, so the text is never
trusted: sqlglot splits it into tokens, and rows of a table say what is left out.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

import sqlglot
from sqlglot import TokenType as T
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

from dbbench.units import one_line

# statements that it cannot parse are handled here
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

CONTROL: Final = "it begins or ends a transaction"
# What is left out, in words without literals and with one blank between them, and the reason.
_REFUSED: Final = (
    (r"$", "the recording does not contain its text"),
    (
        r"< insufficient privilege >$",
        "its text is hidden: GRANT pg_read_all_stats TO the role that exports pg_stat_statements",
    ),
    (
        r"(begin|start transaction|commit|end|rollback|abort|savepoint|release|prepare transaction|xa"
        r"|set (session |@@ |\. )*(autocommit|transaction))\b",
        CONTROL,
    ),
    (
        r"(?!(/\*\+.*?\*/ )?[( ]*(select|insert|update|delete|with|values|merge|replace|table)\b)(?P<name>\W*\w*)",
        "not a statement on rows",
    ),
    (r".*;", "several statements in one"),
    # Not an application's work, or (the last ones) dependent on an earlier statement of their
    # session.
    (
        r".*\b(?P<name>pg_\w*|lo_\w*|dblink\w*|information_schema|performance_schema|set_config|current_setting|query_to_xml\w*"
        r"|sleep|benchmark|get_lock|release_lock|load_file|last_insert_id|found_rows|row_count|currval|lastval)\b",
        "it concerns the server or its session",
    ),
    (r".*\b(outfile|dumpfile)\b", "it writes a file of the server"),
    (r"(?!.*\b(insert|replace|merge)\b).*\binto\b", "it writes its result elsewhere (INTO)"),
)


class _MySQL(MySQL):
    class Tokenizer(MySQL.Tokenizer):
        COMMANDS: ClassVar[set[T]] = set()  # REPLACE is split into tokens, too


class _Dialect(NamedTuple):
    """What differs between the dialects of recordings."""

    grammar: Any  # of sqlglot
    executed: re.Pattern[str] | None  # comments that the server executes
    # whether this text, or the same without literals, depends on what is not recorded
    depends: Callable[[str, str], bool]
    reason: str


_DIALECTS: Final = {
    "postgres": _Dialect(
        "postgres",
        None,
        lambda text, _bare: "\\" in text,  # its meaning in a literal is a setting of the server
        "a backslash, after which the end of a literal is unknown",
    ),
    "mysql": _Dialect(
        _MySQL,
        re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL),
        lambda _text, bare: "@" in bare or "?" in bare,
        "a variable of the session, or a value that was not recorded",
    ),
}


def tokens(text: str, dialect: str) -> list[Any]:
    """Return sqlglot's tokens. Raises ValueError if a quote or a comment has no end."""
    try:
        return sqlglot.tokenize(text, _DIALECTS[dialect].grammar)
    except (SqlglotError, RecursionError):
        raise ValueError("an unterminated quote or comment") from None


@functools.lru_cache(10_000)
def _refusal(text: str, dialect: str) -> str:
    words = []
    for token in tokens(text, dialect):
        word = text[token.start : token.end + 1].lower()
        if token.token_type == T.IDENTIFIER:
            word = re.sub(r"\W+", "_", word[1:-1])
        elif token.token_type == T.NUMBER or token.token_type.name.endswith("STRING"):
            word = "0"
        words.append(word)
    bare = " ".join(words).rstrip("; ")
    for pattern, reason in _REFUSED:
        if match := re.match(pattern, bare, re.DOTALL):
            name = match.groupdict().get("name")
            if name:
                return f"{reason} ({one_line(name.upper())})"
            return reason
    spoken = _DIALECTS[dialect]
    if spoken.depends(text, bare):
        return spoken.reason
    return ""


def refusal(text: str, dialect: str) -> str:
    """Return why the statement cannot be used; "" if it can."""
    # they do not decide; `$1,$` would begin a string
    text = re.sub(r"(?<![\w.!$])\$?\d+(?![\w.])", "0", text)
    comment = _DIALECTS[dialect].executed
    executed = comment.sub(r" \1 ", text) if comment else text
    try:
        return _refusal(text, dialect) or _refusal(executed, dialect)
    except ValueError as error:
        return str(error)
