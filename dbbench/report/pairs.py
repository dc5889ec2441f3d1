"""Pairs of a setup and the baseline, and the words that name them: ratios, tests and setups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.verdict import without_guard
from dbbench.metrics.table import Metric
from dbbench.report.sentences import MOST_NAMED
from dbbench.report.verdicts import VerdictTable
from dbbench.units import join_words

NO_RESULT: Final = "no result"
TOO_FEW: Final = "too few blocks"
_NAMED: Final = {
    0.5: "half as fast",
    1 / 3: "a third as fast",
    0.25: "a quarter as fast",
    2.0: "twice as fast",
}
_NEAR: Final = 1.15  # ratios within this factor of a named one have its name
_WORDS: Final = {
    2: "both tests",
    3: "all three tests",
    4: "all four tests",
    5: "all five tests",
}


class Pair(NamedTuple):
    """A setup and the baseline in one table. `outcome` is the verdict, NO_RESULT or TOO_FEW."""

    table: VerdictTable
    base: Row
    row: Row

    @property
    def outcome(self) -> str:
        if self.row.ratio is None:
            return NO_RESULT
        return TOO_FEW if self.row.lo is None else self.row.verdict


def pairs_of(table: VerdictTable) -> list[Pair]:
    """Return the setups that are ranked: without the guard, and without those of another durability
    class.
    """
    base, *rows = without_guard(table.rows)
    return [Pair(table, base, row) for row in rows if not row.mixed_durability]


def sized_by(pair: Pair) -> Metric | None:
    """Return None for a throughput, whose changes may be named together with others, else the
    metric.
    """
    metric = pair.table.metric
    return None if metric.words == "speed" and metric.better == "higher" else metric


def near(pairs: Sequence[Pair]) -> str:
    """Return "half as fast" if all pairs are near that; "" if they are not near a ratio that has a
    name.
    """
    speeds = []
    for pair in pairs:
        if not pair.row.ratio or pair.table.metric.words != "speed":
            return ""
        speeds.append(pair.row.ratio if sized_by(pair) is None else 1 / pair.row.ratio)
    for ratio, name in _NAMED.items():
        if all(1 / _NEAR <= speed / ratio <= _NEAR for speed in speeds):
            return name
    return ""


def where_of(pairs: Iterable[Pair], tables: Sequence[VerdictTable]) -> str:
    return in_tests([pair.table for pair in pairs], tables)


def in_tests(some: Sequence[VerdictTable], tables: Sequence[VerdictTable]) -> str:
    """Return " in all three tests", " in postgres and mariadb", " in 4 of 9 tests", or "" if there
    is only one.
    """
    base = some[0].rows[0].fs_setup
    places = list(dict.fromkeys(place_of(table, tables) for table in some))
    total = len({place_of(table, tables) for table in tables if table.rows[0].fs_setup == base})
    if total == 1:
        return ""
    if len(places) == total:
        return f" in {_WORDS.get(total, f'all {total} tests')}"
    if len(places) > 2:
        return f" in {len(places)} of {total} tests"
    preposition = "with" if all(table.variant in places for table in some) else "in"
    return f" {preposition} {join_words(places)}"


def place_of(table: VerdictTable, tables: Sequence[VerdictTable]) -> str:
    """Return what distinguishes the table from the others: engine, workload and variant as far as
    they differ.
    """
    words = []
    if len({other.engine for other in tables}) > 1:
        words.append(table.engine)
    several_workloads = len({other.workload for other in tables}) > 1
    if several_workloads or not (words or table.variant):
        words.append(table.workload)
    return " ".join([*words, table.variant]).strip()


def names_text(names: list[str]) -> str:
    shown = [f"**{name}**" for name in names]
    if len(names) > MOST_NAMED:
        shown[MOST_NAMED - 1 :] = [f"**{len(names) - MOST_NAMED + 1} others**"]
    return join_words(shown)
