"""Which recorded statements can be sent again. Their source is unknown, so the text is never
trusted: sqlglot splits it into tokens, and rows of a table say what is left out.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import Any, ClassVar, Final

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
# comments that MySQL and MariaDB execute
_EXECUTED: Final = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)


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
    words = [
        (each.token_type, text[each.start : each.end + 1].lower()) for each in tokens(text, dialect)
    ]
    bare = " ".join(
        re.sub(r"\W+", "_", word[1:-1])
        if kind == T.IDENTIFIER
        else "0"
        if kind == T.NUMBER or kind.name.endswith("STRING")
        else word
        for kind, word in words
    ).rstrip("; ")
    for pattern, why in _REFUSED:
        if match := re.match(pattern, bare, re.DOTALL):
            name = match.groupdict().get("name")
            return f"{why} ({one_line(name.upper())})" if name else why
    if dialect == "mysql":
        return (
            "a variable of the session, or a value that was not recorded"
            if re.search("[@?]", bare)
            else ""
        )
    # Both statements of "a; b" would run. What a backslash does in a literal depends on settings of
    # the server.
    return "a backslash, after which the end of a literal is unknown" if "\\" in text else ""


def refusal(text: str, dialect: str) -> str:
    """Return why the statement cannot be used; "" if it can."""
    # they do not decide; `$1,$` would begin a string
    text = re.sub(r"(?<![\w.!$])\$?\d+(?![\w.])", "0", text)
    executed = _EXECUTED.sub(r" \1 ", text) if dialect == "mysql" else text
    try:
        return _refusal(text, dialect) or _refusal(executed, dialect)
    except ValueError as error:
        return str(error)
