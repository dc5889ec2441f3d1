"""Which blocks each host drives: all of them (`each`), or some, whole (`spread`); and what a lost host has left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle

from dbbench.model import TrialSpec
from dbbench.plan import blocks

Dealing = dict[str, tuple[int, ...]]  # host -> its blocks, in the order in which they were dealt


def deal(order: Sequence[TrialSpec], hosts: Sequence[str], mode: str) -> Dealing:
    """All blocks to each host, or each block to one host, in turn; hosts by name, so that it is the same every time."""
    known, names = sorted(blocks(order)), sorted(hosts)
    if mode == "each":
        return {name: tuple(known) for name in names}
    return {name: tuple(known[index :: len(names)]) for index, name in enumerate(names)}


def again(
    dealing: Mapping[str, tuple[int, ...]], gone: str, unfinished: Sequence[int], able: Mapping[str, int]
) -> Dealing:
    """The dealing without the blocks that `gone` has not finished: each goes whole to the host that has least left.

    `able`: the hosts that can take them, with the number of blocks that they have still to drive.
    """
    dealt, load = dict(dealing), dict(able)
    dealt[gone] = tuple(block for block in dealing[gone] if block not in unfinished)
    for block in unfinished:
        host = min(load, key=lambda name: (load[name], name))
        dealt[host] = (*dealt.get(host, ()), block)
        load[host] += 1
    return dealt


def more(dealing: Mapping[str, tuple[int, ...]], order: Sequence[TrialSpec], hosts: Sequence[str]) -> Dealing:
    """The dealing with those blocks of the order that nobody has, in turn over `hosts`, who have nothing left."""
    has = {block for mine in dealing.values() for block in mine}
    dealt = dict(dealing)
    for block, host in zip((block for block in sorted(blocks(order)) if block not in has), cycle(sorted(hosts))):
        dealt[host] = (*dealt[host], block)
    return dealt


def of_host(order: Sequence[TrialSpec], mine: Sequence[int]) -> tuple[TrialSpec, ...]:
    """The trials of those blocks in the order of the plan, blocks as they were dealt."""
    wanted = set(mine)
    inside = blocks([spec for spec in order if spec.block in wanted])
    return tuple(spec for block in mine for spec in inside.get(block, ()))


def unfinished(order: Sequence[TrialSpec], mine: Sequence[int], taken: Collection[str]) -> list[int]:
    """Those of the blocks `mine` of which a trial is not home."""
    return [block for block, specs in blocks(of_host(order, mine)).items() if any(s.id not in taken for s in specs)]
