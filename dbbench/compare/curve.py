"""A sweep (clients = [1, 8, 64]) as a curve: which arm leads where, and whether two arms cross."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dbbench.compare.verdict import AHEAD, BEHIND, Row


@dataclass(frozen=True)
class Point:
    """One value of the sweep."""

    at: float
    row: Row


@dataclass(frozen=True)
class Curve:
    """An arm over the values of one swept parameter, with everything else equal."""

    fs_setup: str
    engine: str
    workload: str
    parameter: str  # the swept parameter: "clients"
    rest: str  # the other parts of the variant
    points: tuple[Point, ...]

    @property
    def crosses(self) -> tuple[Point, Point] | None:
        """Return neighbouring decided points, one ahead of the baseline and one behind it; None if there are none."""
        decided = [point for point in self.points if point.row.verdict in (*AHEAD, *BEHIND)]
        for before, other in itertools.pairwise(decided):
            if (before.row.verdict in AHEAD) != (other.row.verdict in AHEAD):
                return before, other
        return None


def curves(rows: Sequence[Row]) -> list[Curve]:
    """Return every arm's curve over each numeric parameter with at least two values; points ascending."""
    points_of: dict[tuple[str, str, str, str, str], list[Point]] = {}
    for row in rows:
        for parameter, value, rest in _numbers(row.variant):
            key = (row.fs_setup, row.engine, row.workload, parameter, rest)
            points_of.setdefault(key, []).append(Point(value, row))
    return [
        Curve(*key, tuple(sorted(points, key=lambda point: point.at)))
        for key, points in points_of.items()
        if len({point.at for point in points}) > 1
    ]


def crossings(rows: Sequence[Row]) -> list[Curve]:
    """Return the curves that cross the baseline."""
    return [curve for curve in curves(rows) if curve.crosses is not None]


def _numbers(variant: str) -> list[tuple[str, float, str]]:
    """Return (parameter, value, the other parts) for each numeric part of a variant."""
    parts, numbers = [part for part in variant.split("+") if part], []
    for part in parts:
        name, _, text = part.partition("=")
        try:
            numbers.append((name, float(text), "+".join(other for other in parts if other != part)))
        except ValueError:
            continue
    return numbers
