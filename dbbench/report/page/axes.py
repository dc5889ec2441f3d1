"""Axes of the drawings that need no script: values to pixels, round ticks, lines with gaps in their own colors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dbbench.report.page.theme import Mark


@dataclass(frozen=True)
class Axis:
    """A linear scale: the values `low` to `high` are at the pixels `start` to `end`. On a vertical axis `start` is the
    larger.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value, rounded to a tenth."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def clipped(self, value: float) -> float:
        """Return the pixel of a value, or the nearer end of the axis if the value is outside it."""
        return self(min(self.high, max(self.low, value)))

    def ticks(self, most: int) -> list[float]:
        """Return the round values on the axis, about `most` of them at most."""
        step = step_above((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]


@dataclass(frozen=True)
class Frame:
    """The size of a drawing and, within it, of its plot, in pixels."""

    width: int
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def along(self, low: float, high: float) -> Axis:
        """Return the horizontal axis."""
        return Axis(low, high, self.left, self.right)

    def up(self, low: float, high: float) -> Axis:
        """Return the vertical axis."""
        return Axis(low, high, self.bottom, self.top)


def step_above(value: float) -> float:
    """Return the next round step (1, 2 or 5 times a power of ten) that is at least `value`, which is above 0."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)


def padded(low: float, high: float, least: float, share: float) -> tuple[float, float]:
    """Return the range with `share` of its length added at both ends, at least `least` long and not below 0."""
    pad = max((high - low) * share, (least - (high - low)) / 2)
    return max(0.0, low - pad), high + pad


def polyline(points: Iterable[tuple[float, float] | None]) -> str:
    """Return the path of an SVG through these pixels. None is a gap; a point between two gaps is drawn as a dot."""
    pieces, alone = [], True
    previous: tuple[float, float] | None = None
    for point in [*points, None]:
        if point is not None:
            pieces.append(f"{'M' if previous is None else 'L'}{point[0]} {point[1]}")
            alone = previous is None
        elif previous is not None and alone:
            pieces.append("h.1")
        previous = point
    return "".join(pieces)


# --- lines -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line; each of its `dots` has a title."""

    mark: Mark
    path: str
    dots: tuple[tuple[float, float, str], ...] = ()  # x, y, title
    bars: str = ""  # SVG path of the intervals


@dataclass(frozen=True)
class LinePlot:
    """One chart. `ident` is the id of its caption."""

    ident: str
    caption: str
    frame: Frame
    up: tuple[tuple[float, str], ...]  # y, label of the tick
    along: tuple[tuple[float, str], ...]  # x, label of the tick
    lines: tuple[Line, ...]
    below: str = ""  # title of the horizontal axis
