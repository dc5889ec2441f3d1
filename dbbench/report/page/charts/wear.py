"""Tables that their engine aged: throughput and extents over the bytes written, and scans before and after repair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.model import EngineAgeFacts
from dbbench.report.page.charts.kit import PHONE, Chart, Frame, Line, Point, pad, polyline
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.units import MISSING, duration_text, number

FRAME: Final = Frame(PHONE, 200, 46.0, 350.0, 10.0, 162.0)
LEAST_SPAN: Final = 0.10  # shortest y axis, so that scatter of 1 % does not look large
TICKS: Final = 4

Curve = tuple[Mark, list[tuple[float, float]]]  # points: (bytes written ÷ size of the data, ratio to the first point)
Facts = Sequence[EngineAgeFacts]


def wear_tables(groups: Sequence[Group]) -> tuple[View, ...]:
    """Return a table for each group whose trials have the figures, with its charts: a row for each arm, medians over
    the trials that count."""
    tables = []
    for group in groups:
        every = {row.fs_setup: [t.age_engine for t in group.used_of(row.fs_setup)] for row in group.ordered_rows}
        facts = {group.marks[arm]: [fact for fact in own if fact] for arm, own in every.items() if any(own)}
        tables += [_table(group, facts)] if facts else []
    return tuple(tables)


def _table(group: Group, facts: dict[Mark, list[EngineAgeFacts]]) -> View:
    tps, extents = list[Curve](), list[Curve]()
    for mark, fact in [(mark, fact) for mark, own in facts.items() for fact in own]:
        tps.append((mark, _ratios((p.factor, p.tps) for p in fact.points)))
        extents.append((mark, _ratios((p.factor, float(p.extents)) for p in fact.points if p.extents is not None)))
    charts = [
        _chart(f"w{group.index}-tps", "throughput ÷ throughput at the start", tps),
        _chart(f"w{group.index}-extents", "extents of all data files ÷ those at the start", extents),
    ]
    columns: tuple[tuple[str, Callable[[Facts], str]], ...] = (
        ("tx/s per data size written (95 %)", _slope),
        ("scan when aged, MB/s", lambda own: _scan(own, "aged")),
        ("defragment", lambda own: _repair(own, "repair: filesystem")),
        ("scan, MB/s", lambda own: _scan(own, "repaired by the filesystem")),
        ("rewrite", lambda own: _repair(own, "repair: engine")),
        ("scan, MB/s", lambda own: _scan(own, "repaired by the engine")),
    )
    return View(
        group=group,
        charts=[chart for chart in charts if chart is not None],
        headings=[heading for heading, _ in columns],
        rows=[(mark, tuple(cell(own) for _, cell in columns)) for mark, own in facts.items()],
        notes=dict.fromkeys((mark, fact.note) for mark, own in facts.items() for fact in own if fact.note),
    )


def _ratios(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    points = list(points)
    first = points[0][1] if points else 0.0
    return [(factor, value / first) for factor, value in points] if first else []


def _chart(ident: str, caption: str, curves: Sequence[Curve]) -> Chart | None:
    curves = [(mark, points) for mark, points in curves if len(points) > 1]
    values = [1.0, *(value for _, points in curves for _, value in points)]
    if not curves:
        return None
    x = FRAME.along(0.0, max(factor for _, points in curves for factor, _ in points) or 1.0)
    y = FRAME.up(*pad(min(values), max(values), LEAST_SPAN, 0.05))
    lines = []
    for mark, points in curves:
        dots = tuple(
            Point(x(factor), y(value), f"{mark.name}: {value:.3g} after {factor:.2g} × the data")
            for factor, value in points
        )
        lines.append(Line(mark, polyline((dot.x, dot.y) for dot in dots), dots))
    return Chart(
        ident=ident,
        caption=caption,
        frame=FRAME,
        up=[(y(value), f"{value:.4g}") for value in y.ticks(TICKS)],
        along=[(x(factor), f"{factor:.4g} ×") for factor in x.ticks(TICKS)],
        lines=tuple(lines),
        below="written ÷ size of the data",
    )


def _slope(own: Facts) -> str:
    for slope in (slope for facts in own for slope in facts.slopes if slope.metric == "tps"):
        return f"{slope.per_factor:+.3g} ({slope.low:+.3g} .. {slope.high:+.3g})".replace("-", "−")
    return MISSING


def _scan(own: Facts, when: str) -> str:
    return number(_median(scan.mb_per_s for facts in own for scan in facts.scans if scan.when == when))


def _repair(own: Facts, name: str) -> str:
    seconds = _median(repair.seconds for facts in own for repair in facts.repairs if repair.name == name)
    return MISSING if seconds is None else duration_text(seconds)


def _median(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None
