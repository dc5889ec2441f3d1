"""Section "Nights": each series of a plan's nights as points with intervals, and the levels between its change points.

Geometry only, in pixels, so that the chart needs no script and can be printed. A night without a result is a gap,
never a point.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dbbench.compare import changepoints
from dbbench.model import plain
from dbbench.report.page.axes import Axis, Frame, padded
from dbbench.report.page.theme import Mark
from dbbench.report.sentences import Parts
from dbbench.units import GROUP, change, count, interval, number, round_change

FRAME: Final = Frame(358, 168, 46.0, 352.0, 10.0, 144.0)  # width of a phone without margins; wide pages show several
LEAST_SPAN: Final = 0.10  # shortest y axis as a share of the value, so that scatter of 1 % does not look large


@dataclass(frozen=True)
class ChangedFact:
    """A fact that was new on a night: its name ("kernel", "host"), and the change in words."""

    name: str
    text: str


@dataclass(frozen=True)
class NightPoint:
    """One night of a series. `ratio` None: no figure. `good`: the night counts. `changed`: versions that were new."""

    night: str  # YYYY-MM-DD
    ratio: float | None
    lo: float | None = None
    hi: float | None = None
    good: bool = True
    state: str = ""  # the finding of that night: ok, suspect, regression ...
    changed: tuple[ChangedFact, ...] = ()
    run: str = ""  # name of the night's run
    level: float | None = None  # with which the ratio was compared
    since: str = ""  # night of the change, if the ratio is not at its level


@dataclass(frozen=True)
class Course:
    """A series over all its nights. `against` is the reference's label, "" for the reference's own figure."""

    title: str  # engine and workload
    arm: str
    against: str
    points: tuple[NightPoint, ...]
    accepted: tuple[tuple[str, str], ...] = ()  # (night, reason) of accepted baselines


@dataclass(frozen=True)
class NightDot:
    """A night's mark and its tooltip."""

    x: float
    y: float
    hollow: bool
    label: str


@dataclass(frozen=True)
class LevelStep:
    """A change of level in words. `state`: regression, improvement, accepted, or "" if it was not confirmed."""

    x: float
    state: str
    text: str


@dataclass(frozen=True)
class NightPlot:
    """One series, drawn."""

    ident: str
    mark: Mark | None
    course: Course
    caption: str
    frame: Frame
    ticks: tuple[tuple[float, str], ...]  # y, label
    dates: tuple[tuple[float, str, str], ...]  # x, label, alignment of the text (SVG text-anchor)
    bars: str  # SVG path of all intervals
    dots: tuple[NightDot, ...]
    levels: str  # SVG path of the levels
    steps: tuple[LevelStep, ...]


def night_plots(courses: Sequence[Course], marks: dict[str, Mark]) -> tuple[NightPlot, ...]:
    """Return a drawing for each series that has a figure from at least one good night."""
    counted = [course for course in courses if any(_counts(point) for point in course.points)]
    return tuple(_plot(f"n{index}", course, marks.get(course.arm)) for index, course in enumerate(counted))


def regressed(courses: Sequence[Course], runs: Collection[str]) -> tuple[Parts, ...]:
    """Return a sentence for each series with a confirmed regression on the night of one of these runs."""
    return tuple(
        _regressed(course, point)
        for course in courses for point in course.points
        if point.run in runs and point.state == "regression"
    )  # fmt: skip


def _regressed(course: Course, point: NightPoint) -> Parts:
    against = f" compared with {course.against}" if course.against else " itself"
    size = "" if point.ratio is None or point.level is None else f" {change(point.ratio / point.level)} from its level"
    began = point.since or point.night
    since = "" if began == point.night else f", since the night of {began}"
    facts = [fact.text for other in course.points if other.night == began for fact in other.changed]
    new = f"Changed that night: {'; '.join(facts)}." if facts else "No version and no host changed that night."
    text = f": {course.arm}{against}, {course.title}:{size}{since}. {new}"
    return ((f"Regression on the night of {point.night}", True), (text, False))


def data(courses: Sequence[Course]) -> list[dict[str, Any]]:
    """Return all series for the download."""
    documents: list[dict[str, Any]] = [plain(course) for course in courses]
    for document in documents:
        for point in document["points"]:
            point["changed"] = [fact["text"] for fact in point["changed"]]
    return documents


def redacted(courses: Sequence[Course], words: Sequence[str]) -> tuple[Course, ...]:
    """Return the series without host names if `words` contains "hosts"."""
    if "hosts" not in words:
        return tuple(courses)
    return tuple(
        replace(course, points=tuple(
            replace(point, changed=tuple(fact for fact in point.changed if fact.name != "host"))
            for point in course.points
        ))
        for course in courses
    )  # fmt: skip


def _counts(point: NightPoint) -> bool:
    return point.good and point.ratio is not None and point.ratio > 0


def _plot(ident: str, course: Course, mark: Mark | None) -> NightPlot:
    values = [point.ratio if _counts(point) else None for point in course.points]
    starts = [0, *changepoints(values)]
    levels = [_level(values[start:end]) for start, end in zip(starts, [*starts[1:], len(values)], strict=True)]
    x, y = FRAME.along(-0.5, len(values) - 0.5), FRAME.up(*_span([value for value in values if value]))
    bars = "".join(
        f"M{x(i)} {y.clipped(point.lo)}V{y.clipped(point.hi)}"
        for i, point in enumerate(course.points) if _counts(point) and point.lo is not None and point.hi is not None
    )  # fmt: skip
    dots = tuple(
        NightDot(x(i), y.clipped(point.ratio), not point.good, _label(point, course))
        for i, point in enumerate(course.points) if point.ratio is not None and point.ratio > 0
    )  # fmt: skip
    ends = [*starts[1:], len(values)]
    lines = "".join(
        f"M{x(start - 0.5)} {y.clipped(level)}H{x(end - 0.5)}"
        for start, end, level in zip(starts, ends, levels, strict=True) if level is not None
    )  # fmt: skip
    steps = [
        LevelStep(x(start - 0.5), _state(course.points, start), _told(course.points[start], before, after))
        for start, before, after in zip(starts[1:], levels, levels[1:], strict=False) if before and after
    ]  # fmt: skip
    steps += _accepted(course, x)
    return NightPlot(
        ident, mark, course, _caption(course, values, levels, len(starts) - 1), FRAME,
        tuple((y(tick), _tick(tick, course)) for tick in y.ticks(4)), _dates(course.points, x),
        bars, dots, lines, tuple(sorted(steps, key=lambda step: step.x)),
    )  # fmt: skip


def _level(values: Sequence[float | None]) -> float | None:
    logs = [math.log(value) for value in values if value]
    return math.exp(statistics.median(logs)) if logs else None


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the y axis: all nights that count. Other nights and intervals may be cut off."""
    return padded(min(values), max(values), LEAST_SPAN * max(values), 0.15)


def _tick(tick: float, course: Course) -> str:
    if not course.against:
        return number(tick)
    return round_change(tick) if tick != 1 else f"0{GROUP}%"


def _dates(points: Sequence[NightPoint], x: Axis) -> tuple[tuple[float, str, str], ...]:
    first, last = (x(0), points[0].night, "start"), (x(len(points) - 1), points[-1].night, "end")
    return (first,) if len(points) == 1 else (first, last)


def _label(point: NightPoint, course: Course) -> str:
    if not course.against:
        words = number(point.ratio)
    else:
        bounded = point.lo is not None and point.hi is not None
        words = change(point.ratio) + (f" ({interval(point.lo, point.hi)})" if bounded else "")
    return f"{point.night}: {words}" + ("" if point.good else "; does not count")


def _state(points: Sequence[NightPoint], start: int) -> str:
    """Return the confirmed state of a change, from its first night or one of the nine after it."""
    states = [point.state for point in points[start : start + 10]]
    return next((state for state in states if state in ("regression", "improvement")), "")


def _told(point: NightPoint, before: float, after: float) -> str:
    new = f" ({'; '.join(fact.text for fact in point.changed)})" if point.changed else ""
    return f"{change(after / before)} since {point.night}{new}"


def _accepted(course: Course, x: Axis) -> list[LevelStep]:
    """Return the accepted baselines whose night is in the drawing."""
    place = {point.night: index for index, point in enumerate(course.points)}
    return [LevelStep(x(place[night]), "accepted", f"{night}: accepted as the new level ({reason})")
            for night, reason in course.accepted if night in place]  # fmt: skip


def _caption(course: Course, values: Sequence[float | None], levels: Sequence[float | None], changes: int) -> str:
    nights = sum(value is not None for value in values)
    missing = len(values) - nights
    head = f"{count(nights, 'night')}" + (f" ({missing} without a usable result)" if missing else "")
    level = levels[-1]
    now = (
        ""
        if level is None
        else number(level)
        if not course.against
        else f"{change(level)} compared with {course.against}"
    )
    moved = count(changes, "change") + " of level" if changes else "no change of level"
    return f"{head}; current level {now}; {moved}."
