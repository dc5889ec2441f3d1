"""Select the recorded statements that a script can contain, with the reason for omitting the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from dbbench.introspect.statements.recordings import RecordedStatements, SeenValues, Token, faults, tokens_of

MOST: Final = 100  # statements of a workload: pgbench takes 128 scripts
ON_ROWS: Final = ("select", "insert", "update", "delete", "with", "values", "merge", "replace", "table")
# What asks or steers the server itself, reaches out of the database or only waits: no work of an application.
_SERVER: Final = re.compile(
    r"pg_\w*|lo_\w*|dblink\w*|information_schema|performance_schema|outfile|dumpfile|load_file|set_config"
    r"|current_setting|query_to_xml\w*|sleep|benchmark|get_lock|release_lock",
    re.IGNORECASE,
)
SHOWN: Final = 100  # letters of a statement that is told


@dataclass(frozen=True)
class Kept:
    """A statement that can be run again. `parameters` in the order of first use: "$1", or "?1", "?2" for each ?."""

    tokens: tuple[Token, ...]  # each ? has its number
    calls: int
    seen: tuple[SeenValues, ...]  # of the slow log, one a parameter

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


def sorted_out(recording: RecordedStatements, most: int = MOST) -> Sorted:
    """Keep the `most` most frequent statements that can be run again."""
    found = Sorted()
    for statement in recording.statements:
        try:
            tokens = tokens_of(statement.text, recording.dialect)
            why = refusal(statement.text, tokens)
        except ValueError as error:
            tokens, why = [], str(error)
        if not why and len(found.kept) >= most:
            why = f"beyond the {most} called most often"
        if why:
            found.left_out.append(LeftOut(shown(statement.text), statement.calls, why))
        else:
            found.kept.append(Kept(tuple(_numbered(tokens)), statement.calls, tuple(statement.seen)))
    return found


def refusal(text: str, tokens: list[Token]) -> str:
    """Return why the statement cannot be used; "" if it can."""
    words = [token.text.lower() for token in tokens if token.kind == "word"]
    if not words or words[0] not in ON_ROWS:
        return f"no statement on rows ({words[0].upper() if words else 'empty'})"
    if why := faults(text, tokens):
        return why
    for token in tokens:
        if token.kind in ("word", "quoted") and _SERVER.fullmatch(token.text.strip('"`')):
            return f"it is about the server itself ({shown(token.text)})"
    if words[0] in ("select", "with") and "into" in words and not {"insert", "merge"} & set(words):
        return "it makes a table"
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
