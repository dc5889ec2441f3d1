"""The kit of the charts that need no script: scales with round ticks, and lines, points and bars in
a frame. All values are in pixels, so that the charts can be printed. `reports/svg.html.j2` draws
a `Chart`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from dbbench.report.page.theme import Mark

# width of a phone (390 px) without margins; wide pages show several charts side by side
PHONE: Final = 358
Ticks = Sequence[tuple[float, str]]  # (pixel, label)


class PixelAxis(NamedTuple):
    """A linear scale: values `low` to `high` at the pixels `start` to `end`; a vertical `start` is
    the larger.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value, rounded to a tenth."""
        return round(
            self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1
        )

    def clip(self, value: float) -> float:
        return self(min(self.high, max(self.low, value)))

    def ticks(self, most: int) -> list[float]:
        """Return ticks at round steps: 1, 2 or 5 times a power of ten."""
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]

    def changes(self, most: int) -> list[float]:
        """Return ratios as ticks that are round changes (+10 %), not round ratios; the baseline is
        exactly 1.
        """
        return [
            1 + tick
            for tick in PixelAxis(
                self.low - 1,
                self.high - 1,
                self.start,
                self.end,
            ).ticks(most)
        ]


class Frame(NamedTuple):
    """The size of a drawing and, within it, of its plot."""

    width: int
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def along(self, low: float, high: float) -> PixelAxis:
        return PixelAxis(low, high, self.left, self.right)

    def up(self, low: float, high: float) -> PixelAxis:
        return PixelAxis(low, high, self.bottom, self.top)


class Point(NamedTuple):
    """A point and its tooltip; a hollow one does not count."""

    x: float
    y: float
    label: str
    hollow: bool = False


class Line(NamedTuple):
    """A line of an arm, or of something else in ink; `bars` is the SVG path of the intervals."""

    mark: Mark | None
    path: str
    points: tuple[Point, ...] = ()
    bars: str = ""


class LevelStep(NamedTuple):
    """A vertical line with a tooltip. `state`: regression, improvement, accepted, or ""."""

    x: float
    state: str
    text: str


class Chart(NamedTuple):
    """One chart. `ident` is the id of its caption, `below` the title of the horizontal axis."""

    ident: str
    caption: str
    frame: Frame
    up: Ticks
    along: Ticks
    lines: tuple[Line, ...]
    below: str = ""
    steps: tuple[LevelStep, ...] = ()
    # "edges": the labels below begin and end at the first and last tick
    anchors: Literal["middle", "edges"] = "middle"
