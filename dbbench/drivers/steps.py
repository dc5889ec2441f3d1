"""A script of SQL steps: text in, steps out.

A step begins with a line "-- step NAME" and words about it after semicolons: "on ENGINE ..." (default: all), "each
table", "untimed". Its statements follow, each ending with a semicolon at the end of a line. `{name}` in them is a
parameter of the workload, `{table}` the table's name, `{file}` the file of rows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dbbench.errors import ScriptInvalid
from dbbench.model import Scalar

ENGINES: Final = ("postgres", "mariadb", "mysql")
_HEADING: Final = re.compile(r"^-- step\b(.*)$", re.MULTILINE)
_END: Final = re.compile(r";[ \t]*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*$", re.MULTILINE)
_NAME: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Step:
    """Some statements; all of them, on all their tables, are one time."""

    name: str
    statements: tuple[str, ...]
    engines: tuple[str, ...] = ENGINES
    each_table: bool = False  # once for each table, by as many sessions as there are clients
    timed: bool = True

    def of(self, values: Mapping[str, Scalar | Path]) -> Step:
        """The step with every `{name}` but `{table}` filled in. ScriptInvalid for a name that there is not."""
        return replace(self, statements=tuple(_filled(one, values, self.name) for one in self.statements))


def for_table(statement: str, table: str) -> str:
    """The statement for one table."""
    return statement.replace("{table}", table)


def parse(text: str, engine: str) -> tuple[Step, ...]:
    """The steps of one engine, in order. ScriptInvalid."""
    head, *parts = _HEADING.split(text)
    if _COMMENT.sub("", head).strip():
        raise ScriptInvalid('there is SQL before the first line "-- step NAME"')
    steps = [_step(words, body) for words, body in zip(parts[::2], parts[1::2], strict=True)]
    own = tuple(step for step in steps if engine in step.engines)
    if not any(step.timed for step in own):
        raise ScriptInvalid(f"it has no timed step for {engine}")
    untimed_after = [later for one, later in itertools.pairwise(own) if one.timed and not later.timed]
    if untimed_after:
        raise ScriptInvalid(f'step "{untimed_after[0].name}" is untimed and follows a timed one')
    return own


def _step(words: str, body: str) -> Step:
    name, *about = (word.strip() for word in words.strip().split(";"))
    statements = tuple(one.strip() for one in _END.split(_COMMENT.sub("", body)) if one.strip())
    if not name or not statements:
        raise ScriptInvalid(f'step "{name}" has no {"name" if not name else "statement"}')
    step = Step(name, statements)
    for word in about:
        if word.startswith("on "):
            engines = tuple(word.split()[1:])
            if unknown := [one for one in engines if one not in ENGINES]:
                raise ScriptInvalid(f'step "{name}" is on "{unknown[0]}", which is no engine')
            step = replace(step, engines=engines)
        elif word == "each table":
            step = replace(step, each_table=True)
        elif word == "untimed":
            step = replace(step, timed=False)
        else:
            raise ScriptInvalid(f'step "{name}": "{word}" is none of "on ENGINE", "each table", "untimed"')
    return step


def _filled(statement: str, values: Mapping[str, Scalar | Path], step: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "table":
            return match[0]
        if match[1] not in values:
            raise ScriptInvalid(f'step "{step}": {match[0]} is no parameter of the workload')
        return str(values[match[1]])

    return _NAME.sub(value, statement)
