"""Factors and sweeps of a plan: whether the ratios of the filesystems, and their order, depend on a
value.

At each level of a factor, an arm has a ratio to the baseline: the geometric mean over all
combinations of the other factors. A contrast is the ratio at one level ÷ that at the factor's
first level. Both are made of the rows of the combinations, whose pairs lie within blocks; the
standard error of each row is that of its own interval, with the variance that pairs of a run
share. Degrees of freedom are Satterthwaite's. Holm's procedure covers all contrasts of one
engine and workload. `benchmarks/calibration.py` measures the rule. A sweep (clients = [1, 8,
64]) is a curve for each arm: which arm leads where, and whether two arms cross.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from dbbench.compare.interval import LogRatio, confidences
from dbbench.compare.pairing import Group
from dbbench.compare.verdict import AHEAD, BEHIND, Row, word
from dbbench.metrics.table import Metric
from dbbench.model import Scalar, Verdict, without_levels
from dbbench.model.plan import MARGIN

Levels = Mapping[str, Scalar]  # factor -> level


class FactorVerdict(StrEnum):
    """Whether the comparison of the filesystems depends on a factor."""

    ORDER_DEPENDS = "order-depends"
    RATIO_DEPENDS = "ratio-depends"
    SAME = "same"
    SAME_ORDER = "same-order"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class LevelRatio:
    """An arm's ratio to the baseline at one level; `verdict` is a word of the metric, as in a row."""

    fs_setup: str
    level: Scalar
    ratio: float
    lo: float | None
    hi: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Contrast:
    """The ratio of an arm at `level` ÷ its ratio at `reference`, with the interval at `confidence`
    that Holm gives it. `verdict`: DEPENDS (the interval excludes 1), SAME (within the margin),
    LIMITED or INCONCLUSIVE.
    """

    fs_setup: str
    level: Scalar
    reference: Scalar
    change: float
    lo: float | None
    hi: float | None
    verdict: Verdict
    confidence: float | None
    df: float | None


@dataclass(frozen=True)
class Interaction:
    """A factor with one engine and workload. `variant` has the values from the other lists of the
    plan. `ratio-depends`: a ratio depends on the factor; `order-depends`: such an arm is also
    ahead of the baseline at one level and behind it at another. `same`: no ratio changes by more
    than the margin. `same-order`: each arm is on the same side of the baseline at every level.
    Otherwise `inconclusive`. `flush_ms`: the delay of a flush by level, if the levels differ in
    nothing else.
    """

    engine: str
    workload: str
    variant: str
    factor: str
    baseline: str
    levels: tuple[Scalar, ...]
    verdict: FactorVerdict
    contrasts: tuple[Contrast, ...]
    ratios: tuple[LevelRatio, ...]
    margin: float
    metric: str
    flush_ms: Mapping[Scalar, int] = field(default_factory=dict)


class _Combination(NamedTuple):
    """A row with the levels of its combination."""

    levels: Levels
    row: Row


# ((engine, workload, other parts of the variant), names of the factors)
_Family = tuple[Group, tuple[str, ...]]


def interactions(
    rows: Sequence[Row],
    levels: Mapping[Group, Levels],
    metric: Metric,
) -> list[Interaction]:
    """Return the interaction of each factor, for each engine and workload, in the order of the
    plan. `rows` are those of a whole run by that metric, `levels` has the factors of each group,
    in the plan's order. Arms of another durability class than the baseline are left out.
    """
    # Rows that differ only in the levels of factors belong together.
    families: dict[_Family, list[_Combination]] = {}
    for row in rows:
        group = (row.engine, row.workload, row.variant)
        if levels.get(group):
            key = _family(group, levels[group])
            families.setdefault(key, []).append(_Combination(levels[group], row))
    interactions = []
    for key, combinations in families.items():
        planned = [of for group, of in levels.items() if _family(group, of) == key]
        interactions += _interactions(key[0], combinations, planned, metric)
    return interactions


def _family(group: Group, levels: Levels) -> _Family:
    engine, workload, variant = group
    return (engine, workload, without_levels(variant, levels)), tuple(levels)


class _Factor(NamedTuple):
    """A factor with its levels, and the mean ratio of each arm at each of them."""

    name: str
    levels: tuple[Scalar, ...]
    means: dict[tuple[str, Scalar], LogRatio]  # (arm, level) -> over the other factors


def _interactions(
    key: Group,
    combinations: list[_Combination],
    planned: list[Levels],
    metric: Metric,
) -> list[Interaction]:
    rows = [combination.row for combination in combinations]
    baseline = next((row.fs_setup for row in rows if row.verdict is Verdict.BASELINE), None)
    if baseline is None:
        return []

    # Arms with another durability class are not compared.
    left_out = {baseline, *(row.fs_setup for row in rows if row.mixed_durability)}
    compared = [each for each in combinations if each.row.fs_setup not in left_out]
    margin = compared[0].row.margin if compared else MARGIN
    limited = {each.row.fs_setup for each in compared if each.row.verdict is Verdict.LIMITED}

    # The mean ratio of each arm at each level, and how it differs between levels.
    factors = []
    for name in planned[0]:
        levels = tuple(dict.fromkeys(of[name] for of in planned))
        factors.append(_Factor(name, levels, _means(name, levels, compared, planned)))
    differences: dict[tuple[str, str, Scalar], LogRatio] = {}  # by factor, arm and level
    for factor in factors:
        differences |= _differences(factor)

    # Holm's procedure covers the contrasts of all factors, and separately the ratios of each
    # factor.
    confidence = confidences({key: of for key, of in differences.items() if key[1] not in limited})
    interactions = []
    for factor in factors:
        contrasts = []
        for (name, arm, level), difference in differences.items():
            if name == factor.name:
                place = (arm, level, factor.levels[0])
                level_confidence = confidence.get((name, arm, level))
                contrast = _contrast(place, difference, level_confidence, margin)
                if arm in limited:
                    contrast = replace(contrast, verdict=Verdict.LIMITED)
                contrasts.append(contrast)
        ratios = tuple(_ratios(factor.means, limited, metric))
        interactions.append(
            Interaction(
                *key,
                factor.name,
                baseline,
                factor.levels,
                _verdict(contrasts, ratios, len(factor.levels)),
                tuple(contrasts),
                ratios,
                margin,
                metric.name,
            )
        )
    return interactions


def _means(
    factor: str,
    levels: Sequence[Scalar],
    combinations: Sequence[_Combination],
    planned: Sequence[Levels],
) -> dict[tuple[str, Scalar], LogRatio]:
    """Return the mean log ratio of each arm at each level. It has no interval if a row has none, or
    if a combination is missing.
    """
    # The rows of an arm at a level, over all combinations of the other factors.
    rows_at: dict[tuple[str, Scalar], list[Row]] = {}
    for arm in dict.fromkeys(each.row.fs_setup for each in combinations):
        for level in levels:
            rows_at[arm, level] = [
                each.row
                for each in combinations
                if each.row.fs_setup == arm
                and each.levels[factor] == level
                and each.row.ratio is not None
            ]
    means = {}
    for (arm, level), rows in rows_at.items():
        if rows:
            mean = _mean(rows)
            complete = len(rows) == sum(of[factor] == level for of in planned)
            means[arm, level] = mean if complete else mean._replace(df=None)
    return means


def _mean(rows: Sequence[Row]) -> LogRatio:
    mean = math.fsum(math.log(row.ratio or 1.0) for row in rows) / len(rows)
    terms = []
    for row in rows:
        if row.log_ratio is None or row.log_ratio.df is None:
            return LogRatio(mean, 0.0, None)
        terms.append((row.log_ratio.variance / len(rows) ** 2, row.log_ratio.df))
    return LogRatio.of_terms(mean, terms)


def _differences(factor: _Factor) -> dict[tuple[str, str, Scalar], LogRatio]:
    """Return the difference of each arm's mean at a level from that at the first level."""
    first = factor.levels[0]
    differences = {}
    for (arm, level), mean in factor.means.items():
        reference = factor.means.get((arm, first))
        if level != first and reference is not None:
            differences[factor.name, arm, level] = _difference(mean, reference)
    return differences


def _difference(guess: LogRatio, reference: LogRatio) -> LogRatio:
    mean = guess.mean - reference.mean
    if guess.df is None or reference.df is None:
        return LogRatio(mean, 0.0, None)
    return LogRatio.of_terms(mean, [(guess.variance, guess.df), (reference.variance, reference.df)])


def _contrast(
    place: tuple[str, Scalar, Scalar],
    difference: LogRatio,
    confidence: float | None,
    margin: float,
) -> Contrast:
    change = math.exp(difference.mean)
    if confidence is None:
        return Contrast(*place, change, None, None, Verdict.INCONCLUSIVE, None, None)
    # A change counts if its interval excludes 0, and is none if it fits the margin.
    low, high = difference.bounds(confidence)
    if low > 0 or high < 0:
        verdict = Verdict.DEPENDS
    elif max(-low, high) <= math.log1p(margin):
        verdict = Verdict.SAME
    else:
        verdict = Verdict.INCONCLUSIVE
    return Contrast(
        *place, change, math.exp(low), math.exp(high), verdict, confidence, difference.df
    )


def _ratios(
    means: Mapping[tuple[str, Scalar], LogRatio],
    limited: set[str],
    metric: Metric,
) -> Iterator[LevelRatio]:
    confidence = confidences({key: mean for key, mean in means.items() if key[0] not in limited})
    for (arm, level), mean in means.items():
        ratio = math.exp(mean.mean)
        if (arm, level) not in confidence:
            verdict = Verdict.LIMITED if arm in limited else Verdict.INCONCLUSIVE
            yield LevelRatio(arm, level, ratio, None, None, verdict)
            continue
        low, high = mean.bounds(confidence[arm, level])
        yield LevelRatio(arm, level, ratio, math.exp(low), math.exp(high), word(low, high, metric))


def _verdict(
    contrasts: Sequence[Contrast],
    ratios: Sequence[LevelRatio],
    levels: int,
) -> FactorVerdict:
    # On which side of the baseline each arm is, level by level.
    sides: dict[str, list[str]] = {}
    for ratio in ratios:
        side = "ahead" if ratio.verdict in AHEAD else ""
        if ratio.verdict in BEHIND:
            side = "behind"
        sides.setdefault(ratio.fs_setup, []).append(side)

    words = {contrast.verdict for contrast in contrasts}
    # A ratio that changes matters most if the arm also changes sides.
    depending = [of.fs_setup for of in contrasts if of.verdict is Verdict.DEPENDS]
    if any({"ahead", "behind"} <= set(sides[arm]) for arm in depending):
        return FactorVerdict.ORDER_DEPENDS
    if depending:
        return FactorVerdict.RATIO_DEPENDS
    if words == {Verdict.SAME}:
        return FactorVerdict.SAME
    one_side = (["ahead"] * levels, ["behind"] * levels)
    if sides and all(of_arm in one_side for of_arm in sides.values()):
        return FactorVerdict.SAME_ORDER
    return FactorVerdict.INCONCLUSIVE


SweepPoint = tuple[float, Row]  # a value of the swept parameter


class Curve(NamedTuple):
    """An arm over the values of one swept parameter, with everything else equal."""

    fs_setup: str
    engine: str
    workload: str
    parameter: str  # the swept parameter: "clients"
    rest: str  # the other parts of the variant
    points: tuple[SweepPoint, ...]

    @property
    def crosses(self) -> tuple[SweepPoint, SweepPoint] | None:
        """Return neighbouring decided points, one ahead of the baseline and one behind it; None if
        there are none.
        """
        decided = [point for point in self.points if point[1].verdict in (*AHEAD, *BEHIND)]
        for before, after in itertools.pairwise(decided):
            if (before[1].verdict in AHEAD) != (after[1].verdict in AHEAD):
                return before, after
        return None


def curves(rows: Sequence[Row]) -> list[Curve]:
    """Return every arm's curve over each numeric parameter with at least two values; points
    ascending.
    """
    points_of: dict[tuple[str, str, str, str, str], list[SweepPoint]] = {}
    for row in rows:
        for parameter, value, rest in _numbers(row.variant):
            key = (row.fs_setup, row.engine, row.workload, parameter, rest)
            points_of.setdefault(key, []).append((value, row))
    curves = []
    for key, points in points_of.items():
        if len({value for value, _ in points}) > 1:
            curves.append(Curve(*key, tuple(sorted(points, key=lambda point: point[0]))))
    return curves


def _numbers(variant: str) -> Iterator[tuple[str, float, str]]:
    """Yield each part of the variant that has a number: its name, the number, the other parts."""
    parts = [part for part in variant.split("+") if part]
    for part in parts:
        name, _, text = part.partition("=")
        with contextlib.suppress(ValueError):
            yield name, float(text), "+".join(other for other in parts if other != part)
