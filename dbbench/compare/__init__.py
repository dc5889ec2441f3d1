"""Verdicts: numbers in, numbers out. Pairs by block, intervals on logarithms, words only from the interval.

`rows` compares the arms of a run's trials for one metric. `compare` (two arms) and `compare_all` (a whole run) are the
same method as pure functions of a plain document. `changepoints` finds the nights on which the level of a series
changed. All are documented, public and deterministic.
"""

from __future__ import annotations

from dbbench.compare.changepoints import changepoints
from dbbench.compare.curve import Curve, crossings, curves
from dbbench.compare.document import compare, compare_all
from dbbench.compare.interaction import Interaction, interactions
from dbbench.compare.interval import Group, chosen, groups
from dbbench.compare.unpaired import ByHost, by_host, heterogeneity, unpaired_rows
from dbbench.compare.verdict import Comparison, Row, rows

__all__ = [
    "ByHost", "Comparison", "Curve", "Group", "Interaction", "Row", "by_host", "changepoints", "chosen",
    "compare", "compare_all",
    "crossings", "curves", "groups", "heterogeneity", "interactions", "rows", "unpaired_rows",
]  # fmt: skip
