"""Judge a night: whether each series is unchanged, suspect or at another level, and what a second
run says about it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import changepoints
from dbbench.nightly.history import by_date
from dbbench.nightly.night import Accepted, Night, Ratio

SHIFT: Final = 0.03  # least shift of a change point; smaller ones are never reported
# standard deviations of the accepted nights; beyond it a night is suspected, and a second run
# decides
FAR: Final = 4.0
# with fewer nights than ENOUGH, a larger change is suspected whatever its interval is
FEW: Final = math.log(1.10)
ENOUGH: Final = 5  # accepted nights that are needed to estimate their scatter
RECENT: Final = 10  # number of nights for which a change point counts as new
MOVED: Final = ("regression", "improvement")


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
