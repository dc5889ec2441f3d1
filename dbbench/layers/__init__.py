"""Layers between devices and filesystem: md, LVM, dm-crypt. One module a kind; a new one is one line in KINDS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.devices.joint import as_one
from dbbench.devices.port import Device
from dbbench.journal import Journal
from dbbench.layers.port import Kind
from dbbench.model import Layer

__all__ = ["KINDS", "commands", "give_back", "stacked"]

KINDS: Final[dict[str, Kind]] = {}


@contextlib.contextmanager
def stacked(layers: Sequence[Layer], device: Device, journal: Journal) -> Iterator[Device]:
    """The volume that the layers make of a device (or of its members), bottom first; the device itself without any.

    Its `leaves` stay those of the disks below, where flushes and bytes are counted.
    """
    with contextlib.ExitStack() as stack:
        devices, below = device.each, device
        for layer in layers:
            devices = stack.enter_context(KINDS[layer.kind].made(layer, devices, journal))
        yield as_one(devices, below=below) if layers else device


def commands(layers: Sequence[Layer], targets: tuple[str, ...]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The commands that make the layers on these targets, and the volumes that they give."""
    said: list[tuple[str, ...]] = []
    for layer in layers:
        more, targets = KINDS[layer.kind].commands(layer, targets)
        said += more
    return said, targets


def give_back(journal: Journal) -> list[str]:
    """Take apart what a killed run has left, the upper kinds first; what that was."""
    return [what for kind in ("crypt", "lvm", "md") if kind in KINDS for what in KINDS[kind].give_back(journal)]
