"""Operations after the load, and snapshots during it: one row for each step, one column for each arm.

Tables aged by their engine: throughput and extents as a function of the bytes written, and the scans before and after
repair. Geometry only, in pixels, so that the charts need no script and can be printed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.model import AgedSlope, EngineAgeFacts, OperationFacts, SnapshotFacts
from dbbench.report.page.axes import Frame, Line, LinePlot, padded, polyline
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.units import duration_text, number, size_text


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
    """Return the values of an arm by name, without those that were not measured."""
    trials = [fact for fact in facts if fact.taken]
    taken = [fact for trial in trials for fact in trial.taken]
    if not taken:
        return {}
    column = {
        "taken": f"{len(taken)}" + (f" in {len(trials)} trials" if len(trials) > 1 else ""),
        "time to take a snapshot": duration_text(statistics.median(fact.snapshot_s for fact in taken)),
        "second server answers after": duration_text(statistics.median(fact.ready_s for fact in taken)),
    }
    if drops := [fact.drop_s for fact in taken if fact.drop_s is not None]:
        column["time to drop the oldest"] = duration_text(statistics.median(drops))
    if held := [fact.bytes for fact in taken if fact.bytes is not None]:
        column["space held by a snapshot"] = size_text(int(statistics.median(held)))
    if ratios := [trial.cost_ratio for trial in trials if trial.cost_ratio is not None]:
        column["rate of the load during ÷ between snapshots"] = f"{statistics.median(ratios):.3f}"
    return column


FRAME: Final = Frame(358, 200, 46.0, 350.0, 10.0, 162.0)  # width of a phone (390 px) without margins
LEAST_SPAN: Final = 0.10  # shortest y axis, so that scatter of 1 % does not look large
TICKS: Final = 4

Series = tuple[Mark, list[tuple[float, float]]]  # points: (bytes written ÷ size of the data, ratio to the first point)


@dataclass(frozen=True)
class WearTable:
    """One group: its figures, and a row an arm."""

    group: Group
    plots: tuple[LinePlot, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[Mark, tuple[str, ...]], ...]
    notes: tuple[tuple[Mark, str], ...]


def wear(groups: Sequence[Group]) -> tuple[WearTable, ...]:
    """Return a table for each group whose trials have the figures: medians over the trials that count."""
    tables = []
    for group in groups:
        arms = [row.fs_setup for row in sorted(group.rows, key=group.apart)]
        facts = {arm: [t.age_engine for t in group.used_of(arm) if t.age_engine is not None] for arm in arms}
        if any(facts.values()):
            tables.append(_table(group, {arm: arm_facts for arm, arm_facts in facts.items() if arm_facts}))
    return tuple(tables)


def _table(group: Group, facts: dict[str, list[EngineAgeFacts]]) -> WearTable:
    tps: list[Series] = []
    extents: list[Series] = []
    for arm, arm_facts in facts.items():
        mark = group.marks[arm]
        tps += [(mark, _ratios([(p.factor, p.tps) for p in fact.points])) for fact in arm_facts]
        looked = [[(p.factor, float(p.extents)) for p in fact.points if p.extents is not None] for fact in arm_facts]
        extents += [(mark, _ratios(fact)) for fact in looked]
    plots = [
        _plot(f"w{group.index}-{name}", caption, [fact for fact in lines if len(fact[1]) > 1])
        for name, caption, lines in (
            ("tps", "throughput ÷ throughput at the start", tps),
            ("extents", "extents of all data files ÷ those at the start", extents),
        )
    ]
    return WearTable(
        group,
        tuple(plot for plot in plots if plot is not None),
        tuple(heading for heading, _ in COLUMNS),
        tuple((group.marks[arm], tuple(cell(arm_facts) for _, cell in COLUMNS)) for arm, arm_facts in facts.items()),
        tuple(
            dict.fromkeys(
                (group.marks[arm], fact.note) for arm, arm_facts in facts.items() for fact in arm_facts if fact.note
            )
        ),
    )


def _ratios(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    first = points[0][1] if points else 0.0
    return [(factor, value / first) for factor, value in points] if first else []


def _plot(ident: str, caption: str, lines: list[Series]) -> LinePlot | None:
    values = [value for _, points in lines for _, value in points]
    if not values:
        return None
    far = max(factor for _, points in lines for factor, _ in points) or 1.0
    x, y = FRAME.along(0.0, far), FRAME.up(*padded(min([*values, 1.0]), max([*values, 1.0]), LEAST_SPAN, 0.05))
    return LinePlot(
        ident, caption, FRAME,
        tuple((y(factor), f"{factor:.4g}") for factor in y.ticks(TICKS)),
        tuple((x(factor), f"{factor:.4g} ×") for factor in x.ticks(TICKS)),
        tuple(_line(mark, [(x(size), y(value), size, value) for size, value in points]) for mark, points in lines),
        "written ÷ size of the data",
    )  # fmt: skip


def _line(mark: Mark, points: Sequence[tuple[float, float, float, float]]) -> Line:
    """Return the line through points (x, y, factor, ratio)."""
    path = polyline((x, y) for x, y, _, _ in points)
    words = (f"{mark.name}: {value:.3g} after {factor:.2g} × the data" for _, _, factor, value in points)
    return Line(mark, path, tuple((x, y, text) for (x, y, _, _), text in zip(points, words, strict=True)))


def _median(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None


def _slope(own: Sequence[EngineAgeFacts]) -> str:
    """Return the slope of tps with its interval, from the first trial that has one."""
    slopes: list[AgedSlope] = [slope for facts in own for slope in facts.slopes if slope.metric == "tps"]
    if not slopes:
        return "–"
    first = slopes[0]
    return f"{first.per_factor:+.3g} ({first.low:+.3g} .. {first.high:+.3g})".replace("-", "−")


def _scan(when: str) -> Callable[[Sequence[EngineAgeFacts]], str]:
    return lambda own: number(_median([s.mb_per_s for facts in own for s in facts.scans if s.when == when]))


def _repair(name: str) -> Callable[[Sequence[EngineAgeFacts]], str]:
    def cell(own: Sequence[EngineAgeFacts]) -> str:
        seconds = _median([repair.seconds for facts in own for repair in facts.repairs if repair.name == name])
        return "–" if seconds is None else duration_text(seconds)

    return cell


COLUMNS: Final[tuple[tuple[str, Callable[[Sequence[EngineAgeFacts]], str]], ...]] = (
    ("tx/s per data size written (95 %)", _slope),
    ("scan when aged, MB/s", _scan("aged")),
    ("defragment", _repair("repair: filesystem")),
    ("scan, MB/s", _scan("repaired by the filesystem")),
    ("rewrite", _repair("repair: engine")),
    ("scan, MB/s", _scan("repaired by the engine")),
)
