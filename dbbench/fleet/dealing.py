"""Assign blocks to hosts: all of them (`each`) or a part (`spread`); reassign those of a lost host; add
further ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from dbbench import results
from dbbench.model import Run, TrialSpec
from dbbench.plan import blocks
from dbbench.run.adaptive import further, whole_block

Dealing = dict[str, tuple[int, ...]]  # host -> its blocks, in the order in which they were dealt


def deal(order: Sequence[TrialSpec], hosts: Sequence[str], mode: str) -> Dealing:
    """Assign all blocks to each host, or each block to one host in turn; hosts are sorted by name, so it is
    reproducible."""
    all_blocks, names = sorted(blocks(order)), sorted(hosts)
    if mode == "each":
        return {name: tuple(all_blocks) for name in names}
    return {name: tuple(all_blocks[index :: len(names)]) for index, name in enumerate(names)}


def again(
    dealing: Mapping[str, tuple[int, ...]], gone: str, unfinished: Sequence[int], able: Mapping[str, int]
) -> Dealing:
    """Reassign the blocks that `gone` has not finished, each as a whole to the host with the fewest remaining.

    `able`: the hosts that can take them, with the number of blocks that they still have to run.
    """
    dealt, load = dict(dealing), dict(able)
    dealt[gone] = tuple(block for block in dealing[gone] if block not in unfinished)
    for block in unfinished:
        host = min(load, key=lambda name: (load[name], name))
        dealt[host] = (*dealt.get(host, ()), block)
        load[host] += 1
    return dealt


def more(dealing: Mapping[str, tuple[int, ...]], order: Sequence[TrialSpec], hosts: Sequence[str]) -> Dealing:
    """Assign the unassigned blocks of the order to `hosts` in turn; these have nothing left to do."""
    has = {block for blocks_of_host in dealing.values() for block in blocks_of_host}
    dealt = dict(dealing)
    for block, host in zip((block for block in sorted(blocks(order)) if block not in has), cycle(sorted(hosts))):
        dealt[host] = (*dealt[host], block)
    return dealt


def of_host(order: Sequence[TrialSpec], mine: Sequence[int]) -> tuple[TrialSpec, ...]:
    """Return the trials of those blocks in the order of the plan, blocks in the order of assignment."""
    host_blocks = set(mine)
    inside = blocks([spec for spec in order if spec.block in host_blocks])
    return tuple(spec for block in mine for spec in inside.get(block, ()))


def unfinished(order: Sequence[TrialSpec], mine: Sequence[int], taken: Collection[str]) -> list[int]:
    """Return those of the blocks `mine` that have a trial which has not been collected."""
    return [block for block, specs in blocks(of_host(order, mine)).items() if any(s.id not in taken for s in specs)]


def longer(run: Run, dealt: Dealing, host: str, sharing: Sequence[str]) -> tuple[Run, Dealing]:
    """Return the run with another block for the host, and the assignment. `sharing`: the hosts of this run.

    A block that no host has is taken first: a coordinator was killed before it dealt it.
    """
    has = {block for name in sharing for block in dealt[name]}
    block = next((block for block in sorted(blocks(run.order)) if block not in has), None)
    if block is None:
        block = max(blocks(run.order), default=0) + 1
        run = dataclasses.replace(run, order=(*run.order, *whole_block(run, block)))
    return run, {**dealt, host: (*dealt[host], block)}


def dealt_further(run: Run, dealt: Dealing, folder: Path, hosts: Sequence[str]) -> tuple[Run, Dealing]:
    """Return the run with another block of unsettled questions for each host, and the assignment.

    All assigned trials are in `folder`. At most 15 blocks in total; both are unchanged if all questions are settled.
    This checks once for as many blocks as there are hosts, which is less often than on one machine.
    """
    left = more(dealt, run.order, hosts)
    if left != dealt:  # a coordinator was killed before it dealt them
        return run, left
    trials = {spec.id: results.load_trial(folder / "trials" / spec.id) for spec in run.order}
    for _ in hosts:
        run = further(run, trials)
    return run, more(dealt, run.order, hosts)
