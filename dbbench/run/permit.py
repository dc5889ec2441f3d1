"""Which disks a run may erase."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dbbench.results.journal import Journal
from dbbench.storage import devices
from dbbench.storage.devices.port import Device


@dataclass(frozen=True)
class RunPermit:
    """The devices whose identity the user typed, and the filesystems that the run's journal records. A typed identity
    permits erasing what was on the device when the command started, which is while `checking` is set. Anything that
    appears later, between two trials, was put there by another process."""

    typed: Collection[str]
    journal: Journal
    checking: bool = False

    def wipe(self, identity: str) -> bool:
        return identity in self.typed and (self.checking or not self.journal.has_wiped_disk(identity))

    def made_by_us(self, device: str, uuid: str) -> bool:
        return self.journal.has_filesystem(device, uuid) or self.journal.making(device)

    def had_by_us(self, device: str) -> bool:
        return self.journal.had(device)

    def note(self, disks: Iterable[Device]) -> None:
        """Record in the journal, before anything is written to them, that these disks may contain dbbench's data."""
        for disk in disks:
            if disk.facts.real and not self.journal.has_wiped_disk(name := devices.identity(disk.path)):
                self.journal.note("had", device=name)
