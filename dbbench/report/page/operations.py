"""Operations after the load, and snapshots during it: one row for each step, one column for each
arm.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.model import OperationFacts, SnapshotFacts
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.units import MISSING, duration_text, size_text


class TableText(NamedTuple):
    """What is written about a table. `letter` is the first one of its ID."""

    letter: str
    title: str
    lead: str


SNAPSHOTS: Final = TableText(
    letter="n",
    title="Snapshots during the load",
    lead="A second server is started on the newest snapshot and queried; figures are medians.",
)
OPERATIONS: Final = TableText(
    letter="o",
    title="Operations after the load",
    lead="On the filled filesystem. Times are medians; bytes are the space that the step used.",
)


class StepTable(NamedTuple):
    """A row for each step, with a cell for each of `marks`. `notes` say why steps were not possible."""

    group: Group
    ident: str
    title: str
    lead: str
    marks: list[Mark]
    rows: list[tuple[str, list[str]]]
    notes: list[tuple[Mark, str]]


def operation_tables(groups: Sequence[Group]) -> Iterator[StepTable]:
    """Yield a table per group whose trials ran operations: medians over the trials that count,
    bytes of the last.
    """
    for group in groups:
        # The operations of the trials that count, and those that failed.
        columns = {}
        notes = []
        for row in group.ordered_rows:
            arm = row.fs_setup
            facts = [fact for trial in group.used_of(arm) for fact in trial.operations]
            columns[arm] = _operations(facts)
            for fact in facts:
                if fact.seconds is None:
                    notes.append((arm, f"{fact.name}: {fact.text}"))

        # Steps of the plan in its order; those of every trial come before them.
        planned = list(group.loaded.run.plan.operations)

        def place(step: str, planned: list[str] = planned) -> int:
            word = operation_of(step)
            if word in planned:
                return planned.index(word)
            return -1

        yield from _table(
            group,
            OPERATIONS,
            columns,
            sorted(_steps(columns), key=place),
            notes,
        )


def operation_of(step: str) -> str:
    """Return the word in the plan: "clone" for "clone by copy: create"."""
    return step.split(":")[0].split()[0]


def snapshot_tables(groups: Sequence[Group]) -> Iterator[StepTable]:
    """Yield a table per group whose trials took snapshots: medians over all snapshots of trials
    that count.
    """
    for group in groups:
        columns = {}
        notes = []
        for row in group.ordered_rows:
            arm = row.fs_setup
            trials = group.used_of(arm)
            facts = [trial.snapshots for trial in trials if trial.snapshots is not None]
            columns[arm] = snapshot_column(facts)
            notes += [(arm, fact.note) for fact in facts if fact.note]
        yield from _table(group, SNAPSHOTS, columns, _steps(columns), notes)


def _steps(columns: dict[str, dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(step for column in columns.values() for step in column))


def _table(
    group: Group,
    text: TableText,
    columns: dict[str, dict[str, str]],
    steps: Sequence[str],
    notes: Sequence[tuple[str, str]],
) -> Iterator[StepTable]:
    """Yield the table of these columns (arm -> step -> text), with why some steps were not
    possible; nothing if it would be empty.
    """
    if not (steps or notes):
        return
    # A step that an arm did not take is an empty cell.
    rows = []
    for step in steps:
        rows.append((step, [column.get(step, MISSING) for column in columns.values()]))
    yield StepTable(
        group=group,
        ident=f"{text.letter}-{group.ident}",
        title=text.title,
        lead=text.lead,
        marks=[group.marks[arm] for arm in columns],
        rows=rows,
        notes=[(group.marks[arm], note) for arm, note in dict.fromkeys(notes)],
    )


def _operations(facts: Sequence[OperationFacts]) -> dict[str, str]:
    # A trial may take a step more than once.
    seconds: dict[str, list[float]] = {}
    last: dict[str, int | None] = {}
    for fact in facts:
        if fact.seconds is not None:
            seconds.setdefault(fact.name, []).append(fact.seconds)
            last[fact.name] = fact.bytes
    column = {}
    for name, times in seconds.items():
        size = last[name]
        column[name] = _median_time(times) + ("" if size is None else f", {size_text(size)}")
    return column


def _median_time(seconds: Iterable[float]) -> str:
    return duration_text(statistics.median(seconds))


def snapshot_column(facts: Sequence[SnapshotFacts]) -> dict[str, str]:
    """Return the values of an arm by name, without those that were not measured."""
    trials = [fact for fact in facts if fact.taken]
    taken = [snapshot for trial in trials for snapshot in trial.taken]
    if not taken:
        return {}
    column = {
        "taken": f"{len(taken)}" + (f" in {len(trials)} trials" if len(trials) > 1 else ""),
        "time to take a snapshot": _median_time(snapshot.snapshot_s for snapshot in taken),
        "second server answers after": _median_time(snapshot.ready_s for snapshot in taken),
    }
    # What only some filesystems report.
    drops = [snapshot.drop_s for snapshot in taken if snapshot.drop_s is not None]
    if drops:
        column["time to drop the oldest"] = _median_time(drops)
    sizes = [snapshot.bytes for snapshot in taken if snapshot.bytes is not None]
    if sizes:
        column["space held by a snapshot"] = size_text(int(statistics.median(sizes)))
    ratios = [trial.cost_ratio for trial in trials if trial.cost_ratio is not None]
    if ratios:
        column["rate of the load during ÷ between snapshots"] = f"{statistics.median(ratios):.3f}"
    return column
