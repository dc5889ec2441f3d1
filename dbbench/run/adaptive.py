"""Add blocks: one with a suspect trial again, others until each question is closed or the budget is
used up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dbbench.compare.sizing import further_cells
from dbbench.compare.stopping import Examined, examine
from dbbench.model import Budget, BudgetEnd, Cell, Question, Run, Status, Trial, TrialSpec
from dbbench.model.plan import MOST_TRIALS
from dbbench.model.run import QuestionKind
from dbbench.plan import make_order
from dbbench.units import group_by

LEAST: Final = 5  # smallest number of pairs; with fewer the scatter itself is hardly known
MOST_BLOCKS: Final = 15  # questions that are still open after so many blocks stay open
EXTRA_TRIALS: Final = 0.5  # repeated trials, as a share of the plan's trials


def further(run: Run, trials: Mapping[str, Trial]) -> Run:
    """Return the run with one more block of the cells whose question is open, or the same run if
    none is. `trials`: the finished trials by id, all of `run.order`. A pair that is decided
    (`compare.stopping`) or settled is not measured again: with a precision it is settled once it
    has LEAST pairs and half its 95 % interval is within it. A share of a run, which has a part of
    the pairs, adds whole blocks. `run.questions` has the state of each cell, `run.budget.ended`
    says why the run ended.
    """
    # A host of a fleet has every N-th block.
    step = 1 if run.budget is None else run.budget.step
    last_block = max((spec.block for spec in run.order), default=0)
    block = last_block + step

    # `dbbench size` has questions of its own, and most plans have none.
    if run.search is not None:
        cells = further_cells(run, trials)
        return _with_block(run, another(run, block, cells))
    if run.precision is None and run.budget is None:
        return run
    is_share = step != 1
    if run.precision is None and is_share:
        return _add_if_it_fits(run, another(run, block, run.cells))

    # Only cells whose question is still open are measured again.
    questions = _examine(run, list(trials.values()))
    run = replace(run, questions=questions)
    if run.precision is not None and block > MOST_BLOCKS:
        return _add_if_it_fits(run, [])
    return _add_if_it_fits(run, another(run, block, _open_cells(run)))


def _open_cells(run: Run) -> list[Cell]:
    """Return the cells with an open question. The baseline stays as long as one of its pairs is
    open.
    """
    open_cells = list[Cell]()
    for cells in group_by(run.cells, lambda cell: cell.group).values():
        baseline = [cell for cell in cells if cell.arm == run.baseline]
        others = [cell for cell in cells if cell.arm != run.baseline]
        open_others = [cell for cell in others if run.questions[cell.id].kind == "open"]
        if open_others or not others:
            open_cells += open_others
            open_cells += baseline
    return open_cells


def _with_block(run: Run, block: list[TrialSpec]) -> Run:
    return replace(run, order=(*run.order, *block))


def _add_if_it_fits(run: Run, block: list[TrialSpec]) -> Run:
    if run.budget is None:
        return _with_block(run, block)
    ended = _end_reason(run, block)
    run = replace(run, budget=replace(run.budget, ended=ended))
    return run if ended else _with_block(run, block)


def _end_reason(run: Run, block: list[TrialSpec]) -> BudgetEnd:
    """Return why this block is not run; "" if it is."""
    if not block:
        kinds = {question.kind for question in run.questions.values()}
        unanswered = not kinds or "open" in kinds
        if unanswered:
            return "most"
        return "decided" if run.precision is None else "precision"
    if len(run.order) + len(block) > MOST_TRIALS:
        return "most"
    return "" if fits(run, block) else "time"


def fits(run: Run, specs: Sequence[TrialSpec]) -> bool:
    """Return whether the trials would end within the budget, by the times of earlier trials; True
    without a budget.
    """
    if run.budget is None or run.plan.budget_s is None:
        return True
    end_s = run.budget.used_s + duration_s(run.budget, specs)
    return end_s <= run.plan.budget_s


def duration_s(budget: Budget, specs: Sequence[TrialSpec]) -> float:
    """Return how long the trials will take. A cell that was not run yet takes as long as the
    slowest one.
    """
    most = max(budget.cell_s.values(), default=0.0)
    return sum(budget.cell_s.get(spec.cell, most) for spec in specs)


def may_begin(run: Run, spec: TrialSpec) -> bool:
    """Return whether budget is left, or the trial belongs to the first blocks, because fewer give
    no interval.
    """
    if run.budget is None or run.plan.budget_s is None:
        return True
    return run.budget.used_s < run.plan.budget_s or of_first_blocks(run, spec)


def of_first_blocks(run: Run, spec: TrialSpec) -> bool:
    """Return whether the trial belongs to the blocks that run in any case."""
    first = max(run.plan.blocks, run.budget.step if run.budget else 0)
    return spec.attempt == 1 and spec.block <= first


def charge(run: Run, seconds: float, cell: str = "") -> Run:
    """Return the run with `seconds` more of its budget used. `cell`: that of a finished trial,
    whose time becomes a moving average (the last trial counts half), because a disk becomes
    slower in the course of a run.
    """
    if run.budget is None:
        return run
    times = dict(run.budget.cell_s)
    if cell:
        average = times.get(cell, seconds)
        times[cell] = (average + seconds) / 2
    budget = replace(
        run.budget,
        used_s=run.budget.used_s + seconds,
        cell_s=times,
    )
    return replace(run, budget=budget)


def conclude(run: Run, done: Collection[str]) -> tuple[Run, list[str]]:
    """Return the ended run, and the finished trials (of the ids `done`) that do not count: those of
    a block that the budget interrupted. The order loses that block, so that all cells have the
    same number of trials.
    """
    if run.budget is None or run.plan.budget_s is None:
        return run, []
    finished = [spec for spec in run.order if spec.id in done]
    missing = [spec for spec in run.order if spec.id not in done]
    incomplete = {spec.block for spec in missing if spec.attempt == 1}
    order = tuple(spec for spec in finished if spec.block not in incomplete)
    uncounted = [spec.id for spec in finished if spec.block in incomplete]

    # Why the run ended: in the middle of a block, or without time for another one.
    ended: BudgetEnd = run.budget.ended
    if missing:
        ended = "cut" if incomplete else "time"
    # Blocks that run in any case may have needed more time than there was.
    further_blocks = [
        spec for spec in order if spec.attempt == 1 and not of_first_blocks(run, spec)
    ]
    overdue = run.budget.used_s > run.plan.budget_s
    if ended == "time" and overdue and not further_blocks:
        ended = "first"
    budget = replace(
        run.budget,
        ended=ended,
        blocks=len({spec.block for spec in order}),
    )
    return replace(run, order=order, budget=budget), uncounted


def _examine(run: Run, trials: list[Trial]) -> dict[str, Question]:
    # What was closed stays closed: its pairs are not measured again.
    questions = {}
    for cell_id, question in run.questions.items():
        if question.kind in ("decided", "settled"):
            questions[cell_id] = question

    examined = examine(trials, run.baseline, run.primary, run.plan.margin)
    for group, cells in group_by(run.cells, lambda cell: cell.group).items():
        of_group = [t for t in trials if (t.engine, t.workload, t.variant) == group]
        baseline_fails = _always_fails(run.baseline, of_group)
        for cell in cells:
            if cell.arm == run.baseline or cell.id in questions:
                continue
            if baseline_fails or _always_fails(cell.arm, of_group):
                questions[cell.id] = Question("given-up")
            else:
                pair = examined.get((group, cell.arm))
                questions[cell.id] = _question(pair, run.precision)
    return questions


def _question(pair: Examined | None, precision: float | None) -> Question:
    if pair is None:
        return Question("open")
    pairs = pair.guess.n
    half = pair.half_width()
    narrow = precision is not None and half <= precision
    kind: QuestionKind = "open"
    if pair.verdict:
        kind = "decided"
    elif narrow and pairs >= LEAST:
        kind = "settled"
    return Question(kind, pairs, half, pair.verdict)


def _always_fails(arm: str, trials: list[Trial]) -> bool:
    of_arm = [trial for trial in trials if trial.fs_setup == arm]
    return bool(of_arm) and all(trial.status is Status.FAILED for trial in of_arm)


def another(run: Run, block: int, cells: Collection[Cell]) -> list[TrialSpec]:
    """Return a further block of these cells, in the order that a plan with this number of blocks
    gives them.
    """
    last = max((spec.position for spec in run.order), default=0)
    cell_ids = {cell.id for cell in cells}
    specs = list[TrialSpec]()
    for spec in make_order(run.cells, block, run.plan.seed):
        if spec.block == block and spec.cell in cell_ids:
            last += 1
            specs.append(replace(spec, position=last))
    return specs


def extend(run: Run, status_of: Callable[[TrialSpec], Status]) -> Run:
    """Return the run with a second attempt of each block that has a suspect trial, with a budget
    while they fit. A failed trial is not repeated, because its failure would most likely happen
    again.
    """
    if not run.plan.repeat_suspect:
        return run
    planned = sum(spec.attempt == 1 for spec in run.order)
    repeated = len(run.order) - planned
    allowed = int(planned * EXTRA_TRIALS) - repeated
    # not the length of the order: a host of a fleet has only some of the plan's positions
    last = max((spec.position for spec in run.order), default=0)
    added = list[TrialSpec]()
    # Pairs are formed within a group, so it is repeated as a whole.
    blocks = group_by(run.order, lambda spec: (run.cell(spec.cell).group, spec.block))
    for block in blocks.values():
        if any(spec.attempt != 1 for spec in block):
            continue
        if not any(status_of(spec) is Status.SUSPECT for spec in block):
            continue
        if len(block) <= allowed and fits(run, [*added, *block]):
            allowed -= len(block)
            random.Random(f"{run.plan.seed}:{block[0].id}").shuffle(block)
            for spec in block:
                last += 1
                repeat = replace(
                    spec,
                    id=f"{spec.cell}-b{spec.block}-a2",
                    attempt=2,
                    position=last,
                )
                added.append(repeat)
    return _with_block(run, added) if added else run
