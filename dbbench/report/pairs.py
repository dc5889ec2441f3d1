"""Pairs of a setup and the baseline, and the words that name them: ratios, tests and setups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.remarks import RemarkKind
from dbbench.compare.verdict import without_guard
from dbbench.metrics.table import Metric
from dbbench.report.sentences import MOST_NAMED
from dbbench.report.verdicts import VerdictTable
from dbbench.units import GROUP, change, group_by, join_words

NO_RESULT: Final = "no result"
TOO_FEW: Final = "too few blocks"
_NAMED: Final = {
    0.5: "half as fast",
    1 / 3: "a third as fast",
    0.25: "a quarter as fast",
    2.0: "twice as fast",
}
MOST_SIZES: Final = 3  # different sizes that a sentence lists
_NEAR: Final = 1.15  # ratios within this factor of a named one have its name
ANY: Final = "any of the"
_WORDS: Final = {3: "three", 4: "four", 5: "five"}


class Pair(NamedTuple):
    """A setup and the baseline in one table. `outcome` is the verdict, NO_RESULT or TOO_FEW."""

    table: VerdictTable
    base: Row
    row: Row

    @property
    def outcome(self) -> str:
        if self.row.ratio is None:
            return NO_RESULT
        if self.row.lo is None:
            return TOO_FEW
        return self.row.verdict


def pairs_of(table: VerdictTable) -> list[Pair]:
    """Return the setups that are ranked: without the guard, and without those of another durability
    class.
    """
    base, *rows = without_guard(table.rows)
    return [Pair(table, base, row) for row in rows if not row.mixed_durability]


def is_disturbed(table: VerdictTable) -> bool:
    """Return whether more than half of the trials that count are suspect."""
    return 2 * values_sum(table.rows, RemarkKind.SUSPECT, "suspect") > sum(
        row.trials for row in table.rows
    )


def values_sum(rows: Iterable[Row], kind: RemarkKind, value: str) -> int:
    """Return the sum of a value of the remarks of this kind."""
    notes = [note for row in rows for note in row.notes if note.kind is kind]
    return sum(int(note.values[value]) for note in notes)


def sized_by(pair: Pair) -> Metric | None:
    """Return None for a throughput, whose changes may be named together with others, else the
    metric.
    """
    metric = pair.table.metric
    if metric.words == "speed" and metric.better == "higher":
        return None
    return metric


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


def size_text(pair: Pair) -> str:
    """Return the size of a difference: "12 %" of a throughput, else "duration +50.0 %"."""
    ratio = pair.row.ratio or 0.0
    metric = sized_by(pair)
    if metric is not None:
        return f"{metric.label} {change(ratio)}"
    percent = abs(100 * (ratio - 1))
    text = f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}"
    return f"{text}{GROUP}%"


def ends_text(pairs: Sequence[Pair]) -> str:
    """Return "least 12 % of xfs in a, most 30 % of zfs in b"."""
    setups = {pair.row.fs_setup for pair in pairs}
    places = {pair.table.place for pair in pairs}
    ordered = sorted(pairs, key=lambda pair: abs(math.log(pair.row.ratio or 1.0)))
    ends = []
    for word, pair in (("least", ordered[0]), ("most", ordered[-1])):
        whose = f" of {pair.row.fs_setup}" if len(setups) > 1 else ""
        where = f" in {pair.table.place}" if len(places) > 1 else ""
        ends.append(f"{word} {size_text(pair)}{whose}{where}")
    return ", ".join(ends)


def where_of(pairs: Iterable[Pair], all_of: str = "all") -> str:
    """Return the tests of the pairs, as `in_tests` does."""
    return in_tests([pair.table for pair in pairs], all_of)


def in_tests(tables: Sequence[VerdictTable], all_of: str = "all") -> str:
    """Return " in all three tests", " in postgres and mariadb", " in 4 of 9 tests", or "" if there
    is only one. `all_of`: ANY behind a "cannot".
    """
    places = list(dict.fromkeys(table.place for table in tables))
    total = tables[0].tests
    if total == 1:
        return ""
    if len(places) == total:
        if total == 2:
            return " in either test" if all_of == ANY else " in both tests"
        return f" in {all_of} {_WORDS.get(total, total)} tests"
    if len(places) > 2:
        return f" in {len(places)} of {total} tests"
    preposition = "with" if all(table.variant in places for table in tables) else "in"
    return f" {preposition} {join_words(places)}"


def with_places(tables: Sequence[VerdictTable]) -> list[VerdictTable]:
    """Return the tables with their `place`, and `tests`: how many places their baseline has."""
    each = [table._replace(place=_place(table, tables)) for table in tables]
    places = group_by(each, lambda table: table.rows[0].fs_setup)
    return [
        table._replace(tests=len({other.place for other in places[table.rows[0].fs_setup]}))
        for table in each
    ]


def _place(table: VerdictTable, tables: Sequence[VerdictTable]) -> str:
    """Return what distinguishes the table from the others: engine, workload and variant as far as
    they differ, and what the workload does in plain words.
    """
    words = []
    plain_name = ""
    if len({other.engine for other in tables}) > 1:
        words.append(table.engine)
    several_workloads = len({other.workload for other in tables}) > 1
    if several_workloads or not (words or table.variant):
        words.append(table.workload)
        plain_name = f" ({table.plain_name})" if table.plain_name else ""
    return " ".join([*words, table.variant]).strip() + plain_name


def names_text(names: list[str], last: str = "and") -> str:
    """Return the setups in bold: "**ext4**, **xfs** and **btrfs**", of many only the first."""
    shown = [f"**{name}**" for name in names]
    if len(names) > MOST_NAMED:
        shown[MOST_NAMED - 1 :] = [f"**{len(names) - MOST_NAMED + 1} others**"]
    return join_words(shown, last)
