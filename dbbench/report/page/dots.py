"""The dot plot: every trial a point relative to the baseline of its block, the interval a bar. Geometry only.

It is drawn twice, wide and narrow, so that its text keeps its size on a phone; it needs no script and prints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dbbench.compare.interval import SAME, paired
from dbbench.compare.remarks import texts
from dbbench.model import Trial
from dbbench.report.page.axes import Axis, Frame
from dbbench.report.page.groups import Group, reason
from dbbench.report.page.theme import Mark
from dbbench.units import change, round_change

WIDE: Final = 1150
NARROW: Final = 358  # width of a phone (390 px) without margins
LEAST_SPAN: Final = 0.16  # shortest x axis, so that differences below 1 % do not look large


@dataclass(frozen=True)
class Dot:
    """One trial: its position, whether it counts, and its tooltip."""

    x: float
    y: float
    hollow: bool
    label: str


@dataclass(frozen=True)
class DotRow:
    """One arm. `interval` and `centre` are x positions; `words` are at the right end."""

    mark: Mark
    apart: bool
    durability: str
    y: float
    label: float  # y of the name above the points in the narrow drawing
    dots: tuple[Dot, ...]
    interval: tuple[float, float] | None
    centre: float | None
    words: str
    verdict: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DotPlot:
    """One drawing: its frame, its ticks and its rows, in pixels."""

    frame: Frame
    narrow: bool
    apart_at: float  # y of the line above the arms of another durability class
    one: float  # x of the ratio 1, the baseline
    same: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[DotRow, ...]
    better: str  # "right" or "left": the side on which an arm is better
    sides: tuple[str, str]  # words at the left and right end of the axis


def dot_plots(group: Group) -> tuple[DotPlot, DotPlot] | None:
    """Return the wide and the narrow drawing; None if no pair can be formed."""
    ratios = _ratios(group)
    if not any(ratios.values()):
        return None
    return _drawn(group, ratios, narrow=False), _drawn(group, ratios, narrow=True)


Points = list[tuple[Trial, float, bool]]  # (trial, ratio to the baseline of its block, whether it counts)


def _ratios(group: Group) -> dict[str, Points]:
    """Return the points of each candidate. An excluded trial is compared with the baseline of its block and attempt."""
    name, ratios = group.metric.name, {}
    for arm in group.arms:
        if arm == group.baseline:
            continue
        points: Points = []
        counted = set()
        for base, trial in paired(group.trials, group.baseline, arm):
            counted.add(trial.id)
            points += _point(trial, base, name, True)
        for trial in group.trials_of(arm):
            base_trial = _beside(group, trial)
            if trial.id not in counted and base_trial is not None:
                points += _point(trial, base_trial, name, False)
        ratios[arm] = sorted(points, key=lambda point: (point[0].block, point[0].attempt))
    return ratios


def _point(trial: Trial, base: Trial, metric: str, counts: bool) -> Points:
    value, reference = trial.summary.get(metric), base.summary.get(metric)
    return [(trial, value / reference, counts)] if value and reference and value > 0 and reference > 0 else []


def _beside(group: Group, trial: Trial) -> Trial | None:
    near = [t for t in group.trials_of(group.baseline) if t.block == trial.block]
    return next((t for t in near if t.attempt == trial.attempt), near[0] if near else None)


def _drawn(group: Group, ratios: dict[str, Points], narrow: bool) -> DotPlot:
    width = NARROW if narrow else WIDE
    left, right = (8.0, width - 8.0) if narrow else (176.0, width - 196.0)
    x = Axis(*_span(group, ratios), left, right)
    blocks = max((trial.block for points in ratios.values() for trial, _, _ in points), default=1)
    tall = max(30.0, min(54.0, 14.0 + 5.0 * blocks))  # height of the points of a row
    pitch = tall + (36.0 if narrow else 10.0)
    top = 30.0
    rows, y = [], top + (26.0 if narrow else 0.0)
    apart_at = 0.0
    for row in sorted(group.rows[1:], key=group.apart):  # arms of another durability class are last
        middle = y + tall / 2
        if group.apart(row) and not apart_at:
            apart_at = round(y - (24.0 if narrow else 5.0), 1)
        spread = (tall - 10) / max(1, blocks - 1) if blocks > 1 else 0.0
        dots = tuple(
            Dot(x(ratio), round(middle + (trial.block - (blocks + 1) / 2) * spread, 1), not counts,
                _label(trial, ratio, counts, group))
            for trial, ratio, counts in ratios[row.fs_setup]
        )  # fmt: skip
        rows.append(
            DotRow(
                mark=group.marks[row.fs_setup],
                apart=group.apart(row),
                durability=row.durability_class,
                y=round(middle, 1),
                label=round(y - 6, 1),
                dots=dots,
                interval=None if row.lo is None or row.hi is None else (x(row.lo), x(row.hi)),
                centre=x(row.ratio) if row.ratio is not None else None,
                words=change(row.ratio),
                verdict=row.verdict,
                notes=texts(row.notes),
            )
        )
        y += pitch
    bottom = y - (36.0 if narrow else 10.0) + 8.0
    speed = group.metric.words == "speed"
    good, bad = ("faster", "slower") if speed else ("better", "worse")
    higher = group.metric.better == "higher"
    # Ticks are round changes (+10 %), not round ratios.
    changes = Axis(x.low - 1, x.high - 1, left, right).ticks(4 if narrow else 9)
    return DotPlot(
        Frame(width, bottom + 44, left, right, top - 6, bottom), narrow, apart_at, x(1.0),
        (x.clipped(math.exp(-SAME)), x.clipped(math.exp(SAME))),
        tuple((x(1 + tick), round_change(1 + tick) if tick else group.baseline) for tick in changes),
        tuple(rows), "right" if higher else "left",
        (f"← {bad if higher else good}", f"{good if higher else bad} →"),
    )  # fmt: skip


def _label(trial: Trial, ratio: float, counts: bool, group: Group) -> str:
    text = f"{trial.fs_setup}, block {trial.block}: {change(ratio)}"
    return text if counts else f"{text}; excluded: {reason(trial)}"


def _span(group: Group, ratios: dict[str, Points]) -> tuple[float, float]:
    """Return the range of the axis: all points, the baseline, and intervals up to three times as far."""
    seen = [ratio for points in ratios.values() for _, ratio, _ in points] + [1.0]
    low, high = min(seen), max(seen)
    reach = max(high - low, LEAST_SPAN)
    for row in group.rows[1:]:
        if row.lo is not None and row.hi is not None:
            low, high = min(low, max(row.lo, 1 - 3 * reach, 0.0)), max(high, min(row.hi, 1 + 3 * reach))
    if high - low < LEAST_SPAN:
        low, high = min(low, 1 - LEAST_SPAN / 2), max(high, 1 + LEAST_SPAN / 2)
    pad = (high - low) * 0.05
    return max(0.0, low - pad), high + pad
