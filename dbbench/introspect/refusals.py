"""Which recorded statements can be sent again. Their source is unknown, so the text is never trusted: sqlglot splits it
into tokens, and rows of a table say what is left out."""

from __future__ import annotations

import functools
import logging
import re
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import TokenType as T
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # statements that it cannot parse are handled here

CONTROL: Final = "it begins or ends a transaction"
SHOWN: Final = 100  # characters of a statement in a message
_LITERALS: Final = {T.STRING, T.NUMBER, T.HEX_STRING, T.BIT_STRING, T.NATIONAL_STRING, T.BYTE_STRING, T.RAW_STRING,
                    T.HEREDOC_STRING, T.UNICODE_STRING}  # fmt: skip
# What is left out, in words without literals and with one blank between them, and the reason.
_REFUSED: Final = (
    (r"$", "the recording does not contain its text"),
    (r"< insufficient privilege >$",
     "its text is hidden: GRANT pg_read_all_stats TO the role that exports pg_stat_statements"),
    (r"(begin|start transaction|commit|end|rollback|abort|savepoint|release|prepare transaction|xa"
     r"|set (session |@@ |\. )*(autocommit|transaction))\b", CONTROL),
    (r"(?!(/\*\+.*?\*/ )?[( ]*(select|insert|update|delete|with|values|merge|replace|table)\b)(?P<name>\W*\w*)",
     "not a statement on rows"),
    (r".*;", "several statements in one"),
    # Not an application's work, or (the last ones) dependent on an earlier statement of their session.
    (r".*\b(?P<name>pg_\w*|lo_\w*|dblink\w*|information_schema|performance_schema|set_config|current_setting|query_to_xml\w*"
     r"|sleep|benchmark|get_lock|release_lock|load_file|last_insert_id|found_rows|row_count|currval|lastval)\b",
     "it concerns the server or its session"),
    (r".*\b(outfile|dumpfile)\b", "it writes a file of the server"),
    (r"(?!.*\b(insert|replace|merge)\b).*\binto\b", "it writes its result elsewhere (INTO)"),
)  # fmt: skip
_UNRECORDED: Final = (r".*[@?]", "a variable of the session, or a value that was not recorded")  # mysql
_EXECUTED: Final = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)  # comments that MySQL and MariaDB execute


class _MySQL(MySQL):
    class Tokenizer(MySQL.Tokenizer):
        COMMANDS: ClassVar[set[T]] = set()  # REPLACE is split into tokens, too


def tokens(text: str, dialect: str) -> list[Any]:
    """Return sqlglot's tokens. Raises ValueError if a quote or a comment has no end."""
    try:
        return sqlglot.tokenize(text, _MySQL if dialect == "mysql" else dialect)
    except (SqlglotError, RecursionError):
        raise ValueError("an unterminated quote or comment") from None


@functools.lru_cache(10_000)
def _refusal(text: str, dialect: str) -> str:
    reasons = _REFUSED if dialect == "postgres" else (*_REFUSED, _UNRECORDED)
    words = [(each.token_type, text[each.start : each.end + 1].lower()) for each in tokens(text, dialect)]
    while words and words[-1][0] == T.SEMICOLON:
        words.pop()
    bare = " ".join(
        re.sub(r"\W+", "_", word[1:-1]) if kind == T.IDENTIFIER else "0" if kind in _LITERALS else word
        for kind, word in words
    )
    for pattern, why in reasons:
        if match := re.match(pattern, bare, re.DOTALL):
            name = match.groupdict().get("name")
            return f"{why} ({shown(name.upper())})" if name else why
    # Both statements of "a; b" would run. What a backslash does in a literal depends on settings of the server.
    return "a backslash, after which the end of a literal is unknown" if dialect == "postgres" and "\\" in text else ""


def refusal(text: str, dialect: str) -> str:
    """Return why the statement cannot be used; "" if it can."""
    text = re.sub(r"(?<![\w.!$])\$?\d+(?![\w.])", "0", text)  # they do not decide; `$1,$` would begin a string
    try:
        return _refusal(text, dialect) or (
            _refusal(_EXECUTED.sub(r" \1 ", text), dialect) if dialect == "mysql" else ""
        )
    except ValueError as error:
        return str(error)


def shown(text: str) -> str:
    """Return a statement as one short line without terminal control characters."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
