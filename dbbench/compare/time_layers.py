"""Where the time goes: means over the blocks, with intervals, of shares and of differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, estimate_mean
from dbbench.compare.pairing import pairs_of
from dbbench.model import TimeFacts, TimeLayer, Trial

# One word for what limits a setup, by the layers in which most of the time is spent.
# The last one that has more than half of the time is named: with a used up quota, the CPU.
LIMITS: Final = {
    "log flush": (TimeLayer.LOG,),
    "device": (TimeLayer.READ, TimeLayer.WRITE, TimeLayer.FILESYSTEM),
    "throttling": (TimeLayer.THROTTLED,),
    "CPU": (TimeLayer.CPU, TimeLayer.QUEUE),
    "locks": (TimeLayer.LOCK,),
    "client": (TimeLayer.CLIENT,),
}
Field = Literal["shares", "ms_per_tx", "kernel", "client"]  # of TimeFacts
_CLIENT_BOUND: Final = "W016"
_FULL: Final = 0.8  # of a rate that the plan limits
_MOST_OF_A_LAYER: Final = 0.6  # of its time: the functions that are named cover it


class Mean(NamedTuple):
    """A mean over the blocks with its interval, which has no ends below three blocks."""

    value: float
    lo: float | None = None
    hi: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0."""
        return self.lo is not None and self.hi is not None and (self.lo > 0 or self.hi < 0)


def mean(values: Sequence[float]) -> Mean:
    """Return the mean of one value per block."""
    estimate = estimate_mean(values)
    if estimate.n < LEAST_BLOCKS:
        return Mean(estimate.mean)
    return Mean(estimate.mean, *estimate.bounds(LEVEL))


def observations(trials: Sequence[Trial]) -> list[TimeFacts]:
    """Return what was observed in these trials, without those in which nothing was."""
    return [trial.time for trial in trials if trial.time is not None and trial.time.shares]


def means(trials: Sequence[Trial], field: Field) -> dict[str, Mean]:
    """Return the mean of each name in this field of a setup, the largest first; {}: not observed."""
    values = [getattr(time, field) for time in observations(trials) if getattr(time, field)]
    names = dict.fromkeys(name for of_trial in values for name in of_trial)
    by_name = {name: mean([of_trial.get(name, 0.0) for of_trial in values]) for name in names}
    return dict(sorted(by_name.items(), key=lambda item: -item[1].value))


def differences(
    trials: Sequence[Trial],
    baseline: str,
    candidate: str,
) -> tuple[Mean, dict[str, Mean]] | None:
    """Return by how many ms a transaction of the candidate takes longer, in total and by layer;
    None without pairs.
    """
    changes = []
    for pair in pairs_of(trials, baseline, candidate):
        before, after = (trial.time.ms_per_tx if trial.time else {} for trial in pair)
        if before and after:
            changes.append({layer: after.get(layer, 0.0) - before[layer] for layer in before})
    if not changes:
        return None
    total = mean([sum(change.values()) for change in changes])
    return total, {layer: mean([change[layer] for change in changes]) for layer in changes[0]}


def limit(trials: Sequence[Trial]) -> str:
    """Return one word for what limits a setup, or "" if less than half of the time has one."""
    # The load generator has no more CPU.
    if all(_CLIENT_BOUND in [warning.id for warning in trial.warnings] for trial in trials):
        return "client"
    shares = means(trials, "shares")
    limiting = ""
    for word, layers in LIMITS.items():
        # A used up quota of CPU time is no wait in a function of the kernel.
        if word == "CPU" and not functions(trials, TimeLayer.THROTTLED):
            layers = (*layers, TimeLayer.THROTTLED)
        if sum(shares[layer].value for layer in layers if layer in shares) > 0.5:
            limiting = word
    if limiting == "client" and trials[0].parameters.get("rate"):
        return "rate"
    # At a full device, locks wait for it too. A delay is seen in the samples only.
    sampled = [trial for trial in trials if observations([trial])]
    if limiting not in ("CPU", "client") and all(map(is_full, sampled or trials)):
        return "limit"
    return limiting


def is_full(trial: Trial) -> bool:
    """Whether the device reached the plan's limit, or waited for a delay of it."""
    if trial.limit is None:
        return False
    limit = trial.limit.asked
    rates = trial.ceiling.rates if trial.ceiling is not None else ()
    for rate in rates:
        most = limit.iops if rate.unit == "IOPS" else limit.mb_per_s
        if rate.side in ("reads", "writes") and most and rate.median >= _FULL * most:
            return True
    of_device = (TimeLayer.LOG, *LIMITS["device"])
    shares = trial.time.shares if trial.time is not None else {}
    return bool(limit.delays) and sum(shares.get(layer, 0.0) for layer in of_device) > 0.5


def functions(trials: Sequence[Trial], layer: str) -> list[str]:
    """Return the functions of the kernel in which most of a layer's time is spent, at most two."""
    totals: dict[str, float] = {}
    for time in observations(trials):
        for wait in time.waits:
            if wait.layer == layer:
                totals[wait.function] = totals.get(wait.function, 0.0) + wait.share
    named = []
    covered = 0.0
    for function, share in sorted(totals.items(), key=lambda item: -item[1])[:2]:
        if function and covered < _MOST_OF_A_LAYER * sum(totals.values()):
            named.append(function)
            covered += share
    return named
