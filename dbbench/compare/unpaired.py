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

from dbbench.compare.interval import LEAST_BLOCKS, Estimate, LogRatio, holm_levels
from dbbench.compare.pairing import chosen, estimate_of, groups, values_of
from dbbench.compare.remarks import RemarkKind, remark
from dbbench.compare.verdict import UNKNOWN, Row, word
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Trial
from dbbench.model.plan import MARGIN

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
        values = dict.fromkeys(value_of[trial.id] for trial in group)
        counted = {
            value: chosen([trial for trial in group if value_of[trial.id] == value])
            for value in values
        }
        for arm in dict.fromkeys(trial.fs_setup for trial in group):
            of_arm = {value: [t for t in of if t.fs_setup == arm] for value, of in counted.items()}
            of_arm = {value: of for value, of in of_arm.items() if of}
            if len(of_arm) > 1:
                first = (
                    baseline if baseline is not None and baseline in of_arm else next(iter(of_arm))
                )
                table += _arm_rows({first: of_arm[first], **of_arm}, METRICS[metric], margin)
    return table


def _arm_rows(of_arm: Mapping[str, Sequence[Trial]], metric: Metric, margin: float) -> list[Row]:
    measured = {
        value: [v for t in of if (v := t.summary.get(metric.name)) and v > 0]
        for value, of in of_arm.items()
    }
    logs = {value: [math.log(v) for v in values] for value, values in measured.items()}
    base, *others = logs
    ratios = {value: welch(logs[base], logs[value]) for value in others}
    enough = [value for value in others if min(len(logs[base]), len(logs[value])) >= LEAST_BLOCKS]
    levels = dict(
        zip(enough, holm_levels([ratios[value].p_value() for value in enough]), strict=True)
    )
    table = []
    for value, trials in of_arm.items():
        row = replace(_row(value, trials, logs[value]), margin=margin)
        if value == base:
            row = replace(row, ratio=1.0 if logs[base] else None, verdict="baseline")
        elif not logs[base] or not logs[value]:
            row = replace(row, notes=(remark(RemarkKind.NOTHING_TO_COMPARE), NOTE))
        elif value not in levels:
            row = replace(
                row,
                ratio=math.exp(ratios[value].mean),
                notes=(remark(RemarkKind.TOO_FEW_BLOCKS), NOTE),
            )
        else:
            low, high = ratios[value].bounds(levels[value])
            row = replace(
                row,
                ratio=math.exp(ratios[value].mean),
                lo=math.exp(low),
                hi=math.exp(high),
                notes=(NOTE,),
                level=levels[value],
                verdict=word(low, high, metric, margin),
                df=ratios[value].df,
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
    return LogRatio.of_terms(
        mean, [(statistics.variance(of) / len(of), len(of) - 1) for of in (base, other)]
    )


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
    mean = math.fsum(host.n * host.mean for host in hosts) / total
    between = math.fsum(host.n * (host.mean - mean) ** 2 for host in hosts)
    within = math.fsum((host.n - 1) * host.sd**2 for host in hosts) / within_df
    if within == 0:  # a difference of means below 1e-8 is a rounding error
        same = between / total < 1e-16
        return Heterogeneity(0.0, df, 1.0, 0.0) if same else Heterogeneity(math.inf, df, 0.0, 1.0)
    q = between / within
    return Heterogeneity(
        q, df, float(fdtrc(df, within_df, q / df)), max(0.0, (q - df) / q) if q else 0.0
    )


def by_host(trials: Sequence[Trial], baseline: str, metric: str) -> list[ByHost]:
    """Return each arm's ratio on each host, for trials from several hosts; [] for one host."""
    disagreements = []
    for (engine, workload, variant), group in sorted(groups(trials).items()):
        hosts = {
            name: [trial for trial in group if trial.host == name]
            for name in sorted({t.host for t in group})
        }
        for arm in (
            sorted({trial.fs_setup for trial in group} - {baseline}) if len(hosts) > 1 else []
        ):
            pairs = {name: values_of(of, baseline, arm, metric) for name, of in hosts.items()}
            guesses = {
                name: guess for name, of_host in pairs.items() if (guess := estimate_of(of_host))
            }
            ratios = tuple(
                HostRatio(name, guess.ratio, *guess.interval(), guess.n)
                for name, guess in guesses.items()
            )
            spread = heterogeneity(list(guesses.values()))
            disagreements.append(ByHost(arm, engine, workload, variant, ratios, spread, metric))
    return disagreements
