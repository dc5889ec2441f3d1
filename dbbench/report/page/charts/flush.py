"""The ratio of each setup by the delay of a flush: where the setups stop to differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dbbench.compare.interaction import Interaction
from dbbench.model import title_of
from dbbench.report.page.charts.kit import PHONE, Chart, Frame, Line, Point
from dbbench.report.page.theme import Mark
from dbbench.units import change, round_change

FRAME: Final = Frame(PHONE, 180, 52.0, 352.0, 10.0, 144.0)
LEAST_SPAN: Final = 0.16  # as of the dot plot
BESIDE: Final = 4.0  # pixels between two setups


def flush_charts(about: Sequence[Interaction], marks: Mapping[str, Mark]) -> Iterator[Chart]:
    """Yield a chart for each comparison of at least two delays."""
    for number, each in enumerate(about):
        if each.flush_ms and each.ratios:
            yield _chart(f"flush-{number}", each, marks)


def _chart(ident: str, about: Interaction, marks: Mapping[str, Mark]) -> Chart:
    # The levels are at equal distances, because delays differ by factors.
    x = FRAME.along(0, len(about.flush_ms) - 1)
    ends = [1 - LEAST_SPAN / 2, 1 + LEAST_SPAN / 2]
    for of in about.ratios:
        ends += [of.lo or of.ratio, of.hi or of.ratio]
    y = FRAME.up(min(ends), max(ends))

    lines = []
    arms = list(dict.fromkeys(of.fs_setup for of in about.ratios))
    for number, arm in enumerate(arms):
        # Intervals stand side by side.
        aside = BESIDE * (number - (len(arms) - 1) / 2)
        of_arm = {of.level: of for of in about.ratios if of.fs_setup == arm}
        points = []
        bars = ""
        for place, (level, delay_ms) in enumerate(about.flush_ms.items()):
            if level not in of_arm:
                continue
            of = of_arm[level]
            across = round(x(place) + aside, 1)
            text = f"{arm}, {delay_ms} ms: {change(of.ratio)} ({of.verdict})"
            points.append(Point(across, y(of.ratio), text))
            if of.lo is not None and of.hi is not None:
                bars += f"M{across} {y(of.lo)}V{y(of.hi)}"
        path = "M" + "L".join(f"{point.x} {point.y}" for point in points)
        lines.append(Line(marks.get(arm), path, tuple(points), bars))
    return Chart(
        ident=ident,
        caption=f"{about.engine} {title_of(about.workload, about.variant)}",
        frame=FRAME,
        up=[(y(ratio), round_change(ratio)) for ratio in y.changes(4)],
        along=[(x(place), f"{delay_ms}") for place, delay_ms in enumerate(about.flush_ms.values())],
        lines=tuple(lines),
        below="ms of delay per flush",
    )
