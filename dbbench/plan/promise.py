"""The durability class that a cell promises before anything is made: what the plan requests, not
what the kernel uses. The class of a trial is computed from the effective options; if the two
differ, the trial fails.
"""

from __future__ import annotations

from functools import partial

from dbbench import durability
from dbbench.durability import ServerDurability, Storage
from dbbench.engines import ENGINES
from dbbench.engines.settings import word
from dbbench.model import (
    Cell,
    Durability,
    EngineName,
    FsSetup,
    Settings,
    durability_class,
    merge_settings,
)
from dbbench.plan.server_settings import settings_of
from dbbench.storage import filesystems


def class_of(cell: Cell) -> str:
    """Return the class of a cell with all settings that its server will get."""
    on_disk = [flag for setup in cell.setups.values() for flag in filesystems.promises(setup)]
    return durability_class(durability.combine(on_disk, _of_cell(cell).flags))


def reports_of(cell: Cell) -> tuple[str, ...]:
    """Return the reports of losses with a cell's data filesystem and settings."""
    return _of_cell(cell).reports


def weakening_settings(cell: Cell) -> dict[str, str]:
    """Return the settings of a cell with which commits can be lost, each with the class that it
    causes: without it, the flag disappears.
    """
    causes = {}
    flags_of = ENGINES[cell.engine.name].durability
    effective = {name: word(setting.value) for name, setting in settings_of(cell).items()}
    for flag in flags_of(effective, False):
        for name, value in effective.items():
            rest = {other: effective[other] for other in effective if other != name}
            if flag not in flags_of(rest, False):
                causes[f"{name} = {value}"] = flag.value
    return causes


def of_setup(setup: FsSetup) -> str:
    """Return the class of a setup with its own tuning, on servers whose other settings are durable;
    without faults of a server that its settings do not change.
    """
    # Each engine that the setup tunes may weaken its promise.
    flags = filesystems.promises(setup)
    for engine, tuning in setup.tuning.items():
        settings = merge_settings(("default", ENGINES[engine].defaults(None)), ("fs_setup", tuning))
        flags = durability.combine(
            flags, _durability_of(setup, engine, settings, restores=True).flags
        )
    return durability_class(flags)


def _of_cell(cell: Cell) -> ServerDurability:
    engine = cell.engine.name
    return _durability_of(
        cell.setup, engine, settings_of(cell), ENGINES[engine].PROFILE.restores_pages
    )


def _durability_of(
    setup: FsSetup,
    engine: EngineName,
    settings: Settings,
    restores: bool,
) -> ServerDurability:
    effective = {name: word(setting.value) for name, setting in settings.items()}
    profile = ENGINES[engine].PROFILE
    page = int(effective.get(profile.page_setting, profile.page_bytes))

    # Before anything is made, no disk is known to write a page as a whole.
    family = filesystems.family_of(setup)
    storage = Storage(
        tears=Durability.TORN_PAGES if family.tears_pages_of(setup, page) else None,
        reports=partial(family.reports, filesystems.options_of(setup)),
        unit_bytes=0,
    )
    return durability.of_server(ENGINES[engine].durability, effective, storage, restores)
