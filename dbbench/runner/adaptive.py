"""Further blocks until each question is answered to an asked precision: never because something became significant."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from typing import Final

from dbbench.compare.interval import Estimate, estimate
from dbbench.compare.pairs import Group, paired
from dbbench.model import Cell, Run, Status, Trial, TrialSpec

LEAST: Final = 5  # pairs; with fewer the scatter itself is hardly known
MOST_BLOCKS: Final = 15  # what is not settled by then is told as it is
LEVEL: Final = 0.98  # wider than the verdict's 95 %, because the width is looked at after every block


def further(run: Run, trials: Mapping[str, Trial]) -> Run:
    """The run with one more block of the cells whose question is open; the same order where there is none.

    `trials` are the finished ones by id, all of `run.order`. A pair is settled from LEAST pairs on, when half its
    interval at LEVEL is within the precision; then its arm stops using time. The baseline stays in until its last
    pair is settled. What became of each cell is in `run.settled`.
    """
    if run.precision is None:
        return run
    block = max((spec.block for spec in run.order), default=0) + 1
    found, left = dict(run.settled), list[Cell]()
    for key, cells in _groups(run).items():
        mine = [t for t in trials.values() if (t.engine, t.workload, t.variant) == key]
        open_cells = [c for c in cells if c.arm != run.baseline and not _answered(run, c, mine, found)]
        if open_cells and block <= MOST_BLOCKS:
            left += [*open_cells, *(c for c in cells if c.arm == run.baseline)]
    return dataclasses.replace(run, order=(*run.order, *_block(run, block, left)), settled=found)


def half_width(run: Run, cell: Cell, trials: list[Trial]) -> tuple[int, float | None]:
    """(pairs, half the interval at LEVEL as a share) of the cell's arm against the baseline; None below two pairs."""
    guess = _estimate(run, cell, trials)
    if guess is None or guess.n < 2:
        return (0 if guess is None else guess.n, None)
    return guess.n, math.expm1(guess.half_width(LEVEL))


def _answered(run: Run, cell: Cell, trials: list[Trial], found: dict[str, str]) -> bool:
    """Whether the cell needs no further block; why goes into `found`."""
    if cell.id in found and found[cell.id].startswith("settled"):
        return True
    pairs, half = half_width(run, cell, trials)
    width = "" if half is None else f": ±{100 * half:.1f} % at {100 * LEVEL:.0f} %"
    assert run.precision is not None
    if half is not None and pairs >= LEAST and half <= run.precision:
        found[cell.id] = f"settled after {pairs} pairs{width}"
        return True
    if _hopeless(cell.arm, trials) or _hopeless(run.baseline, trials):
        found[cell.id] = "given up: one of its arms failed in every block"
        return True
    found[cell.id] = f"open after {pairs} pairs{width}"
    return False


def _hopeless(arm: str, trials: list[Trial]) -> bool:
    mine = [trial for trial in trials if trial.fs_setup == arm]
    return bool(mine) and all(trial.status is Status.FAILED for trial in mine)


def _estimate(run: Run, cell: Cell, trials: list[Trial]) -> Estimate | None:
    metric = cell.workload.primary
    values = [
        (b, c)
        for one, other in paired(trials, run.baseline, cell.arm)
        if (b := one.summary.get(metric)) and (c := other.summary.get(metric)) and b > 0 and c > 0
    ]
    return estimate(values) if values else None


def _groups(run: Run) -> dict[Group, list[Cell]]:
    found: dict[Group, list[Cell]] = {}
    for cell in run.cells:
        found.setdefault((cell.engine.name, cell.workload.name, cell.variant), []).append(cell)
    return found


def _block(run: Run, block: int, cells: list[Cell]) -> list[TrialSpec]:
    """One block of the cells in random order, by draws of the run's seed and the block's number."""
    draw = random.Random(1000 * run.plan.seed + block)
    ranked = sorted((draw.random(), cell.id) for cell in cells)
    first = len(run.order) + 1
    return [TrialSpec(f"{cell}-b{block}-a1", cell, block, 1, first + i) for i, (_, cell) in enumerate(ranked)]
