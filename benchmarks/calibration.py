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
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy
import scipy.signal

from dbbench.compare import (
    Group,
    Row,
    changepoints,
    compare,
    compare_all,
    examine,
    rows,
    trials_of,
)
from dbbench.compare.interaction import Interaction, interactions
from dbbench.compare.stopping import LOOKS
from dbbench.compare.unpaired import by_host
from dbbench.metrics.table import METRICS
from dbbench.model import Status, Trial, TrialSpec
from dbbench.run.adaptive import LEAST

WARMUP_S: Final = 5
MEASURE_S: Final = 30
NIGHTS: Final = 100
MISSING: Final = 0.03  # share of nights without a result
FALSE_ALARMS: Final = 0.071  # share of sets: three standard errors above 5 % with 1000 sets
NIGHTLY_ALARMS: Final = 0.5  # false alarms per series of 100 nights


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


# A fleet: the blocks of a run are distributed over hosts with different speeds (`fleet run
# --spread`).
FLEET_HOSTS: Final = (2, 4, 8)
FLEET_BLOCKS: Final = 8
HOST_CV: Final = 0.30

HOSTS: Final = (
    Host("quiet"),
    Host("noisy", second_cv=0.35, second_memory=0.8, block_cv=0.06),
    Host("drifting", drift=-0.15),
    Host("outliers", outliers=0.05),
)


@dataclass(frozen=True)
class Case:
    """A run of several arms and workloads. `scatter`: how the standard deviations of its cells
    differ.
    """

    host: Host
    scatter: str
    arms: int
    workloads: int
    blocks: int

    @property
    def text(self) -> str:
        return (
            f"{self.host.name}, {self.scatter}, {self.arms} arms × {self.workloads} workloads, n "
            f"= {self.blocks}"
        )


EQUAL: Final = "equal scatter"
SCATTERS: Final = (EQUAL, "log-normal 0.5", "log-normal 0.8", "baseline × 3", "another arm × 3")
GRID: Final = tuple(
    Case(*parts)
    for parts in itertools.product(
        HOSTS,
        SCATTERS,
        (2, 3, 5),
        (1, 3),
        (3, 5, 7),
    )
)
# The part of the grid that `make bench` runs: the hosts and sizes with the highest risk of errors
# by shared variance.
HARDEST: Final = tuple(
    case
    for case in GRID
    if case.host.name in ("quiet", "drifting") and case.workloads == 3 and case.blocks < 7
)
STOPPING: Final = tuple(
    Case(host, scatter, arms, workloads, 14)
    for host, scatter, arms, workloads in itertools.product(
        HOSTS, (EQUAL, "baseline × 3"), (2, 3), (1, 3)
    )
)
SHARED_COVERAGE: Final = 0.921
PRECISION: Final = 0.05  # half the width at which an arm stops


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


def run_document(
    case: Case, ratios: Sequence[float], rng: numpy.random.Generator
) -> dict[str, Any]:
    """Return a run as input of `compare_all`. `ratios` are those of the other arms to the first. A
    trial has one second, because seconds do not affect the shared variance.
    """
    arms = range(case.arms)
    host = case.host
    cells = list(itertools.product(arms, range(case.workloads)))

    # How much each arm scatters.
    sds = {cell: host.trial_cv * _factor(case.scatter, cell[0], rng) for cell in cells}
    levels = numpy.log([1000.0, *(1000.0 * ratio for ratio in ratios)])
    trials: list[dict[str, Any]] = []
    for block in range(1, case.blocks + 1):
        shared = rng.normal(0, host.block_cv)
        for attempt in (1, 2):
            driven = []
            for place, index in enumerate(rng.permutation(len(cells))):
                arm, workload = cells[index]
                when = (block - 1 + place / len(cells)) / case.blocks
                slow = rng.random() < host.outliers
                log = levels[arm] + rng.normal(0, sds[arm, workload]) + shared + host.drift * when
                log -= rng.uniform(*host.slowed) if slow else 0.0
                suspect = slow and rng.random() < host.noticed
                driven.append(
                    {
                        "fs_setup": f"arm{arm}",
                        "engine": "e",
                        "workload": f"w{workload}",
                        "block": block,
                        "attempt": attempt,
                        "position": len(trials) + place,
                        "warmup_s": 0,
                        "status": "suspect" if suspect else "ok",
                        "tps": [float(numpy.exp(log))],
                    }
                )
            trials += driven
            if all(trial["status"] == "ok" for trial in driven):
                break
    return {"trials": trials, "baseline": "arm0"}


def _factor(scatter: str, arm: int, rng: numpy.random.Generator) -> float:
    """Return the factor by which the standard deviation of a cell differs from that of the host."""
    if scatter.startswith("log-normal"):
        return float(numpy.exp(rng.normal(0, float(scatter.split()[1]))))
    return 3.0 if (scatter, arm) in (("baseline × 3", 0), ("another arm × 3", 1)) else 1.0


def sharing(case: Case, sets: int, rng: numpy.random.Generator) -> Iterator[Figure]:
    """Yield false alarms in the family of a workload's arms, and coverage if all arms differ from
    the baseline.
    """
    alarms = covered = 0
    others = case.arms - 1
    for _ in range(sets):
        rows = compare_all(run_document(case, [1.0] * others, rng))
        alarms += len({row["workload"] for row in rows if row["verdict"] in ("slower", "faster")})
        rows = compare_all(run_document(case, [0.62] * others, rng))
        covered += sum(row["lo"] <= 0.62 <= row["hi"] for row in rows)
    families = sets * case.workloads
    yield Figure(
        "A/A called different, of families",
        alarms / families,
        FALSE_ALARMS,
        at_most=True,
    )
    yield Figure("the intervals cover 0.62", covered / (families * others), SHARED_COVERAGE)


def stopped(document: dict[str, Any], precision: float | None = None) -> tuple[list[Row], int]:
    """Return the rows of a run whose closed arms are not measured again, and the number of trials
    left out.
    """
    entries = document["trials"]
    baseline = document["baseline"]
    closed = set[tuple[str, str]]()
    settled = set[Group]()
    for block in range(min(LOOKS), max(entry["block"] for entry in entries)):
        until = trials_of([entry for entry in entries if entry["block"] <= block])
        for (group, arm), pair in examine(until, baseline, "tps").items():
            if (group[1], arm) not in closed:
                narrow = (
                    precision is not None
                    and pair.guess.n >= LEAST
                    and pair.half_width() <= precision
                )
                if pair.verdict or narrow:
                    closed.add((group[1], arm))
                if narrow and not pair.verdict:
                    settled.add(group)
        entries = [
            entry
            for entry in entries
            if entry["block"] <= block or (entry["workload"], entry["fs_setup"]) not in closed
        ]
    table = rows(trials_of(entries), baseline, settled=settled)
    return [row for row in table if row.fs_setup != baseline], len(document["trials"]) - len(
        entries
    )


def stopping(
    case: Case, sets: int, rng: numpy.random.Generator, precision: float | None = None
) -> Iterator[Figure]:
    """Yield the error rates if decided arms stop, or are precise enough, and the bias of the
    ratios.
    """
    alarms = covered = left_out = whole = 0
    others = case.arms - 1
    errors = list[float]()
    for _ in range(sets):
        table, _ = stopped(run_document(case, [1.0] * others, rng), precision)
        alarms += len({row.workload for row in table if row.verdict in ("slower", "faster")})
        document = run_document(case, [0.62] * others, rng)
        table, fewer = stopped(document, precision)
        left_out = left_out + fewer
        whole = whole + len(document["trials"])
        covered += sum(row.lo <= 0.62 <= row.hi for row in table if row.lo and row.hi)
        errors += [float(numpy.log(row.ratio / 0.62)) for row in table if row.ratio]
    families = sets * case.workloads
    yield Figure(
        "A/A called different, of families",
        alarms / families,
        FALSE_ALARMS,
        at_most=True,
    )
    yield Figure("the intervals cover 0.62", covered / (families * others), SHARED_COVERAGE)
    judged = not case.host.outliers  # unnoticed outliers bias every ratio
    yield Figure(
        "bias of the ratio", abs(sum(errors) / len(errors)), 0.01 if judged else None, at_most=True
    )
    yield Figure("trials that are not needed", left_out / whole, None)


def sharing_power(sets: int, rng: numpy.random.Generator) -> Iterator[Figure]:
    """Yield how often a candidate that is 10 % slower is detected, with another candidate next to
    it or alone.
    """
    for host in (HOSTS[0], HOSTS[2]):
        for blocks, limit in ((3, 0.65), (5, 0.95)):
            case = Case(host, EQUAL, 3, 3, blocks)
            slower = sum(
                row["verdict"] == "slower" and row["fs_setup"] == "arm2"
                for _ in range(sets)
                for row in compare_all(run_document(case, [1.0, 0.9], rng))
            )
            yield Figure(
                f"−10 % found, 3 × 3, n = {blocks}, {host.name}", slower / (3 * sets), limit
            )


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


@dataclass(frozen=True)
class Factorial:
    """A run with factors: the number of levels of each, and of setups."""

    arms: int
    levels: tuple[int, ...]

    @property
    def text(self) -> str:
        """Return the design in words."""
        return f"{self.arms} setups, factors of {' × '.join(map(str, self.levels))} levels"


FACTORIALS: Final = (
    Factorial(2, (2,)),
    Factorial(3, (3, 2)),
    Factorial(5, (3,)),
    Factorial(3, (2, 2, 2)),
)
# change of a setup's ratio between the first two levels of the first factor
INTERACTION: Final = 1.15
FACTOR_ALARMS: Final = 0.05
ALARMS: Final = ("order-depends", "ratio-depends")


def factor_run(
    host: Host, design: Factorial, blocks: int, effect: float, rng: numpy.random.Generator
) -> list[Interaction]:
    """Return the interactions of a simulated run. Setups and combinations differ; only `effect` is
    an interaction.
    """
    combos = list(itertools.product(*map(range, design.levels)))
    cells = list(itertools.product(range(design.arms), combos))

    # Setups and combinations differ, which is no interaction.
    of_arm = rng.normal(0, 0.2, design.arms)
    of_combo = dict(zip(combos, rng.normal(0, 0.3, len(combos)), strict=True))
    trials = list[Trial]()
    for block in range(1, blocks + 1):
        shared = rng.normal(0, host.block_cv)
        for attempt in (1, 2):
            driven = list[Trial]()
            for place, index in enumerate(rng.permutation(len(cells))):
                arm, combo = cells[index]
                slow = rng.random() < host.outliers
                log = 7 + of_arm[arm] + of_combo[combo] + rng.normal(0, host.trial_cv) + shared
                log += host.drift * (block - 1 + place / len(cells)) / blocks
                log += numpy.log(effect) if (arm, combo[0]) == (1, 1) else 0.0
                log -= rng.uniform(*host.slowed) if slow else 0.0
                status = Status.SUSPECT if slow and rng.random() < host.noticed else Status.OK
                number = len(trials) + len(driven)
                driven.append(
                    Trial(
                        str(number),
                        "",
                        "",
                        f"arm{arm}",
                        "e",
                        "w",
                        block,
                        attempt,
                        number,
                        status,
                        summary={"tps": float(numpy.exp(log))},
                        variant=_variant(combo),
                    )
                )
            trials += driven
            if all(trial.status is Status.OK for trial in driven):
                break
    levels = {
        ("e", "w", _variant(combo)): {f"f{n}": level for n, level in enumerate(combo)}
        for combo in combos
    }
    return interactions(rows(trials, "arm0"), levels, METRICS["tps"])


def _variant(combo: Sequence[int]) -> str:
    return "+".join(f"f{number}={level}" for number, level in enumerate(combo))


def factors(host: Host, sets: int, rng: numpy.random.Generator) -> Iterator[Figure]:
    """Yield how often an interaction is reported in runs without one, and how often a real one is
    detected.
    """
    alarms = list[float]()
    for design in FACTORIALS:
        for blocks in (3, 5):
            called = 0
            for _ in range(sets):
                run = factor_run(host, design, blocks, 1.0, rng)
                called += any(interaction.verdict in ALARMS for interaction in run)
            alarms.append(called / sets)
            yield Figure(
                f"none, but one reported: {design.text}, n = {blocks}",
                alarms[-1],
                FALSE_ALARMS,
                at_most=True,
            )
        met = 0
        for _ in range(sets):
            contrasts = factor_run(host, design, 5, INTERACTION, rng)[0].contrasts
            met += any(c.verdict == "depends" and c.fs_setup == "arm1" for c in contrasts)
        target = None if host.outliers else 0.9
        yield Figure(f"+15 % found: {design.text}, n = 5", met / sets, target)
    yield Figure(
        "none, but one reported: mean of all",
        sum(alarms) / len(alarms),
        FACTOR_ALARMS,
        at_most=True,
    )


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
