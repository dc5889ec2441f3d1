"""The budget of time of a fleet's run, which applies to each host; the coordinator numbers the blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from dbbench.fleet.dealing import unfinished_blocks
from dbbench.fleet.messages import HostState
from dbbench.model import Budget, BudgetEnd, Run, TrialSpec
from dbbench.plan import blocks


def with_block(run: Run, state: HostState) -> Run | None:
    """Return the run with one more block for an idle host, or None: its budget has no time, or a precision decides."""
    if run.budget is None or run.precision is not None or run.plan.budget_s is None or state.mean_s is None:
        return None
    if state.used_s + state.mean_s * len(run.cells) > run.plan.budget_s:
        return None
    from dbbench.run.adaptive import another  # imported here, because it imports everything that a runner needs

    block = max(blocks(run.order), default=0) + 1
    return dataclasses.replace(run, order=(*run.order, *another(run, block, run.cells)))


def cut(run: Run, missing: Sequence[TrialSpec]) -> tuple[Run, list[int]]:
    """Return the run without the trials that a host could not finish, and the blocks that are dropped as a whole."""
    dropped = sorted({spec.block for spec in missing if spec.attempt == 1})
    if not missing:
        return run, dropped
    ids = {spec.id for spec in missing}
    order = tuple(spec for spec in run.order if spec.block not in dropped and spec.id not in ids)
    end: BudgetEnd = "cut" if dropped else "time"
    return dataclasses.replace(run, order=order, budget=dataclasses.replace(run.budget or Budget(), ended=end)), dropped


def add_usage(run: Run, states: Sequence[HostState]) -> Run:
    """Return the run with how much of its budget the hosts have used: the largest value of a host."""
    if run.budget is None:
        return run
    used_s = max([run.budget.used_s, *(state.used_s for state in states)])
    trial_s = max((state.mean_s for state in states if state.mean_s is not None), default=None)
    times = run.budget.cell_s if trial_s is None else {cell.id: trial_s for cell in run.cells}
    return dataclasses.replace(run, budget=dataclasses.replace(run.budget, used_s=used_s, cell_s=times))


def conclude(run: Run, mine: Collection[int], finished: Collection[str]) -> Run:
    """Return the run with the outcome of its budget, without blocks that no host has. `mine`: those of its hosts."""
    order = tuple(spec for spec in run.order if spec.block in mine)
    whole = set(mine) - set(unfinished_blocks(order, sorted(mine), finished))
    assert run.budget is not None
    ended = dataclasses.replace(run.budget, blocks=len(whole), ended=run.budget.ended or "time")
    return dataclasses.replace(run, order=order, budget=ended)
