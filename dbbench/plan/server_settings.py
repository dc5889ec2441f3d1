"""The settings of a server, merged in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dbbench.engines import ENGINES
from dbbench.model import (
    Cell,
    EngineSpec,
    FsSetup,
    Scalars,
    Settings,
    merge_settings,
    spelt,
)


def settings_of(cell: Cell) -> Settings:
    """Return the server's settings with their origins: default, workload, fs setup, plan; the last
    wins.
    """
    engine = ENGINES[cell.engine.name]
    name = cell.engine.name
    settings = defaults(cell.engine, cell.memory_bytes)
    settings |= engine.window_settings(cell.window.warmup_s, cell.window.measure_s)
    if cell.checkpoints == "log":
        settings |= engine.PROFILE.by_log
    return merge_settings(
        ("default", settings),
        ("workload", cell.workload.settings.get(name, {})),
        ("fs_setup", cell.setup.tuning.get(name, {})),
        ("plan", cell.engine.settings),
    )


def defaults(spec: EngineSpec, memory_bytes: int | None) -> Scalars:
    """Return the engine's default settings with those of the spec's profile over them. A profile
    that the engine does not have, of a later version of dbbench, adds nothing.
    """
    engine = ENGINES[spec.name]
    settings = dict(engine.defaults(memory_bytes))
    settings |= engine.PROFILE.settings_profiles.get(spec.profile, {})
    if memory_bytes is not None:
        settings |= engine.PROFILE.limited
    return settings


def equal_setup(cell: Cell, others: Iterable[FsSetup]) -> FsSetup | None:
    """Return the first of `others` that gives the cell the same filesystem and the same server
    settings, or None. At least one of the two setups has tuning, which is for another engine, or
    is overridden by the plan.
    """
    filesystem = _filesystem(cell.setup)
    settings = _values(cell)
    for other in others:
        if other.name == cell.setup.name or not (cell.setup.tuning or other.tuning):
            continue
        equal = _filesystem(other) == filesystem
        if equal and _values(replace(cell, setup=other)) == settings:
            return other
    return None


def without_effect(cell: Cell) -> bool:
    """Return whether the setup has tuning, and none of it changes a setting of the cell's server."""
    plain = replace(cell.setup, tuning={})
    return bool(cell.setup.tuning) and _values(replace(cell, setup=plain)) == _values(cell)


def _filesystem(setup: FsSetup) -> FsSetup:
    return replace(setup, name="", title="", tuning={})


def _values(cell: Cell) -> Scalars:
    return {spelt(name): setting.value for name, setting in settings_of(cell).items()}
