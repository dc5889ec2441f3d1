"""Snapshots during the load: one row for each figure, one column for each arm."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from dbbench.model import SnapshotFacts
from dbbench.report.page.groups import Group
from dbbench.report.page.operations import OperationRow, OperationTable
from dbbench.units import duration_text, size_text


def snapshot_tables(groups: Sequence[Group]) -> tuple[OperationTable, ...]:
    """One table a group whose trials were snapshotted. Medians over all snapshots of the trials that count."""
    found = []
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
        found.append(OperationTable(group, marks, rows, tuple((group.marks[arm], text) for arm, text in notes)))
    return tuple(found)


def _column(facts: Iterable[SnapshotFacts]) -> dict[str, str]:
    """The figures of one arm; those that nothing is known of are left out."""
    trials = [one for one in facts if one.taken]
    taken = [one for trial in trials for one in trial.taken]
    if not taken:
        return {}
    column = {
        "taken": f"{len(taken)}" + (f" in {len(trials)} trials" if len(trials) > 1 else ""),
        "time to take one": duration_text(statistics.median(one.snapshot_s for one in taken)),
        "second server answers after": duration_text(statistics.median(one.ready_s for one in taken)),
    }
    if drops := [one.drop_s for one in taken if one.drop_s is not None]:
        column["time to drop the oldest"] = duration_text(statistics.median(drops))
    if held := [one.bytes for one in taken if one.bytes is not None]:
        column["space held by one"] = size_text(int(statistics.median(held)))
    if ratios := [trial.cost_ratio for trial in trials if trial.cost_ratio is not None]:
        column["rate of the load during ÷ between snapshots"] = f"{statistics.median(ratios):.3f}"
    return column
