"""The private directory of a trial's process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dbbench.engines.port import Place
from dbbench.model import EngineSpec, Role


@dataclass(frozen=True)
class WorkDir:
    """A tmpfs of the process's namespaces, or a temporary directory without root."""

    root: Path
    # on the disk of the run: the parts of a cluster that are not under test
    elsewhere: Path = Path("elsewhere")

    @property
    def mount(self) -> Path:
        return self.root / "mnt"

    def mount_point(self, role: Role) -> Path:
        if role == "data":
            return self.mount
        return self.root / "wal"

    @property
    def scratch(self) -> Path:
        """A directory in memory, for large logs of the load generator that must not be on the
        device under test.
        """
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """The directory of the running server's configuration and log; copied into raw/ at the end."""
        return self.root / "logs"

    @property
    def operations(self) -> Path:
        return self.root / "operations"

    def make(self) -> None:
        """Make the directories; other accounts, which run servers, can enter them."""
        self.root.chmod(0o755)
        for folder in (self.mount, self.root / "s", self.scratch, self.logs, self.operations):
            folder.mkdir(exist_ok=True)

    def place(self, engine: EngineSpec) -> Place:
        return Place(self.root / "s", self.logs, engine.bin)
