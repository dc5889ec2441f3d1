"""Which blocks a host drives. A block is never torn: pairs are made within it, so a host's own speed cancels."""

from __future__ import annotations

from collections.abc import Sequence

from dbbench.model import TrialSpec


def dealt(order: Sequence[TrialSpec], index: int, of: int) -> tuple[TrialSpec, ...]:
    """The trials of every `of`-th block, beginning with the `index`-th (from 1), as they stand in the order.

    All shares together are the order; two shares differ by one block at most.
    """
    return tuple(spec for spec in order if (spec.block - index) % of == 0)


def blocks(order: Sequence[TrialSpec]) -> dict[int, tuple[TrialSpec, ...]]:
    """The trials of each block, blocks and trials as they first stand in the order."""
    found: dict[int, tuple[TrialSpec, ...]] = {}
    for spec in order:
        found[spec.block] = (*found.get(spec.block, ()), spec)
    return found
