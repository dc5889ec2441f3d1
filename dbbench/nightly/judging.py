"""Judge a night: whether each series is unchanged, suspect or at another level, and what a second
run says about it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dbbench.compare import changepoints
from dbbench.nightly.history import by_date
from dbbench.nightly.night import ITSELF, Accepted, Night, Ratio
from dbbench.units import change, count, interval, percent

SHIFT: Final = 0.03  # least shift of a change point; smaller ones are never reported
# standard deviations of the accepted nights; beyond it a night is suspected, and a second run
# decides
FAR: Final = 4.0
# Few nights do not show how much nights differ: the limit is further away, until by Student's t
# only this share of harmless nights exceeds it on one side.
RARE: Final = 0.001
SD_OF_MAD: Final = 1.4826  # standard deviation ÷ median deviation, of normal noise
EFFICIENCY_OF_MAD: Final = 0.37  # share of the degrees of freedom of a standard deviation
# with fewer nights than ENOUGH, a larger change is suspected whatever its interval is; a night
# that does not exclude it is not `ok`
FEW: Final = math.log(1.10)
ENOUGH: Final = 5  # accepted nights that are needed to estimate their scatter
RECENT: Final = 10  # number of nights for which a change point counts as new
MOVED: Final = ("regression", "improvement")
# States without an answer: these nights are no level, and neither begin nor end a change.
OPEN: Final = ("suspect", "inconclusive")


@dataclass(frozen=True)
class NightFinding:
    """One series tonight. `state`: learning, ok, suspect, inconclusive, regression, improvement;
    `since`: the night of the change.
    """

    key: str
    state: str
    ratio: float
    level: float | None = None  # level of the accepted nights, or of the accepted run
    since: str | None = None
    worse: bool = False
    notes: tuple[str, ...] = ()
    margin: float = 0.0  # on the log scale: the second run has to leave the level by more
    # on the log scale: a larger change makes the series suspect. None without a level
    limit: float | None = None
    metric: str = "tps"
    better: str = "higher"
    disturbed: bool = False  # too many suspect trials: the second run alone decides
    doubtful: bool = False  # tonight excludes neither the level nor a regression: likewise

    @property
    def change(self) -> float | None:
        if self.level is None:
            return None
        return self.ratio / self.level

    @property
    def is_ratio(self) -> bool:
        """Return False for the reference's own value, which is in the unit of its metric."""
        return not self.key.endswith(ITSELF)


class Level(NamedTuple):
    """What a series is compared with. `margin` and `limit` are on the log scale."""

    ratio: float
    margin: float  # of the level's uncertainty, or of two standard deviations of the nights
    limit: float  # a larger change makes the series suspect
    usual: float  # median of half the intervals of its nights


def judge(
    nights: Sequence[Night],
    tonight: Night,
    accepted: Accepted | None,
    window: int,
) -> list[NightFinding]:
    """Return a finding for each series of tonight. The level is the median of at most `window`
    accepted nights since the last acceptance: good and undisturbed ones on which the series had
    neither changed nor been without an answer; before there are ENOUGH, the ratio of the
    accepted run, if any. `learning`: there is no level. A series is suspect if tonight is far
    from the level, a change point is RECENT, by at least SHIFT, or tonight was disturbed or
    excludes neither the level nor a change as large as FEW. One
    that had changed before and is still at the new level stays changed without another
    confirmation. `inconclusive`: a night that is not evidence, and no reason for a second run.
    """
    since = [night for night in nights if accepted is None or night.created >= accepted.created]
    past = sorted(since, key=lambda night: night.created)[-window:]
    findings = []
    for key, value in sorted(tonight.ratios.items()):
        comparable = [night for night in past if _same_reference(night, tonight, key)]
        findings.append(_finding(key, value, comparable, tonight, accepted))
    return findings


def confirm(finding: NightFinding, again: Ratio | None) -> NightFinding:
    """Return a suspect finding after a second run in the same night: confirmed if the interval of
    that run excludes the level on the same side, not confirmed if it excludes a change as large
    as the alarm limit or tonight's. Otherwise it is still suspect, as after a disturbed run or
    without an interval. After a disturbed night, that run has to be beyond the limit itself.
    """
    level = finding.level
    alarm = finding.limit
    if level is None or alarm is None or again is None:
        return finding
    if again.lo is None or again.hi is None:
        return _with_note(finding, "the second run was inconclusive: it has no interval")
    if again.disturbed:
        return _with_note(finding, f"the second run was inconclusive: {disturbed_text(again)}")

    # The side of the level on which a change is looked for, and how large one is.
    decides_alone = finding.disturbed or finding.doubtful
    distance = math.log((again if decides_alone else finding).ratio / level)
    is_far = abs(distance) > alarm
    limit = min(alarm, _least(finding.key, alarm))
    if not decides_alone:
        is_far = True
        limit = min(limit, abs(distance))
    side = -1 if distance < 0 else 1

    # How far from the level the ends of the interval are, on that side.
    ends = [side * math.log(bound / level) for bound in (again.lo, again.hi)]
    measured = (
        f"{change(again.ratio / level)} ({interval(again.lo / level, again.hi / level)}, "
        f"{count(again.n, 'block')})"
    )
    if is_far and min(ends) > finding.margin:
        worse = (side < 0) == (finding.better == "higher")
        state = "regression" if worse else "improvement"
        finding = dataclasses.replace(finding, worse=worse)
        return _with_note(finding, f"confirmed by the second run: {measured}", state)
    if max(ends) < limit:
        finding = dataclasses.replace(finding, since=None)
        return _with_note(finding, f"not confirmed by the second run: {measured}", "ok")
    if min(ends) > 0 and not is_far:
        least = change(math.exp(side * alarm))
        says = f"differs from the level by less than the alarm limit ({least})"
    else:
        says = f"excludes neither the level nor a change of {change(math.exp(side * limit))}"
    return _with_note(finding, f"the second run was inconclusive: {measured} {says}")


def disturbed_text(ratio: Ratio) -> str:
    """Return how many trials were suspect, and why."""
    causes = f" ({', '.join(ratio.warnings)})" if ratio.warnings else ""
    return f"suspect trials {ratio.suspect} of {ratio.trials}{causes}"


def guard_cautions(tonight: Night, findings: Sequence[NightFinding]) -> dict[str, str]:
    """Return a sentence for each engine and workload whose guard does not show that the host was
    quiet: it is missing, disturbed, or known less exactly than the alarm limit.
    """
    limits: dict[str, float] = {}
    for finding in findings:
        title = finding.key.rpartition(": ")[0]
        limits[title] = min(limits.get(title, FEW), finding.limit or FEW)
    cautions = {}
    for title, limit in limits.items():
        reason = _without_proof(tonight.guards.get(title), limit)
        if reason:
            cautions[title] = f"{reason}: it does not show that the host was quiet"
    return cautions


def _without_proof(guard: Ratio | None, limit: float) -> str:
    """Return why the guard proves nothing, "" if it does."""
    if guard is None:
        return "no guard was measured"
    if guard.lo is None or guard.hi is None:
        return f"the guard has no interval from {count(guard.n, 'block')}"
    if guard.disturbed:
        return f"the guard has {disturbed_text(guard)}"
    if guard.half <= limit:
        return ""
    return (
        f"the guard's interval ({interval(guard.lo, guard.hi)}) is wider than the alarm limit "
        f"(±{percent(math.expm1(limit), 1)})"
    )


def series_of(key: str, nights: Sequence[Night]) -> tuple[list[str], list[float | None]]:
    """Return (dates, ratios) of a series, with None for nights that are missing or no level."""
    dates = []
    ratios = []
    for date, night in by_date(nights):
        ratio = None if night is None else night.level_of(key)
        dates.append(date)
        ratios.append(None if ratio is None else ratio.ratio)
    return dates, ratios


def _same_reference(night: Night, tonight: Night, key: str) -> bool:
    """Return whether the series was a ratio to the same reference on that night."""
    title = key.rpartition(": ")[0]
    before = _references(night.ratios, title)
    return not before or before == _references(tonight.ratios, title)


def _references(ratios: dict[str, Ratio], title: str) -> set[str]:
    """Return the reference of an engine and workload, whose own value is a series."""
    return {key for key in ratios if key.startswith(f"{title}: ") and key.endswith(ITSELF)}


def _finding(
    key: str,
    value: Ratio,
    past: Sequence[Night],
    tonight: Night,
    accepted: Accepted | None,
) -> NightFinding:
    notes = []
    proves = tonight.good
    if value.disturbed:
        proves = False
        notes.append(f"this night is no level: {disturbed_text(value)}")
    level = _level(key, past, tonight, accepted)
    finding = NightFinding(
        key,
        "learning" if proves else "inconclusive",
        value.ratio,
        metric=value.metric,
        better=value.better,
        disturbed=value.disturbed,
    )

    # Without a level or an interval nothing can be said yet.
    if level is None or math.isinf(level.limit):
        notes.append("no earlier runs to compare with yet")
        return dataclasses.replace(finding, notes=tuple(notes))
    distance = math.log(value.ratio / level.ratio)
    finding = dataclasses.replace(
        finding,
        state="ok" if proves else "inconclusive",
        level=level.ratio,
        worse=(distance < 0) == (value.better == "higher"),
        margin=level.margin,
        limit=level.limit,
    )

    stepped = _step(key, level, past, tonight)
    is_far = abs(distance) > level.limit
    is_changed = is_far or (stepped is not None and abs(distance) >= SHIFT)
    if is_changed and not is_far:
        # Several nights have left the level, so the scatter of one does not explain it.
        finding = dataclasses.replace(finding, margin=0.0)
    # The interval of a few blocks may be narrow by chance.
    farthest = abs(distance) + max(value.half, level.usual)
    least = _least(key, level.limit)
    is_doubtful = not is_changed and abs(distance) > least / 2 and farthest > least
    if not is_changed:
        notes += _too_small_to_see(value.half, level.limit)
    # A second run decides, unless trials failed, as they would again.
    finding = dataclasses.replace(finding, doubtful=is_doubtful)
    if tonight.failed or not (is_changed or is_doubtful or value.disturbed):
        return dataclasses.replace(finding, notes=tuple(notes))

    # What changed in the night in which the series did.
    change_date = stepped or tonight.night
    for night in (*past, tonight):
        if night.night == change_date:
            notes += [f"the same night: {change.text}" for change in night.changes]

    # A series that is still at its confirmed new level needs no second confirmation.
    state = "suspect"
    moved = "regression" if finding.worse else "improvement"
    for night in _nights_with_answer(key, past):
        if not is_changed or night.states[key] != moved:
            break
        state = moved
        change_date = night.night
    return dataclasses.replace(finding, state=state, since=change_date, notes=tuple(notes))


def _too_small_to_see(half: float, limit: float) -> Iterator[str]:
    """Yield a note if tonight's interval or the scatter of the nights hides what is worth knowing."""
    if half > limit:
        yield f"its interval is ±{percent(math.expm1(half), 1)}: a smaller change may be missed"
    elif limit > FEW:
        yield f"the alarm limit is ±{percent(math.expm1(limit), 1)}: a smaller change may be missed"


def _nights_with_answer(key: str, past: Sequence[Night]) -> Iterator[Night]:
    """Yield the nights that have an answer for the series, the newest first."""
    for night in reversed(past):
        if night.states.get(key, "suspect") not in OPEN:
            yield night


def _step(key: str, level: Level, past: Sequence[Night], tonight: Night) -> str | None:
    """Return the date of a recent change point, if the series has left its level there."""
    dates, values = series_of(key, [*past, tonight])
    recent = [place for place in changepoints(values) if place >= len(values) - RECENT]
    if not recent:
        return None
    logs = [math.log(ratio) for ratio in values[recent[-1] :] if ratio is not None]
    shift = abs(statistics.median(logs) - math.log(level.ratio))
    if shift >= SHIFT:
        return dates[recent[-1]]
    return None


def _level(
    key: str,
    past: Sequence[Night],
    tonight: Night,
    accepted: Accepted | None,
) -> Level | None:
    """Return the level of the accepted nights. With fewer than ENOUGH nights it is the accepted
    run's, or the median so far, and its margin and limit are from intervals.
    """
    settled = []
    for night in past:
        ratio = night.level_of(key)
        if ratio is not None and night.states.get(key) not in (*MOVED, *OPEN):
            settled.append(ratio)
    own_half = tonight.ratios[key].half
    logs = [math.log(ratio.ratio) for ratio in settled]
    if len(settled) >= ENOUGH:
        middle = statistics.median(logs)
        limit = _limit_of_many(logs, middle)
        usual = statistics.median(ratio.half for ratio in settled)
        return Level(math.exp(middle), limit / 2, limit, usual)
    if accepted is not None and key in accepted.ratios:
        base = accepted.ratios[key]
        limit = _limit_of_few(key, base.half, own_half, 1)
        return Level(base.ratio, base.half, limit, base.half)
    if not settled:
        return None
    half = statistics.median(ratio.half for ratio in settled)
    limit = _limit_of_few(key, half, own_half, len(settled))
    return Level(math.exp(statistics.median(logs)), half, limit, half)


def _limit_of_many(logs: Sequence[float], middle: float) -> float:
    """Return how far a harmless night may be from the median of these nights: the smaller of the
    limits from their standard deviation and from their median deviation, which a few odd nights
    do not increase.
    """
    df = len(logs) - 1
    deviation = SD_OF_MAD * statistics.median(abs(value - middle) for value in logs)
    by_sd = _far(df) * statistics.stdev(logs)
    by_deviation = _far(EFFICIENCY_OF_MAD * df) * deviation
    # The median that is the level has an error, too.
    wider = math.sqrt(1 + math.pi / (2 * len(logs)))
    return max(SHIFT, wider * min(by_sd, by_deviation))


def _far(df: float) -> float:
    """Return FAR, or with few degrees of freedom the t value that RARE nights exceed."""
    from scipy.special import stdtrit

    return max(FAR, float(stdtrit(df, 1 - RARE)))


def _least(key: str, limit: float) -> float:
    """Return the change that a night must exclude to be `ok`: FEW. How much the host differs between
    nights is no change of the reference's own value, and no second run shows it.
    """
    return max(FEW, limit / 2) if key.endswith(ITSELF) else FEW


def _limit_of_few(key: str, level: float, tonight: float, nights: int) -> float:
    """Return how far tonight may be from a level of few nights, from half the interval of both: at
    most FEW, because a second run is cheap. The reference's own value may differ as that of a
    host whose nights scatter by SHIFT, which the intervals do not contain.
    """
    # The interval of a few blocks may be narrow by chance.
    both = math.hypot(level, max(level, tonight))
    if math.isinf(both):
        return both
    if key.endswith(ITSELF):
        return FAR * SHIFT * math.sqrt(1 + 1 / nights)
    return max(SHIFT, min(both, FEW))


def _with_note(finding: NightFinding, note: str, state: str = "suspect") -> NightFinding:
    return dataclasses.replace(finding, state=state, notes=(*finding.notes, note))
