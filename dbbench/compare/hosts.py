"""The ratios of each host, and whether the hosts agree.

A pair never crosses hosts, so the speed of a host cancels, but a filesystem may be faster on one host and slower on
another. Cochran's Q (1954) compares the hosts' mean log ratios with the scatter of blocks within hosts. Only a few
blocks describe this scatter, so it is pooled over the hosts and Q ÷ (k − 1) is compared with F(k − 1, N − k), which is
exact for normal differences with one variance; chi², for large samples, would call hosts different far too often.
I² (Higgins and Thompson, 2002) is the share of Q that exceeds chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare.interval import LEAST_BLOCKS, Estimate, estimate, groups, paired
from dbbench.model import Trial

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
    df: int  # hosts − 1
    p: float
    i2: float  # 0..1

    @property
    def disagree(self) -> bool:
        return self.p < ALPHA


@dataclass(frozen=True)
class ByHost:
    """One arm under one engine and workload on all hosts; `spread` None: too few blocks a host to tell."""

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
    if within == 0:  # below a millionth of a per cent it is arithmetic
        same = between / total < 1e-16
        return Heterogeneity(0.0, df, 1.0, 0.0) if same else Heterogeneity(math.inf, df, 0.0, 1.0)
    q = between / within
    return Heterogeneity(q, df, float(fdtrc(df, within_df, q / df)), max(0.0, (q - df) / q) if q else 0.0)


def by_host(trials: Sequence[Trial], baseline: str, metric: str) -> list[ByHost]:
    """Return each arm's ratio on each host, for trials from several hosts; [] for one host."""
    disagreements = []
    for (engine, workload, variant), group in sorted(groups(trials).items()):
        names = sorted({trial.host for trial in group})
        for arm in sorted({trial.fs_setup for trial in group} - {baseline}) if len(names) > 1 else []:
            guesses = {name: guess for name in names if (guess := _estimate(group, name, baseline, arm, metric))}
            ratios = tuple(_ratio(name, guess) for name, guess in guesses.items())
            disagreements.append(ByHost(arm, engine, workload, variant, ratios, heterogeneity(list(guesses.values()))))
    return disagreements


def _estimate(group: Sequence[Trial], host: str, baseline: str, arm: str, metric: str) -> Estimate | None:
    on_host = [trial for trial in group if trial.host == host]
    values = [
        (b, c)
        for base, other in paired(on_host, baseline, arm)
        if (b := base.summary.get(metric)) and (c := other.summary.get(metric)) and b > 0 and c > 0
    ]
    return estimate(values) if values else None


def _ratio(host: str, guess: Estimate) -> HostRatio:
    if guess.n < LEAST_BLOCKS:
        return HostRatio(host, guess.ratio, None, None, guess.n)
    half = guess.half_width(_LEVEL)
    return HostRatio(host, guess.ratio, math.exp(guess.mean - half), math.exp(guess.mean + half), guess.n)
