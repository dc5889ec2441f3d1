"""Section "Nights": each series of a plan's nights as points with intervals, and the levels between
its change points. A night without a result is a gap, never a point.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace as View
from typing import Any, Final

from dbbench.compare import changepoints
from dbbench.model import plain
from dbbench.report.page.charts.kit import PHONE, Axis, Chart, Frame, LevelStep, Line, Point
from dbbench.report.page.theme import Mark
from dbbench.units import GROUP, change, count, interval, number, round_change

FRAME: Final = Frame(PHONE, 168, 46.0, 352.0, 10.0, 144.0)
# shortest y axis as a share of the value, so that scatter of 1 % does not look large
LEAST_SPAN: Final = 0.10
CONFIRMED: Final = 10  # nights within which a change may be confirmed


@dataclass(frozen=True)
class NightPoint:
    """One night of a series. `ratio` None: no figure. `good`: the night counts."""

    night: str  # YYYY-MM-DD
    ratio: float | None
    lo: float | None = None
    hi: float | None = None
    good: bool = True
    state: str = ""  # the finding of that night: ok, suspect, regression ...
    # fact that was new ("kernel", "host") -> in words
    changed: Mapping[str, str] = field(default_factory=dict)
    run: str = ""  # name of the night's run
    level: float | None = None  # with which the ratio was compared
    since: str = ""  # night of the change, if the ratio is not at its level

    @property
    def value(self) -> float | None:
        return self.ratio if self.good and self.ratio is not None and self.ratio > 0 else None


@dataclass(frozen=True)
class Course:
    """A series over all its nights. `against` is the reference's label, "" for the reference's own
    figure.
    """

    title: str  # engine and workload
    arm: str
    against: str
    points: tuple[NightPoint, ...]
    accepted: tuple[tuple[str, str], ...] = ()  # (night, reason) of accepted baselines


# The nights from the first up to, but not including, the second, and the geometric median of those
# that count.
_Level = tuple[int, int, float | None]


def night_charts(courses: Sequence[Course], marks: dict[str, Mark]) -> tuple[View, ...]:
    """Return a drawing for each series that has a figure from at least one good night. Its mark is
    None if the arm is not in the runs of the page.
    """
    counted = [course for course in courses if any(point.value for point in course.points)]
    return tuple(
        View(course=course, mark=marks.get(course.arm), chart=_chart(f"n{index}", course))
        for index, course in enumerate(counted)
    )


def regressions(courses: Sequence[Course], runs: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each series with a confirmed regression on the night of one of these
    runs.
    """
    return tuple(
        _regression(course, point)
        for course in courses
        for point in course.points
        if point.run in runs and point.state == "regression"
    )


def _regression(course: Course, point: NightPoint) -> str:
    against = f" compared with {course.against}" if course.against else " itself"
    size = (
        ""
        if point.ratio is None or point.level is None
        else f" {change(point.ratio / point.level)} from its level"
    )
    began = point.since or point.night
    since = "" if began == point.night else f", since the night of {began}"
    facts = [
        text for other in course.points if other.night == began for text in other.changed.values()
    ]
    new = (
        f"Changed that night: {'; '.join(facts)}."
        if facts
        else "No version and no host changed that night."
    )
    text = f"{course.arm}{against}, {course.title}:{size}{since}. {new}"
    return f"**Regression on the night of {point.night}**: {text}"


def document(courses: Sequence[Course]) -> list[dict[str, Any]]:
    """Return all series for the download."""
    documents: list[dict[str, Any]] = [plain(course) for course in courses]
    for course in documents:
        for point in course["points"]:
            point["changed"] = list(point["changed"].values())
    return documents


def without_hosts(courses: Sequence[Course]) -> tuple[Course, ...]:
    """Return the series without the names of hosts."""
    return tuple(
        replace(
            course,
            points=tuple(
                replace(
                    point,
                    changed={name: text for name, text in point.changed.items() if name != "host"},
                )
                for point in course.points
            ),
        )
        for course in courses
    )


def _chart(ident: str, course: Course) -> Chart:
    values = [point.value for point in course.points]
    counted = [value for value in values if value]
    starts = [0, *changepoints(values)]
    levels = []
    for start, end in itertools.pairwise([*starts, len(values)]):
        logs = [math.log(value) for value in values[start:end] if value]
        levels.append((start, end, math.exp(statistics.median(logs)) if logs else None))
    x = FRAME.along(-0.5, len(values) - 0.5)
    # All nights that count. Other nights and intervals may be cut off.
    low = min(counted)
    high = max(counted)
    pad = max(0.15 * (high - low), (LEAST_SPAN * high - (high - low)) / 2)
    y = FRAME.up(max(0.0, low - pad), high + pad)
    points = tuple(
        Point(x(i), y.clip(point.ratio), _label(point, course), not point.good)
        for i, point in enumerate(course.points)
        if point.ratio is not None and point.ratio > 0
    )
    path = "".join(
        f"M{x(start - 0.5)} {y.clip(value)}H{x(end - 0.5)}" for start, end, value in levels if value
    )
    bars = "".join(
        f"M{x(i)} {y.clip(point.lo)}V{y.clip(point.hi)}"
        for i, point in enumerate(course.points)
        if point.value and point.lo is not None and point.hi is not None
    )
    return Chart(
        ident=ident,
        caption=_caption(course, values, levels),
        frame=FRAME,
        up=[(y(tick), _tick(tick, course)) for tick in y.ticks(4)],
        along=[
            (x(place), course.points[place].night) for place in dict.fromkeys((0, len(values) - 1))
        ],
        lines=(Line(None, path, points, bars),),
        steps=tuple(
            sorted(
                [*_changes(course, levels, x), *_acceptances(course, x)], key=lambda step: step.x
            )
        ),
        anchors="edges",
    )


def _tick(tick: float, course: Course) -> str:
    if not course.against:
        return number(tick)
    return round_change(tick) if tick != 1 else f"0{GROUP}%"


def _label(point: NightPoint, course: Course) -> str:
    if not course.against:
        words = number(point.ratio)
    else:
        bounded = point.lo is not None and point.hi is not None
        words = change(point.ratio) + (f" ({interval(point.lo, point.hi)})" if bounded else "")
    return f"{point.night}: {words}" + ("" if point.good else "; does not count")


def _changes(course: Course, levels: Sequence[_Level], x: Axis) -> Iterator[LevelStep]:
    for (_, _, before), (start, _, value) in itertools.pairwise(levels):
        if before and value:
            first = course.points[start]
            states = [point.state for point in course.points[start:]]
            state = next((s for s in states[:CONFIRMED] if s in ("regression", "improvement")), "")
            new = f" ({'; '.join(first.changed.values())})" if first.changed else ""
            yield LevelStep(
                x(start - 0.5), state, f"{change(value / before)} since {first.night}{new}"
            )


def _acceptances(course: Course, x: Axis) -> Iterator[LevelStep]:
    place = {point.night: index for index, point in enumerate(course.points)}
    for night, reason in course.accepted:
        if night in place:
            yield LevelStep(
                x(place[night]), "accepted", f"{night}: accepted as the new level ({reason})"
            )


def _caption(course: Course, values: Sequence[float | None], levels: Sequence[_Level]) -> str:
    nights = sum(value is not None for value in values)
    level = levels[-1][2]
    missing = f" ({len(values) - nights} without a usable result)" if nights < len(values) else ""
    now = f"{change(level)} compared with {course.against}" if course.against else number(level)
    moves = (
        count(len(levels) - 1, "change") + " of level" if len(levels) > 1 else "no change of level"
    )
    return (
        f"{count(nights, 'night')}{missing}; current level {'' if level is None else now}; {moves}."
    )
