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

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar

from dbbench.compare.interval import LogRatio, holm_levels
from dbbench.compare.pairing import Group
from dbbench.compare.verdict import AHEAD, BEHIND, LIMITED, Row, word
from dbbench.metrics.table import Metric
from dbbench.model import Scalar, without_levels
from dbbench.model.plan import MARGIN
from dbbench.units import grouped

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
    """The ratio of an arm at `level` ÷ its ratio at `reference`, with the interval at `confidence`
    that Holm gives it. `verdict`: "depends" (the interval excludes 1), "same" (within the
    margin), "device-limited" or "inconclusive".
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
    """A factor with one engine and workload. `variant` has the values from the other lists of the
    plan. `ratio-depends`: a ratio depends on the factor; `order-depends`: such an arm is also
    ahead of the baseline at one level and behind it at another. `same`: no ratio changes by more
    than the margin. `same-order`: each arm is on the same side of the baseline at every level.
    Otherwise `inconclusive`.
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
    margin: float
    metric: str


_Cell = tuple[Levels, Row]  # a row with the levels of its combination
# ((engine, workload, other parts of the variant), names of the factors)
_Family = tuple[Group, tuple[str, ...]]


def interactions(
    rows: Sequence[Row], levels: Mapping[Group, Levels], metric: Metric
) -> list[Interaction]:
    """Return the interaction of each factor, for each engine and workload, in the order of the
    plan. `rows` are those of a whole run by that metric, `levels` has the factors of each group,
    in the plan's order. Arms of another durability class than the baseline are left out.
    """
    families: dict[_Family, list[_Cell]] = {}
    for row in rows:
        group = (row.engine, row.workload, row.variant)
        if of_row := levels.get(group):
            families.setdefault(_family(group, of_row), []).append((of_row, row))
    planned = {
        key: [of for group, of in levels.items() if _family(group, of) == key] for key in families
    }
    return [
        about
        for key, cells in families.items()
        for about in _interactions(key[0], cells, planned[key], metric)
    ]


def _family(group: Group, levels: Levels) -> _Family:
    engine, workload, variant = group
    return (engine, workload, without_levels(variant, levels)), tuple(levels)


def _interactions(
    key: Group, cells: list[_Cell], planned: list[Levels], metric: Metric
) -> list[Interaction]:
    baseline = next((row.fs_setup for _, row in cells if row.verdict == "baseline"), None)
    if baseline is None:
        return []
    left_out = {baseline, *(row.fs_setup for _, row in cells if row.mixed_durability)}
    cells = [(of, row) for of, row in cells if row.fs_setup not in left_out]
    margin = cells[0][1].margin if cells else MARGIN
    limited = {row.fs_setup for _, row in cells if row.verdict == LIMITED}
    steps = {factor: list(dict.fromkeys(of[factor] for of in planned)) for factor in planned[0]}
    means = {factor: _means(factor, levels, cells, planned) for factor, levels in steps.items()}
    differences = {
        (factor, arm, level): _difference(guess, of_factor[arm, steps[factor][0]])
        for factor, of_factor in means.items()
        for (arm, level), guess in of_factor.items()
        if level != steps[factor][0] and (arm, steps[factor][0]) in of_factor
    }
    # Holm's procedure covers the contrasts of all factors, and separately the ratios of each
    # factor.
    holm = _confidences({key: guess for key, guess in differences.items() if key[1] not in limited})
    about = []
    for factor, levels in steps.items():
        contrasts = tuple(
            _contrast(
                (arm, level, levels[0]), guess, holm.get((name, arm, level)), arm in limited, margin
            )
            for (name, arm, level), guess in differences.items()
            if name == factor
        )
        ratios = tuple(_ratios(means[factor], limited, metric))
        verdict = _verdict(contrasts, ratios, len(levels))
        about.append(
            Interaction(
                *key,
                factor,
                baseline,
                tuple(levels),
                verdict,
                contrasts,
                ratios,
                margin,
                metric.name,
            )
        )
    return about


def _means(
    factor: str, levels: Sequence[Scalar], cells: Sequence[_Cell], planned: Sequence[Levels]
) -> dict[tuple[str, Scalar], LogRatio]:
    means = {}
    for arm in dict.fromkeys(row.fs_setup for _, row in cells):
        for level in levels:
            own = [
                row
                for of, row in cells
                if row.fs_setup == arm and of[factor] == level and row.ratio is not None
            ]
            if own:
                means[arm, level] = _mean(
                    own, complete=len(own) == sum(of[factor] == level for of in planned)
                )
    return means


def _mean(rows: Sequence[Row], *, complete: bool) -> LogRatio:
    """Return the mean of the rows' log ratios. It has no interval if a row has none, or if a
    combination is missing.
    """
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
    tested = [key for key, guess in guesses.items() if guess.df is not None]
    return dict(zip(tested, holm_levels([guesses[key].p_value() for key in tested]), strict=True))


def _contrast(
    place: tuple[str, Scalar, Scalar],
    guess: LogRatio,
    confidence: float | None,
    limited: bool,
    margin: float,
) -> Contrast:
    low = high = df = None
    verdict = LIMITED if limited else "inconclusive"
    if confidence is not None:
        bounds = guess.bounds(confidence)
        df = guess.df
        low, high = map(math.exp, bounds)
        if bounds[0] > 0 or bounds[1] < 0:
            verdict = DEPENDS
        elif max(-bounds[0], bounds[1]) <= math.log1p(margin):
            verdict = "same"
    return Contrast(*place, math.exp(guess.mean), low, high, verdict, confidence, df)


def _ratios(
    means: Mapping[tuple[str, Scalar], LogRatio], limited: set[str], metric: Metric
) -> Iterator[LevelRatio]:
    holm = _confidences({key: guess for key, guess in means.items() if key[0] not in limited})
    for (arm, level), guess in means.items():
        bounds = guess.bounds(holm[arm, level]) if (arm, level) in holm else None
        verdict = (
            LIMITED
            if arm in limited
            else "inconclusive"
            if bounds is None
            else word(*bounds, metric)
        )
        low, high = (None, None) if bounds is None else map(math.exp, bounds)
        yield LevelRatio(arm, level, math.exp(guess.mean), low, high, verdict)


def _verdict(contrasts: Sequence[Contrast], ratios: Sequence[LevelRatio], levels: int) -> Verdict:
    sides = {
        arm: [
            "ahead" if of.verdict in AHEAD else "behind" if of.verdict in BEHIND else ""
            for of in at_levels
        ]
        for arm, at_levels in grouped(ratios, lambda of: of.fs_setup).items()
    }
    depending = {contrast.fs_setup for contrast in contrasts if contrast.verdict == DEPENDS}
    if any({"ahead", "behind"} <= set(sides[arm]) for arm in depending):
        return "order-depends"
    if depending:
        return "ratio-depends"
    if contrasts and all(contrast.verdict == "same" for contrast in contrasts):
        return "same"
    whole = all(len(of) == levels for of in sides.values())
    if sides and whole and all(len(set(of)) == 1 and "" not in of for of in sides.values()):
        return "same-order"
    return "inconclusive"


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
        turns = (
            pair
            for pair in itertools.pairwise(decided)
            if len({row.verdict in AHEAD for _, row in pair}) > 1
        )
        return next(turns, None)


def curves(rows: Sequence[Row]) -> list[Curve]:
    """Return every arm's curve over each numeric parameter with at least two values; points
    ascending.
    """
    points_of: dict[tuple[str, str, str, str, str], list[SweepPoint]] = {}
    for row in rows:
        for parameter, value, rest in _numbers(row.variant):
            key = (row.fs_setup, row.engine, row.workload, parameter, rest)
            points_of.setdefault(key, []).append((value, row))
    return [
        Curve(*key, tuple(sorted(points, key=lambda point: point[0])))
        for key, points in points_of.items()
        if len({at for at, _ in points}) > 1
    ]


def crossings(rows: Sequence[Row]) -> list[Curve]:
    """Return the curves that cross the baseline."""
    return [curve for curve in curves(rows) if curve.crosses is not None]


def _numbers(variant: str) -> list[tuple[str, float, str]]:
    parts = [part for part in variant.split("+") if part]
    numbers = []
    for part in parts:
        name, _, text = part.partition("=")
        try:
            numbers.append((name, float(text), "+".join(other for other in parts if other != part)))
        except ValueError:
            continue
    return numbers
