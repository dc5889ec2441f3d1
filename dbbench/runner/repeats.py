"""Which blocks are driven a second time: only for what telemetry says, as a whole, once, within a budget."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Final

from dbbench.model import Run, Status, TrialSpec

EXTRA_TRIALS: Final = 0.5  # repeats, as a share of the plan's trials
Group = tuple[str, str, str, int]  # engine, workload, variant, block: pairs are made within, so it is repeated whole


def extended(run: Run, status_of: Callable[[TrialSpec], Status]) -> Run:
    """The run with a second attempt of each block that holds a suspect trial; the same run where there is none.

    A failed trial alone is no reason: what fails for a cause of its own fails again.
    """
    planned = sum(spec.attempt == 1 for spec in run.order)
    budget = int(planned * EXTRA_TRIALS) - (len(run.order) - planned)
    order, last = list(run.order), max((spec.position for spec in run.order), default=0)
    for block in _suspect_blocks(run, status_of) if run.plan.repeat_suspect else []:
        if len(block) <= budget:
            budget -= len(block)
            random.Random(f"{run.plan.seed}:{block[0].id}").shuffle(block)
            for spec in block:
                again = f"{spec.cell}-b{spec.block}-a2"
                last += 1  # not the length: a host of a fleet has some of the plan's positions only
                order.append(dataclasses.replace(spec, id=again, attempt=2, position=last))
    return run if len(order) == len(run.order) else dataclasses.replace(run, order=tuple(order))


def _suspect_blocks(run: Run, status_of: Callable[[TrialSpec], Status]) -> list[list[TrialSpec]]:
    blocks: dict[Group, list[TrialSpec]] = {}
    for spec in run.order:
        cell = run.cell(spec.cell)
        blocks.setdefault((cell.engine.name, cell.workload.name, cell.variant, spec.block), []).append(spec)
    return [
        block
        for block in blocks.values()
        if all(spec.attempt == 1 for spec in block) and any(status_of(spec) is Status.SUSPECT for spec in block)
    ]
