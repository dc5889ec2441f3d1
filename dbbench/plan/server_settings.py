"""The settings of a server, merged in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dbbench.engines import ENGINES
from dbbench.model import DROPPED, Cell, EngineSpec, FsSetup, Settings, Workload, merged, spelt
from dbbench.plan.tomlfile import Document, Key


def settings_of(cell: Cell) -> Settings:
    """Return the server's settings with their origins; the order is default, workload, fs setup, plan, and the last
    wins."""
    engine, name, window = ENGINES[cell.engine.name], cell.engine.name, cell.window
    own = {**engine.defaults(cell.memory_bytes), **engine.window_settings(window.warmup_s, window.measure_s)}
    if cell.checkpoints == "log":
        own |= engine.PROFILE.by_log
    return merged(
        ("default", own),
        ("workload", cell.workload.settings.get(name, {})),
        ("fs_setup", cell.setup.tuning.get(name, {})),
        ("plan", cell.engine.settings),
    )


def check_dropped(
    document: Document, engines: Mapping[Key, EngineSpec], workloads: Iterable[Workload], setups: Iterable[FsSetup]
) -> None:
    """Note a dropped setting that no layer has set: its name is probably misspelled."""
    tables = [*(workload.settings for workload in workloads), *(setup.tuning for setup in setups)]
    for key, engine in engines.items():
        own = ENGINES[engine.name]
        layers = (own.defaults(None), own.window_settings(1, 1), *(of.get(engine.name, {}) for of in tables))
        known = {spelt(name) for layer in layers for name in layer}
        wanted = {**{name: (value,) for name, value in engine.settings.items()}, **engine.sweeps}
        for name in (name for name, values in wanted.items() if DROPPED in values and spelt(name) not in known):
            document.flaw(
                (*key, "settings", name),
                f'"{name}" = "{DROPPED}" has no effect: dbbench sets no default for it; remove it',
            )
