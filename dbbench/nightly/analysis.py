"""What the newest night says of each series: as it was, suspect, or another level."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import changepoints
from dbbench.nightly.baselines import Accepted
from dbbench.nightly.history import Night, Ratio

SHIFT: Final = 0.03  # smaller ones are never told: the least shift of a change point
FAR: Final = 4.0  # standard deviations of the accepted nights: one night that is not of them; a second run decides
FEW: Final = math.log(1.10)  # with fewer nights than ENOUGH a larger change is suspect whatever its interval
ENOUGH: Final = 5  # accepted nights, before their scatter is believed
RECENT: Final = 10  # nights in which a change point is news
MOVED: Final = ("regression", "improvement")


@dataclass(frozen=True)
class Finding:
    """One series tonight. `state`: learning, ok, suspect, regression, improvement; `since` the night of the change."""

    key: str
    state: str
    ratio: float
    level: float | None = None  # of the accepted nights, or of the accepted run
    since: str | None = None
    worse: bool = False
    notes: tuple[str, ...] = ()
    margin: float = 0.0  # how well the level is known, on the log scale; 0 from ENOUGH nights on

    @property
    def change(self) -> float | None:
        """Tonight ÷ level."""
        return None if self.level is None else self.ratio / self.level


def judge(nights: Sequence[Night], tonight: Night, accepted: Accepted | None, window: int) -> list[Finding]:
    """A finding for each series of tonight.

    The level is the median of the accepted nights since the last acceptance, `window` at most: good ones on which
    the series had not moved. Before there are ENOUGH of them it is the accepted run's ratio, if there is one.
    `learning` is the first night, and one without intervals while there are few.
    A series is suspect when tonight is FAR from the level or a change point is RECENT, by SHIFT at least; a series
    that had moved before and still is there stays moved without being confirmed again.
    """
    since = [night for night in nights if accepted is None or night.created >= accepted.created]
    past = sorted(since, key=lambda night: night.created)[-window:]
    return [_finding(key, value, past, tonight, accepted) for key, value in sorted(tonight.ratios.items())]


def confirmed(finding: Finding, again: Ratio | None) -> Finding:
    """A suspect after the same night's second run: moved, where that run's interval excludes the level too, on the
    same side; else it was chance, and the notes say so. Without an interval it stays suspect."""
    level = finding.level
    if level is None or again is None or again.lo is None or again.hi is None:
        return finding
    lower = finding.ratio < level
    if again.hi < level * math.exp(-finding.margin) if lower else again.lo > level * math.exp(finding.margin):
        state = "regression" if finding.worse else "improvement"
        return _with(finding, state, f"confirmed by {again.n} more blocks: {again.ratio / level - 1:+.1%}")
    return _with(finding, "ok", f"not confirmed by {again.n} more blocks: {again.ratio / level - 1:+.1%}")


def series_of(key: str, nights: Sequence[Night]) -> tuple[list[str], list[float | None]]:
    """(dates, ratios) of a series with None for nights that are missing or not good."""
    dates: list[str] = []
    values: list[float | None] = []
    for night in nights:
        if dates:
            absent = missing_between(dates[-1], night.night)
            dates += absent
            values += [None] * len(absent)
        dates.append(night.night)
        values.append(night.ratios[key].ratio if night.good and key in night.ratios else None)
    return dates, values


def missing_between(night: str, later: str) -> list[str]:
    """The dates between two nights."""
    first = datetime.date.fromisoformat(night)
    days = (datetime.date.fromisoformat(later) - first).days
    return [(first + datetime.timedelta(n)).isoformat() for n in range(1, days)]


def _finding(key: str, value: Ratio, past: Sequence[Night], tonight: Night, accepted: Accepted | None) -> Finding:
    settled = [n.ratios[key] for n in past if n.good and key in n.ratios and n.states.get(key) not in MOVED]
    level, bound, margin = _level(key, settled, value, accepted)
    if level is None or math.isinf(bound):
        return Finding(key, "learning", value.ratio, notes=("nothing to hold it against yet",))
    away = math.log(value.ratio / level)
    worse = (away < 0) == (value.better == "higher")
    dates, values = series_of(key, [*past, tonight])
    recent = [place for place in changepoints(values) if place >= len(values) - RECENT]
    stepped = bool(recent) and abs(_median_log(values[recent[-1] :]) - math.log(level)) >= SHIFT
    if not tonight.good or not (abs(away) > max(SHIFT, bound) or (stepped and abs(away) >= SHIFT)):
        return Finding(key, "ok", value.ratio, level, None, worse)
    at = dates[recent[-1]] if stepped else tonight.night
    notes = tuple(f"the same night: {text}" for night in (*past, tonight) if night.night == at for text in night.breaks)
    state = past[-1].states.get(key, "") if past else ""
    still = "regression" if worse else "improvement"
    if state == still:
        at = next((n.night for n in _run_of(past, key, still)), at)
    return Finding(key, still if state == still else "suspect", value.ratio, level, at, worse, notes, margin)


def _run_of(past: Sequence[Night], key: str, state: str) -> list[Night]:
    """The nights at the end of `past` on which the series was in that state."""
    found: list[Night] = []
    for night in reversed(past):
        if night.states.get(key) != state:
            break
        found.insert(0, night)
    return found


def _level(
    key: str, settled: Sequence[Ratio], tonight: Ratio, accepted: Accepted | None
) -> tuple[float | None, float, float]:
    """(the accepted level, how far on the log scale a single night may be from it, how well the level is known).

    With few nights their own intervals say both: the level is the accepted run's, or the median of what there is.
    """
    logs = [math.log(one.ratio) for one in settled]
    if len(settled) >= ENOUGH:
        middle = statistics.median(logs)
        return math.exp(middle), FAR * 1.4826 * statistics.median(abs(value - middle) for value in logs), 0.0
    if accepted is not None and key in accepted.ratios:
        base = accepted.ratios[key]
        return base.ratio, _few(_half(base), _half(tonight)), _half(base)
    if not settled:
        return None, 0.0, 0.0
    known = statistics.median(_half(one) for one in settled)
    return math.exp(statistics.median(logs)), _few(known, _half(tonight)), known


def _few(known: float, tonight: float) -> float:
    """How far tonight may be from a level of few nights: a second run is cheap beside a regression not looked at."""
    both = math.hypot(known, tonight)
    return both if math.isinf(both) else min(both, FEW)


def _half(ratio: Ratio) -> float:
    """Half the interval on the log scale; without one nothing is far."""
    return math.inf if ratio.lo is None or ratio.hi is None else math.log(ratio.hi / ratio.lo) / 2


def _median_log(values: Sequence[float | None]) -> float:
    return statistics.median(math.log(value) for value in values if value is not None)


def _with(finding: Finding, state: str, note: str) -> Finding:
    return Finding(
        finding.key, state, finding.ratio, finding.level, finding.since, finding.worse, (*finding.notes, note)
    )
