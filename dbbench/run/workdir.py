"""The private directories of a trial."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dbbench.engines.port import Place
from dbbench.model import EngineSpec


@dataclass(frozen=True)
class WorkDir:
    """The private directory of a trial: a tmpfs of its namespaces, or a temporary directory without root."""

    root: Path
    elsewhere: Path = Path("elsewhere")  # on the disk of the run: of a cluster what is not under test

    @property
    def mount(self) -> Path:
        """Return the mount point of the filesystem under test; not used with kind dir."""
        return self.root / "mnt"

    @property
    def wal_mount(self) -> Path:
        """Return the mount point of the filesystem of `[device.wal]`."""
        return self.root / "wal"

    @property
    def scratch(self) -> Path:
        """Return a directory in memory, for large logs of the load generator that must not be on the device
        under test."""
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """Return the directory of the running server's configuration and log; copied into raw/ at the end."""
        return self.root / "logs"

    def make(self) -> None:
        """Make the directories; other accounts, which run servers, can enter them."""
        self.root.chmod(0o755)
        for folder in (self.mount, self.root / "s", self.scratch, self.logs):
            folder.mkdir(exist_ok=True)

    def place(self, engine: EngineSpec) -> Place:
        """Return the place of a server of that engine."""
        return Place(self.root / "s", self.logs, Path(engine.bin) if engine.bin else None)
