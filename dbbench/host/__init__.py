"""The machine under it all: what it is (`facts`, `versions`), what may change (`state`, `changed`), and
whether it was ours while we measured (`reading`, `foreign_load`, `load_warnings`)."""

from __future__ import annotations

from dbbench.host.block import block_layer
from dbbench.host.facts import facts, memory_bytes, versions, virtualisation
from dbbench.host.load import (
    ForeignProcess,
    HostLoad,
    LoadReading,
    foreign_load,
    load_warnings,
    reading,
)
from dbbench.host.state import changed, state

__all__ = [
    "ForeignProcess",
    "HostLoad",
    "LoadReading",
    "block_layer",
    "changed",
    "facts",
    "foreign_load",
    "load_warnings",
    "memory_bytes",
    "reading",
    "state",
    "versions",
    "virtualisation",
]
