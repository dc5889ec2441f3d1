"""The ratio of two arms and its interval, from paired blocks.

d_b = ln(candidate) − ln(baseline) for each block; ratio e^mean(d); interval e^(mean ± t(1−α/2,
df)·sd/√n). Without help from other pairs of the run (`scatter.py`), df is n−1 and sd is the
pair's own. Randomised blocks with this interval raise 2–6 % false alarms at a nominal 5 % on
quiet, noisy and drifting hosts; seconds within a trial are not independent and are never used
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

_K = TypeVar("_K")

# with fewer, the t interval is too wide to be useful, and its coverage is not reliable
LEAST_BLOCKS: Final = 3
LEVEL: Final = 0.95  # confidence level of a single pair
# Of a pair whose arm is not measured again because its interval is narrow: such intervals are too
# narrow on average.
SETTLED_LEVEL: Final = 0.96
_Z: Final = 1.96  # of a two-sided interval of 95 %
MOST_BLOCKS: Final = 99  # a larger number of further blocks is not reported exactly


class Estimate(NamedTuple):
    """Mean and standard deviation of the differences of logarithms over n blocks. `shared_df`
    degrees of freedom, with the standard deviation `shared_sd`, come from other pairs of the
    run.
    """

    n: int
    mean: float
    sd: float
    shared_df: float = 0.0
    shared_sd: float = 0.0

    @property
    def ratio(self) -> float:
        return math.exp(self.mean)

    @property
    def df(self) -> float:
        return self.n - 1 + self.shared_df

    @property
    def combined_sd(self) -> float:
        """Return the deviation from the pair's variance and the shared one, weighted by their
        degrees of freedom.
        """
        if not self.shared_df:
            return self.sd
        squares = (self.n - 1) * self.sd**2 + self.shared_df * self.shared_sd**2
        return math.sqrt(squares / self.df)

    def log_ratio(self, n: int | None = None) -> LogRatio:
        """Return the mean with its error, with `n` blocks (default: as now)."""
        blocks = n or self.n
        df = blocks - 1 + self.shared_df if blocks >= LEAST_BLOCKS else None
        return LogRatio(self.mean, self.combined_sd**2 / blocks, df)

    def bounds(self, level: float) -> tuple[float, float]:
        """Return the interval of the log ratio at that confidence."""
        return self.log_ratio().bounds(level)

    def interval(self) -> tuple[float | None, float | None]:
        """Return the interval of the ratio at LEVEL; None below three blocks."""
        if self.n < LEAST_BLOCKS:
            return None, None
        low, high = self.bounds(LEVEL)
        return math.exp(low), math.exp(high)

    def blocks_to(self, half_width: float, level: float) -> int | None:
        """Return the blocks to add until half the interval is that wide on the log scale; None:
        over MOST_BLOCKS.
        """
        for n in range(max(self.n + 1, LEAST_BLOCKS), MOST_BLOCKS + 1):
            if self.log_ratio(n).half_width(level) <= half_width:
                return n - self.n
        return None


def estimate(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return the estimate for (baseline, candidate) values, all positive, one pair per block;
    ValueError for none.
    """
    differences = []
    for baseline, candidate in pairs:
        differences.append(math.log(candidate) - math.log(baseline))
    return estimate_mean(differences)


def estimate_mean(differences: Sequence[float]) -> Estimate:
    """Return the estimate for one value per block; ValueError for none."""
    n = len(differences)
    if n == 0:
        raise ValueError("no pairs")
    mean = math.fsum(differences) / n
    if n == 1:
        return Estimate(n, mean, 0.0)
    squares = math.fsum((difference - mean) ** 2 for difference in differences)
    return Estimate(n, mean, math.sqrt(squares / (n - 1)))


class LogRatio(NamedTuple):
    """A logarithm of a ratio with the variance of its error. Without an interval `df` is None, p 1,
    bounds NaN.
    """

    mean: float
    variance: float
    df: float | None

    @classmethod
    def of_terms(cls, mean: float, terms: Sequence[tuple[float, float]]) -> LogRatio:
        """Return a sum of independent terms (variance, df); its df are Satterthwaite's (Biometrics
        Bulletin 2).
        """
        variance = math.fsum(term for term, _ in terms)
        squares = math.fsum(term**2 / df for term, df in terms)
        all_df = math.fsum(df for _, df in terms)
        df = variance**2 / squares if squares else all_df
        return cls(mean, variance, df)

    def p_value(self) -> float:
        """Return the two-sided p of the t test."""
        from scipy.special import stdtr

        if self.df is None:
            return 1.0
        if self.variance == 0:
            return 1.0 if self.mean == 0 else 0.0
        t = abs(self.mean) / math.sqrt(self.variance)
        return float(2 * stdtr(self.df, -t))

    def half_width(self, level: float) -> float:
        from scipy.special import stdtrit

        df = self.df or math.nan
        upper = 1 - (1 - level) / 2
        return float(stdtrit(df, upper)) * math.sqrt(self.variance)

    def bounds(self, level: float) -> tuple[float, float]:
        half = self.half_width(level)
        return self.mean - half, self.mean + half


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """Return the confidence level of each candidate of one family, by Holm's step-down procedure.
    The smallest p is compared with alpha/m, the next with alpha/(m−1) and so on. From the first
    that fails, all keep the level of that step, so that no interval excludes 1 where the
    procedure would not reject.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    levels = [1 - alpha] * len(p_values)
    divisor = len(p_values)
    for index in order:
        levels[index] = 1 - alpha / divisor
        if p_values[index] <= alpha / divisor:
            divisor -= 1
    return levels


def confidences(log_ratios: Mapping[_K, LogRatio], alpha: float = 0.05) -> dict[_K, float]:
    """Return Holm's confidence level of each candidate of one family that has an interval."""
    p_values = {}
    for key, ratio in log_ratios.items():
        if ratio.df is not None:
            p_values[key] = ratio.p_value()
    levels = holm_levels(list(p_values.values()), alpha)
    return dict(zip(p_values, levels, strict=True))


def upper_bound(tries: int) -> float:
    """Return the upper 95 % bound for a share of which n tries show nothing: 3/n, at most 1 (the
    rule of three).
    """
    return min(1.0, 3 / tries)


def share_interval(
    count: int,
    tries: int,
    independent: float | None = None,
) -> tuple[float, float]:
    """Return the 95 % interval of a share by its count in n tries: Wilson's (JASA 1927); at 0 or n
    by rule of three. `independent`: see `independent_tries`; None: all.
    """
    if count == 0:
        return 0.0, upper_bound(tries)
    if count == tries:
        return 1 - upper_bound(tries), 1.0
    n = tries if independent is None else independent
    share = count / tries
    z2 = _Z**2
    centre = share * n + z2 / 2
    half = _Z * math.sqrt(share * (1 - share) * n + z2 / 4)
    return (centre - half) / (n + z2), (centre + half) / (n + z2)


def independent_tries(clusters: Sequence[tuple[int, int]]) -> float:
    """Return how many independent tries would show a share as exactly as these clusters of similar
    ones, each (count, tries): all tries by the design effect (Kish, Survey Sampling 1965), which is
    at least 1. It cannot be estimated from one cluster, nor from a count of none or all.
    """
    count = sum(part for part, _ in clusters)
    tries = sum(size for _, size in clusters)
    if len(clusters) < 2 or count in (0, tries):
        return tries
    share = count / tries
    squares = math.fsum((part - share * size) ** 2 for part, size in clusters)
    variance = squares / (1 - 1 / len(clusters)) / tries**2
    if variance:
        return min(tries, share * (1 - share) / variance)
    return tries
