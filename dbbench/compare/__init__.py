"""Verdicts: numbers in, numbers out. Pairs by block, intervals on logarithms, words only from the interval.

`rows` compares the arms of a run's trials for one metric; `compare` is the same method as a pure function of a
plain document; `changepoints` finds the nights on which a series took a new level. All are documented, public and
deterministic.
"""

from __future__ import annotations

from dbbench.compare.changepoints import changepoints
from dbbench.compare.curve import crossings, curves
from dbbench.compare.document import compare
from dbbench.compare.hosts import ByHost, by_host, heterogeneity
from dbbench.compare.pairs import Group, chosen, groups
from dbbench.compare.unpaired import unpaired_rows
from dbbench.compare.verdict import Row, rows, sentence

__all__ = [
    "ByHost", "Group", "Row", "by_host", "changepoints", "chosen", "compare", "crossings", "curves", "groups",
    "heterogeneity", "rows", "sentence", "unpaired_rows",
]  # fmt: skip
