"""Factors of a plan: the ratio of each setup to the baseline at each level, as lines that may cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import Interaction, interactions
from dbbench.compare.interaction import LevelRatio
from dbbench.metrics.table import METRICS
from dbbench.model import titled
from dbbench.report.page.axes import Frame, Line, LinePlot, padded, polyline
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.report.sentences import Parts, interaction
from dbbench.units import change, interval, level_text, round_change

FRAME: Final = Frame(460, 250, 60, 440, 10, 206)
LEAST_SPAN: Final = 0.16  # shortest vertical axis, so that differences below 1 % do not look large


@dataclass(frozen=True)
class FactorPlot:
    """A factor under one engine and workload: its sentence and its chart."""

    parts: Parts
    plot: LinePlot
    about: Interaction


def factor_plots(groups: Sequence[Group]) -> tuple[FactorPlot, ...]:
    """Return a chart for each factor of each run, engine and workload; () without factors."""
    plots: list[FactorPlot] = []
    runs: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        runs.setdefault((str(group.loaded.path), group.metric.name), []).append(group)
    for (_, metric), of_run in runs.items():
        rows = [row for group in of_run for row in group.rows]
        cells = [cell for group in of_run for cell in group.cells if cell.levels]
        levels = {(cell.engine.name, cell.workload.name, cell.variant): cell.levels for cell in cells}
        for about in interactions(rows, levels, METRICS[metric]):
            plots.append(FactorPlot(interaction(about), _plot(f"i-{len(plots)}", about, of_run[0].marks), about))
    return tuple(plots)


def _plot(ident: str, about: Interaction, marks: dict[str, Mark]) -> LinePlot:
    values = [bound for of in about.ratios for bound in (of.ratio, of.lo, of.hi) if bound is not None]
    x = FRAME.along(-0.25, len(about.levels) - 0.75)
    y = FRAME.up(*padded(min([1.0, *values]), max([1.0, *values]), LEAST_SPAN, 0.06))
    changes = FRAME.up(y.low - 1, y.high - 1)  # ticks are round changes (+10 %), not round ratios
    lines = [Line(marks[about.baseline], polyline((x(index), y(1.0)) for index in range(len(about.levels))))]
    for arm in dict.fromkeys(of.fs_setup for of in about.ratios):
        points = [(x(about.levels.index(of.level)), of) for of in about.ratios if of.fs_setup == arm]
        dots = tuple(
            (at, y(of.ratio), f"{arm}, {about.factor}={level_text(of.level)}: {change(of.ratio)}, {_interval(of)}")
            for at, of in points
        )
        bars = "".join(f"M{at} {y(of.lo)}V{y(of.hi)}" for at, of in points if of.lo is not None and of.hi is not None)
        lines.append(Line(marks[arm], polyline((at, height) for at, height, _ in dots), dots, bars))
    return LinePlot(
        ident=ident,
        caption=f"{about.engine} {titled(about.workload, about.variant)}: {about.factor}",
        frame=FRAME,
        up=tuple((changes(tick), round_change(1 + tick) if tick else about.baseline) for tick in changes.ticks(6)),
        along=tuple((x(index), level_text(level)) for index, level in enumerate(about.levels)),
        lines=tuple(lines),
        below=about.factor,
    )


def _interval(of: LevelRatio) -> str:
    return "no interval" if of.lo is None else f"CI {interval(of.lo, of.hi)}"
