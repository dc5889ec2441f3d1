"""Which host runs which blocks, and the budget of time, which applies to each host; the coordinator
numbers the blocks. A block always stays on one host: pairs are formed within it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dbbench.fleet.messages import HostState
from dbbench.model import Budget, BudgetEnd, Run, TrialSpec
from dbbench.run.adaptive import another
from dbbench.units import grouped

Dealing = dict[str, tuple[int, ...]]  # host -> its blocks, in the order of assignment


def first_blocks(order: Sequence[TrialSpec], hosts: Sequence[str], mode: str) -> Dealing:
    """Assign all blocks to each host (`each`), or each block to one host (`spread`)."""
    if mode == "each":
        return dict.fromkeys(sorted(hosts), tuple(sorted({spec.block for spec in order})))
    return deal(order, dict.fromkeys(sorted(hosts), ()), dict.fromkeys(hosts, 0))


def deal(
    order: Sequence[TrialSpec], dealing: Mapping[str, tuple[int, ...]], left: Mapping[str, int]
) -> Dealing:
    """Assign each block of the order that no host has to the host with the fewest blocks left, of
    equal ones the first by name. `left`: by host that can take blocks, the number left. Blocks
    that are not in the order are dropped.
    """
    all_blocks = sorted({spec.block for spec in order})
    load = dict(left)
    dealt = {
        host: tuple(block for block in mine if block in all_blocks)
        for host, mine in dealing.items()
    }
    has = {block for mine in dealt.values() for block in mine}
    for block in all_blocks if load else []:
        if block not in has:
            host = min(load, key=lambda name: (load[name], name))
            dealt[host] = (*dealt.get(host, ()), block)
            load[host] += 1
    return dealt


def trials_of_host(order: Sequence[TrialSpec], mine: Sequence[int]) -> tuple[TrialSpec, ...]:
    """Return the trials of those blocks in the order of the plan, blocks in the order of
    assignment.
    """
    of_block = grouped(order, lambda spec: spec.block)
    return tuple(spec for block in mine for spec in of_block.get(block, ()))


def unfinished_blocks(
    order: Sequence[TrialSpec], mine: Sequence[int], taken: Collection[str]
) -> list[int]:
    """Return those of the blocks `mine` that have a trial which has not been collected."""
    unfinished = {spec.block for spec in order if spec.id not in taken}
    return [block for block in mine if block in unfinished]


def with_block(run: Run, state: HostState) -> Run | None:
    """Return the run with one more block for an idle host, or None: its budget has no time, or a
    precision decides.
    """
    if (
        run.budget is None
        or run.precision is not None
        or run.plan.budget_s is None
        or state.mean_s is None
    ):
        return None
    if state.used_s + state.mean_s * len(run.cells) > run.plan.budget_s:
        return None
    block = max((spec.block for spec in run.order), default=0) + 1
    return dataclasses.replace(run, order=(*run.order, *another(run, block, run.cells)))


def cut(run: Run, missing: Sequence[TrialSpec]) -> tuple[Run, list[int]]:
    """Return the run without the trials that a host could not finish, and the blocks that are
    dropped as a whole.
    """
    dropped = sorted({spec.block for spec in missing if spec.attempt == 1})
    if not missing:
        return run, dropped
    ids = {spec.id for spec in missing}
    order = tuple(spec for spec in run.order if spec.block not in dropped and spec.id not in ids)
    end: BudgetEnd = "cut" if dropped else "time"
    return dataclasses.replace(
        run, order=order, budget=dataclasses.replace(run.budget or Budget(), ended=end)
    ), dropped


def add_usage(run: Run, states: Sequence[HostState]) -> Run:
    """Return the run with how much of its budget the hosts have used: the largest value of a host."""
    if run.budget is None:
        return run
    used_s = max([run.budget.used_s, *(state.used_s for state in states)])
    trial_s = max((state.mean_s for state in states if state.mean_s is not None), default=None)
    times = run.budget.cell_s if trial_s is None else {cell.id: trial_s for cell in run.cells}
    return dataclasses.replace(
        run, budget=dataclasses.replace(run.budget, used_s=used_s, cell_s=times)
    )


def conclude(run: Run, mine: Collection[int], finished: Collection[str]) -> Run:
    """Return the run with the outcome of its budget, without blocks that no host has. `mine`: those
    of its hosts.
    """
    order = tuple(spec for spec in run.order if spec.block in mine)
    whole = set(mine) - set(unfinished_blocks(order, sorted(mine), finished))
    assert run.budget is not None
    ended = dataclasses.replace(run.budget, blocks=len(whole), ended=run.budget.ended or "time")
    return dataclasses.replace(run, order=order, budget=ended)
