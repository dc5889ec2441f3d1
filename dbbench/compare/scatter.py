"""How much the pairs of a run scatter, and arms whose trials are on two levels, so that no trial was
near their mean. Scatter is estimated from all pairs, because three blocks say little about one.

The variance of each pair is shrunk towards that of all pairs of the run (Smyth, Statistical
Applications in Genetics and Molecular Biology 3, 2004). The logarithms of the variances scatter
because each has few degrees of freedom; scatter beyond that shows how different the pairs are,
and gives the prior degrees of freedom by the method of moments. Only a part of these is used,
because few variances do not show how different they are, and a setup that scatters three times
as much would otherwise be called different too often (`benchmarks/calibration.py`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from dbbench.compare.interval import LEAST_BLOCKS, Estimate
from dbbench.compare.remarks import Remark, RemarkKind, remark

PART: Final = 1 / 4  # share of the estimated prior degrees of freedom that is used
# prior ÷ own degrees of freedom; below, the pairs differ too much, and nothing is shared
LEAST: Final = 1 / 2
MOST: Final = 2.0  # prior ÷ own degrees of freedom, at most
EXACT: Final = 1e-9  # a smaller standard deviation is a rounding error
LEAST_ON_LEVEL: Final = 2  # trials on each level
APART: Final = math.log(1.10)  # smallest difference of the levels
# Smallest difference as a multiple of the scatter within the levels. By chance 1 in 2000 cells with
# one level exceeds this if the trials have a CV of 3 %, and 1 in 100 with 5 %.
CLEAR: Final = 8.0

Group = TypeVar("Group")
Arm = TypeVar("Arm")


def share_variance(run: Mapping[Group, Mapping[Arm, Estimate]]) -> dict[Group, dict[Arm, Estimate]]:
    """Return the estimates of the arms in each group, combined with the variance of the other
    pairs. Pairs with fewer than LEAST_BLOCKS blocks or without any scatter do not change. No
    pair changes if the variances are too different, or if fewer than two groups have a pair that
    scatters: the pairs of a group share the trials of the baseline, so they are not independent.
    """
    usable: list[Estimate] = []
    groups_that_scatter = 0
    for pairs in run.values():
        scattering = [guess for guess in pairs.values() if _scatters(guess)]
        usable += scattering
        groups_that_scatter += bool(scattering)
    shared = {group: dict(pairs) for group, pairs in run.items()}
    if groups_that_scatter < 2:
        return shared

    prior_df, sd = _prior(usable)
    for estimates in shared.values():
        for arm, guess in estimates.items():
            pair_df = guess.n - 1
            if _scatters(guess) and prior_df >= LEAST * pair_df:
                # At most half of the degrees of freedom of the other pairs together.
                df = min(PART * prior_df, MOST * pair_df, (len(usable) - 1) / 2 * pair_df)
                estimates[arm] = guess._replace(shared_df=df, shared_sd=sd)
    return shared


def _scatters(guess: Estimate) -> bool:
    return guess.n >= LEAST_BLOCKS and guess.sd > EXACT


def _prior(pairs: list[Estimate]) -> tuple[float, float]:
    """Return (df, standard deviation) of the prior; df is infinite if the variances differ only by
    chance.
    """
    from scipy.special import digamma, polygamma

    # The logarithm of each variance, without its bias, and the scatter that chance gives it.
    logs = []
    scatters = []
    for pair in pairs:
        half = (pair.n - 1) / 2
        logs.append(2 * math.log(pair.sd) - float(digamma(half)) + math.log(half))
        scatters.append(float(polygamma(1, half)))
    mean = math.fsum(logs) / len(logs)
    by_chance = math.fsum(scatters) / len(scatters)
    variance = math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    beyond = variance - by_chance
    if beyond <= 0:
        return math.inf, math.exp(mean / 2)
    # Solved for the degrees of freedom that explain this scatter.
    half = _inverse_trigamma(beyond)
    log_variance = mean + float(digamma(half)) - math.log(half)
    return 2 * half, math.exp(log_variance / 2)


def _inverse_trigamma(value: float) -> float:
    """Return the x at which the trigamma function is `value` (> 0), by Newton's method on its
    convex reciprocal.
    """
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


def two_levels(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """Return the values of the trials as (lower, higher) if they are on two levels with nothing
    between, else None.
    """
    positive = sorted(value for value in values if value > 0)
    logs = [math.log(value) for value in positive]
    splits = range(LEAST_ON_LEVEL, len(logs) - LEAST_ON_LEVEL + 1)
    if not splits:
        return None

    # The levels are on both sides of the widest gap.
    cut = max(splits, key=lambda split: logs[split] - logs[split - 1])
    lower = logs[:cut]
    higher = logs[cut:]
    low = statistics.fmean(lower)
    high = statistics.fmean(higher)
    squares = [(value - low) ** 2 for value in lower] + [(value - high) ** 2 for value in higher]
    within = math.sqrt(math.fsum(squares) / max(1, len(logs) - 2))
    if high - low < max(APART, CLEAR * within):
        return None
    return positive[:cut], positive[cut:]


def two_levels_remark(values: Sequence[float]) -> Iterator[Remark]:
    """Yield the remark about an arm with two levels; geometric means with three digits."""
    if sides := two_levels(values):
        lower, higher = sides
        yield remark(
            RemarkKind.TWO_LEVELS,
            lower=len(lower),
            low=_level(lower),
            higher=len(higher),
            high=_level(higher),
        )


def _level(values: Sequence[float]) -> float:
    return float(f"{statistics.geometric_mean(values):.3g}")
