"""The dot plot: every trial a point relative to the baseline of its block, the interval a bar;
without the points, the answer of all groups in one picture. Each is drawn wide and narrow, so
that its text keeps its size on a phone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.pairing import pairs_of
from dbbench.compare.verdict import without_guard
from dbbench.metrics.table import Metric
from dbbench.model import Trial
from dbbench.report.page.charts.kit import PHONE, Frame, PixelAxis, Point
from dbbench.report.page.groups import ArmLabel, Group, reason
from dbbench.units import change, round_change

WIDE: Final = 1150
LEAST_SPAN: Final = 0.16  # shortest x axis, so that differences below 1 % do not look large
TOP: Final = 30.0
LINE: Final = 17.0  # from a line of a title to the next one, px
LONGEST_TICK: Final = 12  # letters of a baseline's name on a narrow axis


class Compared(NamedTuple):
    """A trial, its ratio to the baseline of its block, and whether it counts."""

    trial: Trial
    ratio: float
    counts: bool


Ratios = dict[str, list[Compared]]  # of the arms that are drawn


class DotRow(NamedTuple):
    """An arm. `label` is the y of its name above the points in the narrow drawing."""

    arm: ArmLabel
    row: Row
    y: float
    label: float
    dots: tuple[Point, ...]
    interval: tuple[float, float] | None
    centre: float | None


class GroupTitle(NamedTuple):
    """The lines above the rows of a group, and those that say what was measured."""

    y: float
    lines: list[str]
    side: list[str]


class DotPlot(NamedTuple):
    """One drawing. `one` is the x of no change, `same` the ends of the plan's margin, `apart_at`
    the y of the line above the arms of another durability class.
    """

    ident: str
    frame: Frame
    narrow: bool
    apart_at: float
    one: float
    same: tuple[float, float]
    ticks: list[tuple[float, str]]
    rows: list[DotRow]
    sides: tuple[str, str]
    titles: list[GroupTitle]

    @property
    def lines(self) -> list[float]:
        """Return the x of each vertical line."""
        return list(dict.fromkeys([*(x for x, _ in self.ticks), self.one]))


class Sizes(NamedTuple):
    """The distances of a drawing, px. `start`: above the first row; `title`: the height of a
    group's title, whose lines have at most `letters`; `after_group`: what is added below a group;
    `gap` is between two rows.
    """

    left: float
    right: float
    start: float
    title: float
    letters: int
    after_group: float
    gap: float
    bottom: float
    above_line: float


# (with titles, narrow)
SIZES: Final = {
    (False, False): Sizes(176.0, WIDE - 196.0, TOP, 0.0, 0, 0.0, 10.0, 8.0, 5.0),
    (False, True): Sizes(8.0, PHONE - 8.0, TOP + 26.0, 0.0, 0, 0.0, 36.0, 8.0, 24.0),
    (True, False): Sizes(176.0, WIDE - 300.0, 4.0, 26.0, 90, 4.0, 10.0, 8.0, 5.0),
    (True, True): Sizes(8.0, PHONE - 8.0, 4.0, 56.0, 46, -14.0, 28.0, 22.0, 24.0),
}


def dot_plots(group: Group) -> tuple[DotPlot, DotPlot] | None:
    """Return the wide and the narrow drawing; None if no pair can be formed."""
    ratios = {}
    for arm in group.arms:
        if arm != group.baseline:
            ratios[arm] = _points(group, arm)
    if any(ratios.values()):
        return _both(f"d-{group.ident}", [(group, ratios)])
    return None


def answer_plots(groups: Sequence[Group]) -> tuple[tuple[DotPlot, DotPlot], ...]:
    """Return the intervals of all setups but the guard: a picture where more is better, and one
    where less is.
    """
    plots = []
    for better in ("higher", "lower"):
        drawn: list[tuple[Group, Ratios]] = []
        for group in groups:
            rows = without_guard(group.rows)[1:]
            if group.metric.better == better and any(row.ratio is not None for row in rows):
                drawn.append((group, {row.fs_setup: [] for row in rows}))
        if drawn:
            plots.append(_both(f"answer-{better}", drawn, titled=True))
    return tuple(plots)


def _both(
    ident: str,
    groups: Sequence[tuple[Group, Ratios]],
    titled: bool = False,
) -> tuple[DotPlot, DotPlot]:
    wide = _plot(ident, groups, titled, narrow=False)
    return wide, _plot(ident, groups, titled, narrow=True)


def _points(group: Group, arm: str) -> list[Compared]:
    """Return the points of an arm. An excluded trial is compared with the baseline of its block and
    attempt.
    """
    pairs = [(trial, base, True) for base, trial in pairs_of(group.trials, group.baseline, arm)]
    paired = {trial.id for trial, _, _ in pairs}
    for trial in group.trials_of(arm):
        bases = [base for base in group.trials_of(group.baseline) if base.block == trial.block]
        bases.sort(key=lambda base: base.attempt != trial.attempt)
        if bases and trial.id not in paired:
            pairs.append((trial, bases[0], False))
    points = []
    for trial, base, counts in pairs:
        value = trial.summary.get(group.metric.name) or 0.0
        reference = base.summary.get(group.metric.name) or 0.0
        if value > 0 and reference > 0:
            points.append(Compared(trial, value / reference, counts))
    return sorted(points, key=lambda point: (point.trial.block, point.trial.attempt))


def _plot(
    ident: str,
    groups: Sequence[tuple[Group, Ratios]],
    titled: bool,
    narrow: bool,
) -> DotPlot:
    sizes = SIZES[titled, narrow]
    x = PixelAxis(*_span(groups), sizes.left, sizes.right)

    # The points of a row are below each other by block.
    points = [point for _, ratios in groups for of_arm in ratios.values() for point in of_arm]
    blocks = max((point.trial.block for point in points), default=1)
    tall = 14.0 if titled else max(30.0, min(54.0, 14.0 + 5.0 * blocks))
    spread = (tall - 10) / (blocks - 1) if blocks > 1 else 0.0

    # Row by row, from above; the baseline has none.
    rows = []
    titles = []
    apart_at = 0.0
    y = sizes.start
    for group, ratios in groups:
        if titled:
            lines = textwrap.wrap(group.title, sizes.letters)
            side = textwrap.wrap(_metric_text(group), sizes.letters)
            titles.append(GroupTitle(y + 13.0, lines, side))
            y += sizes.title + LINE * (len(lines) + len(side) - 2)
        for row in group.ordered_rows:  # another durability class is last
            if row.fs_setup not in ratios:
                continue
            if group.apart(row) and not (apart_at or titled):
                apart_at = round(y - sizes.above_line, 1)
            middle = y + tall / 2
            dots = []
            for trial, ratio, counts in ratios[row.fs_setup]:
                text = f"{trial.fs_setup}, block {trial.block}: {change(ratio)}"
                if not counts:
                    text += f"; excluded: {reason(trial)}"
                of_block = round(middle + (trial.block - (blocks + 1) / 2) * spread, 1)
                dots.append(
                    Point(
                        x(ratio),
                        of_block,
                        text,
                        hollow=not counts,
                    )
                )
            interval = None
            if row.lo is not None and row.hi is not None:
                interval = (x.clip(row.lo), x.clip(row.hi))
            rows.append(
                DotRow(
                    arm=group.arm(row),
                    row=row,
                    y=round(middle, 1),
                    label=round(y - 6, 1),
                    dots=tuple(dots),
                    interval=interval,
                    centre=None if row.ratio is None else x(row.ratio),
                )
            )
            y += tall + sizes.gap
        y += sizes.after_group

    # The frame and what is around it.
    bottom = y - sizes.gap + sizes.bottom

    # One baseline has its name on the axis; several are called so.
    baselines = {group.baseline for group, _ in groups}
    base = groups[0][0].baseline
    if len(baselines) > 1 or (narrow and len(base) > LONGEST_TICK):
        base = "baseline"
    margin = groups[0][0].rows[0].margin
    return DotPlot(
        ident=ident,
        frame=Frame(
            PHONE if narrow else WIDE,
            bottom + 44,
            sizes.left,
            sizes.right,
            (2.0 if titled else TOP) - 6,
            bottom,
        ),
        narrow=narrow,
        apart_at=apart_at,
        one=x(1.0),
        same=(x.clip(1 / (1 + margin)), x.clip(1 + margin)),
        ticks=[
            (x(ratio), base if ratio == 1 else round_change(ratio))
            for ratio in x.changes(4 if narrow else 9)
        ],
        rows=rows,
        sides=_sides([group.metric for group, _ in groups]),
        titles=titles,
    )


def _metric_text(group: Group) -> str:
    """Return what the group measures, and the baseline's value."""
    text = group.metric.label
    if group.plain_name:
        text = f"{group.plain_name}; {text}"
    value = group.rows[0].value
    if value is None:
        return text
    return f"{text}, {group.baseline} {group.metric.with_unit(value)}"


def _sides(metrics: Sequence[Metric]) -> tuple[str, str]:
    """Return what the left and the right side of the picture mean."""
    speeds = all(metric.words == "speed" for metric in metrics)
    good = "faster" if speeds else "better"
    bad = "slower" if speeds else "worse"
    if metrics[0].better == "higher":
        return f"← {bad}", f"{good} →"
    return f"← {good}", f"{bad} →"


def _span(groups: Sequence[tuple[Group, Ratios]]) -> tuple[float, float]:
    rows = [row for group, ratios in groups for row in group.rows if row.fs_setup in ratios]
    ratios = [1.0, *(row.ratio for row in rows if row.ratio is not None)]
    for _, ratios_of in groups:
        for points in ratios_of.values():
            ratios += [point.ratio for point in points]
    low = min(ratios)
    high = max(ratios)

    # An interval of few blocks may be much wider than everything else.
    reach = max(high - low, LEAST_SPAN)
    for row in rows:
        if row.lo is not None and row.hi is not None:
            low = min(low, max(row.lo, 1 - 3 * reach, 0.0))
            high = max(high, min(row.hi, 1 + 3 * reach))
    if high - low < LEAST_SPAN:
        low = min(low, 1 - LEAST_SPAN / 2)
        high = max(high, 1 + LEAST_SPAN / 2)
    pad = (high - low) * 0.05
    return max(0.0, low - pad), high + pad
