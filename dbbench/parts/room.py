"""Where a trial works, and what it may format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dbbench import devices
from dbbench.devices.port import Device
from dbbench.engines.port import Place
from dbbench.journal import Journal
from dbbench.model import EngineSpec


@dataclass(frozen=True)
class Room:
    """The private folder of a trial: a tmpfs of its own namespaces, or a temporary folder without root."""

    root: Path
    elsewhere: Path = Path("elsewhere")  # on the disk of the run: of a cluster what is not under test

    @property
    def mount(self) -> Path:
        """Where the filesystem under test is mounted (kind dir: a link is not made, see `Parts.mounted`)."""
        return self.root / "mnt"

    @property
    def wal_mount(self) -> Path:
        """Where the filesystem of `[device.wal]` is mounted."""
        return self.root / "wal"

    @property
    def scratch(self) -> Path:
        """Memory-backed: large logs of the load generator, off the device under test."""
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """Configuration and log of the server while it runs; copied into raw/ at the end."""
        return self.root / "logs"

    def make(self) -> None:
        """Make the folders; servers run as other accounts and must get through."""
        self.root.chmod(0o755)
        for folder in (self.mount, self.root / "s", self.scratch, self.logs):
            folder.mkdir(exist_ok=True)

    def place(self, engine: EngineSpec) -> Place:
        """Where a server of that engine lives."""
        return Place(self.root / "s", self.logs, Path(engine.bin) if engine.bin else None)


@dataclass(frozen=True)
class Permit:
    """What may be formatted: identities that were typed, and filesystems that our journal knows."""

    typed: tuple[str, ...]
    journal: Journal

    def wipe(self, identity: str) -> bool:
        return identity in self.typed

    def made_by_us(self, device: str, uuid: str) -> bool:
        return self.journal.made(device, uuid)

    def had_by_us(self, device: str) -> bool:
        return self.journal.had(device)

    def note(self, device: Device) -> None:
        """Write down, before anything is written to them, that what lies on these disks may be ours from now on."""
        for disk in device.disks:
            if disk.facts.kind == "block" and not self.had_by_us(name := devices.identity(disk.path)):
                self.journal.note("had", device=name)
