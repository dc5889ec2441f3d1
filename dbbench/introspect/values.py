"""Values for the parameters of pg_stat_statements ($1), which records neither values nor types. A
value is a literal in quotes, whose type PostgreSQL infers as it does that of a parameter:
`interval $1`, `= ANY($1)`.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dbbench.engines import postgres_sql
from dbbench.engines.sql import Ask
from dbbench.introspect.refusals import tokens

MOST: Final = 100_000  # the largest number about which nothing is known
ROWS: Final = 10  # the largest LIMIT
BEGAN: Final = datetime(2020, 1, 1)
SPAN_S: Final = 6 * 365 * 86400  # seconds: times are in the six years from BEGAN on
WIDTH: Final = 99  # end - start of a range: a hundred values of a column, as in sysbench's ranges
WIDTH_S: Final = 86_399  # the same of times, in seconds: a day
ELEMENTS: Final = 5  # values of an array
LONGEST: Final = 100  # characters of a value from the server's statistics
SAMPLES: Final = 50_000  # of a statement; with fewer values, their pages would soon be in the cache
_TEXTS: Final = re.compile(
    r'text|(var)?char|character( varying)?|bpchar|"?char"?|name|', re.IGNORECASE
)
_TIMES: Final = r"date|time(stamp)?(tz| with(out)? time zone)?"
# of columns that hold times
_NAMES: Final = re.compile(r".*(_at|_on|date|day|time(stamp)?|_ts)", re.IGNORECASE)
_CALLS: Final = (exp.Func, exp.AtTimeZone, exp.Escape)
# Functions and operators that accept every text.
_HARMLESS: Final = (
    exp.Array,
    exp.Coalesce,
    exp.Concat,
    exp.ConcatWs,
    exp.Connector,
    exp.Greatest,
    exp.Initcap,
    exp.JSONBContainsTopKey,
    exp.JSONExtract,
    exp.JSONExtractScalar,
    exp.Least,
    exp.Left,
    exp.Length,
    exp.Lower,
    exp.MD5,
    exp.Nullif,
    exp.RegexpLike,
    exp.Replace,
    exp.Reverse,
    exp.Right,
    exp.SplitPart,
    exp.StartsWith,
    exp.StrPosition,
    exp.Substring,
    exp.Trim,
    exp.Upper,
)
_PARAMETER: Final = re.compile(r"(?<![\w$])\$(\d+)(?![\w$])")
_TYPED: Final = re.compile(
    rf"\b(?P<type>interval|numeric|uuid|jsonb?|bytea|boolean|{_TIMES}) +(?P<number>\$\d+)"
    r"(?: (?:year|month|day|hour|minute|second)(?: to \w+)?)?(?!\w)",
    re.IGNORECASE,
)
_CAST: Final = r"CAST(\g<number> AS \g<type>)"
# What is added to a date: with another type the literal would not have stood without a cast.
_DAYS: Final = re.compile(r"(\bdate +\$\d+ *[-+] *)(\$\d+)(?![\w$]| *::)", re.IGNORECASE)


class _Rule(NamedTuple):
    """How a value of a type is drawn, and read from a text."""

    types: str  # pattern of the type in a cast or of the server
    draw: Callable[[random.Random], object]
    read: Callable[[str], object]


def _draw_number(rng: random.Random) -> int:
    return rng.randint(1, MOST)


# Other types have no rule.
_RULES: Final = (
    _Rule(r"smallint|int2", lambda rng: rng.randint(1, 32_767), int),
    _Rule(r"(big)?int(eger)?|int[48]", _draw_number, int),
    _Rule(r"decimal|numeric|real|double( precision)?|float[48]?", _draw_number, Decimal),
    _Rule(r"bytea|jsonb?|" + _TEXTS.pattern, _draw_number, str),
    _Rule(
        _TIMES,
        lambda rng: BEGAN + timedelta(seconds=rng.randint(0, SPAN_S)),
        datetime.fromisoformat,
    ),
    _Rule(r"interval", lambda rng: f"{rng.randint(1, SPAN_S)} seconds", str),
    _Rule(r"bool(ean)?", lambda rng: rng.random() < 0.5, str),
    _Rule(r"uuid", lambda rng: uuid.UUID(int=rng.getrandbits(128)), str),
)


@dataclass
class Placeholder:
    """What the text, or a server, says about a parameter."""

    type: str = ""  # "": unknown
    column: str = ""  # with which it is compared, or that it sets
    values: tuple[Any, ...] = ()  # of this column, in the server's statistics
    after: int = 0  # the parameter at the other end of its range
    rows: int | None = None  # the largest LIMIT or OFFSET
    argument: bool = True  # of a function, which may accept few texts: date_trunc($1, a)

    def draw(self, rng: random.Random, begin: Any = None) -> object:
        """Return a value. `begin`: the one at the other end of its range. Raises ValueError if no
        rule fits it.
        """
        # Without a rule for the type, no value is known to be valid.
        kind = self.type.removesuffix("[]")
        rule = _rule_of(kind)
        if rule is None and not self.values:
            raise ValueError(f"a parameter of type {self.type}")
        if self.argument and _TEXTS.fullmatch(kind):
            raise ValueError("a text for a function, which may accept few values")
        # An array has elements of its type.
        if self.type.endswith("[]"):
            element = Placeholder(
                kind,
                values=self.values,
                argument=False,
            )
            texts = []
            for _ in range(ELEMENTS):
                text = re.sub(r'(["\\])', r"\\\1", str(element.draw(rng)))
                texts.append(f'"{text}"')
            return "{" + ",".join(texts) + "}"
        # The best source first: a number of rows, the other end of a range, recorded values.
        if self.rows is not None:
            return rng.randint(min(1, self.rows), self.rows)
        if isinstance(begin, datetime):
            return begin + timedelta(seconds=rng.randint(0, WIDTH_S))
        if isinstance(begin, int | Decimal):
            return begin + rng.randint(0, WIDTH)
        if self.values and all(isinstance(value, int) for value in self.values):
            return rng.randint(min(self.values), max(self.values))
        if rule is None or self.values:
            return rng.choice(self.values)
        return rule.draw(rng)


@functools.cache
def _rule_of(kind: str) -> _Rule | None:
    matching = (rule for rule in _RULES if re.fullmatch(rule.types, kind, re.IGNORECASE))
    return next(matching, None)


def samples_of(
    text: str,
    ask: Ask | None,
    most_bytes: int,
) -> tuple[list[str], list[str]]:
    """Return statements with values, and how they differ from the recorded one. `ask` queries a
    server with its tables. Raises ValueError with the reason if no value can be drawn,
    LiveServerUnreadable if the server refuses it.
    """
    text = _DAYS.sub(r"\1CAST(\2 AS integer)", text.rstrip("; \n\t"))
    parameters = _complete(text, ask)
    # A row that exists already would be an error of each trial.
    differences = list[str]()
    if re.match(r"insert\b(?!.*\bon conflict\b)", text, re.IGNORECASE | re.DOTALL):
        returning = re.search(r"\breturning\b", text, re.IGNORECASE)
        place = returning.start() if returning else len(text)
        text = f"{text[:place]}\nON CONFLICT DO NOTHING {text[place:]}".rstrip()
        differences.append("rows whose key exists are not inserted (ON CONFLICT DO NOTHING)")
    if any(not parameter.values for parameter in parameters.values()):
        differences.append("guessed values")
    elif parameters:
        differences.append("values of the columns, each as often, not those that were recorded")
    # The parameters in the text are replaced by literals.
    rng = random.Random(1)
    samples = list[str]()
    values = dict[int, object]()
    parts = _PARAMETER.split(text)
    places = [int(number) for number in parts[1::2]]
    most = SAMPLES if parameters else 1
    while most_bytes > 0 and len(samples) < most:
        literals = {}
        for number, parameter in parameters.items():
            value = parameter.draw(rng, values.get(parameter.after))
            values[number] = value
            doubled = str(value).replace("'", "''")
            literals[number] = f"'{doubled}'"
        parts[1::2] = [literals[number] for number in places]
        samples.append("".join(parts))
        most_bytes -= len(samples[-1])
    return samples, differences


def _complete(text: str, ask: Ask | None) -> dict[int, Placeholder]:
    """Return all parameters, the begin of a range before its end. Raises ValueError."""
    parameters, tables = parameters_of(text)
    # The server knows the types of the parameters that the text does not name.
    numbers = {int(number) for number in _PARAMETER.findall(text)}
    types = postgres_sql.parameter_types(ask, _TYPED.sub(_CAST, text)) if ask else []
    for number in numbers:
        parameter = parameters.setdefault(number, Placeholder())
        if ask:
            if parameter.type in ("", "[]"):
                parameter.type = types[number - 1]
            if _rule_of(parameter.type.removesuffix("[]")) is None:
                base, labels = postgres_sql.describe_type(ask, parameter.type)
                parameter.type = base
                parameter.values = tuple(labels)
            if not parameter.values:
                parameter.values = _values(ask, parameter, tables)
        elif not parameter.type and _NAMES.fullmatch(parameter.column):
            parameter.type = "timestamp"
    in_order = sorted(numbers, key=lambda number: (parameters[number].after, number))
    return {number: parameters[number] for number in in_order}


def parameters_of(text: str) -> tuple[dict[int, Placeholder], tuple[str, ...]]:
    """Return what a text says about its parameters, and the tables; nothing if sqlglot cannot parse
    it. Raises ValueError for a $ that is no parameter.
    """
    marked = _PARAMETER.sub(r" :p\1 ", _TYPED.sub(_CAST, text))
    if _count_marks(marked) != len(_PARAMETER.findall(text)):
        raise ValueError("a $ in a literal, a name or a comment")
    try:
        tree = sqlglot.parse_one(marked, dialect="postgres")
    except (SqlglotError, RecursionError):
        return {}, ()
    parameters: dict[int, Placeholder] = {}
    for node in tree.find_all(exp.Placeholder):
        parameter = parameters.setdefault(_number(node), Placeholder())
        _describe(parameter, node)
    tables = dict.fromkeys(table.name for table in tree.find_all(exp.Table))
    return parameters, tuple(tables)


def _describe(parameter: Placeholder, node: exp.Placeholder) -> None:
    """Note what the text around one of its places says about a parameter."""
    child: Any = node
    parent: Any = node.parent
    # Its type is that of the casts around it.
    while isinstance(parent, exp.Cast | exp.Paren | exp.Neg | exp.Any | exp.All):
        if isinstance(parent, exp.Cast):
            parameter.type = parent.to.sql("postgres")
        elif isinstance(parent, exp.Any | exp.All):
            parameter.type = f"{parameter.type.removesuffix('[]')}[]"
        child = parent
        parent = parent.parent

    # What the expression around it says.
    parameter.argument = isinstance(parent, _CALLS) and not isinstance(parent, _HARMLESS)
    if isinstance(parent, exp.Limit | exp.Fetch):
        parameter.rows = ROWS
    elif isinstance(parent, exp.Offset):
        parameter.rows = 0
    elif isinstance(parent, exp.Between) and child is parent.args["high"]:
        parameter.after = _number(parent.args["low"])
    elif isinstance(parent, exp.LT | exp.LTE):
        parameter.after = _start(parent)
    if not parameter.column:
        parameter.column = _column(parent, child)


def _count_marks(marked: str) -> int:
    """Return the number of :pN that are tokens of their own."""
    count = 0
    for token in tokens(marked, "postgres"):
        if re.fullmatch(r"p\d+", token.text):
            with_colon = marked[token.start - 1 : token.end + 1]
            count += with_colon == f":{token.text}"
    return count


def _number(node: Any) -> int:
    """Return n of $n, also below a cast; 0 for anything else."""
    if not isinstance(node, exp.Placeholder | exp.Cast | exp.Paren):
        return 0
    inner = node.find(exp.Placeholder)
    digits = "" if inner is None else inner.name[1:]
    if digits.isdigit():
        return int(digits)
    return 0


def _column(parent: Any, child: Any) -> str:
    """Return the column that is compared with the expression `child`, or set to it."""
    if isinstance(parent, exp.Predicate):  # also IN and BETWEEN
        for side in (parent.this, parent.expression):
            if isinstance(side, exp.Column):
                return str(side.name)
    insert = parent.find_ancestor(exp.Insert) if isinstance(parent, exp.Tuple) else None
    if insert is None or not isinstance(insert.this, exp.Schema):
        return ""
    for column, value in zip(insert.this.expressions, parent.expressions, strict=False):
        if value is child:
            return str(column.name)
    return ""


def _start(end: Any) -> int:
    """Return the parameter of `column >= $1` that is ANDed with this `column < $2`; 0 if there is
    none.
    """
    top = end
    while isinstance(top.parent, exp.And):
        top = top.parent
    for begin in top.find_all(exp.GT, exp.GTE):
        if isinstance(begin.left, exp.Column) and begin.left.sql() == end.left.sql():
            return _number(begin.right)
    return 0


def _values(
    ask: Ask,
    parameter: Placeholder,
    tables: tuple[str, ...],
) -> tuple[Any, ...]:
    """Return the values of its column in the server's statistics, numbers and times as such."""
    rule = _rule_of(parameter.type.removesuffix("[]"))
    if not rule or not parameter.column or parameter.rows is not None:
        return ()
    values = list[Any]()
    for text in postgres_sql.common_values(ask, parameter.column, tables):
        if len(text) <= LONGEST:
            with contextlib.suppress(ValueError, ArithmeticError):  # infinity, BC
                values.append(rule.read(text))
    return tuple(values)
