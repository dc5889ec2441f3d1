"""The ratio of two arms and its interval, from paired blocks.

d_b = ln(candidate) − ln(baseline) for each block; ratio e^mean(d); interval e^(mean ± t(1−α/2, df)·sd/√n). Without
help from other pairs of the run (`scatter.py`), df is n−1 and sd is the pair's own.
Randomised blocks with this interval raise 2–6 % false alarms at a nominal 5 % on quiet, noisy and drifting
hosts; seconds within a trial are not independent and are never used here.

Which trials count, and which of them make a pair, is decided here too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dbbench.model import Status, Trial

LEAST_BLOCKS: Final = 3  # with fewer, the t interval is too wide to be useful, and its coverage is not reliable
SAME: Final = math.log(1.05)  # "same": the interval is within 5 % in both directions
MOST_BLOCKS: Final = 99  # a larger number of further blocks is not reported exactly


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation of the differences of logarithms over n blocks.

    `shared_df` degrees of freedom, with the standard deviation `shared_sd`, come from other pairs of the run.
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
        """Return the degrees of freedom of the interval."""
        return self.n - 1 + self.shared_df

    @property
    def combined_sd(self) -> float:
        """Return the deviation from the pair's variance and the shared one, weighted by their degrees of freedom."""
        if not self.shared_df:
            return self.sd
        return math.sqrt(((self.n - 1) * self.sd**2 + self.shared_df * self.shared_sd**2) / self.df)

    def half_width(self, level: float, n: int | None = None) -> float:
        """Return half the width of the interval on the log scale, with `n` blocks (default: as now)."""
        from scipy.special import stdtrit

        blocks = self.n if n is None else n
        quantile = float(stdtrit(blocks - 1 + self.shared_df, 1 - (1 - level) / 2))
        return quantile * self.combined_sd / math.sqrt(blocks)

    def bounds(self, level: float) -> tuple[float, float]:
        """Return the interval of the log ratio at that confidence."""
        half = self.half_width(level)
        return self.mean - half, self.mean + half

    def p_value(self) -> float:
        """Return the two-sided p of the paired t test; 1 below three blocks."""
        return 1.0 if self.n < LEAST_BLOCKS else _p_value(self.mean, self.combined_sd / math.sqrt(self.n), self.df)

    def more_blocks(self, level: float) -> int | None:
        """Return after how many further blocks the interval excludes 1 or is within ±5 %, with this mean and scatter.

        None: more than MOST_BLOCKS."""
        half_width = max(abs(self.mean), SAME - abs(self.mean))
        for n in range(max(self.n + 1, LEAST_BLOCKS), MOST_BLOCKS + 1):
            if self.half_width(level, n) <= half_width:
                return n - self.n
        return None


def estimate(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return the estimate for (baseline, candidate) values, all positive, one pair per block; ValueError for none."""
    differences = [math.log(candidate) - math.log(baseline) for baseline, candidate in pairs]
    n = len(differences)
    if n == 0:
        raise ValueError("no pairs")
    mean = math.fsum(differences) / n
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1) if n > 1 else 0.0
    return Estimate(n, mean, math.sqrt(variance))


class LogRatio(NamedTuple):
    """A logarithm of a ratio with the variance of its error; `df` is None where it has no interval."""

    mean: float
    variance: float
    df: float | None

    @classmethod
    def of_terms(cls, mean: float, terms: Sequence[tuple[float, float]]) -> LogRatio:
        """Return a sum of independent terms (variance, df); its df are Satterthwaite's (Biometrics Bulletin 2)."""
        variance = math.fsum(term for term, _ in terms)
        squares = math.fsum(term**2 / df for term, df in terms)
        return cls(mean, variance, variance**2 / squares if squares else math.fsum(df for _, df in terms))

    def p_value(self) -> float:
        """Return the two-sided p of the t test; 1 without an interval."""
        return 1.0 if self.df is None else _p_value(self.mean, math.sqrt(self.variance), self.df)

    def bounds(self, level: float) -> tuple[float, float]:
        """Return the interval at that confidence; NaN where there is none."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.df or math.nan, 1 - (1 - level) / 2)) * math.sqrt(self.variance)
        return self.mean - half, self.mean + half


def _p_value(mean: float, error: float, df: float) -> float:
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(df, -abs(mean) / error))


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """Return the confidence level of each candidate of one family, by Holm's step-down procedure.

    The smallest p is compared with alpha/m, the next with alpha/(m−1) and so on. From the first that fails, all keep
    the level of that step, so that no interval excludes 1 where the procedure would not reject.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    levels = [1 - alpha] * len(p_values)
    divisor = len(p_values)
    for index in order:
        levels[index] = 1 - alpha / divisor
        if p_values[index] <= alpha / divisor:
            divisor -= 1
    return levels


Group = tuple[str, str, str]  # engine, workload, variant


def groups(trials: Sequence[Trial]) -> dict[Group, list[Trial]]:
    """Return the trials by (engine, workload, variant), which are never compared with each other."""
    groups_of: dict[Group, list[Trial]] = {}
    for trial in trials:
        groups_of.setdefault((trial.engine, trial.workload, trial.variant), []).append(trial)
    return groups_of


def chosen(trials: Sequence[Trial]) -> list[Trial]:
    """Return the attempts that count for each arm and block, in run order.

    Of a repeated block the earliest attempt in which all arms are ok; where there is none, each arm's earliest
    ok trial, else its earliest suspect one. Failed trials never count; nothing is dropped for its result.
    """
    keep: set[str] = set()
    for group in groups(trials).values():
        arms = {trial.fs_setup for trial in group}
        for block in {trial.block for trial in group}:
            inside = sorted((t for t in group if t.block == block), key=lambda t: t.attempt)
            good = [t for t in inside if t.status is Status.OK]
            attempts = dict.fromkeys(t.attempt for t in inside)
            whole = next((n for n in attempts if {t.fs_setup for t in good if t.attempt == n} == arms), None)
            for arm in arms:
                of_arm = [t for t in inside if t.fs_setup == arm and t.status is not Status.FAILED]
                of_arm.sort(key=lambda t: (t.attempt != whole, t.status is not Status.OK))
                keep.update(t.id for t in of_arm[:1])
    return sorted((trial for trial in trials if trial.id in keep), key=lambda trial: trial.position)


def pairs_of(group: Sequence[Trial], baseline: str, candidate: str) -> list[tuple[Trial, Trial]]:
    """Return the (baseline, candidate) trials of one (engine, workload) group, by block.

    Completeness is per pair: the earliest attempt of the block in which both are ok; without one, each arm's
    earliest ok trial; without that, the earliest attempt in which neither failed.
    """
    pairs = []
    for block in sorted({trial.block for trial in group}):
        inside = sorted((t for t in group if t.block == block), key=lambda t: (t.attempt, t.position))
        pair = _pair([t for t in inside if t.status is Status.OK], baseline, candidate, across=True)
        pair = pair or _pair([t for t in inside if t.status is not Status.FAILED], baseline, candidate, across=False)
        if pair is not None:
            pairs.append(pair)
    return pairs


def _pair(trials: Sequence[Trial], baseline: str, candidate: str, *, across: bool) -> tuple[Trial, Trial] | None:
    """Return the first trials of both arms that have the same attempt; `across`: otherwise the first of each arm."""
    ours = [t for t in trials if t.fs_setup == baseline]
    candidates = [t for t in trials if t.fs_setup == candidate]
    shared = next(((base, other) for base in ours for other in candidates if base.attempt == other.attempt), None)
    return shared or ((ours[0], candidates[0]) if across and ours and candidates else None)


def estimate_of(group: Sequence[Trial], baseline: str, candidate: str, metric: str) -> Estimate | None:
    """Return the estimate from the pairs in which both trials have a positive value of the metric; None without any."""
    values = [
        (b, c)
        for base, other in pairs_of(group, baseline, candidate)
        if (b := base.summary.get(metric)) and (c := other.summary.get(metric)) and b > 0 and c > 0
    ]
    return estimate(values) if values else None
