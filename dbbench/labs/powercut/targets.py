"""What the lab tests of a plan: each fs setup under each engine and its settings; and controls that
must lose data: without a loss the lab draws no conclusion. They use known ways to lose commits
or pages: a filesystem or a server that requests no flush, torn pages, a disk that acknowledges
flushes without carrying them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dbbench.engines import ENGINES, profile_of
from dbbench.labs.powercut.disk_images import UNITS, Aim, Cut, Section, choose_cuts
from dbbench.model import (
    DROPPED,
    Cell,
    EngineSpec,
    FsSetup,
    Role,
    Scalar,
    Scalars,
    Setting,
    Settings,
    merge_settings,
)
from dbbench.plan.catalog import Catalog
from dbbench.plan.server_settings import defaults, settings_of
from dbbench.storage.filesystems import works

# What decides which commits survive and whether pages can tear. Cells that differ in these are
# separate targets.
DECIDING: Final = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "commit_delay",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "sync_binlog",
    "log_bin",
    "innodb_use_fdatasync",
    "innodb_log_file_write_through",
)
FEW = 6
FEW_NEEDED = 5
MANY = 20
MANY_NEEDED = 18
LONG: Final = 100  # from this number of cuts of a setup, each control is tried MANY times
LYING: Final = "lying disk"


@dataclass(frozen=True)
class LabTarget:
    """A setup with a server and its settings."""

    arm: str  # label of the setup in the plan, or name of the control
    setup: FsSetup
    engine: EngineSpec
    settings: Settings  # settings with the small sizes of the lab
    disks: int = 1  # disks that the setup uses
    log: FsSetup | None = None  # setup of a separate disk for the write-ahead log

    @property
    def setups(self) -> dict[Role, FsSetup]:
        return {"data": self.setup} if self.log is None else {"data": self.setup, "log": self.log}

    @property
    def deciding(self) -> Scalars:
        """Return the settings that affect durability and differ from the default of the engine's
        profile.
        """
        expected = defaults(self.engine, None)
        changed = Scalars()
        dropped = Scalars()
        for name in DECIDING:
            if name not in self.settings:
                if name in expected:
                    dropped[name] = DROPPED
            elif self.settings[name].value != expected.get(name):
                changed[name] = self.settings[name].value
        return changed | dropped

    @property
    def key(self) -> str:
        settings = [f"{name}={value}" for name, value in self.deciding.items()]
        return " ".join((self.arm, self.engine.name, *settings))


def targets(
    cells: Iterable[Cell],
    given: int,
    obstacle: Callable[[FsSetup], str | None] = works,
) -> tuple[list[LabTarget], dict[str, str]]:
    """Return the targets of these cells, and by arm why another one is not tested. `given`: the
    devices of the plan; each setup uses as many of the lab's disks as a trial would use of them.
    `obstacle` returns why this machine cannot make a setup, or None.
    """
    targets_by_key: dict[tuple[str, str], LabTarget] = {}
    skipped: dict[str, str] = {}
    for cell in cells:
        reason = exclusion(cell, obstacle)
        if reason:
            skipped[cell.arm] = reason
            continue
        target = LabTarget(
            cell.arm,
            cell.setup,
            cell.engine,
            resize(settings_of(cell), cell.engine.name),
            max(cell.setup.devices.min, min(given, cell.setup.devices.max)),
            cell.wal_setup,
        )
        targets_by_key.setdefault((target.key, str(cell.engine.bin)), target)
    return list(targets_by_key.values()), skipped


def resize(
    settings: Settings,
    engine: str,
    more: Mapping[str, Scalar] | None = None,
) -> Settings:
    """Return the settings with the lab's sizes, and `more` of a control, over them."""
    values = {**profile_of(engine).lab, **(more or {})}
    return {**settings, **{name: Setting(value, "lab") for name, value in values.items()}}


def exclusion(cell: Cell, obstacle: Callable[[FsSetup], str | None]) -> str | None:
    """Return why the lab has no disks for that cell, or None. `obstacle` as for `targets`."""
    if not profile_of(cell.engine.name).has_server:
        return f"{cell.engine.name}: it has no server that acknowledges commits"
    if cell.raw:
        return "it has no filesystem to recover"
    for setup in cell.setups.values():
        if setup.layers:
            kinds = ", ".join(layer.kind for layer in setup.layers)
            return f"layers ({kinds}): the lab supports plain disks only"
        reason = obstacle(setup)
        if reason:
            return reason
    return None


@dataclass(frozen=True)
class Control:
    """`setup` under the engine's defaults with `settings` over them, cut by these aims, on disks
    with these units.
    """

    name: str
    what: str
    aims: tuple[Aim, ...]
    setup: str = "ext4"
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    units: tuple[int, ...] = UNITS

    def cuts(self, section: Section, count: int, seed: str) -> list[Cut]:
        return choose_cuts(section, count, seed, self.aims, self.units)


_EVERYWHERE: Final = (
    Control(LYING, "a disk that acknowledges flushes without performing them", ("drop", "subset")),
    Control("nobarrier", "ext4 that never flushes the disk", ("drop", "subset"), "ext4-nobarrier"),
)


def controls_of(engine: str, only: Sequence[str] | None = None) -> list[Control]:
    """Return the controls of an engine, with units that tear its pages; `only`: those of these
    names.
    """
    profile = profile_of(engine)
    controls = list(_EVERYWHERE)
    for weak in profile.weakenings:
        controls.append(Control(weak.name, weak.what, weak.cuts, settings=weak.settings))
    units = tuple(unit for unit in UNITS if unit < profile.page_bytes)
    chosen = [control for control in controls if only is None or control.name in only]
    return [replace(control, units=units) for control in chosen]


def how_often(cuts: int | None) -> tuple[int, int]:
    """Return (attempts, required losses) of each control for that many cuts per setup; None: a long
    lab run.
    """
    return (MANY, MANY_NEEDED) if is_long(cuts) else (FEW, FEW_NEEDED)


def is_long(cuts: int | None) -> bool:
    """Whether a lab with that many cuts per setup is long; None: it ends by its time."""
    return cuts is None or cuts >= LONG


def control_target(
    control: Control,
    engine: EngineSpec,
    known: Catalog,
) -> LabTarget:
    """Return what it is tested on: the plan's server, otherwise the server at its defaults."""
    server = ENGINES[engine.name]
    settings = merge_settings(
        ("default", {**defaults(engine, None), **server.window_settings(1, 1)})
    )
    return LabTarget(
        control.name,
        known.setup(control.setup),
        engine,
        resize(settings, engine.name, control.settings),
    )
