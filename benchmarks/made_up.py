"""Hosts that are made up, runs of two arms on them, and a figure with its target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy
import scipy.signal

from dbbench.model import Status, Trial, TrialSpec

WARMUP_S: Final = 5
MEASURE_S: Final = 30
FALSE_ALARMS: Final = 0.071  # share of sets: three standard errors above 5 % with 1000 sets


@dataclass(frozen=True)
class Host:
    """The disturbances of the trials on a host, as shares of throughput."""

    name: str
    trial_cv: float = 0.03
    second_cv: float = 0.10  # of the seconds within a trial, which are correlated
    second_memory: float = 0.5
    block_cv: float = 0.0  # of a disturbance that all trials of a block share
    drift: float = 0.0  # change from the first trial of a run to the last
    outliers: float = 0.0  # share of trials that are slowed down by `slowed`
    slowed: tuple[float, float] = (0.1, 0.4)
    # share of outliers that telemetry marks as suspect; their whole block is repeated
    noticed: float = 0.8


FLEET_BLOCKS: Final = 8
HOST_CV: Final = 0.30

HOSTS: Final = (
    Host("quiet"),
    Host("noisy", second_cv=0.35, second_memory=0.8, block_cv=0.06),
    Host("drifting", drift=-0.15),
    Host("outliers", outliers=0.05),
)


@dataclass(frozen=True)
class Figure:
    """A measured share and its target; `limit` None: it is shown and not judged."""

    text: str
    value: float
    limit: float | None
    at_most: bool = False

    @property
    def missed(self) -> bool:
        if self.limit is None:
            return False
        return self.value > self.limit if self.at_most else self.value < self.limit

    def line(self) -> str:
        sign = "≤" if self.at_most else "≥"
        target = "" if self.limit is None else f"  {sign} {self.limit:g}"
        return f"  {self.text:<46} {self.value:6.3f}{target}{'  MISSED' if self.missed else ''}"


def document(
    host: Host,
    ratio: float,
    blocks: int,
    rng: numpy.random.Generator,
) -> dict[str, Any]:
    """Return a run of two arms as input of `compare`. Candidate ÷ baseline is `ratio`, apart from
    disturbances.
    """
    trials = []
    for block in range(1, blocks + 1):
        shared = rng.normal(0, host.block_cv)
        for attempt in (1, 2):
            order = [("a", 1.0), ("b", ratio)] if rng.random() < 0.5 else [("b", ratio), ("a", 1.0)]
            driven = [
                _trial(
                    host,
                    arm,
                    level,
                    block,
                    attempt,
                    shared,
                    (len(trials) + place) / (2 * blocks),
                    rng,
                )
                for place, (arm, level) in enumerate(order)
            ]
            trials += driven
            if all(trial["status"] == "ok" for trial in driven):
                break
    shuffled = [trials[index] for index in rng.permutation(len(trials))]
    return {"trials": shuffled, "baseline": "a", "candidate": "b"}


def _trial(
    host: Host,
    arm: str,
    level: float,
    block: int,
    attempt: int,
    shared: float,
    when: float,
    rng: numpy.random.Generator,
) -> dict[str, Any]:
    log = numpy.log(1000 * level) + rng.normal(0, host.trial_cv) + shared + host.drift * when
    slow = rng.random() < host.outliers
    log -= rng.uniform(*host.slowed) if slow else 0.0
    noise = ar1(WARMUP_S + MEASURE_S, host.second_memory, rng) * host.second_cv
    # the seconds must not change the mean of the trial: trial_cv is its whole scatter
    noise -= noise[WARMUP_S:].mean()
    tps = numpy.maximum(numpy.exp(log) * (1 + noise), 0.0)
    tps[:WARMUP_S] *= 0.5
    return {
        "fs_setup": arm,
        "block": block,
        "attempt": attempt,
        "position": round(1000 * when),
        "warmup_s": WARMUP_S,
        "status": "suspect" if slow and rng.random() < host.noticed else "ok",
        "tps": tps.tolist(),
    }


def ar1(count: int, memory: float, rng: numpy.random.Generator) -> numpy.ndarray:
    """Return AR(1) noise of unit variance."""
    fresh = rng.standard_normal(count)
    fresh[1:] *= (1 - memory**2) ** 0.5
    return scipy.signal.lfilter([1.0], [1.0, -memory], fresh)


def spread(
    hosts: int,
    ratio: float,
    rng: numpy.random.Generator,
    blocks: int = FLEET_BLOCKS,
    apart: float = 0.0,
) -> tuple[dict[str, Any], list[Trial]]:
    """Return a run of two arms whose blocks are distributed over hosts of different speeds, as
    input of `compare`, and as trials with their hosts. `apart`: standard deviation of the log
    ratios of the hosts.
    """
    speed = rng.normal(0, HOST_CV, hosts)
    of_host = rng.normal(0, apart, hosts)
    order = tuple(
        TrialSpec(f"{arm}-b{block}-a1", arm, block, 1, 0)
        for block in range(1, blocks + 1)
        for arm in "ab"
    )
    entries = list[dict[str, Any]]()
    trials = list[Trial]()

    # Each host measures whole blocks, at a speed of its own. Hosts take blocks in turn.
    for number in range(hosts):
        host = f"h{number}"
        for spec in [spec for spec in order if (spec.block - 1) % hosts == number]:
            level = 1.0 if spec.cell == "a" else ratio * float(numpy.exp(of_host[number]))
            entry = _trial(
                HOSTS[0],
                spec.cell,
                level,
                spec.block,
                1,
                speed[number],
                0.0,
                rng,
            )
            tps = float(numpy.mean(entry["tps"][WARMUP_S:]))
            trials.append(
                Trial(
                    spec.id,
                    "",
                    host,
                    spec.cell,
                    "",
                    "",
                    spec.block,
                    1,
                    0,
                    Status.OK,
                    summary={"tps": tps},
                )
            )
            entries.append(entry)
    return {
        "trials": entries,
        "baseline": "a",
        "candidate": "b",
    }, trials
