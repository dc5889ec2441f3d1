"""Compatibility with results of earlier versions, some of which have findings only as text.

This is the only module that converts text to kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dbbench.model import Conclusion, Question, SourceChange, SourceChangeKind

_SOURCE_CHANGES: Final = {
    SourceChangeKind.CONFIGURATION: r"(?P<settings>.*): taken out; `settings` of \[\[engine\]\] brings it back",
    SourceChangeKind.PERSISTED: r"settings that MySQL persisted \(mysqld-auto.cnf\) are taken out",
    SourceChangeKind.DATABASE_SETTINGS: r"of the database's own settings (?P<settings>.*) are reset",
    SourceChangeKind.RENAMED: r"the database (?P<database>.*) is called (?P<name>.*) in the copy",
    SourceChangeKind.CHOSEN: r"the largest database, (?P<database>.*), is the one that is worked on",
    SourceChangeKind.CHECKSUMS: r"its pages had no checksums; the copy has them",
    SourceChangeKind.OTHER: r"(?P<text>.*)",
}


def source_change(text: str) -> SourceChange:
    """Return a change of the user's data from the text in the manifest of a golden copy that has no `changes`."""
    matches = ((kind, re.fullmatch(form, text, re.DOTALL)) for kind, form in _SOURCE_CHANGES.items())
    return next(SourceChange(kind, match.groupdict()) for kind, match in matches if match)


def questions(settled: Mapping[str, str]) -> dict[str, Question]:
    """Return the questions of a run from the text in a run.json that has no `questions`."""
    return {cell: _question(text) for cell, text in settled.items()}


def _question(text: str) -> Question:
    match = re.match(r"(settled|open) after (\d+) pairs(?:: ±([\d.]+) %)?", text)
    if match is None:
        return Question("given-up")
    half_width = None if match[3] is None else round(float(match[3]) / 100, 4)
    return Question("settled" if match[1] == "settled" else "open", int(match[2]), half_width)


def conclusion(statement: str) -> Conclusion:
    """Return the conclusion of a row of powercut.json that has only a statement."""
    if statement.startswith("no statement"):
        return Conclusion.NONE
    if statement.startswith("lab blind"):
        return Conclusion.BLIND
    return Conclusion.UNHARMED if statement.startswith("0 of ") else Conclusion.HARMED


def break_of(text: str, facts: Mapping[str, str]) -> tuple[str, str, str]:
    """Parse a line about a fact that was new on a night, from a file without `changes`; return (name, before, after).

    Names and values may contain spaces; `facts` are those of that night.
    """
    names = sorted((name for name in facts if text.startswith(f"{name} ")), key=len)
    name = names[-1] if names else text.partition(" ")[0]
    before, _, after = text.removeprefix(name).strip().partition(" → ")
    return name, before, after
