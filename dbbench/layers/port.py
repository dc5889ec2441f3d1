"""What a kind of layer must be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from dbbench.devices.port import Device
from dbbench.journal import Journal
from dbbench.model import Layer, Scalar


class Kind(Protocol):
    """A kind of layer: one module each."""

    def programs(self, layer: Layer) -> tuple[str, ...]: ...

    def needs(self, layer: Layer) -> tuple[str, ...]:
        """What the kernel must have: modules, by name (`raid0`, `dm-snapshot`)."""
        ...

    def commands(self, layer: Layer, targets: tuple[str, ...]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """The commands that make it on these targets, as a person would type them, and the volumes they give."""
        ...

    def made(
        self, layer: Layer, devices: Sequence[Device], journal: Journal
    ) -> AbstractContextManager[tuple[Device, ...]]:
        """The layer on these devices while the block lasts; afterwards nothing of it is left on them.

        Each volume that it gives has what was read back as its `layers`: one entry of its own.
        """
        ...

    def end(self, name: str) -> None:
        """Take apart what this program made under that name, however far it got, and erase it from the devices
        that it lies on. Harmless where there is nothing."""
        ...


class Holding(Protocol):
    """A kind that can hold something beside the volume while it is measured: a snapshot."""

    def holding(self, layer: Layer) -> list[tuple[str, ...]]:
        """The commands for that, after the restore, as a person would type them."""
        ...

    def held(self, facts: dict[str, Scalar]) -> dict[str, Scalar]:
        """Take it now, of the volume with these facts; the facts with what was read back of it."""
        ...
