"""Comparisons across runs and hosts, which have no pairs in common.

Arms of different runs (kernels, engine versions) are compared by Welch's t on logarithms. The
ratio includes everything else that differed between the runs; every row says so. Hosts of a
fleet are compared by the ratios that each of them measured: a pair never crosses hosts, so the
speed of a host cancels, but a filesystem may be faster on one host and slower on another.
Cochran's Q (1954) compares the hosts' mean log ratios with the scatter of blocks within hosts.
Only a few blocks describe this scatter, so it is pooled over the hosts and Q ÷ (k − 1) is
compared with F(k − 1, N − k), which is exact for normal differences with one variance; chi², for
large samples, would call hosts different far too often. I² (Higgins and Thompson, 2002) is the
share of Q that exceeds chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dbbench.compare.interval import LEAST_BLOCKS, Estimate, LogRatio, confidences
from dbbench.compare.pairing import chosen, estimate_of, groups, values_of
from dbbench.compare.remarks import RemarkKind, remark
from dbbench.compare.verdict import UNKNOWN, Row, values_in, with_interval
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Trial, Verdict
from dbbench.model.plan import MARGIN
from dbbench.units import group_by

NOTE: Final = remark(RemarkKind.UNPAIRED)
ALPHA: Final = 0.05  # of the test whether hosts disagree


def unpaired_rows(
    trials: Sequence[Trial],
    value_of: Mapping[str, str],
    metric: str = "tps",
    baseline: str | None = None,
    margin: float = MARGIN,
) -> list[Row]:
    """Return the rows of each arm with each engine, workload and variant: "ARM @ VALUE", one for
    each value (`value_of` a trial's id). The baseline is the value of that name, or the first.
    An arm with a single value has no row.
    """
    table: list[Row] = []
    for group in groups(trials).values():
        # The attempts that count are chosen per block within each value.
        by_value = group_by(group, lambda trial: value_of[trial.id])
        counted = {value: chosen(of_value) for value, of_value in by_value.items()}
        for arm in dict.fromkeys(trial.fs_setup for trial in group):
            of_arm: dict[str, list[Trial]] = {}
            for value, of_value in counted.items():
                arm_trials = [trial for trial in of_value if trial.fs_setup == arm]
                if arm_trials:
                    of_arm[value] = arm_trials
            if len(of_arm) > 1:
                first = baseline if baseline in of_arm else next(iter(of_arm))
                table += _arm_rows({first: of_arm[first], **of_arm}, METRICS[metric], margin)
    return table


def _arm_rows(
    of_arm: Mapping[str, Sequence[Trial]],
    metric: Metric,
    margin: float,
) -> list[Row]:
    """Return the rows of an arm, of which the first value is the baseline."""
    # Logarithms, because the values are compared as ratios.
    logs = {}
    for value, trials in of_arm.items():
        logs[value] = [math.log(number) for number in values_in(trials, metric.name) if number > 0]
    # Holm's procedure covers the values that have an interval.
    base, *others = logs
    ratios = {value: welch(logs[base], logs[value]) for value in others}
    enough = {
        value: ratio
        for value, ratio in ratios.items()
        if min(len(logs[base]), len(logs[value])) >= LEAST_BLOCKS
    }
    levels = confidences(enough)
    # What can be said of a value: nothing, a ratio alone, or a ratio with its interval.
    table = []
    for value, trials in of_arm.items():
        row = replace(_row(value, trials, logs[value]), margin=margin)
        if value == base:
            row = replace(
                row,
                ratio=1.0 if logs[base] else None,
                verdict=Verdict.BASELINE,
            )
        elif not logs[base] or not logs[value]:
            row = replace(row, notes=(remark(RemarkKind.NOTHING_TO_COMPARE), NOTE))
        elif value not in levels:
            notes = (remark(RemarkKind.TOO_FEW_BLOCKS), NOTE)
            row = replace(
                row,
                ratio=math.exp(ratios[value].mean),
                notes=notes,
            )
        else:
            row = with_interval(row, ratios[value], levels[value], metric)
            row = replace(
                row,
                ratio=math.exp(ratios[value].mean),
                notes=(NOTE,),
                df_shared=0.0,
            )
        table.append(row)
    return table


def _row(value: str, trials: Sequence[Trial], logs: Sequence[float]) -> Row:
    first = trials[0]
    classes = {t.filesystem.durability_class for t in trials if t.filesystem is not None}
    mean = math.exp(math.fsum(logs) / len(logs)) if logs else None
    return Row(
        f"{first.fs_setup} @ {value}",
        first.engine,
        first.workload,
        mean,
        n=len(logs),
        variant=first.variant,
        durability_class=" / ".join(sorted(classes)) or UNKNOWN,
    )


def welch(base: Sequence[float], other: Sequence[float]) -> LogRatio:
    """other − base of logarithms. Welch, Biometrika 34 (1947); no interval with fewer than two
    values in either.
    """
    if not base or not other:
        return LogRatio(0.0, 0.0, None)
    mean = math.fsum(other) / len(other) - math.fsum(base) / len(base)
    if min(len(base), len(other)) < 2:
        return LogRatio(mean, 0.0, None)
    terms = []
    for logs in (base, other):
        of_mean = statistics.variance(logs) / len(logs)
        terms.append((of_mean, len(logs) - 1))
    return LogRatio.of_terms(mean, terms)


@dataclass(frozen=True)
class HostRatio:
    """An arm's ratio to the baseline on one host; `lo` and `hi` are None below three blocks."""

    host: str
    ratio: float
    lo: float | None
    hi: float | None
    n: int


@dataclass(frozen=True)
class Heterogeneity:
    """How much the hosts' log ratios differ."""

    q: float
    df: int  # number of hosts − 1
    p: float
    i2: float  # I², from 0 to 1

    @property
    def disagree(self) -> bool:
        return self.p < ALPHA


@dataclass(frozen=True)
class ByHost:
    """One arm with one engine and workload on all hosts; `spread` None: the hosts have too few
    blocks.
    """

    fs_setup: str
    engine: str
    workload: str
    variant: str
    hosts: tuple[HostRatio, ...]
    spread: Heterogeneity | None
    metric: str


def heterogeneity(hosts: Sequence[Estimate]) -> Heterogeneity | None:
    """Return Q, its p and I² of the hosts' mean log ratios; None below two hosts, or two blocks
    more than hosts.
    """
    from scipy.special import fdtrc

    total = sum(host.n for host in hosts)
    df = len(hosts) - 1
    within_df = total - len(hosts)
    if df < 1 or within_df < 2:
        return None
    # The scatter between the hosts, and the pooled one of blocks within them.
    mean = math.fsum(host.n * host.mean for host in hosts) / total
    between = math.fsum(host.n * (host.mean - mean) ** 2 for host in hosts)
    within = math.fsum((host.n - 1) * host.sd**2 for host in hosts) / within_df
    if within == 0:  # a difference of means below 1e-8 is a rounding error
        same = between / total < 1e-16
        if same:
            return Heterogeneity(0.0, df, 1.0, 0.0)
        return Heterogeneity(math.inf, df, 0.0, 1.0)
    q = between / within
    p = float(fdtrc(df, within_df, q / df))
    return Heterogeneity(q, df, p, max(0.0, (q - df) / q) if q else 0.0)


def by_host(
    trials: Sequence[Trial],
    baseline: str,
    metric: str,
) -> list[ByHost]:
    """Return each arm's ratio on each host, for trials from several hosts; [] for one host."""
    arms = []
    for (engine, workload, variant), group in sorted(groups(trials).items()):
        hosts = group_by(sorted(group, key=lambda trial: trial.host), lambda trial: trial.host)
        if len(hosts) == 1:
            continue
        for arm in sorted({trial.fs_setup for trial in group} - {baseline}):
            ratios = []
            guesses = []
            for name, of_host in hosts.items():
                guess = estimate_of(values_of(of_host, baseline, arm, metric))
                if guess is not None:
                    guesses.append(guess)
                    ratios.append(HostRatio(name, guess.ratio, *guess.interval(), guess.n))
            spread = heterogeneity(guesses)
            arms.append(ByHost(arm, engine, workload, variant, tuple(ratios), spread, metric))
    return arms
