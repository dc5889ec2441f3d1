"""Plans: from TOML to cells and their order. `load` reports all errors of a plan at once. `expand`
returns cells and the order of trials, `preview` what running them would do, and `identity` the
hash that identifies runs of the same plan.
"""

from __future__ import annotations

from dbbench.plan.checks import load
from dbbench.plan.expanding import Expanded, deal, expand, identity, make_order
from dbbench.plan.narrowing import narrow
from dbbench.plan.preview import Preview, preview

__all__ = [
    "Expanded",
    "Preview",
    "deal",
    "expand",
    "identity",
    "load",
    "make_order",
    "narrow",
    "preview",
]
