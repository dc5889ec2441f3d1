"""Samplers: what is recorded once per second during the load. One module per sampler, registered
here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench.metrics.series import Series
from dbbench.model import TrialWarning
from dbbench.samplers import engine_counters, iostat, machine, sar, server_log, thread_waits
from dbbench.samplers.sampler import Sampled, Sampler, Sampling

__all__ = ["SAMPLERS", "Sampled", "Sampler", "Samples", "Sampling", "beside", "programs"]

SAMPLERS: Final[dict[str, Sampler]] = {
    "sar": sar,
    "iostat": iostat,
    "counters": engine_counters,
    "server_log": server_log,
    "machine": machine,
    "threads": thread_waits,
}


class Samples:
    """All samplers of a trial by name, and after the block their columns and warnings."""

    def __init__(self, parts: dict[str, Sampling]) -> None:
        self.parts = parts

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        merged = Series(seconds)
        warnings = list[TrialWarning]()
        for part in self.parts.values():
            series, of_part = part.read(begin_utc, seconds)
            merged.update(series)
            warnings += of_part
        return merged, warnings

    def remounting(self) -> AbstractContextManager[None]:
        """Within the block, dbbench itself unmounts and mounts the filesystems under test."""
        watch = self.parts["machine"]
        assert isinstance(watch, machine.Machine)
        return watch.remounting()


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Samples]:
    """Run every sampler within the block. Raises ProgramMissing before any of them has started."""
    with contextlib.ExitStack() as stack:
        parts = dict[str, Sampling]()
        for name, sampler in SAMPLERS.items():
            part = stack.enter_context(sampler.beside(target, raw))
            if part is not None:
                parts[name] = part
        yield Samples(parts)


def programs() -> tuple[str, ...]:
    """Return every sampler's programs, for `doctor` and for checks before a run."""
    return tuple(program for sampler in SAMPLERS.values() for program in sampler.PROGRAMS)
