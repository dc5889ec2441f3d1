"""Comparisons across runs and hosts, which have no pairs in common.

Arms of different runs (kernels, engine versions) are compared by Welch's t on logarithms. The ratio includes everything
else that differed between the runs; every row says so.

Hosts of a fleet are compared by the ratios that each of them measured. A pair never crosses hosts, so the speed of a
host cancels, but a filesystem may be faster on one host and slower on another. Cochran's Q (1954) compares the hosts'
mean log ratios with the scatter of blocks within hosts. Only a few blocks describe this scatter, so it is pooled over
the hosts and Q ÷ (k − 1) is compared with F(k − 1, N − k), which is exact for normal differences with one variance;
chi², for large samples, would call hosts different far too often.
I² (Higgins and Thompson, 2002) is the share of Q that exceeds chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dbbench.compare.interval import LEAST_BLOCKS, Estimate, LogRatio, chosen, estimate_of, groups, holm_levels
from dbbench.compare.remarks import Kind, remark
from dbbench.compare.verdict import Row, word
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Trial

NOTE: Final = remark(Kind.UNPAIRED)


def unpaired_rows(
    trials: Sequence[Trial], value_of: Mapping[str, str], metric: str = "tps", baseline: str | None = None
) -> list[Row]:
    """Return the rows of each arm with each engine, workload and variant: one for each value (`value_of` a trial's id).

    The baseline is the value of that name, or the first value. Rows are called "ARM @ VALUE". An arm with trials of a
    single value has no row.
    """
    table: list[Row] = []
    for (engine, workload, variant), group in groups(trials).items():
        for arm in dict.fromkeys(trial.fs_setup for trial in group):
            of_arm = [t for t in _counted(group, value_of) if t.fs_setup == arm]
            values = list(dict.fromkeys(value_of[trial.id] for trial in of_arm))
            if len(values) > 1:
                first = baseline if baseline in values else values[0]
                arm_rows = _arm_rows(
                    arm, [first, *(v for v in values if v != first)], of_arm, value_of, METRICS[metric]
                )
                table += [replace(row, engine=engine, workload=workload, variant=variant) for row in arm_rows]
    return table


def _counted(group: Sequence[Trial], value_of: Mapping[str, str]) -> list[Trial]:
    """Return the attempts that count, chosen per block within each value."""
    counted: list[Trial] = []
    for value in dict.fromkeys(value_of[trial.id] for trial in group):
        counted += chosen([trial for trial in group if value_of[trial.id] == value])
    return counted


def _arm_rows(
    arm: str, values: list[str], trials: Sequence[Trial], value_of: Mapping[str, str], metric: Metric
) -> list[Row]:
    logs = {
        value: [math.log(v) for t in trials if value_of[t.id] == value and (v := t.summary.get(metric.name)) and v > 0]
        for value in values
    }
    base, others = logs[values[0]], values[1:]
    comparisons = {value: welch(base, logs[value]) for value in others}
    enough = [value for value in others if min(len(base), len(logs[value])) >= LEAST_BLOCKS]
    levels = dict(zip(enough, holm_levels([comparisons[value].p_value() for value in enough]), strict=True))
    table = [_row(arm, values[0], logs[values[0]], trials, value_of)]
    table[0] = replace(table[0], ratio=1.0 if base else None, verdict="baseline")
    for value in others:
        row = _row(arm, value, logs[value], trials, value_of)
        if not base or not logs[value]:
            table.append(replace(row, notes=(remark(Kind.NOTHING_TO_COMPARE), NOTE)))
            continue
        row = replace(row, ratio=math.exp(comparisons[value].mean), notes=(NOTE,))
        if value in levels:
            low, high = comparisons[value].bounds(levels[value])
            row = replace(row, lo=math.exp(low), hi=math.exp(high), level=levels[value],
                          verdict=word(low, high, metric), df=comparisons[value].df, df_shared=0.0)  # fmt: skip
        else:
            row = replace(row, notes=(remark(Kind.TOO_FEW_BLOCKS), NOTE))
        table.append(row)
    return table


def _row(arm: str, value: str, logs: Sequence[float], trials: Sequence[Trial], value_of: Mapping[str, str]) -> Row:
    classes = {t.filesystem.durability_class for t in trials if value_of[t.id] == value and t.filesystem is not None}
    mean = math.exp(math.fsum(logs) / len(logs)) if logs else None
    return Row(f"{arm} @ {value}", "", "", mean, None, None, None, "inconclusive", len(logs), 0, None,
               " / ".join(sorted(classes)) or "unknown", False)  # fmt: skip


def welch(base: Sequence[float], other: Sequence[float]) -> LogRatio:
    """other − base of logarithms. Welch, Biometrika 34 (1947); no interval with fewer than two values in either."""
    if not base or not other:
        return LogRatio(0.0, 0.0, None)
    mean = math.fsum(other) / len(other) - math.fsum(base) / len(base)
    if min(len(base), len(other)) < 2:
        return LogRatio(mean, 0.0, None)
    return LogRatio.of_terms(mean, [(_square_error(values), len(values) - 1) for values in (base, other)])


def _square_error(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


ALPHA: Final = 0.05
_LEVEL: Final = 0.95


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
    """One arm with one engine and workload on all hosts; `spread` None: the hosts have too few blocks."""

    fs_setup: str
    engine: str
    workload: str
    variant: str
    hosts: tuple[HostRatio, ...]
    spread: Heterogeneity | None


def heterogeneity(hosts: Sequence[Estimate]) -> Heterogeneity | None:
    """Return Q, its p and I² of the hosts' mean log ratios; None below two hosts, or two blocks more than hosts."""
    from scipy.special import fdtrc

    total, df = sum(host.n for host in hosts), len(hosts) - 1
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
    return Heterogeneity(q, df, float(fdtrc(df, within_df, q / df)), max(0.0, (q - df) / q) if q else 0.0)


def by_host(trials: Sequence[Trial], baseline: str, metric: str) -> list[ByHost]:
    """Return each arm's ratio on each host, for trials from several hosts; [] for one host."""
    disagreements = []
    for (engine, workload, variant), group in sorted(groups(trials).items()):
        hosts = {name: [trial for trial in group if trial.host == name] for name in sorted({t.host for t in group})}
        for arm in sorted({trial.fs_setup for trial in group} - {baseline}) if len(hosts) > 1 else []:
            guesses = {name: guess for name, of in hosts.items() if (guess := estimate_of(of, baseline, arm, metric))}
            ratios = tuple(_ratio(name, guess) for name, guess in guesses.items())
            disagreements.append(ByHost(arm, engine, workload, variant, ratios, heterogeneity(list(guesses.values()))))
    return disagreements


def _ratio(host: str, guess: Estimate) -> HostRatio:
    if guess.n < LEAST_BLOCKS:
        return HostRatio(host, guess.ratio, None, None, guess.n)
    half = guess.half_width(_LEVEL)
    return HostRatio(host, guess.ratio, math.exp(guess.mean - half), math.exp(guess.mean + half), guess.n)
