"""By which rule a parameter is drawn: by its type where a server was asked, by the values in a slow log, or guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dbbench.recorded.reading import Seen
from dbbench.recorded.sorting import Kept

LEAST: Final = 1  # of a number that nobody knows anything of; marked in the file
MOST: Final = 100_000
SPAN_S: Final = 6 * 365 * 86400  # of times: six years from 2020 on
ROWS: Final = 10  # LIMIT
WIDTH: Final = 99  # of BETWEEN, in values of its column: a hundred, as in sysbench's ranges
WIDTH_S: Final = 86_399  # of times: a day
# Types of PostgreSQL -> the expression, {} being a whole number that was drawn. Others are left out.
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
class Told:
    """What a server says of a parameter: its type, and the range of the column that it stands beside."""

    type: str
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Rule:
    """A whole number of [least, most], put into `expression`; or one of `texts`. `guessed`: nobody was asked."""

    least: int
    most: int
    expression: str = "{}"
    texts: tuple[str, ...] = ()
    guessed: bool = False
    note: str = ""
    after: str = ""  # the parameter that [least, most] is added to: BETWEEN $1 AND $2


def rule_of(kept: Kept, index: int, told: Told | None) -> Rule | None:
    """The rule for the parameter of that index; None where nothing of its type can be drawn."""
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
    return Rule(LEAST, MOST, guessed=True, note="GUESSED: no server was asked for its type and range; edit it")


def _width(kept: Kept, index: int, told: Told | None, first: str) -> Rule | None:
    """The end of a range follows from its begin: two ends drawn by themselves would span a third of the table."""
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
    """The parameter that this one is the end of a range to (`BETWEEN $1 AND $2`); "" where it is none."""
    whole = [token for token in kept.tokens if token.kind != "blank"]
    at = next(index for index, token in enumerate(whole) if token.text == parameter)
    if at < 3 or not whole[at - 1].is_word("and") or not whole[at - 3].is_word("between"):
        return ""
    return whole[at - 2].text if whole[at - 2].kind == "parameter" and whole[at - 2].text != parameter else ""


def _by_type(told: Told) -> Rule | None:
    expression = EXPRESSIONS.get(told.type)
    if expression is None:
        return None
    if told.least is not None and told.most is not None:
        return Rule(told.least, told.most, expression, note=f"{told.type}, the range of its column")
    if "interval" in expression or told.type == "date":
        return Rule(0, SPAN_S, expression, note=told.type)
    most = min(MOST, _LARGEST.get(told.type, MOST))
    return Rule(LEAST, most, expression, guessed=True, note=f"{told.type}; its range is GUESSED, edit it")


def _by_values(seen: Seen) -> Rule:
    if seen.texts:
        return Rule(0, 0, texts=tuple(seen.texts), note="texts of the log")
    if seen.least is None or seen.most is None:
        return Rule(LEAST, MOST, guessed=True, note="GUESSED: its values are not in the log; edit it")
    return Rule(int(seen.least), int(seen.most), note="the range in the log")


def _word_before(kept: Kept, parameter: str) -> str:
    """The word or sign in front of a parameter, in small letters."""
    whole = [token for token in kept.tokens if token.kind != "blank"]
    at = next(index for index, token in enumerate(whole) if token.text == parameter)
    return whole[at - 1].text.lower() if at else ""


def column_of(kept: Kept, parameter: str) -> str:
    """The column that the parameter is compared with or set to (`id = $1`, `t.id BETWEEN $1`); "" where none is."""
    text = "".join(token.text for token in kept.tokens if token.text not in ('"', "`"))
    found = re.search(
        rf'"?(\w+)"?\s*(?:=|<>|<=|>=|<|>|\bbetween\b|\bin\s*\()\s*{re.escape(parameter)}(?!\d)', text, re.IGNORECASE
    )
    return found[1] if found else ""


def tables_of(kept: Kept) -> tuple[str, ...]:
    """Names that may be tables: those behind FROM, JOIN, UPDATE, INTO."""
    whole = [token for token in kept.tokens if token.kind != "blank"]
    names = []
    for index, token in enumerate(whole[:-1]):
        if token.is_word("from", "join", "update", "into"):
            at = index + 1
            while at + 2 < len(whole) and whole[at + 1].text == ".":
                at += 2
            names.append(whole[at].text.strip('"`'))
    return tuple(dict.fromkeys(names))
