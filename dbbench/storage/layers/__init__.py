"""Layers between devices and filesystem: md, LVM, dm-crypt, dm-delay. One module per kind; a new one is one
line in KINDS. They outlive a trial's namespaces: each is recorded in the journal first (`what`
"layer", `path` its kind and name) and removed when the trial ends, or by the next start if it
was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from dbbench.model import Commands, Layer, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device, as_one
from dbbench.storage.layers import crypt, delay, lvm, md
from dbbench.storage.layers.volume import WHAT, LayerKind, note_signatures, wipe

T = TypeVar("T")

KINDS: Final[dict[str, LayerKind]] = {"md": md, "lvm": lvm, "crypt": crypt, "delay": delay}


@contextlib.contextmanager
def stack_layers(
    layers: Sequence[Layer],
    device: Device,
    journal: Journal,
    of_spare: Sequence[Layer] = (),
) -> Iterator[Device]:
    """Yield the volume that the layers make of a device or its members, bottom first, or the device
    itself. Its `leaves` are the disks below; its `layers` describe what was made. `of_spare`:
    layers of its `spare`, removed after those that it may have joined. Raises MakeFailed,
    UnmountFailed, FilesystemDamaged.
    """
    if not layers:
        yield device
        return
    with contextlib.ExitStack() as stack:
        if device.spare is not None:
            spare = stack.enter_context(stack_layers(of_spare, device.spare, journal))
            device = dataclasses.replace(device, spare=spare)
        devices = device.each
        facts = list[Scalars]()
        for layer in layers:
            volumes: list[Device] = []
            for group in deal(devices, layer.groups):
                for member in group:
                    # otherwise an old signature would remain next to that of the layer
                    wipe(member.fd)
                volumes += stack.enter_context(KINDS[layer.kind].make(layer, group, journal))
                for member in group:
                    note_signatures(member, journal)
            devices = tuple(volumes)
            facts += [made for volume in volumes for made in volume.layers]
        yield dataclasses.replace(as_one(devices, below=device), layers=tuple(facts))


def take_snapshots(volume: Device) -> tuple[Scalars, ...]:
    """Take the setup's snapshot for the measurement; return the facts of all layers. Raises
    MakeFailed.
    """
    return tuple(
        lvm.take_snapshot(facts) if facts["kind"] == "lvm" else facts for facts in volume.layers
    )


def commands(
    layers: Sequence[Layer],
    targets: Words,
    mark: str = "",
) -> tuple[Commands, Words]:
    """Return the commands for the layers, and the resulting volumes, whose names end with `mark`."""
    argvs: Commands = []
    for layer in layers:
        volumes: list[str] = []
        for number, group in enumerate(deal(targets, layer.groups)):
            more, given = KINDS[layer.kind].commands(layer, group)
            place = str(number + 1) if layer.groups > 1 else mark
            argvs += [
                tuple(word + place if word in given else word for word in argv) for argv in more
            ]
            volumes += [name + place for name in given]
        targets = tuple(volumes)
    return argvs, targets


def holding(layers: Sequence[Layer]) -> Commands:
    """Return the commands of `held`, which run after mkfs, mount and restore."""
    return [argv for layer in layers if layer.kind == "lvm" for argv in lvm.holding(layer)]


def deal(items: Sequence[T], groups: int) -> list[tuple[T, ...]]:
    """Divide the items into that many groups of neighbours, as equal as possible."""
    ends = [len(items) * number // groups for number in range(groups + 1)]
    return [tuple(items[start:end]) for start, end in itertools.pairwise(ends)]


def give_back(journal: Journal) -> list[str]:
    """Remove what a killed run has left, in reverse order; return what still existed. Raises
    UnmountFailed.
    """
    removed = []
    for path in journal.outstanding(WHAT)[::-1]:
        kind, _, name = path.partition(":")
        if KINDS[kind].end(name):
            removed.append(path)
        journal.release(WHAT, path)
    return removed
