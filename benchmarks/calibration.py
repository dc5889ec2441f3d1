"""How often the verdicts are wrong, on hosts that are made up: false alarms, power, coverage;
nights likewise.

Whole runs are simulated and passed to the public functions `dbbench.compare.compare` (two arms,
with every second), `compare_all` (runs of several arms and workloads, which share their
variance) and `changepoints`. A set is one run of n blocks in random order; a host describes the
disturbances of its trials. Prints the parameters of each host, then each figure next to its
target; exits with 1 if a target is missed.

    python benchmarks/calibration.py [SETS] [SEED]       # default 1000 sets, seed 1: about 15
                                                         minutes
    python benchmarks/calibration.py SETS SEED grid      # only runs that share variance, every
                                                         combination: hours
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy
from calibration_factors import factors
from calibration_sharing import GRID, HARDEST, PRECISION, STOPPING, sharing, sharing_power, stopping
from made_up import FALSE_ALARMS, FLEET_BLOCKS, HOST_CV, HOSTS, Figure, Host, ar1, document, spread

from dbbench.compare import changepoints, compare
from dbbench.compare.unpaired import by_host
from dbbench.model import Trial

NIGHTS: Final = 100
MISSING: Final = 0.03  # share of nights without a result
NIGHTLY_ALARMS: Final = 0.5  # false alarms per series of 100 nights

# A fleet: the blocks of a run are distributed over hosts with different speeds (`fleet run
# --spread`).
FLEET_HOSTS: Final = (2, 4, 8)


@dataclass(frozen=True)
class Nights:
    """The disturbances of the nightly ratios of a series."""

    name: str
    sd: float
    memory: float = 0.0
    outliers: float = 0.0  # share of nights slowed down by 30 % on average
    drift: float = 0.0  # change over 100 nights
    judged: bool = True  # whether the targets apply to it


SERIES: Final = (
    Nights("1 %", 0.01),
    Nights("3 %", 0.03),
    Nights("5 %", 0.05),
    Nights("1 to 5 %", 0.0),
    Nights("AR(1) 0.3", 0.03, memory=0.3),
    Nights("AR(1) 0.5", 0.03, memory=0.5),
    Nights("outliers", 0.02, outliers=0.05),
    Nights("drifting", 0.02, drift=0.05),
    Nights("5 %, AR(1) 0.5", 0.05, memory=0.5, judged=False),
)


def share(
    sets: int,
    host: Host,
    ratio: float,
    blocks: int,
    rng: numpy.random.Generator,
    hit: Callable[[dict[str, Any]], bool],
) -> float:
    """Return the share of sets for whose verdict `hit` is true."""
    return (
        sum(
            hit(
                compare(
                    document(
                        host,
                        ratio,
                        blocks,
                        rng,
                    )
                )
            )
            for _ in range(sets)
        )
        / sets
    )


def verdicts(host: Host, sets: int, rng: numpy.random.Generator) -> Iterator[Figure]:
    """Yield false alarms, power and coverage on one host."""

    def alarm(found: dict[str, Any]) -> bool:
        return found["verdict"] in ("slower", "faster")

    def slower(found: dict[str, Any]) -> bool:
        return found["verdict"] == "slower"

    def covers(found: dict[str, Any]) -> bool:
        return bool(found["lo"] <= 0.62 <= found["hi"])

    for blocks in (3, 5):
        yield Figure(
            f"A/A called different, n = {blocks}",
            share(sets, host, 1.0, blocks, rng, alarm),
            FALSE_ALARMS,
            at_most=True,
        )
    # unnoticed outliers reduce the power, so there is no target
    drifting = host.drift != 0
    judged = not host.outliers
    for ratio, blocks, limit, with_drift in (
        (0.8, 3, 0.9, 0.9),
        (0.9, 5, 0.9, 0.85),
        (0.95, 10, 0.85, 0.75),
    ):
        target = with_drift if drifting else limit
        text = f"−{100 * (1 - ratio):.0f} % found, n = {blocks}"
        value = share(sets, host, ratio, blocks, rng, slower)
        yield Figure(text, value, target if judged else None)
    for blocks in (3, 5, 10):
        yield Figure(
            f"the interval covers 0.62, n = {blocks}",
            share(sets, host, 0.62, blocks, rng, covers),
            0.92,
        )


def fleet(sets: int, rng: numpy.random.Generator) -> Iterator[Figure]:
    """Yield false alarms and power of runs on different hosts, and how often equal ratios of hosts
    are called different.
    """
    for hosts in FLEET_HOSTS:
        words = [compare(spread(hosts, 1.0, rng)[0])["verdict"] for _ in range(sets)]
        false = sum(word in ("slower", "faster") for word in words) / sets
        yield Figure(
            f"A/A called different, {hosts} hosts, n = {FLEET_BLOCKS}",
            false,
            FALSE_ALARMS,
            at_most=True,
        )
    words = [compare(spread(4, 0.9, rng)[0])["verdict"] for _ in range(sets)]
    yield Figure(f"−10 % found, 4 hosts, n = {FLEET_BLOCKS}", words.count("slower") / sets, 0.9)
    for apart, limit, at_most in ((0.0, FALSE_ALARMS, True), (0.1, 0.8, False)):
        unlike = 0
        for _ in range(sets):
            _, trials = spread(4, 1.0, rng, 12, apart)
            unlike += _disagree(trials)
        text = "alike called unlike" if at_most else "10 % apart called unlike"
        yield Figure(
            f"4 hosts {text}, n = 12",
            unlike / sets,
            limit,
            at_most=at_most,
        )


def _disagree(trials: list[Trial]) -> bool:
    arms = by_host(trials, "a", "tps")
    return any(arm.spread is not None and arm.spread.disagree for arm in arms)


def series(
    kind: Nights,
    rng: numpy.random.Generator,
    step: float = 1.0,
    begin: int = 0,
    nights: int = NIGHTS,
) -> list[float | None]:
    """Return the ratios of nights, with a step at night `begin`."""
    sd = kind.sd or rng.uniform(0.01, 0.05)
    logs = ar1(nights, kind.memory, rng) * sd + kind.drift * numpy.arange(nights) / 100
    slow = rng.random(nights) < kind.outliers
    logs[slow] -= rng.exponential(0.3, slow.sum())
    logs[begin:] += numpy.log(step)
    return [None if rng.random() < MISSING else float(value) for value in numpy.exp(logs)]


def nightly(kind: Nights, sets: int, rng: numpy.random.Generator) -> Iterator[Figure]:
    """Yield the false alarms of series without a step, counted as if reported night after night,
    and the detected steps.
    """
    alarms = sum(len(alarms_of(series(kind, rng))) for _ in range(sets)) / sets
    yield Figure(
        "false alarms in 100 nights", alarms, NIGHTLY_ALARMS if kind.judged else None, at_most=True
    )
    for step, limit in ((0.9, 0.8), (0.8, 0.9)):
        placed = 0
        for _ in range(sets):
            begin = int(rng.integers(30, 70))
            nights = changepoints(series(kind, rng, step, begin, begin + 30))
            placed += any(abs(night - begin) <= 1 for night in nights)
        yield Figure(
            f"−{100 * (1 - step):.0f} % placed within ±1 night",
            placed / sets,
            limit if kind.judged else None,
        )


def alarms_of(nights: list[float | None]) -> list[int]:
    """Return the changes that a nightly job would have reported. No change vanishes, so the last
    result has all.
    """
    return changepoints(nights)


def figures(sets: int, seed: int) -> Iterator[tuple[str, list[Figure]]]:
    """Yield (host with its parameters, its figures)."""
    for host in HOSTS:
        yield (
            f"host {dataclasses.asdict(host)}",
            list(verdicts(host, sets, numpy.random.default_rng(seed))),
        )
    yield (
        "runs of three arms and three workloads",
        list(sharing_power(sets, numpy.random.default_rng(seed))),
    )
    for number, case in enumerate(HARDEST):
        yield case.text, list(sharing(case, sets // 2, numpy.random.default_rng([seed, number])))
    for number, case in enumerate(STOPPING):
        about = f"decided arms stop: {case.text}"
        yield about, list(stopping(case, sets // 4, numpy.random.default_rng([seed, number])))
        if case.host is HOSTS[0]:
            about = f"precise arms stop too: {case.text}"
            yield (
                about,
                list(
                    stopping(
                        case,
                        sets // 4,
                        numpy.random.default_rng([seed, number]),
                        PRECISION,
                    )
                ),
            )
    about = f"fleet: hosts' speeds differ by {100 * HOST_CV:.0f} %, blocks dealt whole"
    yield about, list(fleet(sets, numpy.random.default_rng(seed)))
    # without HOSTS[1]: a disturbance that a block shares cancels in its pairs
    for host in (HOSTS[0], *HOSTS[2:]):
        yield (
            f"factors, host {host.name}",
            list(factors(host, sets // 2, numpy.random.default_rng(seed))),
        )
    for kind in SERIES:
        few = max(20, sets // 5)  # fewer, because a series has 100 nights
        yield (
            f"nights {dataclasses.asdict(kind)}",
            list(nightly(kind, few, numpy.random.default_rng(seed))),
        )


def _grid(sets: int, seed: int) -> Iterator[tuple[str, list[Figure]]]:
    for number, case in enumerate(GRID):
        yield case.text, list(sharing(case, sets, numpy.random.default_rng([seed, number])))


def main() -> int:
    """Print all figures; return 1 if a target was missed."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    missed = 0
    tables = _grid(sets, seed) if "grid" in sys.argv[3:] else figures(sets, seed)
    for about, lines in tables:
        print(about)
        for figure in lines:
            print(figure.line(), flush=True)
            missed += figure.missed
    print(f"{missed} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
