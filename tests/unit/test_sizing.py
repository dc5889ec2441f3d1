"""The smallest level for a rate: the bisection with a known answer, its sentences, its refusals."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench.compare import sizing
from dbbench.errors import PlanInvalid
from dbbench.model import (
    CeilingFacts,
    Cell,
    DeviceLimit,
    DeviceLimits,
    DeviceRate,
    DeviceSpec,
    LimitFacts,
    Run,
    Search,
    Status,
    TimeFacts,
    Trial,
    TrialSpec,
    TrialWarning,
    Window,
)
from dbbench.plan.narrowing import at_rate
from dbbench.report.sentences import plain_text
from dbbench.report.volume_sizes import sections
from dbbench.results import LoadedRun
from dbbench.run.adaptive import further
from tests.support.plans import SHIPPED
from tests.support.runs import small_run

LEVELS = tuple(DeviceLimit(iops=100 * 2**n, label=f"L{n}") for n in range(7))
BLOCKS = 3


def run_of(arms: tuple[str, ...] = ("ext4",)) -> Run:
    """A search over seven levels for 1000 tx/s."""
    run = small_run()
    plan = replace(run.plan, blocks=BLOCKS)
    first = run.cells[0]
    cells = []
    for arm in arms:
        for level in LEVELS:
            variant = f"limit={level.name}"
            cell_id = f"{arm}.{level.label}"
            cells.append(replace(first, id=cell_id, arm=arm, limit=level, variant=variant))
    search = Search(1000, 20.0)
    return replace(run, plan=plan, cells=tuple(cells), order=(), search=search)


def trial_of(cell: Cell, spec: TrialSpec, summary: dict[str, float | None]) -> Trial:
    """A finished trial with this summary."""
    names = (spec.id, "r", "host", cell.arm, cell.engine.name, cell.workload.name)
    return Trial(*names, spec.block, spec.attempt, spec.position, Status.OK, summary=summary)


def measured(run: Run, holds: Callable[[str, int, int], bool]) -> tuple[Run, dict[str, Trial]]:
    """Run blocks until none is added; `holds`: of an arm, the index of a level, and a block."""
    trials: dict[str, Trial] = {}
    while True:
        longer = further(run, trials)
        if longer.order == run.order:
            return run, trials
        for spec in longer.order[len(run.order) :]:
            cell = run.cell(spec.cell)
            assert cell.limit is not None
            kept = holds(cell.arm, LEVELS.index(cell.limit), spec.block)
            tps = 1000.0 if kept else 700.0
            summary: dict[str, float | None] = {"tps": tps, "p99_ms": 12.0}
            trials[spec.id] = trial_of(cell, spec, summary)
        run = longer


@pytest.mark.parametrize("answer", range(len(LEVELS) + 1))
def test_bisection_finds_every_answer(answer: int) -> None:
    """Also the smallest level, and none. Both sides of the border are measured in each block."""
    run, trials = measured(run_of(), lambda _arm, level, _block: level >= answer)
    (found,) = sizing.size_setups(run, trials)
    smallest = found.smallest
    assert (smallest.limit if smallest else None) == (*LEVELS, None)[answer]
    border = [level.trials for level in found.levels[max(0, answer - 1) : answer + 1]]
    assert border == [BLOCKS] * len(border)
    assert len(trials) <= 2 * BLOCKS + 2


def test_the_majority_of_blocks_decides() -> None:
    """A level that holds in one of three blocks is not enough; the next one is."""
    run, trials = measured(run_of(), lambda _arm, level, block: level > 3 or block == 1)
    (found,) = sizing.size_setups(run, trials)
    assert found.smallest is not None and found.smallest.limit.label == "L4"


@pytest.mark.parametrize(("seconds", "holds"), [(3, True), (600, False)])
def test_a_short_window_may_miss_more_of_the_rate(seconds: int, holds: bool) -> None:
    """300 transactions of a random schedule vary by 6 %, 60 000 by 0.4 %."""
    run = replace(run_of(), search=Search(100))
    (spec,) = further(run, {}).order
    trial = trial_of(run.cell(spec.cell), spec, {"tps": 94.0})
    trial = replace(trial, window=Window("fixed", 1, seconds))
    (found,) = sizing.size_setups(replace(run, order=(spec,)), {spec.id: trial})
    assert max(level.held for level in found.levels) == holds


def test_every_setup_has_its_own_border() -> None:
    """The sentence names the volume of each."""
    needed = {"ext4": 2, "xfs": 2, "btrfs": 4}
    run, trials = measured(run_of(tuple(needed)), lambda arm, level, _: level >= needed[arm])
    (section,) = sections(loaded(run, trials))
    assert tuple(map(plain_text, section.sentences)) == (
        "The model of the L2 volume holds 1 000 tx/s with p99 ≤ 20 ms on ext4 and xfs "
        "(in 3 of 3 blocks); btrfs needs L4 (in 3 of 3 blocks).",
    )


def test_no_level_is_enough() -> None:
    """A slow percentile is as bad as a low rate."""
    run, trials = measured(replace(run_of(), search=Search(1000, 11.0)), lambda *_: True)
    (found,) = sizing.size_setups(run, trials)
    assert found.smallest is None
    (section,) = sections(loaded(run, trials))
    assert tuple(map(plain_text, section.sentences)) == (
        "No level of the plan is enough for ext4.",
    )


@pytest.mark.parametrize(("last", "named"), [(6, True), (5, False)])
def test_the_client_is_named_as_the_limit(last: int, named: bool) -> None:
    """A larger volume does not help a load generator that has no CPU left; if one does, the device
    was the limit.
    """
    run, trials = measured(run_of(), lambda _arm, level, _block: level > last)
    busy = TrialWarning("W016", "")
    trials = {name: replace(trial, warnings=(busy,)) for name, trial in trials.items()}
    (section,) = sections(loaded(run, trials))
    text = f"At L{last}, the client limited ext4, not the model"
    assert (text in " ".join(section.sentences)) is named


@pytest.mark.parametrize(
    ("iops", "shares", "what"),
    [
        (50.0, {"client": 0.2, "log": 0.8}, "log flush"),
        (99.0, {"client": 0.2, "log": 0.8}, ""),
        (50.0, {"client": 0.8, "log": 0.2}, "client"),
        (50.0, {"cpu": 0.4, "queue": 0.3, "log": 0.3}, "CPU"),
    ],
)
def test_a_limit_that_was_not_reached_is_said(
    iops: float, shares: dict[str, float], what: str
) -> None:
    """Nor is the device the limit if sessions were free while the rate was missed."""
    run, trials = measured(run_of(), lambda *_: False)
    rates = CeilingFacts(rates=(DeviceRate("writes", "IOPS", iops, False),))
    time = TimeFacts(shares=shares)
    facts: dict[str, Any] = {"ceiling": rates, "time": time, "parameters": {"rate": 1000}}
    limit = LimitFacts(DeviceLimit(iops=100))
    trials = {name: replace(trial, limit=limit, **facts) for name, trial in trials.items()}
    (section,) = sections(loaded(run, trials))
    cause = f"At L6, the {what} limited ext4, not the model: a larger volume may not help."
    assert section.sentences[1:] == ((cause,) if what else ())


def test_a_setup_whose_trials_fail_is_given_up() -> None:
    """The search ends after three of them."""
    run = run_of()
    trials: dict[str, Trial] = {}
    for _block in range(2 * sizing.MOST_FAILED):
        longer = further(run, trials)
        for spec in longer.order[len(run.order) :]:
            trial = trial_of(run.cell(spec.cell), spec, {})
            trials[spec.id] = replace(trial, status=Status.FAILED)
        run = longer
    assert len(trials) == sizing.MOST_FAILED


@pytest.mark.parametrize(
    ("larger", "why"),
    [
        (DeviceLimit(iops=300, label="b"), "iops is 500, then 300"),
        (DeviceLimit(iops=500, flush_ms=2, label="b"), "flush_ms is 1, then 2"),
    ],
)
def test_levels_that_are_not_ordered_are_refused(larger: DeviceLimit, why: str) -> None:
    """With the pair, and what is not ordered."""
    limits = DeviceLimits(tables=(DeviceLimit(iops=500, flush_ms=1, label="a"), larger))
    plan = replace(small_run().plan, device=DeviceSpec(limit=limits))
    with pytest.raises(PlanInvalid, match=f"model-a and model-b.*: {why}"):
        at_rate(plan, SHIPPED, 900)


def loaded(run: Run, trials: dict[str, Trial]) -> LoadedRun:
    """The run as read from its folder."""
    return LoadedRun(Path("r"), run, tuple(trials.values()))
