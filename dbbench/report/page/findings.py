"""Section "Warnings": failed trials and warnings, one entry for each ID, with its trials and their
evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace as View

from dbbench.errors import Kind, error_kinds, warning_kinds
from dbbench.report.page.groups import Group
from dbbench.units import count


def findings(groups: Sequence[Group]) -> tuple[View, ...]:
    """Return errors first, then warnings, by ID, each with its places. A `grave` one is a failure,
    or telemetry that made a trial suspect; the link of a place leads to its second in the
    timelines.
    """
    total = sum(len(group.trials) for group in groups)
    every: dict[tuple[bool, str], list[View]] = {}  # (whether it is a warning, ID) -> places
    for group, trial in [(g, trial) for g in groups for trial in g.trials]:
        again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
        name = f"{trial.fs_setup} block {trial.block}{again} ({group.title})"
        if trial.error is not None:
            where = f"{name}, in phase {trial.error.phase or 'unknown'}"
            place = View(where=where, text=trial.error.text, second=None, link=None, suspect=True)
            every.setdefault((False, trial.error.id), []).append(place)
        for warning in trial.warnings:
            # The script of the page reads the link to a second of the timelines.
            to = f"#c={group.ident}&fs={group.arms.index(trial.fs_setup)}&trials=1&at={warning.second}"
            link = None if warning.second is None else to
            place = View(
                where=name,
                text=warning.text,
                second=warning.second,
                link=link,
                suspect=bool(warning.suspect),
            )
            every.setdefault((True, warning.id), []).append(place)
    failure = Kind("the trial failed", "", "")
    foreign = Kind("a warning of another version of dbbench", "", "")
    entries = []
    for (warned, ident), places in sorted(every.items(), key=lambda entry: entry[0]):
        kind = warning_kinds().get(ident, foreign) if warned else error_kinds().get(ident, failure)
        entries.append(
            View(
                ident=ident,
                title=kind.title,
                why=kind.meaning if warned else "",
                grave=any(place.suspect for place in places),
                places=places,
                whose=_whose(places, total),
                texts=list(Counter(place.text for place in places).items()),
            )
        )
    return tuple(entries)


def _whose(places: list[View], total: int) -> str:
    trials = len({place.where for place in places})
    if trials == total and total > 1:
        return f"all {total} trials"
    return places[0].where if trials == 1 else count(trials, "trial")
