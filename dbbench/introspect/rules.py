"""Select the recorded statements that a script can contain, with the reason for omitting the others; and how to draw a
parameter: by its type if a server was queried, by the values in a slow log, or guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from dbbench.introspect.recordings import RecordedStatements, SeenValues, Token, faults, tokens_of

# Range of a number about which nothing is known; the script marks it as GUESSED.
LEAST: Final = 1
MOST: Final = 100_000
SPAN_S: Final = 6 * 365 * 86400  # seconds: times are in the six years from 2020 on
ROWS: Final = 10  # the largest LIMIT
WIDTH: Final = 99  # end - start of BETWEEN: a hundred values of a column, as in sysbench's ranges
WIDTH_S: Final = 86_399  # end - start of BETWEEN for times, in seconds: a day
# PostgreSQL's type -> expression, in which {} is a random whole number. A parameter of another type has no rule.
EXPRESSIONS: Final[dict[str, str]] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric", "real", "double precision", "oid"), "{}"),
    **dict.fromkeys(("text", "character varying", "character", "name", "unknown"), "{}"),
    "boolean": "({}::int % 2 = 0)",
    "date": "(date '2020-01-01' + {}::int / 86400)",
    "timestamp without time zone": "(timestamp '2020-01-01' + {}::int * interval '1 second')",
    "timestamp with time zone": "(timestamptz '2020-01-01' + {}::int * interval '1 second')",
    "time without time zone": "(time '00:00' + {}::int * interval '1 second')",
    "interval": "({}::int * interval '1 second')",
    "uuid": "md5({}::text)::uuid",
    "bytea": "decode(md5({}::text), 'hex')",
    "json": "to_json({}::int)",
    "jsonb": "to_jsonb({}::int)",
    **{f"{kind}[]": f"ARRAY[{{}}::{kind}]" for kind in ("smallint", "integer", "bigint", "text", "numeric")},
}
_LARGEST: Final = {"smallint": 32_767}


@dataclass(frozen=True)
class ParameterType:
    """A server's description of a parameter: its type, and the range of the column with which it is compared."""

    type: str
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Rule:
    """A whole number in [least, most], put into `expression`; or one of `texts`. `guessed`: no server was queried."""

    least: int
    most: int
    expression: str = "{}"
    texts: tuple[str, ...] = ()
    guessed: bool = False
    note: str = ""
    after: str = ""  # the parameter to which the number is added: $1 of BETWEEN $1 AND $2


def rule_of(kept: Kept, index: int, told: ParameterType | None) -> Rule | None:
    """Return the rule for the parameter with that index, or None if its type is not supported."""
    before = _word_before(kept, kept.parameters[index])
    if before in ("limit", "first", "next"):
        return Rule(1, ROWS, note="a number of rows")
    if before == "offset":
        return Rule(0, 0, note="from the first row on")
    if first := _begin_of(kept, kept.parameters[index]):
        return _width(kept, index, told, first)
    if told is not None:
        return _by_type(told)
    if index < len(kept.seen):
        return _by_values(kept.seen[index])
    return Rule(
        LEAST,
        MOST,
        guessed=True,
        note="GUESSED: its type and range are unknown, because no server was queried; edit it",
    )


def _width(kept: Kept, index: int, told: ParameterType | None, first: str) -> Rule | None:
    """Derive the end of a range from its start: two independent ends would on average cover a third of the table."""
    if told is not None:
        rule = _by_type(told)
        most = WIDTH_S if rule and ("interval" in rule.expression or told.type == "date") else WIDTH
        return Rule(0, most, rule.expression, note=f"{told.type}, GUESSED: up to {most} above {first}", guessed=True,
                    after=first) if rule else None  # fmt: skip
    if index < len(kept.seen) and (apart := kept.seen[index].apart):
        return Rule(int(apart[0]), int(apart[1]), note=f"as far above {first} as in the log", after=first)
    if index < len(kept.seen) and kept.seen[index].texts:
        return _by_values(kept.seen[index])
    return Rule(0, WIDTH, guessed=True, note=f"GUESSED: up to {WIDTH} above {first}; edit it", after=first)


def _begin_of(kept: Kept, parameter: str) -> str:
    """Return the start of the range whose end this parameter is (`BETWEEN $1 AND $2`), or ""."""
    whole = [token for token in kept.tokens if token.kind != "blank"]
    place = next(index for index, token in enumerate(whole) if token.text == parameter)
    if place < 3 or not whole[place - 1].is_word("and") or not whole[place - 3].is_word("between"):
        return ""
    return whole[place - 2].text if whole[place - 2].kind == "parameter" and whole[place - 2].text != parameter else ""


def _by_type(told: ParameterType) -> Rule | None:
    expression = EXPRESSIONS.get(told.type)
    if expression is None:
        return None
    if told.least is not None and told.most is not None:
        return Rule(told.least, told.most, expression, note=f"{told.type}, the range of its column")
    if "interval" in expression or told.type == "date":
        return Rule(0, SPAN_S, expression, note=told.type)
    most = min(MOST, _LARGEST.get(told.type, MOST))
    return Rule(LEAST, most, expression, guessed=True, note=f"{told.type}; its range is GUESSED, edit it")


def _by_values(seen: SeenValues) -> Rule:
    if seen.texts:
        return Rule(0, 0, texts=tuple(seen.texts), note="texts of the log")
    if seen.least is None or seen.most is None:
        return Rule(LEAST, MOST, guessed=True, note="GUESSED: its values are not in the log; edit it")
    return Rule(int(seen.least), int(seen.most), note="the range in the log")


def _word_before(kept: Kept, parameter: str) -> str:
    """Return the word or sign before a parameter, in lower case."""
    whole = [token for token in kept.tokens if token.kind != "blank"]
    place = next(index for index, token in enumerate(whole) if token.text == parameter)
    return whole[place - 1].text.lower() if place else ""


def column_of(kept: Kept, parameter: str) -> str:
    """Return the column with which the parameter is compared or that it sets (`id = $1`, `t.id BETWEEN $1`), or ""."""
    text = "".join(token.text for token in kept.tokens if token.text not in ('"', "`"))
    match = re.search(
        rf'"?(\w+)"?\s*(?:=|<>|<=|>=|<|>|\bbetween\b|\bin\s*\()\s*{re.escape(parameter)}(?!\d)', text, re.IGNORECASE
    )
    return match[1] if match else ""


def tables_of(kept: Kept) -> tuple[str, ...]:
    """Return names that may be tables: those after FROM, JOIN, UPDATE, INTO."""
    whole = [token for token in kept.tokens if token.kind != "blank"]
    names = []
    for index, token in enumerate(whole[:-1]):
        if token.is_word("from", "join", "update", "into"):
            place = index + 1
            while place + 2 < len(whole) and whole[place + 1].text == ".":
                place += 2
            names.append(whole[place].text.strip('"`'))
    return tuple(dict.fromkeys(names))


Ask = Callable[..., list[tuple[Any, ...]]]  # (statement, *values) -> rows; raises the server's own errors


def told(ask: Ask, kept: Kept) -> list[ParameterType]:
    """Return the types and ranges of `kept.parameters`, queried from the server. Raises the server's own error."""
    ask(f"PREPARE dbbench_asked AS {kept.text}")
    try:
        found = ask("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'dbbench_asked'")
    finally:
        ask("DEALLOCATE dbbench_asked")
    types = list(found[0][0])
    return [_told(ask, kept, parameter, types[int(parameter[1:]) - 1]) for parameter in kept.parameters]


def _told(ask: Ask, kept: Kept, parameter: str, type_: str) -> ParameterType:
    column, tables = column_of(kept, parameter), tables_of(kept)
    if not column or not tables:
        return ParameterType(type_)
    rows = ask(
        "SELECT histogram_bounds::text, most_common_vals::text FROM pg_stats "
        "WHERE attname = %s AND tablename = ANY(%s)",
        column, list(tables),
    )  # fmt: skip
    values = [int(word) for row in rows for text in row if text for word in re.findall(r"(?<=[{,])-?\d+(?=[,}])", text)]
    return ParameterType(type_, min(values), max(values)) if values else ParameterType(type_)


MOST_STATEMENTS: Final = 100  # statements of a workload; pgbench accepts 128 scripts
ON_ROWS: Final = ("select", "insert", "update", "delete", "with", "values", "merge", "replace", "table")
# Names in statements that query or control the server itself, reach out of the database, or only wait: these are not an
# application's work.
_SERVER: Final = re.compile(
    r"pg_\w*|lo_\w*|dblink\w*|information_schema|performance_schema|outfile|dumpfile|load_file|set_config"
    r"|current_setting|query_to_xml\w*|sleep|benchmark|get_lock|release_lock",
    re.IGNORECASE,
)
SHOWN: Final = 100  # characters of a statement in a message


@dataclass(frozen=True)
class Kept:
    """A statement that can be run again. `parameters` in the order of first use: "$1", or "?1", "?2" for each ?."""

    tokens: tuple[Token, ...]  # each ? is numbered
    calls: int
    seen: tuple[SeenValues, ...]  # values in the slow log, one entry per parameter

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(token.text for token in self.tokens if token.kind == "parameter"))

    @property
    def text(self) -> str:
        """Return the statement with its parameters."""
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True)
class LeftOut:
    """A statement that the workload omits."""

    text: str
    calls: int
    why: str


@dataclass
class Sorted:
    """All statements of a recording, in its order."""

    kept: list[Kept] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Return the calls of the kept statements divided by all calls."""
        calls = sum(each.calls for each in self.kept)
        return calls / (calls + sum(each.calls for each in self.left_out))


def sorted_out(recording: RecordedStatements, most: int = MOST_STATEMENTS) -> Sorted:
    """Keep the `most` most frequent statements that can be run again."""
    result = Sorted()
    for statement in recording.statements:
        try:
            tokens = tokens_of(statement.text, recording.dialect)
            why = refusal(statement.text, tokens)
        except ValueError as error:
            tokens, why = [], str(error)
        if not why and len(result.kept) >= most:
            why = f"not among the {most} most frequent statements"
        if why:
            result.left_out.append(LeftOut(shown(statement.text), statement.calls, why))
        else:
            result.kept.append(Kept(tuple(_numbered(tokens)), statement.calls, tuple(statement.seen)))
    return result


def refusal(text: str, tokens: list[Token]) -> str:
    """Return why the statement cannot be used; "" if it can."""
    words = [token.text.lower() for token in tokens if token.kind == "word"]
    if not words or words[0] not in ON_ROWS:
        return f"not a statement on rows ({words[0].upper() if words else 'empty'})"
    if why := faults(text, tokens):
        return why
    for token in tokens:
        if token.kind in ("word", "quoted") and _SERVER.fullmatch(token.text.strip('"`')):
            return f"it concerns the server itself ({shown(token.text)})"
    if words[0] in ("select", "with") and "into" in words and not {"insert", "merge"} & set(words):
        return "it creates a table"
    return ""


def shown(text: str) -> str:
    """Return a statement as one short line without terminal control characters."""
    line = re.sub(r"\s+", " ", text).strip()
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def _numbered(tokens: list[Token]) -> list[Token]:
    found, number = [], 0
    for token in tokens:
        if token.kind == "parameter" and token.text == "?":
            number += 1
            token = Token("parameter", f"?{number}")
        found.append(token)
    return found
