"""The dot plot: every trial a point relative to the baseline of its block, the interval a bar;
without the points, the answer of all groups in one picture. Each is drawn wide and narrow, so
that its text keeps its size on a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.compare.pairing import pairs_of
from dbbench.compare.verdict import without_guard
from dbbench.model import Trial
from dbbench.report.page.charts.kit import PHONE, Axis, Frame, Point
from dbbench.report.page.groups import Group, reason
from dbbench.units import change, round_change

WIDE: Final = 1150
LEAST_SPAN: Final = 0.16  # shortest x axis, so that differences below 1 % do not look large
TOP: Final = 30.0

Compared = tuple[Trial, float, bool]  # a trial, its ratio to that of its block, whether it counts
Ratios = dict[str, list[Compared]]  # of the arms that are drawn


def dot_plots(group: Group) -> tuple[View, View] | None:
    """Return the wide and the narrow drawing; None if no pair can be formed."""
    ratios = {arm: _points(group, arm) for arm in group.arms if arm != group.baseline}
    return _both(f"d-{group.ident}", [(group, ratios)]) if any(ratios.values()) else None


def answer_plots(groups: Sequence[Group]) -> tuple[tuple[View, View], ...]:
    """Return the intervals of all setups but the guard: a picture where more is better, and one
    where less is.
    """
    plots = []
    for better in ("higher", "lower"):
        those = [
            group
            for group in groups
            if group.metric.better == better
            and any(row.ratio is not None for row in without_guard(group.rows)[1:])
        ]
        if those:
            arms = [
                (g, {row.fs_setup: list[Compared]() for row in without_guard(g.rows)[1:]})
                for g in those
            ]
            plots.append(_both(f"answer-{better}", arms, titled=True))
    return tuple(plots)


def _both(
    ident: str, groups: Sequence[tuple[Group, Ratios]], titled: bool = False
) -> tuple[View, View]:
    return _plot(ident, groups, titled, narrow=False), _plot(ident, groups, titled, narrow=True)


def _points(group: Group, arm: str) -> list[Compared]:
    """Return the points of an arm. An excluded trial is compared with the baseline of its block and
    attempt.
    """
    pairs = [(trial, base, True) for base, trial in pairs_of(group.trials, group.baseline, arm)]
    counted = {trial.id for trial, _, _ in pairs}
    for trial in group.trials_of(arm):
        near = [t for t in group.trials_of(group.baseline) if t.block == trial.block]
        near.sort(key=lambda base: base.attempt != trial.attempt)
        pairs += [(trial, base, False) for base in near[:1] if trial.id not in counted]
    points = []
    for trial, base, counts in pairs:
        value, reference = (t.summary.get(group.metric.name) or 0.0 for t in (trial, base))
        if value > 0 and reference > 0:
            points.append((trial, value / reference, counts))
    return sorted(points, key=lambda point: (point[0].block, point[0].attempt))


def _plot(ident: str, groups: Sequence[tuple[Group, Ratios]], titled: bool, narrow: bool) -> View:
    """Return one drawing. Of a row, `label` is the y of its name above the points in the narrow
    drawing.
    """
    width = PHONE if narrow else WIDE
    left, right = (8.0, width - 8.0) if narrow else (176.0, width - (300.0 if titled else 196.0))
    x = Axis(*_span(groups), left, right)
    blocks = max(
        (t.block for _, ratios in groups for points in ratios.values() for t, _, _ in points),
        default=1,
    )
    # height of the points of a row
    tall = 14.0 if titled else max(30.0, min(54.0, 14.0 + 5.0 * blocks))
    gap = (28.0 if titled else 36.0) if narrow else 10.0
    spread = (tall - 10) / (blocks - 1) if blocks > 1 else 0.0
    rows = list[View]()
    titles = list[tuple[float, Group]]()
    apart_at = 0.0
    y = (4.0 if titled else TOP) + (26.0 if narrow and not titled else 0.0)
    for group, ratios in groups:
        if titled:
            titles.append((y + 13.0, group))
            y += 56.0 if narrow else 26.0
        # another durability class is last
        for row in [row for row in group.ordered_rows if row.fs_setup in ratios]:
            middle = y + tall / 2
            if group.apart(row) and not apart_at:
                apart_at = round(y - (24.0 if narrow else 5.0), 1)
            dots = tuple(
                Point(
                    x(ratio),
                    round(middle + (trial.block - (blocks + 1) / 2) * spread, 1),
                    f"{trial.fs_setup}, block {trial.block}: {change(ratio)}"
                    + ("" if counts else f"; excluded: {reason(trial)}"),
                    not counts,
                )
                for trial, ratio, counts in ratios[row.fs_setup]
            )
            interval = (
                None if row.lo is None or row.hi is None else (x.clip(row.lo), x.clip(row.hi))
            )
            centre = None if row.ratio is None else x(row.ratio)
            rows.append(
                View(
                    arm=group.arm(row),
                    row=row,
                    y=round(middle, 1),
                    label=round(y - 6, 1),
                    dots=dots,
                    interval=interval,
                    centre=centre,
                )
            )
            y += tall + gap
        y += (-14.0 if narrow else 4.0) if titled else 0.0
    bottom = y - gap + (22.0 if titled and narrow else 8.0)
    metrics = [group.metric for group, _ in groups]
    good, bad = (
        ("faster", "slower")
        if all(metric.words == "speed" for metric in metrics)
        else ("better", "worse")
    )
    low, high = (bad, good) if metrics[0].better == "higher" else (good, bad)
    baselines = {group.baseline for group, _ in groups}
    base = baselines.pop() if len(baselines) == 1 else "baseline"
    margin = groups[0][0].rows[0].margin
    return View(
        ident=ident,  # of the caption
        frame=Frame(width, bottom + 44, left, right, (2.0 if titled else TOP) - 6, bottom),
        narrow=narrow,
        # y of the line above the arms of another durability class
        apart_at=0.0 if titled else apart_at,
        one=x(1.0),
        same=(x.clip(1 / (1 + margin)), x.clip(1 + margin)),
        ticks=[
            (x(at), round_change(at) if at != 1 else base) for at in x.changes(4 if narrow else 9)
        ],
        rows=rows,
        sides=(f"← {low}", f"{high} →"),
        titles=titles,  # (y, group) above the rows of each group
    )


def _span(groups: Sequence[tuple[Group, Ratios]]) -> tuple[float, float]:
    drawn = [row for group, ratios in groups for row in group.rows if row.fs_setup in ratios]
    seen = [ratio for _, ratios in groups for points in ratios.values() for _, ratio, _ in points]
    seen += [1.0, *(row.ratio for row in drawn if row.ratio is not None)]
    low = min(seen)
    high = max(seen)
    reach = max(high - low, LEAST_SPAN)
    for row in drawn:
        if row.lo is not None and row.hi is not None:
            low = min(low, max(row.lo, 1 - 3 * reach, 0.0))
            high = max(high, min(row.hi, 1 + 3 * reach))
    if high - low < LEAST_SPAN:
        low = min(low, 1 - LEAST_SPAN / 2)
        high = max(high, 1 + LEAST_SPAN / 2)
    pad = (high - low) * 0.05
    return max(0.0, low - pad), high + pad
