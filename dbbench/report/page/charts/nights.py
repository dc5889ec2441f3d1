"""Section "Nights": each series of a plan's nights as points with intervals, and the levels between
its change points. A night without a result is a gap, never a point.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dbbench.compare import changepoints
from dbbench.model import Json, plain
from dbbench.report.page.charts.kit import PHONE, Chart, Frame, LevelStep, Line, PixelAxis, Point
from dbbench.report.page.theme import Mark
from dbbench.units import change, count, interval, number, round_change

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
        if self.good and self.ratio is not None and self.ratio > 0:
            return self.ratio
        return None


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


class _Level(NamedTuple):
    """The nights from `start` up to, but not including, `end`, and the geometric median of those
    that count.
    """

    start: int
    end: int
    median: float | None


class NightChart(NamedTuple):
    """A series. The mark is None if the arm is not in the runs of the page."""

    course: Course
    mark: Mark | None
    chart: Chart


def night_charts(courses: Sequence[Course], marks: dict[str, Mark]) -> tuple[NightChart, ...]:
    """Return a drawing for each series that has a figure from at least one good night."""
    counted = [course for course in courses if any(point.value for point in course.points)]
    return tuple(
        NightChart(course, marks.get(course.arm), _chart(f"n{index}", course))
        for index, course in enumerate(counted)
    )


def regressions(courses: Sequence[Course], runs: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each series with a confirmed regression on the night of one of these
    runs.
    """
    sentences = []
    for course in courses:
        for point in course.points:
            if point.run in runs and point.state == "regression":
                sentences.append(_regression(course, point))
    return tuple(sentences)


def _regression(course: Course, point: NightPoint) -> str:
    against = f" compared with {course.against}" if course.against else " itself"
    size = ""
    if point.ratio is not None and point.level is not None:
        size = f" {change(point.ratio / point.level)} from its level"
    began = point.since or point.night
    since = "" if began == point.night else f", since the night of {began}"
    facts: list[str] = []
    for other in course.points:
        if other.night == began:
            facts += other.changed.values()
    new = "No version and no host changed that night."
    if facts:
        new = f"Changed that night: {'; '.join(facts)}."
    text = f"{course.arm}{against}, {course.title}:{size}{since}. {new}"
    return f"**Regression on the night of {point.night}**: {text}"


def document(courses: Sequence[Course]) -> list[Json]:
    """Return all series for the download."""
    documents: list[Json] = [plain(course) for course in courses]
    for course in documents:
        for point in course["points"]:
            point["changed"] = list(point["changed"].values())
    return documents


def without_hosts(courses: Sequence[Course]) -> tuple[Course, ...]:
    """Return the series without the names of hosts."""
    cleaned = []
    for course in courses:
        points = []
        for point in course.points:
            changed = {name: text for name, text in point.changed.items() if name != "host"}
            points.append(replace(point, changed=changed))
        cleaned.append(replace(course, points=tuple(points)))
    return tuple(cleaned)


def _chart(ident: str, course: Course) -> Chart:
    values = [point.value for point in course.points]

    # The level between two change points is the median of its nights.
    levels = []
    for start, end in itertools.pairwise([0, *changepoints(values), len(values)]):
        logs = [math.log(value) for value in values[start:end] if value]
        median = math.exp(statistics.median(logs)) if logs else None
        levels.append(_Level(start, end, median))

    # The axis has all nights that count. Other nights and intervals may be cut off.
    counted = [value for value in values if value]
    low = min(counted)
    high = max(counted)
    pad = max(0.15 * (high - low), (LEAST_SPAN * high - (high - low)) / 2)
    x = FRAME.along(-0.5, len(values) - 0.5)
    y = FRAME.up(max(0.0, low - pad), high + pad)

    # Each night, with its interval.
    points = []
    bars = ""
    for place, point in enumerate(course.points):
        if point.ratio is not None and point.ratio > 0:
            label = _label(point, course)
            points.append(
                Point(
                    x(place),
                    y.clip(point.ratio),
                    label,
                    hollow=not point.good,
                )
            )
        if point.value and point.lo is not None and point.hi is not None:
            bars += f"M{x(place)} {y.clip(point.lo)}V{y.clip(point.hi)}"

    # A horizontal line for each level.
    path = ""
    for level in levels:
        if level.median:
            path += f"M{x(level.start - 0.5)} {y.clip(level.median)}H{x(level.end - 0.5)}"

    steps = [*_changes(course, levels, x), *_acceptances(course, x)]
    ends = dict.fromkeys((0, len(values) - 1))
    return Chart(
        ident=ident,
        caption=_caption(course, values, levels),
        frame=FRAME,
        up=[(y(tick), _tick(tick, course)) for tick in y.ticks(4)],
        along=[(x(place), course.points[place].night) for place in ends],
        lines=(Line(None, path, tuple(points), bars),),
        steps=tuple(sorted(steps, key=lambda step: step.x)),
        anchors="edges",
    )


def _tick(tick: float, course: Course) -> str:
    return round_change(tick) if course.against else number(tick)


def _label(point: NightPoint, course: Course) -> str:
    if course.against:
        words = change(point.ratio)
        if point.lo is not None and point.hi is not None:
            words += f" ({interval(point.lo, point.hi)})"
    else:
        words = number(point.ratio)
    return f"{point.night}: {words}" + ("" if point.good else "; does not count")


def _changes(
    course: Course,
    levels: Sequence[_Level],
    x: PixelAxis,
) -> Iterator[LevelStep]:
    for before, level in itertools.pairwise(levels):
        if not (before.median and level.median):
            continue
        first = course.points[level.start]
        following = course.points[level.start : level.start + CONFIRMED]
        confirmed = [p.state for p in following if p.state in ("regression", "improvement")]
        new = f" ({'; '.join(first.changed.values())})" if first.changed else ""
        text = f"{change(level.median / before.median)} since {first.night}{new}"
        yield LevelStep(x(level.start - 0.5), confirmed[0] if confirmed else "", text)


def _acceptances(course: Course, x: PixelAxis) -> Iterator[LevelStep]:
    place = {point.night: index for index, point in enumerate(course.points)}
    for night, reason in course.accepted:
        if night in place:
            text = f"{night}: accepted as the new level ({reason})"
            yield LevelStep(x(place[night]), "accepted", text)


def _caption(
    course: Course,
    values: Sequence[float | None],
    levels: Sequence[_Level],
) -> str:
    nights = sum(value is not None for value in values)
    missing = f" ({len(values) - nights} without a usable result)" if nights < len(values) else ""
    level = levels[-1].median
    now = "" if level is None else number(level)
    if level is not None and course.against:
        now = f"{change(level)} compared with {course.against}"
    changes = count(len(levels) - 1, "change") if len(levels) > 1 else "no change"
    return f"{count(nights, 'night')}{missing}; current level {now}; {changes} of level."
