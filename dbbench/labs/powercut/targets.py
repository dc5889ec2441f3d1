"""What the lab tests of a plan: each fs setup under each engine and its settings, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dbbench.engines import SERVERLESS, profile_of
from dbbench.model import DROPPED, Cell, EngineSpec, FsSetup, Scalar, Setting, Settings
from dbbench.plan.server_settings import defaults, settings_of
from dbbench.storage.filesystems import works

# What decides which commits survive, and whether pages can tear. Cells that differ in these are examined apart.
DECIDING: Final = (
    "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "commit_delay",
    "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "innodb_flush_method", "sync_binlog", "log_bin",
    "innodb_use_fdatasync", "innodb_log_file_write_through",
)  # fmt: skip


@dataclass(frozen=True)
class LabTarget:
    """A setup with a server and its settings."""

    arm: str  # its label in the plan; of a control its name
    setup: FsSetup
    engine: EngineSpec
    settings: Settings  # with the lab's own sizes
    disks: int = 1  # that the setup takes
    log: FsSetup | None = None  # of a disk of its own for the write-ahead log

    @property
    def deciding(self) -> dict[str, Scalar]:
        """Return the settings that affect durability and differ from the default of the engine's profile."""
        expected = defaults(self.engine, None)
        deciding = {name: self.settings[name].value for name in DECIDING if name in self.settings}
        dropped: dict[str, Scalar] = {
            name: DROPPED for name in DECIDING if name in expected and name not in self.settings
        }
        return {**{name: value for name, value in deciding.items() if expected.get(name) != value}, **dropped}

    @property
    def key(self) -> str:
        """Return a name that is unique in a lab."""
        words = [self.arm, self.engine.name, *(f"{name}={value}" for name, value in self.deciding.items())]
        return " ".join(words)


def targets(cells: Iterable[Cell], given: int) -> tuple[list[LabTarget], dict[str, str]]:
    """Return the targets of these cells, and by arm why another one is not tested.

    `given`: the devices of the plan; each setup uses as many of the lab's disks as a trial would use of them.
    """
    targets_by_key: dict[tuple[str, str], LabTarget] = {}
    skipped: dict[str, str] = {}
    for cell in cells:
        if reason := not_examined(cell):
            skipped[cell.arm] = reason
            continue
        target = LabTarget(cell.arm, cell.setup, cell.engine, sized(settings_of(cell), cell.engine.name),
                        max(cell.setup.devices.min, min(given, cell.setup.devices.max)), cell.wal_setup)  # fmt: skip
        targets_by_key.setdefault((target.key, cell.engine.bin or ""), target)
    return list(targets_by_key.values()), skipped


def sized(settings: Settings, engine: str, more: Mapping[str, Scalar] | None = None) -> Settings:
    """Return the settings with the lab's sizes, and `more` of a control, over them."""
    sizes = {name: Setting(value, "lab") for name, value in {**profile_of(engine).lab, **(more or {})}.items()}
    return {**settings, **sizes}


def not_examined(cell: Cell) -> str | None:
    """Return why the lab has no disks for that cell, or None."""
    if cell.engine.name in SERVERLESS:
        return f"{cell.engine.name}: there is no server that acknowledges commits"
    if cell.raw:
        return "without a filesystem: there is none to be recovered"
    for setup in (cell.setup, *((cell.wal_setup,) if cell.wal_setup else ())):
        if setup.layers:
            return f"layers ({', '.join(layer.kind for layer in setup.layers)}): the lab cuts plain disks"
        if reason := works(setup):
            return reason
    return None
