"""Add blocks: one with a suspect trial again, others until each question is closed or the budget is
used up.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from dbbench.compare.stopping import examine
from dbbench.model import Budget, BudgetEnd, Cell, Question, Run, Status, Trial, TrialSpec
from dbbench.model.plan import MOST_TRIALS
from dbbench.model.run import QuestionKind
from dbbench.plan import make_order
from dbbench.units import grouped

LEAST: Final = 5  # smallest number of pairs; with fewer the scatter itself is hardly known
MOST_BLOCKS: Final = 15  # questions that are still open after so many blocks stay open
EXTRA_TRIALS: Final = 0.5  # repeated trials, as a share of the plan's trials


def further(run: Run, trials: Mapping[str, Trial]) -> Run:
    """Return the run with one more block of the cells whose question is open, or the same run if
    none is. `trials`: the finished trials by id, all of `run.order`. A pair that is decided
    (`compare.stopping`) or settled is not measured again: with a precision it is settled once it
    has LEAST pairs and half its 95 % interval is within it. The baseline stays in until its last
    pair is closed. A share of a run, which has a part of the pairs, adds whole blocks.
    `run.questions` has the state of each cell, `run.budget.ended` says why the run ended.
    """
    step = 1 if run.budget is None else run.budget.step
    block = max((spec.block for spec in run.order), default=0) + step
    if run.precision is None and (run.budget is None or step != 1):
        return (
            run
            if run.budget is None
            else _if_it_fits(run, another(run, block, run.cells) if step else [])
        )
    run = dataclasses.replace(run, questions=_examine(run, list(trials.values())))
    left = list[Cell]()
    for cells in grouped(run.cells, lambda cell: cell.group).values():
        candidates = [cell for cell in cells if cell.arm != run.baseline]
        open_cells = [cell for cell in candidates if run.questions[cell.id].kind == "open"]
        if (open_cells or not candidates) and (run.precision is None or block <= MOST_BLOCKS):
            left += [*open_cells, *(cell for cell in cells if cell.arm == run.baseline)]
    return _if_it_fits(run, another(run, block, left))


def _if_it_fits(run: Run, block: list[TrialSpec]) -> Run:
    ended: BudgetEnd = ""
    if run.budget is not None:
        if not block:
            kinds = {question.kind for question in run.questions.values()}
            closed: BudgetEnd = "decided" if run.precision is None else "precision"
            ended = closed if kinds and "open" not in kinds else "most"
        elif len(run.order) + len(block) > MOST_TRIALS:
            ended = "most"
        elif not fits(run, block):
            ended = "time"
        run = dataclasses.replace(run, budget=dataclasses.replace(run.budget, ended=ended))
    return run if ended else dataclasses.replace(run, order=(*run.order, *block))


def fits(run: Run, specs: Sequence[TrialSpec]) -> bool:
    """Return whether the trials would end within the budget, by the times of earlier trials; True
    without a budget.
    """
    if run.budget is None or run.plan.budget_s is None:
        return True
    return run.budget.used_s + duration_s(run.budget, specs) <= run.plan.budget_s


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
    return spec.attempt == 1 and spec.block <= max(
        run.plan.blocks, run.budget.step if run.budget else 0
    )


def charge(run: Run, seconds: float, cell: str = "") -> Run:
    """Return the run with `seconds` more of its budget used. `cell`: that of a finished trial,
    whose time becomes a moving average (the last trial counts half), because a disk becomes
    slower in the course of a run.
    """
    if run.budget is None:
        return run
    times = dict(run.budget.cell_s)
    if cell:
        times[cell] = (times[cell] + seconds) / 2 if cell in times else seconds
    return dataclasses.replace(
        run,
        budget=dataclasses.replace(run.budget, used_s=run.budget.used_s + seconds, cell_s=times),
    )


def conclude(run: Run, done: Collection[str]) -> tuple[Run, list[str]]:
    """Return the ended run, and the finished trials (of the ids `done`) that do not count: those of
    a block that the budget interrupted. The order loses that block, so that all cells have the
    same number of trials.
    """
    if run.budget is None or run.plan.budget_s is None:
        return run, []
    missing = [spec for spec in run.order if spec.id not in done]
    torn = {spec.block for spec in missing if spec.attempt == 1}
    order = tuple(spec for spec in run.order if spec.block not in torn and spec.id in done)
    aside = [spec.id for spec in run.order if spec.block in torn and spec.id in done]
    why: BudgetEnd = run.budget.ended
    if missing:
        why = "cut" if torn else "time"
    whole = {spec.block for spec in order}
    beyond = any(spec.attempt == 1 and not of_first_blocks(run, spec) for spec in order)
    if why == "time" and run.budget.used_s > run.plan.budget_s and not beyond:
        why = "first"
    budget = dataclasses.replace(run.budget, ended=why, blocks=len(whole))
    return dataclasses.replace(run, order=order, budget=budget), aside


def _examine(run: Run, trials: list[Trial]) -> dict[str, Question]:
    questions = {
        name: question
        for name, question in run.questions.items()
        if question.kind in ("decided", "settled")
    }
    primary = {cell.workload.name: cell.workload.primary for cell in run.cells}
    examined = examine(trials, run.baseline, primary, run.plan.margin)
    for key, cells in grouped(run.cells, lambda cell: cell.group).items():
        of_group = [t for t in trials if (t.engine, t.workload, t.variant) == key]
        for cell in cells:
            if cell.arm == run.baseline or cell.id in questions:
                continue
            pair = examined.get((key, cell.arm))
            if _hopeless(cell.arm, of_group) or _hopeless(run.baseline, of_group):
                questions[cell.id] = Question("given-up")
            elif pair is None:
                questions[cell.id] = Question("open")
            else:
                pairs = pair.guess.n
                half = pair.half_width()
                precise = run.precision is not None and pairs >= LEAST and half <= run.precision
                kind: QuestionKind = "decided" if pair.verdict else "settled" if precise else "open"
                questions[cell.id] = Question(kind, pairs, half, pair.verdict)
    return questions


def _hopeless(arm: str, trials: list[Trial]) -> bool:
    of_arm = [trial for trial in trials if trial.fs_setup == arm]
    return bool(of_arm) and all(trial.status is Status.FAILED for trial in of_arm)


def another(run: Run, block: int, cells: Collection[Cell]) -> list[TrialSpec]:
    """Return a further block of these cells, in the order that a plan with this number of blocks
    gives them.
    """
    last = max((spec.position for spec in run.order), default=0)
    names = {cell.id for cell in cells}
    planned = make_order(run.cells, block, run.plan.seed)
    inside = [spec for spec in planned if spec.block == block and spec.cell in names]
    return [dataclasses.replace(spec, position=last + i) for i, spec in enumerate(inside, start=1)]


def extend(run: Run, status_of: Callable[[TrialSpec], Status]) -> Run:
    """Return the run with a second attempt of each block that has a suspect trial, with a budget
    while they fit. A failed trial is not repeated, because its failure would most likely happen
    again.
    """
    planned = sum(spec.attempt == 1 for spec in run.order)
    extra = int(planned * EXTRA_TRIALS) - (len(run.order) - planned)
    order = list(run.order)
    last = max((spec.position for spec in run.order), default=0)
    for block in _suspect_blocks(run, status_of) if run.plan.repeat_suspect else []:
        if len(block) <= extra and fits(run, [*order[len(run.order) :], *block]):
            extra -= len(block)
            random.Random(f"{run.plan.seed}:{block[0].id}").shuffle(block)
            for spec in block:
                again = f"{spec.cell}-b{spec.block}-a2"
                # not the length of the order: a host of a fleet has only some of the plan's
                # positions
                last += 1
                order.append(dataclasses.replace(spec, id=again, attempt=2, position=last))
    return run if len(order) == len(run.order) else dataclasses.replace(run, order=tuple(order))


def _suspect_blocks(run: Run, status_of: Callable[[TrialSpec], Status]) -> list[list[TrialSpec]]:
    # Pairs are formed within a group, so it is repeated as a whole.
    blocks = grouped(run.order, lambda spec: (run.cell(spec.cell).group, spec.block))
    return [
        block
        for block in blocks.values()
        if all(spec.attempt == 1 for spec in block)
        and any(status_of(spec) is Status.SUSPECT for spec in block)
    ]
