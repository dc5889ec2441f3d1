"""Error rates of runs of several arms and workloads: they share their variance, and decided arms stop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy
from made_up import FALSE_ALARMS, HOSTS, Figure, Host

from dbbench.compare import Group, Row, compare_all, examine, rows, trials_of
from dbbench.compare.stopping import LOOKS
from dbbench.run.adaptive import LEAST


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


def of_families(alarms: int, covered: int, families: int, others: int) -> Iterator[Figure]:
    """Yield the shares of families with a false alarm, and of their arms whose interval covers."""
    yield Figure(
        "A/A called different, of families",
        alarms / families,
        FALSE_ALARMS,
        at_most=True,
    )
    yield Figure("the intervals cover 0.62", covered / (families * others), SHARED_COVERAGE)


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
    yield from of_families(alarms, covered, sets * case.workloads, others)


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
    yield from of_families(alarms, covered, sets * case.workloads, others)
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
