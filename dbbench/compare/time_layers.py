"""Where the time goes: means over the blocks, with intervals, of shares and of differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, estimate_mean
from dbbench.compare.pairing import pairs_of
from dbbench.model import TimeFacts, TimeLayer, Trial

# One word for what limits a setup, by the layers in which most of the time is spent.
LIMITS: Final = {
    "log flush": (TimeLayer.LOG,),
    "device": (TimeLayer.READ, TimeLayer.WRITE, TimeLayer.FILESYSTEM),
    "CPU": (TimeLayer.CPU, TimeLayer.QUEUE),
    "locks": (TimeLayer.LOCK,),
    "client": (TimeLayer.CLIENT,),
    "throttling": (TimeLayer.THROTTLED,),
}
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


def shares(trials: Sequence[Trial]) -> dict[str, Mean]:
    """Return the share of each layer in a setup's trials, the largest first; {}: not observed."""
    times = observations(trials)
    if not times:
        return {}
    means = {}
    for layer in TimeLayer:
        means[str(layer)] = mean([time.shares.get(layer, 0.0) for time in times])
    return dict(sorted(means.items(), key=lambda item: -item[1].value))


def milliseconds(trials: Sequence[Trial]) -> dict[str, Mean]:
    """Return the ms per transaction of each layer of a setup; {}: not observed."""
    times = [time for time in observations(trials) if time.ms_per_tx]
    if not times:
        return {}
    return {
        layer: mean([time.ms_per_tx.get(layer, 0.0) for time in times])
        for layer in times[0].ms_per_tx
    }


def differences(
    trials: Sequence[Trial],
    baseline: str,
    candidate: str,
) -> tuple[Mean, dict[str, Mean]] | None:
    """Return by how many ms a transaction of the candidate takes longer, in total and by layer;
    None without pairs.
    """
    pairs = []
    for pair in pairs_of(trials, baseline, candidate):
        times = observations(pair)
        if len(times) == 2 and times[0].ms_per_tx and times[1].ms_per_tx:
            pairs.append((times[0].ms_per_tx, times[1].ms_per_tx))
    if not pairs:
        return None
    total = mean([sum(after.values()) - sum(before.values()) for before, after in pairs])
    by_layer = {}
    for layer in pairs[0][0]:
        by_layer[layer] = mean([after.get(layer, 0.0) - before[layer] for before, after in pairs])
    return total, by_layer


def limit(trials: Sequence[Trial]) -> str:
    """Return one word for what limits a setup, or "" if less than half of the time has one."""
    of_layers = shares(trials)
    limiting = ""
    for word, layers in LIMITS.items():
        if sum(of_layers[layer].value for layer in layers if layer in of_layers) > 0.5:
            limiting = word
    if limiting == "client" and trials[0].parameters.get("rate"):
        return "rate"
    # At a full device, locks wait for it too.
    if limiting not in ("CPU", "client") and all(map(_is_full, trials)):
        return "limit"
    # The load generator has no more CPU.
    if all(_CLIENT_BOUND in [warning.id for warning in trial.warnings] for trial in trials):
        return "client"
    return limiting


def _is_full(trial: Trial) -> bool:
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


def kernel(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the CPUs that kernel threads used in a setup's trials, by name, the most first."""
    times = observations(trials)
    names = {name for time in times for name in time.kernel}
    means = {name: sum(time.kernel.get(name, 0.0) for time in times) / len(times) for name in names}
    return dict(sorted(means.items(), key=lambda item: (-item[1], item[0])))


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
