"""The recommendation, which is the first line of an answer: which setup to use, in words that need no
knowledge of statistics.

In each test a setup is beaten if the interval of another one is entirely better than its own, and
the difference may exceed the margin of the plan. Setups of another durability class than the
baseline never take part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dbbench.compare.remarks import RemarkKind, has
from dbbench.compare.verdict import AHEAD, BEHIND, UNKNOWN
from dbbench.model import Verdict
from dbbench.report.pairs import (
    Pair,
    in_tests,
    is_disturbed,
    names_text,
    near,
    size_text,
    sized_by,
    where_of,
)
from dbbench.report.verdicts import VerdictTable
from dbbench.units import group_by

FULL: Final = "full"
MOST_PLACES: Final = 3  # different choices that one sentence names
Bounds = tuple[float, float]  # of the ratio to the baseline; the higher, the better


class Standings(NamedTuple):
    """What is known of the setups in one table. `bounds` is None for a setup that nothing is known
    of.
    """

    table: VerdictTable
    bounds: Mapping[str, Bounds | None]

    @property
    def base(self) -> str:
        return self.table.rows[0].fs_setup

    @property
    def margin(self) -> float:
        return 1 + self.table.rows[0].margin

    @property
    def best(self) -> list[str]:
        """Return the setups that no other one beats."""
        return [
            setup
            for setup in self.bounds
            if not any(self._beats(other, setup) for other in self.bounds)
        ]

    @property
    def is_decided(self) -> bool:
        """Return whether there is one best setup, or no difference that matters between several."""
        best = self.best
        first = self.base if self.base in best else best[0]
        if first == self.base:
            return all(self._alike(first, setup) for setup in best if setup != first)
        return all(self._alike(one, other) for one in best for other in best if one != other)

    def _beats(self, one: str, other: str) -> bool:
        better = self.bounds[one]
        worse = self.bounds[other]
        if better is None or worse is None:
            return False
        return better[0] > worse[1] and better[1] > worse[0] * self.margin

    def _alike(self, one: str, other: str) -> bool:
        first = self.bounds[one]
        second = self.bounds[other]
        if first is None or second is None:
            return False
        return first[1] <= second[0] * self.margin and second[1] <= first[0] * self.margin


def recommend(pairs: Sequence[Pair], tables: Sequence[VerdictTable], smoke: bool) -> str:
    """Return the recommendation of one run; "" if there are no setups to choose from. `smoke`: the
    windows are too short for a decision.
    """
    bases = {table.rows[0].fs_setup for table in tables}
    rows = [row for table in tables for row in table.rows]
    if len(bases) != 1 or any(has(row.notes, RemarkKind.UNPAIRED) for row in rows):
        return ""  # runs or kernels are compared, not setups
    if not pairs:
        mixed = any(row.mixed_durability for row in rows)
        why = "the setups do not protect the data equally after a power loss"
        return f"**No recommendation**: {why}." if mixed else ""
    if smoke:
        return "**Too short to decide** which setup to use."
    if all(map(is_disturbed, tables)):
        return "**Too disturbed to decide**: repeat the run while the machine does nothing else."

    base = bases.pop()
    setups = [base, *dict.fromkeys(pair.row.fs_setup for pair in pairs)]
    tests = [_standings(table, setups, pairs) for table in tables]
    return _choice(tests, setups, pairs) + _limits(tables)


def _standings(table: VerdictTable, setups: Sequence[str], pairs: Sequence[Pair]) -> Standings:
    # A setup that this table says nothing about stays unknown.
    bounds = dict[str, Bounds | None].fromkeys(setups)
    bounds[table.rows[0].fs_setup] = (1.0, 1.0)
    for pair in pairs:
        row = pair.row
        usable = row.verdict is not Verdict.LIMITED and not is_disturbed(table)
        if pair.table is not table or row.lo is None or row.hi is None or not usable:
            continue
        higher = table.metric.better == "higher"
        bounds[row.fs_setup] = (row.lo, row.hi) if higher else (1 / row.hi, 1 / row.lo)
    return Standings(table, bounds)


def _choice(
    tests: Sequence[Standings],
    setups: Sequence[str],
    pairs: Sequence[Pair],
) -> str:
    best = [setup for setup in setups if all(setup in test.best for test in tests)]
    decided = [test for test in tests if test.is_decided]
    if not best:
        return _by_test(tests)

    # One setup, or several that are alike.
    others = _others([pair for pair in pairs if pair.row.fs_setup not in best])
    if len(best) == 1:
        lead = "Use" if len(decided) == len(tests) else "As far as this run can tell, use"
        gain = [pair for pair in pairs if pair.row.fs_setup in best and pair.outcome in AHEAD]
        return f"{lead} **{best[0]}**{_gain(gain)}.{others}"
    if len(decided) == len(tests):
        return f"**No difference that matters**: use {names_text(best, 'or')}.{others}"
    if best == list(setups):
        return f"**Not decided yet**: this run cannot tell {names_text(best)} apart."
    return f"**Not decided yet**: {names_text(best, 'or')}.{others}"


def _by_test(tests: Sequence[Standings]) -> str:
    """Return the choice of each test, because no setup is among the best in all of them."""
    choices = group_by(tests, lambda test: tuple(test.best))
    if len(choices) > MOST_PLACES:
        return "**It depends on the load**: no setup is the best in all tests."
    texts = []
    for best, of_choice in choices.items():
        where = in_tests([test.table for test in of_choice])
        texts.append(f"{names_text(list(best), 'or')}{where}")
    return f"**It depends on the load**: use {', '.join(texts)}."


def _gain(pairs: Sequence[Pair]) -> str:
    """Return ": 10 % faster than ext4 in tpcb" of a setup that is ahead of the baseline."""
    if not pairs:
        return ""
    than = f"than **{pairs[0].base.fs_setup}**{where_of(pairs)}"
    return f": {_how_much(pairs)} {than}"


def _others(pairs: Sequence[Pair]) -> str:
    """Return " Not **btrfs**: about half as fast." for the setups that are behind the baseline."""
    behind = [pair for pair in pairs if pair.outcome in BEHIND]
    sizes = {
        name: _how_much(of_setup)
        for name, of_setup in group_by(behind, lambda pair: pair.row.fs_setup).items()
    }
    if not sizes:
        return ""
    if len(set(sizes.values())) == 1:
        return f" Not {names_text(list(sizes), 'or')}: {next(iter(sizes.values()))}."
    return f" Not {names_text(list(sizes), 'or')}: {_how_much(behind)}."


def _how_much(pairs: Sequence[Pair]) -> str:
    """Return "about half as fast", "12 % slower" or "up to 52 % slower"."""
    of_ratio = near(pairs)
    if of_ratio:
        return f"about {of_ratio}"
    word = pairs[0].outcome
    sizes = list(dict.fromkeys(map(size_text, pairs)))
    most = max(pairs, key=lambda pair: abs((pair.row.ratio or 1.0) - 1))
    if any(pair.outcome != word or pair.table.metric != most.table.metric for pair in pairs):
        return word
    up_to = "up to " if len(sizes) > 1 else ""
    size = f"{up_to}{size_text(most)}"
    if sized_by(most) is None:
        return f"{size} {word}"
    return f"{word} ({size})"


def _limits(tables: Sequence[VerdictTable]) -> str:
    """Return what all recommended setups have in common and a reader must know."""
    texts = []
    metrics = {table.metric.label for table in tables if table.metric.words != "speed"}
    if metrics:
        texts.append(f" This is judged by {' and '.join(sorted(metrics))}.")
    classes = {table.rows[0].durability_class for table in tables} - {FULL, UNKNOWN}
    if classes:
        texts.append(
            f" After a power loss all of them may lose data: their durability class is "
            f"{' / '.join(sorted(classes))}."
        )
    return "".join(texts)
