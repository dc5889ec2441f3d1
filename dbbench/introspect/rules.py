"""SQL of recorded statements: what a script may contain, and how PostgreSQL's parameters are drawn.

sqlglot splits the text into tokens and finds the columns of parameters. Statements are assembled from slices of the
recorded text, never from sqlglot's own rendering, so that nothing is rewritten that is not named here.
"""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import TokenType as T
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # statements that it cannot parse are handled here

REPRODUCED: Final = "reproduced"
APPROXIMATED: Final = "approximated"
LEFT_OUT: Final = "left out"
GROUPS: Final = (REPRODUCED, APPROXIMATED, LEFT_OUT)
CONTROL: Final = "it begins or ends a transaction"

# Range of a number about which nothing is known; the script marks it as GUESSED.
LEAST: Final = 1
MOST: Final = 100_000
ROWS: Final = 10  # the largest LIMIT
SPAN_S: Final = 6 * 365 * 86400  # seconds: times are in the six years from 2020 on
WIDTH: Final = 99  # end - start of a range: a hundred values of a column, as in sysbench's ranges
WIDTH_S: Final = 86_399  # the same of times, in seconds: a day
ELEMENTS: Final = 5  # values of an array
SHOWN: Final = 100  # characters of a statement in a message
_D: Final = exp.DType
_INTEGERS: Final = (_D.SMALLINT, _D.INT, _D.BIGINT)
_NUMBERS: Final = (*_INTEGERS, _D.DECIMAL, _D.FLOAT, _D.DOUBLE)
_TEXTS: Final = (_D.TEXT, _D.VARCHAR, _D.CHAR, _D.BPCHAR, _D.NAME)
_SECONDS: Final = "{}::int * interval '1 second'"
_TIMES: Final = {
    **dict.fromkeys((_D.DATE, _D.TIMESTAMP, _D.TIMESTAMPTZ, _D.TIME), "'2020-01-01 00:00'::TYPE + " + _SECONDS),
    _D.INTERVAL: _SECONDS,
}
# Type -> expression, in which {} is a random whole number. A parameter of another type has no rule.
_EXPRESSIONS: Final = {
    **dict.fromkeys((*_NUMBERS, *_TEXTS, _D.VARBINARY, _D.JSON, _D.JSONB), "{}"),
    **_TIMES,
    _D.BOOLEAN: "{}::int % 2 = 0",
    _D.UUID: "md5({}::text)",
}  # fmt: skip
_CALLS: Final = (exp.Func, exp.AtTimeZone, exp.Escape)
_HARMLESS: Final = (exp.Array, exp.Coalesce, exp.Connector, exp.Lower, exp.Upper)
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
_PARAMETER: Final = re.compile(r"(?<![\w$])\$(\d+)(?![\w$])")
_COMMAND: Final = re.compile(r"[\\\x00-\x1f\x7f]|(?<!:):[A-Za-z_\x80-\U0010ffff]")  # commands and variables of pgbench
_TYPED: Final = re.compile(
    r"\b(interval|date|time(?:stamp)?(?: with(?:out)? time zone)?|timestamptz|numeric|uuid|jsonb?|bytea|boolean)"
    r" (:p\d+)(?: (?:year|month|day|hour|minute|second)(?: to \w+)?)?",
    re.IGNORECASE,
)


@dataclass
class Statement:
    """One kind of statement: its text with $1 (PostgreSQL), or its fingerprint (slow log).

    `seconds`: the time of all calls, None if it was not recorded. `group`: one of GROUPS. `why`: the reason for leaving
    it out, or what differs from the recording. `samples`: statements of this kind as they were logged.
    """

    text: str
    calls: int = 0
    seconds: float | None = None
    group: str = REPRODUCED
    why: str = ""
    database: str = ""
    samples: list[str] = field(default_factory=list)

    def add(self, calls: int, seconds: float | None) -> None:
        """Count calls."""
        self.calls += calls
        self.seconds = self.seconds if seconds is None else (self.seconds or 0.0) + seconds

    def leave_out(self, why: str) -> None:
        """Leave the statement out if there is a reason."""
        self.group, self.why = (LEFT_OUT, why) if why else (self.group, self.why)

    def approximate(self, why: str) -> None:
        """Note a difference from the recording."""
        self.group, self.why = APPROXIMATED, f"{self.why}; {why}".removeprefix("; ")


@dataclass
class Role:
    """What the text, or a server, says about a parameter."""

    type: str = ""
    column: str = ""  # with which it is compared, or that it sets
    values: tuple[str, ...] = ()  # of this column, in the server's statistics
    after: int = 0  # the parameter at the other end of its range
    rows: str = ""  # limit or offset
    argument: bool = True  # of a function, which may accept few texts: date_trunc($1, a)
    guessed: bool = True  # the server's statistics have no values


class _MySQL(MySQL):
    class Tokenizer(MySQL.Tokenizer):
        COMMANDS: ClassVar[set[T]] = set()  # REPLACE is split into tokens, too


class _Postgres(Postgres):
    class Tokenizer(Postgres.Tokenizer):
        COMMANDS: ClassVar[set[T]] = set()


def _tokens(text: str, dialect: str) -> list[Any]:
    try:
        return sqlglot.tokenize(text, _MySQL if dialect == "mysql" else _Postgres)
    except (SqlglotError, RecursionError):
        raise ValueError("an unterminated quote or comment") from None


@functools.lru_cache(10_000)
def _refusal(text: str, dialect: str) -> str:
    reasons = _REFUSED if dialect == "postgres" else (*_REFUSED, _UNRECORDED)
    words = [(each.token_type, text[each.start : each.end + 1].lower()) for each in _tokens(text, dialect)]
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
    return ""


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


def rewritten(text: str) -> str:
    """Return a statement of pg_stat_statements without comments other than hints, with :p1 for $1.

    `interval $1` and `date $1` are literals, whose text cannot be a parameter: they become casts. Raises ValueError if
    pgbench would not send the text as it is.
    """
    text, pieces, end = _PARAMETER.sub(r" :p\1 ", text), list[str](), 0
    tokens = _tokens(text, "postgres")
    while tokens and tokens[-1].token_type == T.SEMICOLON:
        tokens.pop()
    for token in tokens:
        gap, word = text[end : token.start], text[token.start : token.end + 1]
        if ":p" in word:
            raise ValueError("a $ in a literal or a name")
        pieces += [gap if "/*+" in gap else " " if gap else "", word]
        end = token.end + 1
    text = "".join(pieces).strip()
    if fault := fault_of(re.sub(r":p\d+\b", "", text)):
        raise ValueError(fault)
    return _TYPED.sub(r"CAST(\2 AS \1)", text)


def fault_of(text: str) -> str:
    """Return why pgbench would not send the text as it is; "" if it would."""
    match = _COMMAND.search(text)
    return f"{shown(match[0])!r}, which pgbench or its terminal would interpret" if match else ""


def roles_of(text: str) -> tuple[dict[int, Role], tuple[str, ...]]:
    """Return what a rewritten text says about each parameter, and the tables; nothing if sqlglot cannot parse it."""
    try:
        tree = sqlglot.parse_one(text, dialect=_Postgres)
    except (SqlglotError, RecursionError):
        return {}, ()
    roles: dict[int, Role] = {}
    for parameter in tree.find_all(exp.Placeholder):
        child: Any = parameter
        parent: Any = parameter.parent
        role = roles.setdefault(_number(parameter), Role())
        while isinstance(parent, exp.Cast | exp.Paren | exp.Neg | exp.Any):
            if isinstance(parent, exp.Cast):
                role.type = parent.to.sql("postgres")
            child, parent = parent, parent.parent
        role.argument = isinstance(parent, _CALLS) and not isinstance(parent, _HARMLESS)
        if isinstance(parent, exp.Limit | exp.Fetch | exp.Offset):
            role.rows, role.type = ("offset" if isinstance(parent, exp.Offset) else "limit"), "bigint"
        elif isinstance(parent, exp.Between) and child is parent.args["high"]:
            role.after = _number(parent.args["low"])
        elif isinstance(parent, exp.LT | exp.LTE):
            role.after = _start(parent)
        role.column = role.column or _column(parent, child)
    return roles, tuple(dict.fromkeys(table.name for table in tree.find_all(exp.Table)))


def _number(node: Any) -> int:
    """Return n of $n, also below a cast; 0 for anything else."""
    inner = node.find(exp.Placeholder) if isinstance(node, exp.Placeholder | exp.Cast | exp.Paren) else None
    return int(inner.name[1:]) if inner is not None and inner.name[1:].isdigit() else 0


def _column(parent: Any, child: Any) -> str:
    if isinstance(parent, exp.Binary) and isinstance(parent, exp.Predicate):
        return next((side.name for side in (parent.left, parent.right) if isinstance(side, exp.Column)), "")
    if isinstance(parent, exp.In | exp.Between):
        return parent.this.name if isinstance(parent.this, exp.Column) else ""
    insert = parent.find_ancestor(exp.Insert) if isinstance(parent, exp.Tuple) else None
    columns = insert.this.expressions if insert is not None and isinstance(insert.this, exp.Schema) else []
    values = zip(columns, parent.expressions, strict=False) if columns else ()
    return next((str(column.name) for column, value in values if value is child), "")


def _start(end: Any) -> int:
    """Return the parameter of `column >= $1` that is ANDed with this `column < $2`; 0 if there is none."""
    top = end
    while isinstance(top.parent, exp.And):
        top = top.parent
    begins = [node for node in top.find_all(exp.GT, exp.GTE) if isinstance(node.left, exp.Column)]
    return next((_number(node.right) for node in begins if node.left.sql() == end.left.sql()), 0)


def drawn(number: int, role: Role, begin: str = "") -> tuple[str, str]:
    """Return the lines of a script that draw a parameter, and the expression with their variables. `begin`: the
    expression at the other end of its range.

    Raises ValueError if the type is unknown or has no rule.
    """
    if not role.type:
        raise ValueError(f"the recording does not contain the type of ${number}; --socket asks a server")
    try:
        kind = exp.DataType.build(role.type, dialect="postgres", udt=True)
    except SqlglotError:
        raise ValueError(f"a parameter of type {role.type}") from None
    array = kind.this == _D.ARRAY
    inner = kind.expressions[0] if array and kind.expressions else kind
    base = _D.INTERVAL if isinstance(inner.this, exp.Interval) else inner.this
    if base not in _EXPRESSIONS or inner.expressions:
        raise ValueError(f"a parameter of type {role.type}")
    if role.argument and base in _TEXTS:
        raise ValueError(f"${number} is a text for a function, which may accept few values")
    element = "BPCHAR" if base == _D.CHAR else inner.sql("postgres")
    head, form, tail, source = "", _EXPRESSIONS[base].replace("TYPE", element), "", ""
    least, most = LEAST, SPAN_S if base in _TIMES else 32_767 if base == _D.SMALLINT else MOST
    if role.rows:
        least, most = (0, 0) if role.rows == "offset" else (1, ROWS)
    elif begin and base in (*_NUMBERS, *_TIMES):
        head, form = f"{begin} + ", _SECONDS if base in _TIMES else f"{{}}::{element}"
        least, most = 0, WIDTH_S if base in _TIMES else WIDTH
    elif role.values and base in _INTEGERS and all(value.lstrip("-").isdigit() for value in role.values):
        least, most = min(map(int, role.values)), max(map(int, role.values))
        source = f"the range of {role.column}"
    elif role.values and not array:
        quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in role.values)
        head, form, tail, source = f"(ARRAY[{quoted}]::{element}[])[", "{}::int", "]", f"values of {role.column}"
        least, most = 1, len(role.values)
    note = source or f"GUESSED: {least} to {most}{f' above ${role.after}' if head else ''}; edit it"
    names = [f"p{number}_{index}" for index in range(1, ELEMENTS + 1)] if array else [f"p{number}"]
    role.guessed = not source
    lines = "".join(f"\\set {name} random({least}, {most})\n" for name in names)
    values = [f"(({head}{form.format(':' + name)}{tail})::{element})" for name in names]
    return f"-- ${number}: {role.type}, {note}\n{lines}", f"ARRAY[{', '.join(values)}]" if array else values[0]
