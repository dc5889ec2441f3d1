"""Line charts that need no script: geometry in pixels, drawn by `lines` of reports/svg.html.j2."""

from __future__ import annotations

from dataclasses import dataclass

from dbbench.report.page.axes import Frame
from dbbench.report.page.theme import Mark


@dataclass(frozen=True)
class Line:
    """One line; `dots` have a title each."""

    mark: Mark
    path: str
    dots: tuple[tuple[float, float, str], ...] = ()  # x, y, words


@dataclass(frozen=True)
class LinePlot:
    """One chart. `ident` is the id of its caption."""

    ident: str
    caption: str
    frame: Frame
    up: tuple[tuple[float, str], ...]  # y, words
    along: tuple[tuple[float, str], ...]  # x, words
    lines: tuple[Line, ...]
    below: str = ""  # title of the horizontal axis
