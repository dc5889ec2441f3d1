"""What is read once a second beside the load. One module a sampler, registered here by one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.model import TrialWarning
from dbbench.samplers import counters, iostat, sar, server_log, stops
from dbbench.samplers.port import Sampler, Sampling, Target
from dbbench.series import Series

__all__ = ["SAMPLERS", "Sampler", "Samples", "Sampling", "Target", "beside", "programs"]

SAMPLERS: Final[dict[str, Sampler]] = {
    "sar": sar,
    "iostat": iostat,
    "counters": counters,
    "server_log": server_log,
    "stops": stops,
}


class Samples:
    """All samplers of one trial, by name; after the block their columns side by side."""

    def __init__(self, parts: dict[str, Sampling]) -> None:
        self.parts = parts

    def series(self, begin_utc: float, seconds: int) -> Series:
        """Every sampler's columns, one value a second from `begin_utc`."""
        merged = Series(seconds)
        for part in self.parts.values():
            merged.update(part.series(begin_utc, seconds))
        return merged

    def warnings(self) -> tuple[TrialWarning, ...]:
        """W013, W014 and W129 of every sampler, to be asked after `series`."""
        return tuple(warning for part in self.parts.values() for warning in part.warnings())

    def first(self) -> dict[str, float] | None:
        """The engine's counters when the samplers started; None: never readable, or no server."""
        part = self.parts.get("counters")
        return part.first() if isinstance(part, counters.Counters) else None

    def last(self) -> dict[str, float] | None:
        """The engine's counters of the last second that could be read."""
        part = self.parts.get("counters")
        return part.last() if isinstance(part, counters.Counters) else None


@contextlib.contextmanager
def beside(target: Target, raw: Path) -> Iterator[Samples]:
    """Run every sampler while the block runs. ProgramMissing before any has started something lasting."""
    with contextlib.ExitStack() as running:
        yield Samples({name: running.enter_context(sampler.beside(target, raw)) for name, sampler in SAMPLERS.items()})


def programs() -> tuple[str, ...]:
    """Every program of every sampler, for `doctor` and for checks before a run."""
    return tuple(program for sampler in SAMPLERS.values() for program in sampler.programs())
