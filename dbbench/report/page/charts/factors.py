"""The charts of a plan's factors: the ratio of each setup to the baseline at each level, as lines that may cross."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.compare import Interaction, interactions
from dbbench.metrics.table import METRICS
from dbbench.model import title_of
from dbbench.report.page.charts.kit import Chart, Frame, Line, Point, pad, polyline, whiskers
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.report.sentences import interaction
from dbbench.units import change, interval, level_text, round_change

FRAME: Final = Frame(460, 250, 60, 440, 10, 206)
LEAST_SPAN: Final = 0.16  # shortest vertical axis, so that differences below 1 % do not look large


def factor_charts(groups: Sequence[Group]) -> tuple[View, ...]:
    """Return the sentence and the chart of each factor of each run, engine and workload; () without factors."""
    charts: list[View] = []
    runs: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        runs.setdefault((str(group.loaded.path), group.metric.name), []).append(group)
    for (_, metric), of_run in runs.items():
        rows = [row for group in of_run for row in group.rows]
        cells = [cell for group in of_run for cell in group.cells if cell.levels]
        levels = {cell.group: cell.levels for cell in cells}
        for about in interactions(rows, levels, METRICS[metric]):
            chart = _chart(f"i-{len(charts)}", about, of_run[0].marks)
            charts.append(View(parts=interaction(about), chart=chart, about=about))
    return tuple(charts)


def _chart(ident: str, about: Interaction, marks: dict[str, Mark]) -> Chart:
    bounds = [1.0, *(bound for of in about.ratios for bound in (of.ratio, of.lo, of.hi) if bound is not None)]
    x = FRAME.along(-0.25, len(about.levels) - 0.75)
    y = FRAME.up(*pad(min(bounds), max(bounds), LEAST_SPAN, 0.06))
    place = {level: x(index) for index, level in enumerate(about.levels)}
    lines = [Line(marks[about.baseline], polyline((at, y(1.0)) for at in place.values()))]
    for arm in dict.fromkeys(of.fs_setup for of in about.ratios):
        own = [of for of in about.ratios if of.fs_setup == arm]
        points = tuple(
            Point(place[of.level], y(of.ratio), f"{arm}, {about.factor}={level_text(of.level)}: {change(of.ratio)}, "
                  + ("no interval" if of.lo is None else f"CI {interval(of.lo, of.hi)}")) for of in own
        )  # fmt: skip
        bars = whiskers([(place[of.level], of.lo, of.hi) for of in own], y)
        lines.append(Line(marks[arm], polyline((point.x, point.y) for point in points), points, bars))
    return Chart(
        ident=ident,
        caption=f"{about.engine} {title_of(about.workload, about.variant)}: {about.factor}",
        frame=FRAME,
        up=[(y(ratio), round_change(ratio) if ratio != 1 else about.baseline) for ratio in y.changes(6)],
        along=[(at, level_text(level)) for level, at in place.items()],
        lines=tuple(lines),
        below=about.factor,
    )
