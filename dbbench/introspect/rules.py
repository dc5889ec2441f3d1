"""SQL of recorded statements: what a script may contain, and how PostgreSQL's parameters are drawn.

sqlglot splits the text into tokens and finds the columns of parameters. Statements are assembled from slices of the
recorded text, never from sqlglot's own rendering, so that nothing is rewritten that is not named here.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import TokenType as T
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # statements that it cannot parse are handled here

# Range of a number about which nothing is known; the script marks it as GUESSED.
LEAST: Final = 1
MOST: Final = 100_000
SPAN_S: Final = 6 * 365 * 86400  # seconds: times are in the six years from 2020 on
ROWS: Final = 10  # the largest LIMIT
WIDTH: Final = 99  # end - start of a range: a hundred values of a column, as in sysbench's ranges
WIDTH_S: Final = 86_399  # end - start of a range of times, in seconds: a day
ELEMENTS: Final = 5  # values of an array
SHOWN: Final = 100  # characters of a statement in a message
_D: Final = exp.DType
_INTEGERS: Final = {_D.SMALLINT: 32_767, _D.INT: MOST, _D.BIGINT: MOST}  # with the largest guess
_TIMES: Final = {
    _D.DATE: "(date '2020-01-01' + {}::int / 86400)",
    _D.TIMESTAMP: "(timestamp '2020-01-01' + {}::int * interval '1 second')",
    _D.TIMESTAMPTZ: "(timestamptz '2020-01-01' + {}::int * interval '1 second')",
    _D.TIME: "(time '00:00' + {}::int * interval '1 second')",
    _D.INTERVAL: "({}::int * interval '1 second')",
}
_SUMS: Final = {
    _D.DATE: "({} + {}::int / 86400)",
    **dict.fromkeys(list(_TIMES)[1:], "({} + {}::int * interval '1 second')"),
}
_TEXTS: Final = (_D.TEXT, _D.VARCHAR, _D.CHAR, _D.BPCHAR, _D.NAME, _D.UNKNOWN)
# Type -> expression, in which {} is a random whole number. A parameter of another type has no rule.
_EXPRESSIONS: Final = {
    **dict.fromkeys((*_INTEGERS, _D.DECIMAL, _D.FLOAT, _D.DOUBLE, *_TEXTS), "{}"),
    **_TIMES,
    _D.BOOLEAN: "({}::int % 2 = 0)", _D.UUID: "md5({}::text)::uuid", _D.VARBINARY: "decode(md5({}::text), 'hex')",
    _D.JSON: "to_json({}::int)", _D.JSONB: "to_jsonb({}::int)",
}  # fmt: skip
_LITERALS: Final = {T.STRING, T.NUMBER, T.HEX_STRING, T.BIT_STRING, T.NATIONAL_STRING, T.BYTE_STRING, T.RAW_STRING,
                    T.HEREDOC_STRING, T.UNICODE_STRING}  # fmt: skip
_ON_ROWS: Final = ("select", "insert", "update", "delete", "with", "values", "merge", "replace", "table")
CONTROL: Final = re.compile(
    r"(?:/\*.*?\*/|--[^\n]*\n|\s)*(begin|start\s+transaction|commit|end|rollback|abort|savepoint|release|prepare\s+transaction|xa"
    r"|set\s+(session\s+|@@)?(autocommit|transaction))\b",
    re.IGNORECASE | re.DOTALL,
)
# Names in statements that query or control the server itself, reach out of the database, or only wait: these are not an
# application's work. The last line: they depend on an earlier statement of their session.
_SERVER: Final = re.compile(
    r"pg_\w*|lo_\w*|dblink\w*|information_schema|performance_schema|set_config|current_setting|query_to_xml\w*|sleep"
    r"|benchmark|get_lock|release_lock|last_insert_id|found_rows|row_count|currval|lastval",
    re.IGNORECASE,
)
_FILES: Final = re.compile(r"outfile|dumpfile|load_file", re.IGNORECASE)  # also in literals and comments
_EXECUTED: Final = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)  # comments that MySQL and MariaDB execute
_KEPT_COMMENT: Final = ("/*+", "/*!", "/*M!")
_PARAMETER: Final = re.compile(r"(?<![\w$])\$(\d+)(?![\w$])")
_MARKED: Final = re.compile(r"dbbench_(\d+)_")
_NO_TYPES: Final = ("zone", "placing", "escape", "similar", "symmetric", "variadic", "next", "to")
_FIELDS: Final = ("year", "month", "day", "hour", "minute", "second", "to")
_LISTS: Final = {"= any": "IN", "= some": "IN", "<> all": "NOT IN", "!= all": "NOT IN"}


@dataclass
class Statement:
    """One kind of statement: its text with $1 (PostgreSQL) or with ? for each literal (slow log).

    `seconds`: the time of all calls, None if it was not recorded. `samples`: statements of this kind as they were
    logged. `why`: the reason for leaving it out, or what differs from the recording; "" if nothing does.
    """

    text: str
    calls: int = 0
    seconds: float | None = None
    database: str = ""
    samples: list[str] = field(default_factory=list)
    why: str = ""


@dataclass(frozen=True)
class Rule:
    """Whole numbers in [least, most], put into `expression`; or added to the parameter `after` ($1 of BETWEEN $1 AND
    $2) by `sum`."""

    least: int
    most: int
    expression: str = "{}"
    note: str = ""
    guessed: bool = True
    after: int = 0
    sum: str = ""


@dataclass
class Role:
    """What the text, or a server, says about a parameter."""

    type: str = ""
    column: str = ""  # with which it is compared, or that it sets
    values: tuple[str, ...] = ()  # of this column, in the server's statistics
    after: int = 0  # the parameter at the other end of its range
    rows: str = ""  # limit or offset


class _MySQL(MySQL):
    class Tokenizer(MySQL.Tokenizer):
        COMMANDS: ClassVar[set[T]] = set()  # REPLACE is split into tokens, too


def words_of(text: str, dialect: str) -> list[tuple[T, str]]:
    """Return the tokens with their text, blanks and kept comments (hints) between them as T.SPACE, `$1` as T.PARAMETER.

    Raises ValueError for an unterminated quote or comment.
    """
    words: list[tuple[T, str]] = []
    end = 0
    if dialect == "postgres":  # sqlglot takes `$1,$` for the begin of a quoted string
        text = _PARAMETER.sub(r"dbbench_\1_", text)
    try:
        tokens = sqlglot.tokenize(text, "postgres" if dialect == "postgres" else _MySQL)
    except (SqlglotError, RecursionError):
        raise ValueError("an unterminated quote or comment") from None
    for token in tokens:
        if (gap := text[end : token.start]) and words:
            words.append((T.SPACE, gap if any(mark in gap for mark in _KEPT_COMMENT) else " "))
        elif any(mark in gap for mark in _KEPT_COMMENT):
            words.append((T.SPACE, gap))
        word, end = text[token.start : token.end + 1], token.end + 1
        words.append((T.PARAMETER if _MARKED.fullmatch(word) else token.token_type, word))
    while words and words[-1][0] in (T.SEMICOLON, T.SPACE):
        words.pop()
    if any(mark in text[end:] for mark in _KEPT_COMMENT):
        words.append((T.SPACE, text[end:]))
    return [(kind, _MARKED.sub(r"$\1", word)) for kind, word in words]


def shape_of(words: Sequence[tuple[T, str]]) -> str:
    """Return the statement with ? for each literal, and once for each list of them: IN (?), VALUES (?)."""
    pieces: list[str] = []
    for kind, word in words:
        pieces.append("?" if kind in _LITERALS else word)
        whole = [piece for piece in pieces[-12:] if piece != " "]
        for last, repeated in ((["(", "?", ",", "?"], 2), (["(", "?", ")", ",", "(", "?", ")"], 4)):
            if whole[-len(last) :] == last:
                for _ in range(repeated):
                    while pieces.pop() == " ":
                        pass
                while pieces[-1] == " ":
                    pieces.pop()
    return "".join(pieces)


def refusal(text: str, words: Sequence[tuple[T, str]], dialect: str) -> str:
    """Return why the statement cannot be used; "" if it can."""
    used = [(kind, word.strip('"`').lower()) for kind, word in words if kind not in (*_LITERALS, T.SPACE)]
    names, plain = [name for _, name in used], [name for kind, name in used if kind != T.IDENTIFIER]
    first = next((name for name in plain if name != "("), "")
    if first not in _ON_ROWS:
        return f"not a statement on rows ({first.upper() or 'empty'})"
    if ";" in plain:
        return "several statements in one"
    if (name := next(filter(_SERVER.fullmatch, names), "")) or (name := (_FILES.search(text) or [""])[0]):
        return f"it concerns the server or its session ({shown(name)})"
    if "into" in plain and not {"insert", "replace", "merge"} & {*plain}:
        return "it writes its result elsewhere (INTO)"
    if dialect == "mysql":
        if any(kind in (T.PARAMETER, T.PLACEHOLDER) for kind, _ in words):
            return "a variable of the session, or a value that was not recorded"
        if (executed := _EXECUTED.sub(r" \1 ", text)) != text:
            return refusal(executed, words_of(executed, dialect), dialect)
    return ""


def shown(text: str) -> str:
    """Return a statement as one short line without terminal control characters."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def rewritten(words: Sequence[tuple[T, str]]) -> str:
    """Return a statement of pg_stat_statements in a form that PostgreSQL can prepare.

    `interval $1` and `date $1` are literals, whose text cannot be a parameter: they become casts. `= ANY ($1)` becomes
    a list of the same plan, because pgbench's variables cannot be arrays. Raises ValueError for EXTRACT($1 FROM ...).
    """
    out, solid = [word for _, word in words], [i for i, (kind, _) in enumerate(words) if kind != T.SPACE]
    lower, most = [out[i].lower() for i in solid], len({word for kind, word in words if kind == T.PARAMETER})
    for place, i in enumerate(solid):
        if words[i][0] != T.PARAMETER or not place:
            continue
        before = lower[max(0, place - 4) : place]
        if before[-2:] == ["extract", "("]:
            raise ValueError("the field of EXTRACT was not recorded")
        if (before[-1], *lower[place + 1 : place + 2]) == ("(", ")") and " ".join(before[-3:-1]) in _LISTS:
            out[solid[place - 3]], out[solid[place - 2]] = _LISTS[" ".join(before[-3:-1])], ""
            out[i] = ", ".join((out[i], *(f"${most + n}" for n in range(1, ELEMENTS))))
            most += ELEMENTS - 1
            continue
        zoned = len(before) == 4 and before[0] in ("time", "timestamp") and before[-1] == "zone"
        if not zoned and (words[solid[place - 1]][0] not in (*Parser.TYPE_TOKENS, T.VAR) or before[-1] in _NO_TYPES):
            continue
        begin, end = solid[place - (4 if zoned else 1)], place + 1
        while lower[end : end + 1] and lower[end] in _FIELDS:  # interval $1 day to second
            end += 1
        out[i] = f"CAST({out[i]} AS {' '.join([''.join(out[begin:i]).strip(), *lower[place + 1 : end]])})"
        for blank in (*range(begin, i), *range(i + 1, solid[end - 1] + 1)):
            out[blank] = ""
    return "".join(out)


def roles_of(text: str) -> tuple[dict[int, Role], tuple[str, ...]]:
    """Return what the text says about each parameter, and the tables; nothing if sqlglot cannot parse it."""
    try:
        tree = sqlglot.parse_one(_PARAMETER.sub(r" :p\1 ", text), dialect="postgres")
    except (SqlglotError, RecursionError):
        return {}, ()
    roles: dict[int, Role] = {}
    for parameter in tree.find_all(exp.Placeholder):
        role = roles.setdefault(_number(parameter), Role())
        child: Any = parameter
        parent: Any = parameter.parent
        while isinstance(parent, exp.Cast | exp.Paren | exp.Neg) or _is_array(parent):
            if isinstance(parent, exp.Cast):
                role.type = role.type or parent.to.sql("postgres")
            elif _is_array(parent):
                role.type = role.type or "anyarray"
            child, parent = parent, parent.parent
        if isinstance(parent, exp.Limit | exp.Fetch | exp.Offset):
            role.rows = "offset" if isinstance(parent, exp.Offset) else "limit"
        elif isinstance(parent, exp.Between) and child is parent.args["high"]:
            role.after = _number(parent.args["low"])
        elif isinstance(parent, exp.LT | exp.LTE):
            role.after = _start(parent)
        role.column = role.column or _column(parent, child)
    return roles, tuple(dict.fromkeys(table.name for table in tree.find_all(exp.Table)))


def column_types(text: str) -> dict[str, str]:
    """Return the types of columns that the text gives away: those of casts, and times by comparison with now()."""
    roles, _ = roles_of(text)
    types = {role.column: role.type for role in roles.values() if role.column and role.type != "anyarray"}
    with contextlib.suppress(SqlglotError, RecursionError):
        tree = sqlglot.parse_one(_PARAMETER.sub(r" :p\1 ", text), dialect="postgres")
        for node in tree.find_all(exp.CurrentTimestamp):
            parent = node.find_ancestor(exp.Predicate)
            sides: list[Any] = [parent.left, parent.right] if isinstance(parent, exp.Binary) else []
            types |= {side.name: "TIMESTAMPTZ" for side in sides if isinstance(side, exp.Column)}
    return {column: type_ for column, type_ in types.items() if type_}


def _is_array(node: Any) -> bool:
    """Whether it is ANY or ALL; sqlglot takes some for a function."""
    return isinstance(node, exp.Any | exp.All) or (isinstance(node, exp.Anonymous) and node.name.upper() == "ALL")


def _number(node: Any) -> int:
    """Return n of $n, also below a cast; 0 for anything else."""
    inner = node.find(exp.Placeholder) if isinstance(node, exp.Placeholder | exp.Cast | exp.Paren) else None
    return int(inner.name[1:]) if inner is not None and inner.name[1:].isdigit() else 0


def _column(parent: Any, child: Any) -> str:
    if isinstance(parent, exp.Binary) and isinstance(parent, exp.Predicate):
        sides = (parent.left, parent.right)
        return next((side.name for side in sides if isinstance(side, exp.Column)), "")
    if isinstance(parent, exp.In | exp.Between):
        return parent.this.name if isinstance(parent.this, exp.Column) else ""
    insert = parent.find_ancestor(exp.Insert) if isinstance(parent, exp.Tuple) else None
    columns = insert.this.expressions if insert is not None and isinstance(insert.this, exp.Schema) else []
    place = next((i for i, each in enumerate(parent.expressions) if each is child), 0) if columns else 0
    return str(columns[place].name) if place < len(columns) else ""


def _start(end: Any) -> int:
    """Return the parameter of `column >= $1` that is ANDed with this `column < $2`; 0 if there is none."""
    top = end
    while isinstance(top.parent, exp.And):
        top = top.parent
    begins = [node for node in top.find_all(exp.GT, exp.GTE) if isinstance(node.left, exp.Column)]
    return next((_number(node.right) for node in begins if node.left.sql() == end.left.sql()), 0)


def rule_of(role: Role) -> Rule | None:
    """Return the rule for a parameter, or None if its type is not supported."""
    if role.rows:
        most = 0 if role.rows == "offset" else ROWS
        return Rule(min(1, most), most, note=f"GUESSED: {role.rows} up to {most}; edit it")
    type_ = role.type
    try:
        kind = exp.DataType.build(type_, dialect="postgres", udt=True) if type_ else exp.DataType(this=_D.UNKNOWN)
    except SqlglotError:
        return None
    array = kind.this == _D.ARRAY
    base = kind.expressions[0].this if array and kind.expressions else kind.this
    base = _D.INTERVAL if isinstance(base, exp.Interval) else base
    if base not in _EXPRESSIONS:
        return None
    expression = _EXPRESSIONS[base]
    if array:
        expression = f"ARRAY[{', '.join([expression] * ELEMENTS)}]::{type_}"
    values = [value for value in role.values if len(value) <= SHOWN and not script_fault(value)]
    if values and not role.after and base in _INTEGERS and all(value.lstrip("-").isdigit() for value in values):
        numbers = [int(value) for value in values]
        return Rule(min(numbers), max(numbers), expression, f"{type_}, the range of {role.column}", guessed=False)
    if values and not role.after and not array:
        note = f"{type_}, values of {role.column}"
        quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
        return Rule(1, len(values), f"(ARRAY[{quoted}]::{type_}[])[{{}}::int]", note, guessed=False)
    if role.after:
        most = WIDTH_S if base in _TIMES else WIDTH
        added = "" if base in _TEXTS else _SUMS.get(base, "({} + {})")
        return Rule(0, most, expression, f"GUESSED: up to {most} above ${role.after}; edit it", True, role.after, added)
    most = SPAN_S if base in _TIMES else _INTEGERS.get(base, MOST)
    return Rule(LEAST, most, expression, f"GUESSED: {type_ or 'its type and range are unknown'}; edit it")


def script_fault(text: str) -> str:
    """Return why pgbench would not send the text as it is; "" if it would."""
    if "\\" in text:
        return "a backslash, which begins a command of pgbench"
    if re.search(r"(?<!:):[A-Za-z_\x80-\U0010ffff]", text):
        return "a colon before a name, which is a variable of pgbench"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return "a control character in a literal"
    return ""
