"""Error rates of interactions: runs with factors, with and without one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy
from made_up import FALSE_ALARMS, Figure, Host

from dbbench.compare import rows
from dbbench.compare.interaction import Interaction, interactions
from dbbench.metrics.table import METRICS
from dbbench.model import Status, Trial


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
