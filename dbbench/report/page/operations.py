"""Operations after the load, and snapshots during it: one row for each step, one column for each
arm.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.model import OperationFacts, SnapshotFacts
from dbbench.report.page.groups import Group
from dbbench.units import MISSING, duration_text, size_text

# (first letter of the ID, title, text above the table)
SNAPSHOTS: Final = (
    "n",
    "Snapshots during the load",
    "A second server is started on the newest snapshot and queried; figures are medians.",
)
OPERATIONS: Final = (
    "o",
    "Operations after the load",
    "On the filled filesystem. Times are medians; bytes are the space that the step used.",
)


def operation_tables(groups: Sequence[Group]) -> Iterator[View]:
    """Yield a table per group whose trials ran operations: medians over the trials that count,
    bytes of the last.
    """
    for group in groups:
        facts = {
            row.fs_setup: [
                fact for trial in group.used_of(row.fs_setup) for fact in trial.operations
            ]
            for row in group.ordered_rows
        }
        columns = {arm: _operations(own) for arm, own in facts.items()}
        notes = [
            (arm, f"{fact.name}: {fact.text}")
            for arm, own in facts.items()
            for fact in own
            if fact.seconds is None
        ]
        planned = group.loaded.run.plan.operations
        steps = sorted(
            dict.fromkeys(step for column in columns.values() for step in column),
            key=lambda step: (
                planned.index(operation_of(step)) if operation_of(step) in planned else -1
            ),
        )
        yield from _table(group, OPERATIONS, columns, steps, notes)


def operation_of(step: str) -> str:
    """Return the word in the plan: "clone" for "clone by copy: create"."""
    return step.split(":")[0].split()[0]


def snapshot_tables(groups: Sequence[Group]) -> Iterator[View]:
    """Yield a table per group whose trials took snapshots: medians over all snapshots of trials
    that count.
    """
    for group in groups:
        facts = {
            row.fs_setup: [
                trial.snapshots
                for trial in group.used_of(row.fs_setup)
                if trial.snapshots is not None
            ]
            for row in group.ordered_rows
        }
        columns = {arm: snapshot_column(own) for arm, own in facts.items()}
        steps = list(dict.fromkeys(step for column in columns.values() for step in column))
        notes = [(arm, fact.note) for arm, own in facts.items() for fact in own if fact.note]
        yield from _table(group, SNAPSHOTS, columns, steps, notes)


def _table(
    group: Group,
    texts: tuple[str, str, str],
    columns: dict[str, dict[str, str]],
    steps: Sequence[str],
    notes: Sequence[tuple[str, str]],
) -> Iterator[View]:
    """Yield the table of these columns (arm -> step -> text), with why some steps were not
    possible; nothing if it would be empty.
    """
    letter, title, lead = texts
    if steps or notes:
        yield View(
            group=group,
            ident=f"{letter}-{group.ident}",
            title=title,
            lead=lead,
            marks=[group.marks[arm] for arm in columns],
            rows=[
                (step, [column.get(step, MISSING) for column in columns.values()]) for step in steps
            ],
            notes=[(group.marks[arm], text) for arm, text in dict.fromkeys(notes)],
        )


def _operations(facts: Sequence[OperationFacts]) -> dict[str, str]:
    column = {}
    for name in dict.fromkeys(fact.name for fact in facts if fact.seconds is not None):
        timed = [fact for fact in facts if fact.name == name and fact.seconds is not None]
        column[name] = duration_text(
            statistics.median(fact.seconds for fact in timed if fact.seconds is not None)
        )
        column[name] += "" if timed[-1].bytes is None else f", {size_text(timed[-1].bytes)}"
    return column


def snapshot_column(facts: Sequence[SnapshotFacts]) -> dict[str, str]:
    """Return the values of an arm by name, without those that were not measured."""
    trials = [fact for fact in facts if fact.taken]
    taken = [fact for trial in trials for fact in trial.taken]
    if not taken:
        return {}
    column = {
        "taken": f"{len(taken)}" + (f" in {len(trials)} trials" if len(trials) > 1 else ""),
        "time to take a snapshot": duration_text(
            statistics.median(fact.snapshot_s for fact in taken)
        ),
        "second server answers after": duration_text(
            statistics.median(fact.ready_s for fact in taken)
        ),
    }
    if drops := [fact.drop_s for fact in taken if fact.drop_s is not None]:
        column["time to drop the oldest"] = duration_text(statistics.median(drops))
    if held := [fact.bytes for fact in taken if fact.bytes is not None]:
        column["space held by a snapshot"] = size_text(int(statistics.median(held)))
    if ratios := [trial.cost_ratio for trial in trials if trial.cost_ratio is not None]:
        column["rate of the load during ÷ between snapshots"] = f"{statistics.median(ratios):.3f}"
    return column
