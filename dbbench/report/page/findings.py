"""Section "Warnings": failed trials and warnings, one entry for each ID, with its trials and their
evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dbbench.errors import Kind, error_kinds, warning_kinds
from dbbench.report.page.groups import Group
from dbbench.units import count


class Occurrence(NamedTuple):
    """Where a finding appeared: a trial and its evidence. `link` leads to its second in the
    timelines.
    """

    where: str
    text: str
    suspect: bool
    second: int | None = None
    link: str | None = None


class Finding(NamedTuple):
    """An error or a warning with its places. A `grave` one is a failure, or telemetry that made a
    trial suspect. `texts` are (evidence, how often).
    """

    ident: str
    title: str
    why: str
    grave: bool
    places: list[Occurrence]
    whose: str
    texts: list[tuple[str, int]]


def findings(groups: Sequence[Group]) -> tuple[Finding, ...]:
    """Return errors first, then warnings, by ID, each with its places."""
    total = 0
    errors: dict[str, list[Occurrence]] = {}
    warnings: dict[str, list[Occurrence]] = {}
    # Each ID with the trials in which it occurred.
    for group in groups:
        total += len(group.trials)
        for trial in group.trials:
            again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
            name = f"{trial.fs_setup} block {trial.block}{again} ({group.title})"
            if trial.error is not None:
                where = f"{name}, in phase {trial.error.phase or 'unknown'}"
                place = Occurrence(where, trial.error.text, suspect=True)
                errors.setdefault(trial.error.id, []).append(place)
            for warning in trial.warnings:
                place = Occurrence(
                    name,
                    warning.text,
                    bool(warning.suspect),
                    warning.second,
                )
                if warning.second is not None:
                    # The script of the page reads this link.
                    arm = group.arms.index(trial.fs_setup)
                    link = f"#c={group.ident}&fs={arm}&trials=1&at={warning.second}"
                    place = place._replace(link=link)
                warnings.setdefault(warning.id, []).append(place)

    # Results of another version may have IDs that this one does not know.
    failure = Kind("the trial failed", "", "")
    foreign = Kind("a warning of another version of dbbench", "", "")
    entries = []
    for ident, places in sorted(errors.items()):
        title = error_kinds().get(ident, failure).title
        entries.append(_finding(ident, title, "", places, total))
    for ident, places in sorted(warnings.items()):
        kind = warning_kinds().get(ident, foreign)
        entries.append(_finding(ident, kind.title, kind.meaning, places, total))
    return tuple(entries)


def _finding(
    ident: str,
    title: str,
    why: str,
    places: list[Occurrence],
    total: int,
) -> Finding:
    trials = {place.where for place in places}
    if len(trials) == total and total > 1:
        whose = f"all {total} trials"
    elif len(trials) == 1:
        whose = places[0].where
    else:
        whose = count(len(trials), "trial")
    grave = any(place.suspect for place in places)
    evidence = Counter(place.text for place in places)
    return Finding(
        ident,
        title,
        why,
        grave,
        places,
        whose,
        list(evidence.items()),
    )
