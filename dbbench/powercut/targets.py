"""What of a plan the lab examines: each fs setup under each engine and its settings, once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dbbench.engines import ENGINES
from dbbench.filesystems import works
from dbbench.model import Cell, EngineSpec, FsSetup, Scalar, Setting, Settings
from dbbench.plan.settings import settings_of

# Sizes that let a recording of seconds meet several checkpoints, and an image be copied in a fraction of a second.
# No durability hangs on them.
SIZES: Final[dict[str, dict[str, Scalar]]] = {
    "postgres": {"shared_buffers": "32MB", "effective_cache_size": "64MB", "max_wal_size": "64MB",
                 "min_wal_size": "32MB", "checkpoint_timeout": "5min", "wal_buffers": "1MB", "max_connections": 30},
    "mariadb": {"innodb_buffer_pool_size": 2**27, "innodb_log_file_size": 16 * 2**20, "innodb_max_dirty_pages_pct": 0,
                "innodb_max_dirty_pages_pct_lwm": 0, "innodb_log_buffer_size": 2**22, "max_connections": 30},
    "mysql": {"innodb_buffer_pool_size": 2**27, "innodb_redo_log_capacity": 16 * 2**20,
              "innodb_max_dirty_pages_pct": 0, "innodb_max_dirty_pages_pct_lwm": 0, "innodb_log_buffer_size": 2**22,
              "max_connections": 30},
}  # fmt: skip
# What decides which commits survive, and whether pages can tear. Cells that differ in these are examined apart.
DECIDING: Final = (
    "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "commit_delay",
    "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "innodb_flush_method", "sync_binlog", "log_bin",
    "innodb_use_fdatasync", "innodb_log_file_write_through",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A setup under a server with its settings."""

    arm: str  # its label in the plan; of a control its name
    setup: FsSetup
    engine: EngineSpec
    settings: Settings  # with the lab's own sizes
    disks: int = 1  # that the setup takes
    log: FsSetup | None = None  # of a disk of its own for the write-ahead log

    @property
    def deciding(self) -> dict[str, Scalar]:
        """The settings that durability hangs on, where they are not the engine's default."""
        own = ENGINES[self.engine.name].defaults(None)
        found = {name: self.settings[name].value for name in DECIDING if name in self.settings}
        return {name: value for name, value in found.items() if own.get(name) != value}

    @property
    def key(self) -> str:
        """A name that is unique in a lab."""
        words = [self.arm, self.engine.name, *(f"{name}={value}" for name, value in self.deciding.items())]
        return " ".join(words)


def targets(cells: Iterable[Cell], given: int) -> tuple[list[Target], dict[str, str]]:
    """The targets of these cells, and by arm why another one is not examined. `given`: the devices of the plan; each
    setup has as many of the lab's disks as a trial would take of them."""
    found: dict[tuple[str, str], Target] = {}
    skipped: dict[str, str] = {}
    for cell in cells:
        if reason := not_examined(cell):
            skipped[cell.arm] = reason
            continue
        target = Target(cell.arm, cell.setup, cell.engine, sized(settings_of(cell), cell.engine.name),
                        max(cell.setup.devices.min, min(given, cell.setup.devices.max)), cell.wal_setup)  # fmt: skip
        found.setdefault((target.key, cell.engine.bin or ""), target)
    return list(found.values()), skipped


def sized(settings: Settings, engine: str, more: dict[str, Scalar] | None = None) -> Settings:
    """The settings with the lab's sizes, and `more` of a control, over them."""
    own = {name: Setting(value, "lab") for name, value in {**SIZES[engine], **(more or {})}.items()}
    return {**settings, **own}


def not_examined(cell: Cell) -> str | None:
    """Why the lab has no disks for that cell; None where it has."""
    if cell.engine.name not in SIZES:
        return f"{cell.engine.name}: there is no server that acknowledges commits"
    if cell.raw:
        return "without a filesystem: there is none to be recovered"
    for setup in (cell.setup, *((cell.wal_setup,) if cell.wal_setup else ())):
        if setup.layers:
            return f"layers ({', '.join(layer.kind for layer in setup.layers)}): the lab cuts plain disks"
        if reason := works(setup):
            return reason
    return None
