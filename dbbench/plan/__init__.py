"""Plans: TOML in, one checked `Plan` out; and what it expands to.

`load` tells all errors of a plan at once. `expand` gives cells and the order of trials, `preview` what running
them would do, `identity` the hash by which a run of the same plan is found again.
"""

from __future__ import annotations

from dbbench.plan.dealing import blocks, dealt
from dbbench.plan.expanding import Expanded, expand, identity, ordered
from dbbench.plan.narrowing import narrowed
from dbbench.plan.preview import Preview, preview
from dbbench.plan.reading import load

__all__ = ["Expanded", "Preview", "blocks", "dealt", "expand", "identity", "load", "narrowed", "ordered", "preview"]
