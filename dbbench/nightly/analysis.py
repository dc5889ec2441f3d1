"""What the nights of a plan say together: the series for the page, confirmed regressions, the word
for a night, and whether a notification is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError, ResultDamaged, collect_errors
from dbbench.nightly.history import FOLDER, acceptances, by_date, every_plan
from dbbench.nightly.judging import OPEN, NightFinding
from dbbench.nightly.night import ITSELF, Night
from dbbench.report.page.charts.nights import Course, NightPoint
from dbbench.results.fileio import read_bytes, sound_json, write_json

QUIET: Final = ("ok", "learning")


def courses_of(
    results: Path,
    runs: Sequence[str],
    damaged: list[DbbenchError] | None = None,
) -> tuple[Course, ...]:
    """Return all series of these runs' plans. Raises ResultDamaged; with `damaged`, errors are
    added to it instead.
    """
    courses: list[Course] = []
    for plan, nights in every_plan(results, damaged).items():
        with collect_errors(damaged, ResultDamaged):
            dates = {night.run: night.night for night in nights}
            accepted = tuple(
                (dates[entry.run], entry.reason)
                for entry in acceptances(results).get(plan, ())
                if entry.run in dates
            )
            if not dates.keys().isdisjoint(runs):
                keys = dict.fromkeys(key for night in nights for key in night.ratios)
                courses += [_course(key, nights, accepted) for key in keys]
    return tuple(courses)


def _course(
    key: str,
    nights: Sequence[Night],
    accepted: tuple[tuple[str, str], ...],
) -> Course:
    title, _, arm = key.rpartition(": ")
    against = ""
    if not arm.endswith(ITSELF):
        against = _reference(title, nights)
    points = []
    for date, night in by_date(nights):
        points.append(NightPoint(date, None) if night is None else _point(night, key))
    return Course(
        title,
        arm.removesuffix(ITSELF),
        against,
        tuple(points),
        accepted,
    )


def _reference(title: str, nights: Sequence[Night]) -> str:
    """Return the arm of this engine and workload whose own figure is a series; "" if none is."""
    for night in nights:
        for key in night.ratios:
            of, _, arm = key.rpartition(": ")
            if of == title and arm.endswith(ITSELF):
                return arm.removesuffix(ITSELF)
    return ""


def _point(night: Night, key: str) -> NightPoint:
    ratio = night.ratios.get(key)
    return NightPoint(
        night=night.night,
        ratio=ratio.ratio if ratio else None,
        lo=ratio.lo if ratio else None,
        hi=ratio.hi if ratio else None,
        good=night.level_of(key) is not None,
        state=night.states.get(key, ""),
        changed={change.name: change.text for change in night.changes},
        run=night.run,
        level=night.levels.get(key),
        since=night.since.get(key, ""),
    )


@dataclass(frozen=True)
class Regression:
    """A series that was worse from `since` on, up to before `until` (None: it still is). Dates are
    YYYY-MM-DD.
    """

    plan: str
    series: str  # "ENGINE WORKLOAD, VARIANT: ARM"
    since: str
    until: str | None
    ratio: float  # ratio of the first such night; of the reference's own series, its value
    change: float | None  # that ratio ÷ its level
    run: str  # name of the run of that night
    changed: tuple[str, ...]  # versions that were new in that night


def regressions(nights: Mapping[str, Sequence[Night]]) -> list[Regression]:
    """Return all confirmed regressions of these plans' nights, the newest first."""
    every: list[Regression] = []
    for plan, of_plan in nights.items():
        for series in dict.fromkeys(key for night in of_plan for key in night.states):
            every += _of(plan, series, of_plan)
    return sorted(
        every,
        key=lambda each: (each.since, each.plan, each.series),
        reverse=True,
    )


def _of(
    plan: str,
    series: str,
    nights: Sequence[Night],
) -> Iterator[Regression]:
    # From the night of the change to the night that is at its level again.
    first: Night | None = None
    for night in nights:
        state = night.states.get(series)
        # A night without an answer or a value for the series does not end a regression.
        if state is None or state in OPEN or series not in night.ratios:
            continue
        if state == "regression":
            first = first or night
        elif first is not None:
            yield _regression(plan, series, first, night.night)
            first = None
    if first is not None:
        yield _regression(plan, series, first, None)


def _regression(
    plan: str,
    series: str,
    first: Night,
    until: str | None,
) -> Regression:
    ratio = first.ratios[series].ratio
    level = first.levels.get(series)
    return Regression(
        plan=plan,
        series=series,
        since=first.night,
        until=until,
        ratio=ratio,
        change=None if level is None else ratio / level,
        run=first.run,
        changed=tuple(change.text for change in first.changes),
    )


def overall(
    tonight: Night,
    findings: Sequence[NightFinding],
    missing: Sequence[str],
) -> str:
    """Return one word: regression, failed, inconclusive (no answer, invalid or missing nights),
    improvement, learning (no series has a level) or ok.
    """
    states = {finding.state for finding in findings}
    if "regression" in states:
        return "regression"
    if tonight.failed:
        return "failed"
    if not tonight.good or missing or not states.isdisjoint(OPEN):
        return "inconclusive"
    if "improvement" in states:
        return "improvement"
    return "learning" if states == {"learning"} else "ok"


def differs(
    results: Path,
    plan: str,
    word: str,
    findings: Sequence[NightFinding],
) -> bool:
    """Return whether the state differs from the last one, so that a notification is due; save it as
    the last one. For the first night this is True unless nothing is wrong.
    """
    path = results / FOLDER / f"{plan}.state.json"
    word = "ok" if word in QUIET else word
    series = {
        finding.key: "ok" if finding.state in QUIET else finding.state for finding in findings
    }
    # A state that cannot be read counts as the usual one.
    try:
        before = sound_json(read_bytes(path, results))
        last_state = before["state"]
        last_series = dict(before["series"])
    except (OSError, ValueError, KeyError, TypeError, ResultDamaged):
        last_state = "ok"
        last_series = {}
    write_json(path, {"state": word, "series": series})
    if last_state != word:
        return True
    return any(last_series.get(key, "ok") != state for key, state in series.items())
