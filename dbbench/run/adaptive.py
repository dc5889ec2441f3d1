"""Add blocks until each question is answered with the requested precision; never because a result became
significant."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from typing import Final

from dbbench.compare.interval import Estimate, estimate
from dbbench.compare.pairs import Group, paired
from dbbench.model import Cell, Question, Run, Status, Trial, TrialSpec

LEAST: Final = 5  # pairs; with fewer the scatter itself is hardly known
MOST_BLOCKS: Final = 15  # what is not settled by then is told as it is
LEVEL: Final = 0.98  # wider than the verdict's 95 %, because the width is looked at after every block


def further(run: Run, trials: Mapping[str, Trial]) -> Run:
    """Return the run with one more block of the cells whose question is open; the same order if there is none.

    `trials` are the finished ones by id, all of `run.order`. A pair is settled from LEAST pairs on, when half its
    interval at LEVEL is within the precision; then its arm is not measured again. The baseline stays in until its last
    pair is settled. `run.questions` has the state of each cell, and `run.settled` the same in words.
    """
    if run.precision is None:
        return run
    block = max((spec.block for spec in run.order), default=0) + 1
    questions, left = dict(run.questions), list[Cell]()
    for key, cells in _groups(run).items():
        mine = [t for t in trials.values() if (t.engine, t.workload, t.variant) == key]
        open_cells = [c for c in cells if c.arm != run.baseline and not _answered(run, c, mine, questions)]
        if open_cells and block <= MOST_BLOCKS:
            left += [*open_cells, *(c for c in cells if c.arm == run.baseline)]
    settled = {cell: text(question) for cell, question in questions.items()}
    return dataclasses.replace(run, order=(*run.order, *_block(run, block, left)), questions=questions, settled=settled)


def text(question: Question) -> str:
    """Describe the state of a question."""
    if question.kind == "given-up":
        return "given up: one of its arms failed in every block"
    half = question.half_width
    width = "" if half is None else f": ±{100 * half:.1f} % at {100 * LEVEL:.0f} %"
    return f"{question.kind} after {question.pairs} pairs{width}"


def half_width(run: Run, cell: Cell, trials: list[Trial]) -> tuple[int, float | None]:
    """Return (pairs, half the interval at LEVEL as a share) of the cell's arm compared with the baseline; None below
    two pairs."""
    guess = _estimate(run, cell, trials)
    if guess is None or guess.n < 2:
        return (0 if guess is None else guess.n, None)
    return guess.n, math.expm1(guess.half_width(LEVEL))


def _answered(run: Run, cell: Cell, trials: list[Trial], questions: dict[str, Question]) -> bool:
    """Whether the cell needs no further block; the reason goes into `questions`."""
    if cell.id in questions and questions[cell.id].kind == "settled":
        return True
    pairs, half = half_width(run, cell, trials)
    assert run.precision is not None
    if half is not None and pairs >= LEAST and half <= run.precision:
        questions[cell.id] = Question("settled", pairs, half)
    elif _hopeless(cell.arm, trials) or _hopeless(run.baseline, trials):
        questions[cell.id] = Question("given-up")
    else:
        questions[cell.id] = Question("open", pairs, half)
    return questions[cell.id].kind != "open"


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
    """Return one block of the cells in random order, drawn from the run's seed and the block's number."""
    draw = random.Random(1000 * run.plan.seed + block)
    ranked = sorted((draw.random(), cell.id) for cell in cells)
    first = len(run.order) + 1
    return [TrialSpec(f"{cell}-b{block}-a1", cell, block, 1, first + i) for i, (_, cell) in enumerate(ranked)]
