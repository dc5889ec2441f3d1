"""Which host runs which blocks. A block always stays on one host: pairs are formed within it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dbbench.model import TrialSpec
from dbbench.plan import blocks

Dealing = dict[str, tuple[int, ...]]  # host -> its blocks, in the order of assignment


def first_blocks(order: Sequence[TrialSpec], hosts: Sequence[str], mode: str) -> Dealing:
    """Assign all blocks to each host (`each`), or each block to one host (`spread`)."""
    if mode == "each":
        return dict.fromkeys(sorted(hosts), tuple(sorted(blocks(order))))
    return deal(order, dict.fromkeys(sorted(hosts), ()), dict.fromkeys(hosts, 0))


def deal(order: Sequence[TrialSpec], dealing: Mapping[str, tuple[int, ...]], left: Mapping[str, int]) -> Dealing:
    """Assign each block of the order that no host has to the host with the fewest blocks left, of equal ones the first
    by name. `left`: by host that can take blocks, the number left. Blocks that are not in the order are dropped."""
    all_blocks, load = sorted(blocks(order)), dict(left)
    dealt = {host: tuple(block for block in mine if block in all_blocks) for host, mine in dealing.items()}
    has = {block for mine in dealt.values() for block in mine}
    for block in all_blocks if load else []:
        if block not in has:
            host = min(load, key=lambda name: (load[name], name))
            dealt[host] = (*dealt.get(host, ()), block)
            load[host] += 1
    return dealt


def trials_of_host(order: Sequence[TrialSpec], mine: Sequence[int]) -> tuple[TrialSpec, ...]:
    """Return the trials of those blocks in the order of the plan, blocks in the order of assignment."""
    host_blocks = set(mine)
    inside = blocks([spec for spec in order if spec.block in host_blocks])
    return tuple(spec for block in mine for spec in inside.get(block, ()))


def unfinished_blocks(order: Sequence[TrialSpec], mine: Sequence[int], taken: Collection[str]) -> list[int]:
    """Return those of the blocks `mine` that have a trial which has not been collected."""
    of_block = blocks(trials_of_host(order, mine))
    return [block for block, specs in of_block.items() if any(spec.id not in taken for spec in specs)]
