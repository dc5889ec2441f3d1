"""Tables that their engine aged: throughput and extents over the bytes written, and scans before
and after repair.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.model import EngineAgeFacts, WrittenPoint
from dbbench.report.page.groups import Group
from dbbench.units import MISSING, duration_text, number

Facts = Sequence[EngineAgeFacts]  # of the trials of an arm


def wear_tables(groups: Sequence[Group]) -> tuple[View, ...]:
    """Return a table for each group whose trials have the figures: a row for each arm, medians over
    the trials that count; the courses and the slope are those of the first one.
    """
    tables = []
    for group in groups:
        every = {
            row.fs_setup: [t.age_engine for t in group.used_of(row.fs_setup)]
            for row in group.ordered_rows
        }
        facts = {
            group.marks[arm]: [fact for fact in own if fact]
            for arm, own in every.items()
            if any(own)
        }
        if facts:
            tables.append(
                View(
                    group=group,
                    headings=[heading for heading, _ in COLUMNS],
                    rows=[
                        (mark, tuple(cell(own) for _, cell in COLUMNS))
                        for mark, own in facts.items()
                    ],
                    notes=dict.fromkeys(
                        (mark, fact.note)
                        for mark, own in facts.items()
                        for fact in own
                        if fact.note
                    ),
                )
            )
    return tuple(tables)


def _course(own: Facts, value: Callable[[WrittenPoint], float | None]) -> str:
    """Return the values at the plan's factors, divided by the first one: "0 ×: 1, 1.10 ×: 0.500".
    The windows between them may be hundreds.
    """
    measured = [(point.factor, value(point)) for point in own[0].points if point.asked is not None]
    known = [(factor, amount) for factor, amount in measured if amount is not None]
    if not known or not known[0][1]:
        return MISSING
    return ", ".join(
        f"{number(factor)} ×: {number(amount / known[0][1])}" for factor, amount in known
    )


def _slope(own: Facts) -> str:
    for slope in (slope for facts in own for slope in facts.slopes if slope.metric == "tps"):
        return f"{slope.per_factor:+.3g} ({slope.low:+.3g} .. {slope.high:+.3g})".replace("-", "−")
    return MISSING


def _scan(own: Facts, when: str) -> str:
    return number(
        _median(scan.mb_per_s for facts in own for scan in facts.scans if scan.when == when)
    )


def _repair(own: Facts, name: str) -> str:
    seconds = _median(
        repair.seconds for facts in own for repair in facts.repairs if repair.name == name
    )
    return MISSING if seconds is None else duration_text(seconds)


def _median(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None


COLUMNS: Final[tuple[tuple[str, Callable[[Facts], str]], ...]] = (
    ("throughput ÷ that at the start", lambda own: _course(own, lambda point: point.tps)),
    ("extents ÷ those at the start", lambda own: _course(own, lambda point: point.extents)),
    ("tx/s per data size written (95 %)", _slope),
    ("scan when aged, MB/s", lambda own: _scan(own, "aged")),
    ("defragment", lambda own: _repair(own, "repair: filesystem")),
    ("scan, MB/s", lambda own: _scan(own, "repaired by the filesystem")),
    ("rewrite", lambda own: _repair(own, "repair: engine")),
    ("scan, MB/s", lambda own: _scan(own, "repaired by the engine")),
)
