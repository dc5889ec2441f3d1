"""A server's settings, merged in one place."""

from __future__ import annotations

from dbbench.engines import ENGINES, triggers
from dbbench.model import Cell, Settings, merged


def settings_of(cell: Cell) -> Settings:
    """The server's settings with their origins: default, workload, fs setup, plan, the later ones winning."""
    engine, name, window = ENGINES[cell.engine.name], cell.engine.name, cell.window
    own = {**engine.defaults(cell.memory_bytes), **engine.window_settings(window.warmup_s, window.measure_s)}
    if cell.checkpoints == "log":
        own |= triggers.BY_LOG[name]
    return merged(
        ("default", own),
        ("workload", cell.workload.settings.get(name, {})),
        ("fs_setup", cell.setup.tuning.get(name, {})),
        ("plan", cell.engine.settings),
    )
