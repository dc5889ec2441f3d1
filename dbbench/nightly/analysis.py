"""Find regressions: whether the newest night of a series is unchanged, suspect or at another level,
what earlier nights have confirmed, and whether a notification is due.
"""

from __future__ import annotations

import dataclasses
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
    nights: Sequence[Night],
    tonight: Night,
    accepted: Accepted | None,
    window: int,
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
    if finding.ratio < level:
        excludes = again.hi < level * math.exp(-finding.margin)
    else:
        excludes = again.lo > level * math.exp(finding.margin)
    state = "ok"
    if excludes:
        state = "regression" if finding.worse else "improvement"
    word = "confirmed" if excludes else "not confirmed"
    note = f"{word} by {again.n} more blocks: {again.ratio / level - 1:+.1%}"
    return dataclasses.replace(
        finding,
        state=state,
        notes=(*finding.notes, note),
    )


def series_of(key: str, nights: Sequence[Night]) -> tuple[list[str], list[float | None]]:
    """Return (dates, ratios) of a series, with None for nights that are missing or not good."""
    dates = []
    ratios = []
    for date, night in by_date(nights):
        ratio = night.ratios.get(key) if night is not None and night.good else None
        dates.append(date)
        ratios.append(None if ratio is None else ratio.ratio)
    return dates, ratios


def _finding(
    key: str,
    value: Ratio,
    past: Sequence[Night],
    tonight: Night,
    accepted: Accepted | None,
) -> NightFinding:
    # Nights that had moved, or were not good, do not make the level.
    settled = []
    for night in past:
        if night.good and key in night.ratios and night.states.get(key) not in MOVED:
            settled.append(night.ratios[key])

    # Without a level or an interval nothing can be said yet.
    level, bound, margin = _level(key, settled, value, accepted)
    if level is None or math.isinf(bound):
        note = "no earlier runs to compare with yet"
        return NightFinding(
            key,
            "learning",
            value.ratio,
            notes=(note,),
        )
    distance = math.log(value.ratio / level)
    worse = (distance < 0) == (value.better == "higher")

    # A change point counts as new for some nights.
    dates, values = series_of(key, [*past, tonight])
    recent = [place for place in changepoints(values) if place >= len(values) - RECENT]
    stepped = False
    if recent:
        logs = [math.log(ratio) for ratio in values[recent[-1] :] if ratio is not None]
        stepped = abs(statistics.median(logs) - math.log(level)) >= SHIFT

    is_far = abs(distance) > max(SHIFT, bound)
    if not tonight.good or not (is_far or (stepped and abs(distance) >= SHIFT)):
        return NightFinding(
            key,
            "ok",
            value.ratio,
            level,
            None,
            worse,
        )

    # What changed in the night in which the series did.
    change_date = dates[recent[-1]] if stepped else tonight.night
    notes: list[str] = []
    for night in (*past, tonight):
        if night.night == change_date:
            notes += [f"the same night: {change.text}" for change in night.changes]

    # A series that is still at its confirmed new level needs no second confirmation.
    state = "suspect"
    moved = "regression" if worse else "improvement"
    for night in reversed(past):
        if night.states.get(key) != moved:
            break
        state = moved
        change_date = night.night
    return NightFinding(
        key,
        state,
        value.ratio,
        level,
        change_date,
        worse,
        tuple(notes),
        margin,
    )


def _level(
    key: str,
    settled: Sequence[Ratio],
    tonight: Ratio,
    accepted: Accepted | None,
) -> tuple[float | None, float, float]:
    """Return (accepted level, largest acceptable distance of a night, uncertainty of the level),
    both on the log scale. With fewer than ENOUGH nights both are from intervals, and the level
    is the accepted run's, or the median so far.
    """
    logs = [math.log(ratio.ratio) for ratio in settled]
    if len(settled) >= ENOUGH:
        middle = statistics.median(logs)
        deviation = statistics.median(abs(value - middle) for value in logs)
        return math.exp(middle), FAR * 1.4826 * deviation, 0.0
    if accepted is not None and key in accepted.ratios:
        base = accepted.ratios[key]
        return base.ratio, _few(_half(base), _half(tonight)), _half(base)
    if not settled:
        return None, 0.0, 0.0
    half_width = statistics.median(_half(ratio) for ratio in settled)
    return math.exp(statistics.median(logs)), _few(half_width, _half(tonight)), half_width


def _few(level: float, tonight: float) -> float:
    """Return how far tonight may be from a level of few nights, from half the interval of both: at
    most FEW, because a second run is cheap.
    """
    both = math.hypot(level, tonight)
    return both if math.isinf(both) else min(both, FEW)


def _half(ratio: Ratio) -> float:
    """Return half the interval on the log scale; infinity without an interval, so that every
    distance is acceptable.
    """
    return math.inf if ratio.lo is None or ratio.hi is None else math.log(ratio.hi / ratio.lo) / 2


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
        good=night.good,
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
    ratio: float  # ratio of the first such night
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
    first: Night | None = None
    for night in nights:
        state = night.states.get(series)
        # A night without a value for the series does not end a regression.
        if state is None or (state == "regression" and series not in night.ratios):
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
    return Regression(
        plan=plan,
        series=series,
        since=first.night,
        until=until,
        ratio=first.ratios[series].ratio,
        run=first.run,
        changed=tuple(change.text for change in first.changes),
    )


def overall(
    tonight: Night,
    findings: Sequence[NightFinding],
    missing: Sequence[str],
) -> str:
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
    series = {
        finding.key: "ok" if finding.state in QUIET else finding.state for finding in findings
    }
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
