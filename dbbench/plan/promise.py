"""The durability class that a cell promises before anything is made: what the plan asks for, not what a kernel took.

A trial's own class is computed from what is effective; where the two differ, a claim was wrong and the trial fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dbbench import durability, filesystems
from dbbench.engines import ENGINES
from dbbench.engines.settings import word
from dbbench.model import Cell, Durability, EngineName, FsSetup, Scalar, durability_class
from dbbench.plan.settings import settings_of

_PAGE_BYTES: Final[dict[EngineName, int]] = {"postgres": 8192}  # of every package; InnoDB's is one of its settings


def promised(cell: Cell) -> str:
    """The class of a cell with all that its server will be asked."""
    log = _on_disk(cell.wal_setup) if cell.wal_setup else ()
    values = {name: setting.value for name, setting in settings_of(cell).items()}
    return durability_class(
        durability.combined((*_on_disk(cell.setup), *log), _of(cell.setup, cell.engine.name, values))
    )


def of_setup(setup: FsSetup) -> str:
    """The class of a setup with the tuning that belongs to it, on servers that are durable otherwise."""
    flags = _on_disk(setup)
    for engine, tuning in setup.tuning.items():
        flags = durability.combined(flags, _of(setup, engine, {**ENGINES[engine].defaults(None), **tuning}))
    return durability_class(flags)


def _on_disk(setup: FsSetup) -> tuple[Durability, ...]:
    """What the filesystem may lose, of itself and by the driver that it has here."""
    return (*setup.claims, *filesystems.driver_flags(setup))


def _of(setup: FsSetup, engine: EngineName, values: Mapping[str, Scalar]) -> tuple[Durability, ...]:
    effective = {name: word(value) for name, value in values.items()}
    page = _PAGE_BYTES.get(engine) or durability.page_bytes(effective)
    return ENGINES[engine].durability(effective, filesystems.tears_pages_of(setup, page))
