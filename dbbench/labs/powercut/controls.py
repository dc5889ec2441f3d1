"""Controls that must lose data, in every run: without a loss the lab draws no conclusion.

Each uses a known way to lose commits or pages: a filesystem that requests no flush, a server that requests none or
leaves torn pages, a disk that acknowledges flushes without carrying them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dbbench.engines import ENGINES, profile_of
from dbbench.labs.powercut.disk_images import Aim
from dbbench.labs.powercut.targets import LabTarget, sized
from dbbench.model import EngineSpec, Scalar, merged
from dbbench.plan.catalog import Catalog
from dbbench.plan.server_settings import defaults

FEW, FEW_NEEDED = 6, 5
MANY, MANY_NEEDED = 20, 18
LONG: Final = 100  # cuts of a setup from which on each control is tried MANY times
LYING: Final = "lying disk"


@dataclass(frozen=True)
class Control:
    """`setup` under the engine's defaults with `settings` over them, cut by these aims."""

    name: str
    what: str
    aims: tuple[Aim, ...]
    setup: str = "ext4"
    settings: Mapping[str, Scalar] = field(default_factory=dict)


_EVERYWHERE: Final = (
    Control(LYING, "a disk that acknowledges flushes and does nothing", ("drop", "subset")),
    Control("nobarrier", "ext4 that asks the disk for no flush", ("drop", "subset"), "ext4-nobarrier"),
)


def of(engine: str, only: Sequence[str] | None = None) -> list[Control]:
    """Return the controls of an engine; `only`: those of these names."""
    weakened = (
        Control(each.name, each.what, each.cuts, settings=each.settings) for each in profile_of(engine).weakenings
    )
    return [control for control in (*_EVERYWHERE, *weakened) if only is None or control.name in only]


def how_often(cuts: int | None) -> tuple[int, int]:
    """Return (attempts, required losses) of each control for that many cuts per setup; None: a long lab run."""
    return (FEW, FEW_NEEDED) if cuts is not None and cuts < LONG else (MANY, MANY_NEEDED)


def target(control: Control, engine: EngineSpec, known: Catalog) -> LabTarget:
    """Return what it is tested on: the plan's server, otherwise the server at its defaults."""
    server = ENGINES[engine.name]
    settings = merged(("default", {**defaults(engine, None), **server.window_settings(1, 1)}))
    return LabTarget(control.name, known.setup(control.setup), engine, sized(settings, engine.name, control.settings))
