"""Every regression that the nights of a results folder have confirmed, from the lines of the nights alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dbbench.nightly.history import FOLDER, Night, known

REGRESSION = "regression"


@dataclass(frozen=True)
class Regression:
    """One series that was worse from `since` on, up to before `until` (None: it still is). Dates are YYYY-MM-DD."""

    plan: str
    series: str  # "ENGINE WORKLOAD, VARIANT: ARM"
    since: str
    until: str | None
    ratio: float  # of the first such night
    run: str  # that night's run
    changed: tuple[str, ...]  # versions that were new on it


def regressions(results: Path) -> list[Regression]:
    """All of them, the newest first. ResultDamaged."""
    found = [one for path in sorted((results / FOLDER).glob("*.jsonl"))
             for one in _of(path.stem, known(results, path.stem))]  # fmt: skip
    return sorted(found, key=lambda one: (one.since, one.plan, one.series), reverse=True)


def _of(plan: str, nights: Sequence[Night]) -> Iterator[Regression]:
    for series in dict.fromkeys(key for night in nights for key in night.states):
        begun: Night | None = None
        for night in nights:
            if series not in night.states:
                continue  # a night that tells nothing of it ends nothing
            if night.states[series] == REGRESSION:
                begun = begun or night
            elif begun is not None:
                yield _one(plan, series, begun, night.night)
                begun = None
        if begun is not None:
            yield _one(plan, series, begun, None)


def _one(plan: str, series: str, begun: Night, until: str | None) -> Regression:
    return Regression(plan, series, begun.night, until, begun.ratios[series].ratio, begun.run, begun.breaks)
