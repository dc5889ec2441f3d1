"""Plans: from TOML to cells and their order.

`load` reports all errors of a plan at once. `expand` returns cells and the order of trials, `preview` what running them
would do, and `identity` the hash that identifies runs of the same plan.
"""

from __future__ import annotations

from dbbench.plan.expanding import Expanded, blocks, dealt, expand, identity, ordered
from dbbench.plan.narrowing import narrowed
from dbbench.plan.preview import Preview, preview
from dbbench.plan.reading import load

__all__ = ["Expanded", "Preview", "blocks", "dealt", "expand", "identity", "load", "narrowed", "ordered", "preview"]
