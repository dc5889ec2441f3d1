"""Operations after the load, and snapshots during it: one row for each step, one column for each arm."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dbbench.model import OperationFacts, SnapshotFacts
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.units import duration_text, size_text


@dataclass(frozen=True)
class OperationRow:
    """One step: its cells, one for each arm."""

    step: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class OperationTable:
    """The operations of one group, and why some of them were not possible."""

    group: Group
    marks: tuple[Mark, ...]
    rows: tuple[OperationRow, ...]
    notes: tuple[tuple[Mark, str], ...]


def operation_tables(groups: Sequence[Group]) -> tuple[OperationTable, ...]:
    """Return a table for each group whose trials ran operations: medians over the trials that count; bytes are from the
    last one.
    """
    tables = []
    for group in groups:
        arms = [row.fs_setup for row in sorted(group.rows, key=group.apart)]
        done = {arm: [facts for trial in group.used_of(arm) for facts in trial.operations]
                for arm in arms}  # fmt: skip
        asked = group.loaded.run.plan.operations
        names = dict.fromkeys(facts.name for arm in arms for facts in done[arm] if facts.seconds is not None)
        steps = sorted(names, key=lambda name: asked.index(operation_of(name)) if operation_of(name) in asked else -1)
        notes = {(arm, f"{facts.name}: {facts.text}"): None
                 for arm in arms for facts in done[arm] if facts.seconds is None}  # fmt: skip
        if steps or notes:
            tables.append(OperationTable(
                group,
                tuple(group.marks[arm] for arm in arms),
                tuple(OperationRow(step, tuple(_cell(step, done[arm]) for arm in arms)) for step in steps),
                tuple((group.marks[arm], text) for arm, text in notes),
            ))  # fmt: skip
    return tuple(tables)


def operation_of(step: str) -> str:
    """Return the word in the plan: "clone" for "clone by copy: create"."""
    return step.split(":")[0].split()[0]


def _cell(step: str, facts: Iterable[OperationFacts]) -> str:
    timed = [fact for fact in facts if fact.name == step and fact.seconds is not None]
    if not timed:
        return "–"
    text = duration_text(statistics.median(fact.seconds for fact in timed if fact.seconds is not None))
    return text if timed[-1].bytes is None else f"{text}, {size_text(timed[-1].bytes)}"


# --- snapshots during the load ---------------------------------------------------------------------


def snapshot_tables(groups: Sequence[Group]) -> tuple[OperationTable, ...]:
    """Return a table per group whose trials took snapshots: medians over all snapshots of trials that count."""
    tables = []
    for group in groups:
        arms = [row.fs_setup for row in sorted(group.rows, key=group.apart)]
        done = {arm: [trial.snapshots for trial in group.trials_of(arm)
                      if trial.id in group.used and trial.snapshots is not None] for arm in arms}  # fmt: skip
        if not any(done.values()):
            continue
        columns = [_column(done[arm]) for arm in arms]
        steps = list(dict.fromkeys(step for column in columns for step in column))
        rows = tuple(OperationRow(step, tuple(column.get(step, "–") for column in columns)) for step in steps)
        notes = {(arm, facts.note): None for arm in arms for facts in done[arm] if facts.note}
        marks = tuple(group.marks[arm] for arm in arms)
        tables.append(OperationTable(group, marks, rows, tuple((group.marks[arm], text) for arm, text in notes)))
    return tuple(tables)


def _column(facts: Iterable[SnapshotFacts]) -> dict[str, str]:
    """The figures of one arm; those that nothing is known of are left out."""
    trials = [fact for fact in facts if fact.taken]
    taken = [fact for trial in trials for fact in trial.taken]
    if not taken:
        return {}
    column = {
        "taken": f"{len(taken)}" + (f" in {len(trials)} trials" if len(trials) > 1 else ""),
        "time to take one": duration_text(statistics.median(fact.snapshot_s for fact in taken)),
        "second server answers after": duration_text(statistics.median(fact.ready_s for fact in taken)),
    }
    if drops := [fact.drop_s for fact in taken if fact.drop_s is not None]:
        column["time to drop the oldest"] = duration_text(statistics.median(drops))
    if held := [fact.bytes for fact in taken if fact.bytes is not None]:
        column["space held by one"] = size_text(int(statistics.median(held)))
    if ratios := [trial.cost_ratio for trial in trials if trial.cost_ratio is not None]:
        column["rate of the load during ÷ between snapshots"] = f"{statistics.median(ratios):.3f}"
    return column
