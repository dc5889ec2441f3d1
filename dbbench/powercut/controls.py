"""Controls that must lose: the lab shows its teeth in every run, or it says nothing.

Each is a way to lose commits or pages that is known: a filesystem that asks for no flush, a server that asks for none
or leaves torn pages, a disk that acknowledges flushes and does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dbbench.catalog import Catalog
from dbbench.engines import ENGINES
from dbbench.model import EngineSpec, Scalar, merged
from dbbench.powercut.aims import Aim
from dbbench.powercut.targets import Target, sized

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
    settings: dict[str, Scalar] = field(default_factory=dict)


_EVERYWHERE: Final = (
    Control(LYING, "a disk that acknowledges flushes and does nothing", ("drop", "subset")),
    Control("nobarrier", "ext4 that asks the disk for no flush", ("drop", "subset"), "ext4-nobarrier"),
)
_INNODB: Final = (
    Control("innodb_flush_log_at_trx_commit=2", "commits that are not waited for", ("drop",),
            settings={"innodb_flush_log_at_trx_commit": 2}),
    Control("innodb_doublewrite=off", "pages that tear, cut while they are written", ("checkpoint",),
            settings={"innodb_doublewrite": False}),
)  # fmt: skip
CONTROLS: Final[dict[str, tuple[Control, ...]]] = {
    "postgres": (
        *_EVERYWHERE,
        Control("fsync=off", "a server that asks for no flush", ("drop", "subset"), settings={"fsync": False}),
        Control("full_page_writes=off", "pages that tear, cut while they are written", ("checkpoint",),
                settings={"full_page_writes": False}),
    ),
    "mariadb": (*_EVERYWHERE, *_INNODB),
    "mysql": (*_EVERYWHERE, *_INNODB),
}  # fmt: skip


def of(engine: str, only: Sequence[str] | None = None) -> list[Control]:
    """The controls of an engine; `only`: those of these names."""
    return [control for control in CONTROLS[engine] if only is None or control.name in only]


def how_often(cuts: int | None) -> tuple[int, int]:
    """(tries, of which so many must lose) of each control, beside that many cuts of a setup; None: a long lab."""
    return (FEW, FEW_NEEDED) if cuts is not None and cuts < LONG else (MANY, MANY_NEEDED)


def target(control: Control, engine: EngineSpec, known: Catalog) -> Target:
    """What it is examined on: the plan's server, otherwise at its defaults."""
    own = ENGINES[engine.name]
    settings = merged(("default", {**own.defaults(None), **own.window_settings(1, 1)}))
    return Target(control.name, known.setup(control.setup), engine, sized(settings, engine.name, control.settings))
