"""Several devices as one: attached together, given back together, named and counted as one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from dbbench.devices.port import Device


@contextlib.contextmanager
def joint(several: Sequence[AbstractContextManager[Device]], wal: AbstractContextManager[Device] | None
          ) -> Iterator[Device]:  # fmt: skip
    """The first device with the others as its members, and the one for the write-ahead log beside it.

    `facts.size_bytes` is the sum, `leaves` are all leaves of the members; those of `wal` are its own.
    """
    with contextlib.ExitStack() as stack:
        members = tuple(stack.enter_context(one) for one in several)
        log = stack.enter_context(wal) if wal is not None else None
        yield dataclasses.replace(as_one(members), wal=log)


@contextlib.contextmanager
def with_spare(device: AbstractContextManager[Device], spare: AbstractContextManager[Device]) -> Iterator[Device]:
    """The device, and one more beside it that may join its filesystem."""
    with spare as more, device as taken:  # in this order: whatever joined is let go of before
        yield dataclasses.replace(taken, spare=more)


def as_one(members: tuple[Device, ...], below: Device | None = None) -> Device:
    """Several devices as one. `below`: the disks that they are layers on; these say what is underneath."""
    found = _one(members)
    if below is None:
        return found
    return dataclasses.replace(found, facts=below.facts, leaves=below.leaves, wal=below.wal, spare=below.spare)


def _one(members: tuple[Device, ...]) -> Device:
    first = members[0]
    if len(members) == 1:
        return first
    facts = dataclasses.replace(
        first.facts,
        path=",".join(member.facts.path for member in members),
        size_bytes=sum(member.facts.size_bytes for member in members),
        members=tuple(member.facts for member in members),
    )
    leaves = dict.fromkeys(leaf for member in members for leaf in member.leaves)
    return dataclasses.replace(first, facts=facts, leaves=tuple(leaves), members=members)
