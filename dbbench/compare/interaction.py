"""Factors and sweeps of a plan: whether the ratios of the filesystems, and their order, depend on a value.

At each level of a factor, an arm has a ratio to the baseline: the geometric mean over all combinations of the other
factors. A contrast is the ratio at one level ÷ that at the factor's first level. Both are made of the rows of the
combinations, whose pairs lie within blocks; the standard error of each row is that of its own interval, with the
variance that pairs of a run share. Degrees of freedom are Satterthwaite's. Holm's procedure covers all contrasts of one
engine and workload. `benchmarks/calibration.py` measures the rule.

A sweep (clients = [1, 8, 64]) is a curve for each arm: which arm leads where, and whether two arms cross.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeVar

from dbbench.compare.interval import SAME, Group, LogRatio, holm_levels
from dbbench.compare.verdict import AHEAD, BEHIND, LIMITED, Row, word
from dbbench.metrics.table import Metric
from dbbench.model import Scalar, without_levels

_K = TypeVar("_K")
Levels = Mapping[str, Scalar]  # factor -> level
DEPENDS: Final = "depends"
Verdict = Literal["order-depends", "ratio-depends", "same", "same-order", "inconclusive"]


@dataclass(frozen=True)
class LevelRatio:
    """An arm's ratio to the baseline at one level; `verdict` is a word of the metric, as in a row."""

    fs_setup: str
    level: Scalar
    ratio: float
    lo: float | None
    hi: float | None
    verdict: str


@dataclass(frozen=True)
class Contrast:
    """The ratio of an arm at `level` ÷ its ratio at `reference`, with the interval at `confidence` that Holm gives it.

    `verdict`: "depends" (the interval excludes 1), "same" (it is within 5 %), "device-limited" or "inconclusive".
    """

    fs_setup: str
    level: Scalar
    reference: Scalar
    change: float
    lo: float | None
    hi: float | None
    verdict: str
    confidence: float | None
    df: float | None


@dataclass(frozen=True)
class Interaction:
    """A factor with one engine and workload. `variant` has the values from the other lists of the plan.

    `order-depends`: a ratio depends on the factor, and an arm is ahead of the baseline at one level and behind it at
    another. `ratio-depends`: a ratio depends on the factor. `same`: no ratio changes by more than 5 %. `same-order`:
    each arm is on the same side of the baseline at every level. Otherwise `inconclusive`.
    """

    engine: str
    workload: str
    variant: str
    factor: str
    baseline: str
    levels: tuple[Scalar, ...]
    verdict: Verdict
    contrasts: tuple[Contrast, ...]
    ratios: tuple[LevelRatio, ...]


class _Cell(NamedTuple):
    """A row with the levels of its combination."""

    levels: Levels
    row: Row


def interactions(rows: Sequence[Row], levels: Mapping[Group, Levels], metric: Metric) -> list[Interaction]:
    """Return the interaction of each factor, for each engine and workload, in the order of the plan.

    `rows` are those of a whole run by that metric, `levels` has the factors of each group, in the plan's order. Arms of
    another durability class than the baseline are left out.
    """
    families: dict[_Family, list[_Cell]] = {}
    for row in rows:
        if of_row := levels.get((row.engine, row.workload, row.variant)):
            key = _family((row.engine, row.workload, row.variant), of_row)
            families.setdefault(key, []).append(_Cell(of_row, row))
    planned = {key: [of for group, of in levels.items() if _family(group, of) == key] for key in families}
    return [about for key, cells in families.items() for about in _interactions(key[0], cells, planned[key], metric)]


_Family = tuple[Group, tuple[str, ...]]  # ((engine, workload, other parts of the variant), names of the factors)


def _family(group: Group, levels: Levels) -> _Family:
    """Return what is equal in all combinations that are compared with each other."""
    engine, workload, variant = group
    return (engine, workload, without_levels(variant, levels)), tuple(levels)


def _interactions(key: Group, cells: list[_Cell], planned: list[Levels], metric: Metric) -> list[Interaction]:
    engine, workload, variant = key
    baseline = next((cell.row.fs_setup for cell in cells if cell.row.verdict == "baseline"), None)
    if baseline is None:
        return []
    mixed = {cell.row.fs_setup for cell in cells if cell.row.mixed_durability}
    arms = [arm for arm in dict.fromkeys(cell.row.fs_setup for cell in cells) if arm not in {baseline, *mixed}]
    guesses: dict[tuple[str, str, Scalar], LogRatio] = {}
    differences: list[tuple[str, str, Scalar, Scalar, LogRatio]] = []
    for factor in planned[0]:
        steps = list(dict.fromkeys(of[factor] for of in planned))
        for arm in arms:
            of_arm = [cell for cell in cells if cell.row.fs_setup == arm]
            for step in steps:
                wanted = sum(of[factor] == step for of in planned)
                at = [cell.row for cell in of_arm if cell.levels[factor] == step and cell.row.ratio is not None]
                if at:
                    guesses[factor, arm, step] = _mean(at, complete=len(at) == wanted)
            first = guesses.get((factor, arm, steps[0]))
            differences += [
                (factor, arm, step, steps[0], _difference(other, first))
                for step in steps[1:]
                if first is not None and (other := guesses.get((factor, arm, step))) is not None
            ]
    limited = {cell.row.fs_setup for cell in cells if cell.row.verdict == LIMITED}
    contrasts = _contrasts(differences, limited)
    interactions = [
        Interaction(engine, workload, variant, factor, baseline,
                    tuple(dict.fromkeys(of[factor] for of in planned)), "inconclusive",
                    tuple(contrast for name, contrast in contrasts if name == factor),
                    _ratios({key: guess for key, guess in guesses.items() if key[0] == factor}, limited, metric))
        for factor in planned[0]
    ]  # fmt: skip
    return [replace(about, verdict=_verdict(about)) for about in interactions]


def _mean(rows: Sequence[Row], *, complete: bool) -> LogRatio:
    """Return the mean of the rows' log ratios. It has no interval if a row has none, or if a combination is missing."""
    from scipy.special import stdtrit

    mean = math.fsum(math.log(row.ratio or 1.0) for row in rows) / len(rows)
    variances: list[tuple[float, float]] = []
    for row in rows:
        if row.lo is None or row.hi is None or row.level is None or row.df is None:
            return LogRatio(mean, 0.0, None)
        error = math.log(row.hi / row.lo) / 2 / float(stdtrit(row.df, 1 - (1 - row.level) / 2))
        variances.append(((error / len(rows)) ** 2, row.df))
    of_rows = LogRatio.of_terms(mean, variances)
    return of_rows if complete else of_rows._replace(df=None)


def _difference(guess: LogRatio, reference: LogRatio) -> LogRatio:
    mean = guess.mean - reference.mean
    if guess.df is None or reference.df is None:
        return LogRatio(mean, 0.0, None)
    return LogRatio.of_terms(mean, [(guess.variance, guess.df), (reference.variance, reference.df)])


def _confidences(guesses: Mapping[_K, LogRatio]) -> dict[_K, float]:
    """Return the confidence levels that Holm's procedure gives to the values that have an interval."""
    tested = [key for key, guess in guesses.items() if guess.df is not None]
    return dict(zip(tested, holm_levels([guesses[key].p_value() for key in tested]), strict=True))


def _contrasts(
    differences: Sequence[tuple[str, str, Scalar, Scalar, LogRatio]], limited: set[str]
) -> list[tuple[str, Contrast]]:
    """Return (factor, contrast) pairs; Holm's procedure covers all contrasts that have an interval."""
    holm = _confidences({index: guess for index, (_, arm, _, _, guess) in enumerate(differences) if arm not in limited})
    contrasts = []
    for index, (factor, arm, level, reference, guess) in enumerate(differences):
        bounds = guess.bounds(holm[index]) if index in holm else None
        verdict = LIMITED if arm in limited else "inconclusive"
        if bounds is not None and (bounds[0] > 0 or bounds[1] < 0):
            verdict = DEPENDS
        elif bounds is not None and bounds[0] >= -SAME and bounds[1] <= SAME:
            verdict = "same"
        low, high = (None, None) if bounds is None else map(math.exp, bounds)
        contrast = Contrast(arm, level, reference, math.exp(guess.mean), low, high, verdict, holm.get(index),
                            guess.df if index in holm else None)  # fmt: skip
        contrasts.append((factor, contrast))
    return contrasts


def _ratios(
    guesses: Mapping[tuple[str, str, Scalar], LogRatio], limited: set[str], metric: Metric
) -> tuple[LevelRatio, ...]:
    holm = _confidences({key: guess for key, guess in guesses.items() if key[1] not in limited})
    ratios = []
    for key, guess in guesses.items():
        _, arm, level = key
        bounds = guess.bounds(holm[key]) if key in holm else None
        verdict = LIMITED if arm in limited else "inconclusive" if bounds is None else word(*bounds, metric)
        low, high = (None, None) if bounds is None else map(math.exp, bounds)
        ratios.append(LevelRatio(arm, level, math.exp(guess.mean), low, high, verdict))
    return tuple(ratios)


def _verdict(about: Interaction) -> Verdict:
    sides: dict[str, list[str]] = {}
    for ratio in about.ratios:
        sides.setdefault(ratio.fs_setup, []).append(
            "ahead" if ratio.verdict in AHEAD else "behind" if ratio.verdict in BEHIND else ""
        )
    depending = {contrast.fs_setup for contrast in about.contrasts if contrast.verdict == DEPENDS}
    if any({"ahead", "behind"} <= set(sides[arm]) for arm in depending):
        return "order-depends"
    if depending:
        return "ratio-depends"
    if about.contrasts and all(contrast.verdict == "same" for contrast in about.contrasts):
        return "same"
    whole = all(len(of) == len(about.levels) for of in sides.values())
    if sides and whole and all(len(set(of)) == 1 and "" not in of for of in sides.values()):
        return "same-order"
    return "inconclusive"


@dataclass(frozen=True)
class Point:
    """One value of the sweep."""

    at: float
    row: Row


@dataclass(frozen=True)
class Curve:
    """An arm over the values of one swept parameter, with everything else equal."""

    fs_setup: str
    engine: str
    workload: str
    parameter: str  # the swept parameter: "clients"
    rest: str  # the other parts of the variant
    points: tuple[Point, ...]

    @property
    def crosses(self) -> tuple[Point, Point] | None:
        """Return neighbouring decided points, one ahead of the baseline and one behind it; None if there are none."""
        decided = [point for point in self.points if point.row.verdict in (*AHEAD, *BEHIND)]
        for before, other in itertools.pairwise(decided):
            if (before.row.verdict in AHEAD) != (other.row.verdict in AHEAD):
                return before, other
        return None


def curves(rows: Sequence[Row]) -> list[Curve]:
    """Return every arm's curve over each numeric parameter with at least two values; points ascending."""
    points_of: dict[tuple[str, str, str, str, str], list[Point]] = {}
    for row in rows:
        for parameter, value, rest in _numbers(row.variant):
            key = (row.fs_setup, row.engine, row.workload, parameter, rest)
            points_of.setdefault(key, []).append(Point(value, row))
    return [
        Curve(*key, tuple(sorted(points, key=lambda point: point.at)))
        for key, points in points_of.items()
        if len({point.at for point in points}) > 1
    ]


def crossings(rows: Sequence[Row]) -> list[Curve]:
    """Return the curves that cross the baseline."""
    return [curve for curve in curves(rows) if curve.crosses is not None]


def _numbers(variant: str) -> list[tuple[str, float, str]]:
    """Return (parameter, value, the other parts) for each numeric part of a variant."""
    parts, numbers = [part for part in variant.split("+") if part], []
    for part in parts:
        name, _, text = part.partition("=")
        try:
            numbers.append((name, float(text), "+".join(other for other in parts if other != part)))
        except ValueError:
            continue
    return numbers
