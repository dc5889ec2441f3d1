"""Find regressions: whether the newest night of a series is unchanged, suspect or at another level,
what earlier nights have confirmed, and whether a notification is due.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.compare import changepoints
from dbbench.errors import DbbenchError, ResultDamaged, collect_errors
from dbbench.nightly.history import FOLDER, acceptances, by_date, every_plan
from dbbench.nightly.night import ITSELF, Accepted, Night, Ratio
from dbbench.report.page.charts.nights import Course, NightPoint
from dbbench.results.fileio import read_bytes, sound_json, write_json

SHIFT: Final = 0.03  # least shift of a change point; smaller ones are never reported
# standard deviations of the accepted nights; beyond it a night is suspected, and a second run
# decides
FAR: Final = 4.0
# with fewer nights than ENOUGH, a larger change is suspected whatever its interval is
FEW: Final = math.log(1.10)
ENOUGH: Final = 5  # accepted nights that are needed to estimate their scatter
RECENT: Final = 10  # number of nights for which a change point counts as new
MOVED: Final = ("regression", "improvement")
QUIET: Final = ("ok", "learning")


@dataclass(frozen=True)
class NightFinding:
    """One series tonight. `state`: learning, ok, suspect, regression, improvement; `since`: the
    night of the change.
    """

    key: str
    state: str
    ratio: float
    level: float | None = None  # level of the accepted nights, or of the accepted run
    since: str | None = None
    worse: bool = False
    notes: tuple[str, ...] = ()
    margin: float = 0.0  # uncertainty of the level on the log scale; 0 from ENOUGH nights on

    @property
    def change(self) -> float | None:
        return None if self.level is None else self.ratio / self.level


def judge(
    nights: Sequence[Night], tonight: Night, accepted: Accepted | None, window: int
) -> list[NightFinding]:
    """Return a finding for each series of tonight. The level is the median of at most `window`
    accepted nights since the last acceptance: good ones on which the series had not changed;
    before there are ENOUGH, the ratio of the accepted run, if any. `learning`: the first night,
    and one without intervals among the first few. A series is suspect if tonight is FAR from the
    level or a change point is RECENT, by at least SHIFT. One that had changed before and is
    still at the new level stays changed without another confirmation.
    """
    since = [night for night in nights if accepted is None or night.created >= accepted.created]
    past = sorted(since, key=lambda night: night.created)[-window:]
    return [
        _finding(key, value, past, tonight, accepted)
        for key, value in sorted(tonight.ratios.items())
    ]


def confirm(finding: NightFinding, again: Ratio | None) -> NightFinding:
    """Return a suspect finding after a second run in the same night: confirmed if the interval of
    that run excludes the level on the same side, otherwise chance. Without an interval it stays
    suspect.
    """
    level = finding.level
    if level is None or again is None or again.lo is None or again.hi is None:
        return finding
    lower = finding.ratio < level
    if (
        again.hi < level * math.exp(-finding.margin)
        if lower
        else again.lo > level * math.exp(finding.margin)
    ):
        state = "regression" if finding.worse else "improvement"
        note = "confirmed"
    else:
        state = "ok"
        note = "not confirmed"
    note = f"{note} by {again.n} more blocks: {again.ratio / level - 1:+.1%}"
    return dataclasses.replace(finding, state=state, notes=(*finding.notes, note))


def series_of(key: str, nights: Sequence[Night]) -> tuple[list[str], list[float | None]]:
    """Return (dates, ratios) of a series, with None for nights that are missing or not good."""
    dated = list(by_date(nights))
    ratios = [
        night.ratios.get(key) if night is not None and night.good else None for _, night in dated
    ]
    return [date for date, _ in dated], [None if ratio is None else ratio.ratio for ratio in ratios]


def _finding(
    key: str, value: Ratio, past: Sequence[Night], tonight: Night, accepted: Accepted | None
) -> NightFinding:
    settled = [
        n.ratios[key] for n in past if n.good and key in n.ratios and n.states.get(key) not in MOVED
    ]
    level, bound, margin = _level(key, settled, value, accepted)
    if level is None or math.isinf(bound):
        return NightFinding(
            key, "learning", value.ratio, notes=("no earlier runs to compare with yet",)
        )
    away = math.log(value.ratio / level)
    worse = (away < 0) == (value.better == "higher")
    dates, values = series_of(key, [*past, tonight])
    recent = [place for place in changepoints(values) if place >= len(values) - RECENT]
    stepped = (
        bool(recent)
        and abs(
            statistics.median(math.log(v) for v in values[recent[-1] :] if v is not None)
            - math.log(level)
        )
        >= SHIFT
    )
    if not tonight.good or not (abs(away) > max(SHIFT, bound) or (stepped and abs(away) >= SHIFT)):
        return NightFinding(key, "ok", value.ratio, level, None, worse)
    change_date = dates[recent[-1]] if stepped else tonight.night
    changes = [
        change
        for night in (*past, tonight)
        if night.night == change_date
        for change in night.changes
    ]
    notes = tuple(f"the same night: {change.text}" for change in changes)
    state = past[-1].states.get(key, "") if past else ""
    still = "regression" if worse else "improvement"
    if state == still:
        same = list(
            itertools.takewhile(lambda night: night.states.get(key) == still, reversed(past))
        )
        change_date = same[-1].night
    return NightFinding(
        key,
        still if state == still else "suspect",
        value.ratio,
        level,
        change_date,
        worse,
        notes,
        margin,
    )


def _level(
    key: str, settled: Sequence[Ratio], tonight: Ratio, accepted: Accepted | None
) -> tuple[float | None, float, float]:
    """Return (accepted level, largest acceptable distance of a night, uncertainty of the level),
    both on the log scale. With fewer than ENOUGH nights both are from intervals, and the level
    is the accepted run's, or the median so far.
    """
    logs = [math.log(ratio.ratio) for ratio in settled]
    if len(settled) >= ENOUGH:
        middle = statistics.median(logs)
        return (
            math.exp(middle),
            FAR * 1.4826 * statistics.median(abs(value - middle) for value in logs),
            0.0,
        )
    if accepted is not None and key in accepted.ratios:
        base = accepted.ratios[key]
        return base.ratio, _few(_half(base), _half(tonight)), _half(base)
    if not settled:
        return None, 0.0, 0.0
    half_width = statistics.median(_half(ratio) for ratio in settled)
    return math.exp(statistics.median(logs)), _few(half_width, _half(tonight)), half_width


def _few(known: float, tonight: float) -> float:
    """Return how far tonight may be from a level of few nights: at most FEW, because a second run
    is cheap.
    """
    both = math.hypot(known, tonight)
    return both if math.isinf(both) else min(both, FEW)


def _half(ratio: Ratio) -> float:
    """Return half the interval on the log scale; infinity without an interval, so that every
    distance is acceptable.
    """
    return math.inf if ratio.lo is None or ratio.hi is None else math.log(ratio.hi / ratio.lo) / 2


def courses_of(
    results: Path, runs: Sequence[str], damaged: list[DbbenchError] | None = None
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
                courses += [
                    _course(key, nights, accepted)
                    for key in dict.fromkeys(k for n in nights for k in n.ratios)
                ]
    return tuple(courses)


def _course(key: str, nights: Sequence[Night], accepted: tuple[tuple[str, str], ...]) -> Course:
    title, _, arm = key.rpartition(": ")
    reference = next(
        (
            name
            for night in nights
            for name in night.ratios
            if name.startswith(f"{title}: ") and name.endswith(ITSELF)
        ),
        "",
    )
    itself = arm.endswith(ITSELF)
    points = tuple(
        NightPoint(date, None) if night is None else _point(night, key)
        for date, night in by_date(nights)
    )
    against = "" if itself else reference.rpartition(": ")[2].removesuffix(ITSELF)
    return Course(title, arm.removesuffix(ITSELF), against, points, accepted)


def _point(night: Night, key: str) -> NightPoint:
    ratio = night.ratios.get(key)
    value, lo, hi = (None, None, None) if ratio is None else (ratio.ratio, ratio.lo, ratio.hi)
    return NightPoint(
        night.night,
        value,
        lo,
        hi,
        night.good,
        night.states.get(key, ""),
        {change.name: change.text for change in night.changes},
        night.run,
        night.levels.get(key),
        night.since.get(key, ""),
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
    ratio: float  # ratio of the first such night
    run: str  # name of the run of that night
    changed: tuple[str, ...]  # versions that were new in that night


def regressions(nights: Mapping[str, Sequence[Night]]) -> list[Regression]:
    """Return all confirmed regressions of these plans' nights, the newest first."""
    every = (
        regression
        for plan, own in nights.items()
        for series in dict.fromkeys(key for night in own for key in night.states)
        for regression in _of(plan, series, own)
    )
    return sorted(every, key=lambda each: (each.since, each.plan, each.series), reverse=True)


def _of(plan: str, series: str, nights: Sequence[Night]) -> Iterator[Regression]:
    # A night without a value for the series does not end a regression.
    valued = [
        night
        for night in nights
        if series in night.states
        and (night.states[series] != "regression" or series in night.ratios)
    ]
    stretches = [
        list(of) for _, of in itertools.groupby(valued, lambda night: night.states[series])
    ]
    for (first, *_), after in itertools.zip_longest(stretches, stretches[1:]):
        if first.states[series] == "regression":
            until = after[0].night if after else None
            changed = tuple(change.text for change in first.changes)
            yield Regression(
                plan, series, first.night, until, first.ratios[series].ratio, first.run, changed
            )


def overall(tonight: Night, findings: Sequence[NightFinding], missing: Sequence[str]) -> str:
    """Return one word: regression, failed, inconclusive (invalid or missing nights), improvement,
    ok.
    """
    states = {finding.state for finding in findings}
    if "regression" in states:
        return "regression"
    if tonight.failed:
        return "failed"
    if not tonight.good or "suspect" in states or missing:
        return "inconclusive"
    return "improvement" if "improvement" in states else "ok"


def differs(results: Path, plan: str, word: str, findings: Sequence[NightFinding]) -> bool:
    """Return whether the state differs from the last one, so that a notification is due; save it as
    the last one. For the first night this is True unless nothing is wrong.
    """
    path = results / FOLDER / f"{plan}.state.json"
    series = {
        finding.key: "ok" if finding.state in QUIET else finding.state for finding in findings
    }
    try:
        before = sound_json(read_bytes(path, results))
        known_state = before["state"]
        known_series = before["series"]
    except (OSError, ValueError, KeyError, TypeError, ResultDamaged):
        known_state = "ok"
        known_series = {}
    write_json(path, {"state": word, "series": series})
    return bool(
        known_state != word
        or any(dict(known_series).get(key, "ok") != state for key, state in series.items())
    )
