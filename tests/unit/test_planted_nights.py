"""Planted regressions are found, and harmless nights are not called one, quiet or disturbed: whole
nights from made-up trials, through the judgement of each night and its second run.
"""

import dataclasses
import datetime
import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.model import Status, Trial, TrialWarning
from dbbench.nightly import tonight
from dbbench.nightly.tonight import NightOutcome
from dbbench.plan.request import PlanRequest
from dbbench.results import LoadedRun
from tests.support.plans import plan

FIRST = datetime.date(2026, 1, 1)
ARMS = ("ext4", "xfs", "ext4-guard")
SPEEDS = {"ext4": 5000.0, "ext4-guard": 5000.0, "xfs": 4600.0}
STEAL = TrialWarning("W012", "pid 812 backup: 31 % CPU", 3, True)


@dataclass
class Host:
    """Runs nights: each trial has the speed of its arm, times noise. A disturbed run has suspect
    trials, and more noise.
    """

    draw: random.Random
    day: int = 0
    factors: Mapping[str, float] = field(default_factory=dict)
    disturbed: tuple[str, ...] = ()  # kinds of runs: night, confirm
    noise: float = 0.02

    def __call__(self, request: PlanRequest, name: str) -> LoadedRun:
        kind = name.rpartition("-")[2]
        if kind == "night":
            self.day += 1
        noise = 0.4 if kind in self.disturbed else self.noise
        suspect = kind in self.disturbed

        def measured(trial: Trial) -> dict[str, object]:
            speed = SPEEDS[trial.fs_setup] * self.factors.get(trial.fs_setup, 1.0)
            tps = speed * math.exp(self.draw.gauss(0, noise))
            if not suspect:
                return {"summary": {"tps": tps}}
            return {
                "summary": {"tps": tps},
                "status": Status.SUSPECT,
                "warnings": (STEAL,),
            }

        run = synthetic.in_memory(shape_of(f"{name}-{self.day}", request.plan.blocks))
        created = f"{FIRST + datetime.timedelta(self.day)}T01:30:00.000Z"
        run = dataclasses.replace(run, run=dataclasses.replace(run.run, created=created))
        loaded: LoadedRun = synthetic.with_trials(run, measured)
        return loaded


def shape_of(name: str, blocks: int) -> Shape:
    """Return a run of reference, guard and arm."""
    return Shape(
        name=name,
        arms=ARMS,
        work=TPCB,
        blocks=blocks,
        measure_s=2,
        warmup_s=0,
        samplers=False,
    )


class Case(NamedTuple):
    """`before`: accepted nights. `factors`: how fast arms are tonight. `disturbed`: runs of
    tonight; `spoilt`: the first night was disturbed too.
    """

    before: int
    factors: Mapping[str, float]
    disturbed: tuple[str, ...] = ()
    spoilt: bool = False

    @property
    def answer(self) -> bool:
        """Whether tonight can have an answer."""
        return "confirm" not in self.disturbed


def cases(every_factors: tuple[Mapping[str, float], ...]) -> list[Case]:
    """20 cases: few nights and many, with and without disturbed ones."""
    made = []
    situations = (
        Case(1, {}),
        Case(3, {}, spoilt=True),
        Case(6, {}),
        Case(2, {}, ("night",)),
        Case(3, {}, ("night", "confirm"), True),
    )
    for situation, factors in itertools.product(situations, every_factors):
        made.append(situation._replace(factors=factors))
    return made


SLOWER = (
    {"xfs": 0.46},
    {"xfs": 0.80},
    {"xfs": 0.87},
    # the reference as well: no ratio changes
    {"ext4": 0.6, "ext4-guard": 0.6, "xfs": 0.6},
)
REGRESSIONS = cases(SLOWER)
HARMLESS = cases(({}, {"xfs": 0.995}, {"xfs": 1.005}, {}))


def judged(case: Case, folder: Path, seed: int) -> NightOutcome:
    """The outcome of tonight, after the nights before."""
    source = folder / "p.toml"
    source.write_text(plan(["ext4", "xfs"], name="p", blocks=7, baseline="ext4"))
    request = tonight.tonights_request(str(source), [], None)
    host = Host(random.Random(seed))
    if case.spoilt:
        host.disturbed = ("night", "confirm")
        spoilt = tonight.run_night(request, folder, 60, host)
        assert spoilt.exit_status == 4
        host.disturbed = ()
    for _ in range(case.before):
        tonight.run_night(request, folder, 60, host)
    host.factors = case.factors
    host.disturbed = case.disturbed
    return tonight.run_night(request, folder, 60, host)


QUICK = (0, 5, 14, 17)  # one of each kind; all of them in the long form


def some(every: list[Case]) -> list[object]:
    """Return the cases as parameters; those that are not QUICK are of the long form."""
    marked: list[object] = []
    for number, case in enumerate(every):
        marks = [] if number in QUICK else [pytest.mark.soak]
        marked.append(pytest.param(case, number, marks=marks, id=str(number)))
    return marked


@pytest.mark.parametrize(("case", "seed"), some(REGRESSIONS))
def test_a_planted_regression_is_found(case: Case, seed: int, tmp_path: Path) -> None:
    """Exit 3; if its second run was disturbed too, exit 4, and never ok."""
    outcome = judged(case, tmp_path, seed)
    if case.answer:
        assert (outcome.state, outcome.exit_status) == ("regression", 3)
    else:
        assert (outcome.state, outcome.exit_status) == ("inconclusive", 4)


@pytest.mark.parametrize(("case", "seed"), some(HARMLESS))
def test_a_harmless_night_is_not_a_regression(case: Case, seed: int, tmp_path: Path) -> None:
    """Exit 0 after a quiet night, or a quiet second run; else exit 4."""
    outcome = judged(case, tmp_path, 100 + seed)
    if case.answer:
        assert (outcome.state, outcome.exit_status) == ("ok", 0)
    else:
        assert (outcome.state, outcome.exit_status) == ("inconclusive", 4)
