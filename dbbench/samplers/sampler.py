"""The interface of a sampler, one module each. Seconds without data are reported and never filled
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dbbench.engines.port import Server
from dbbench.metrics.series import Series
from dbbench.model import TrialWarning
from dbbench.units import ranges

_SHOWN: Final = 5  # ranges of seconds that a warning lists


@dataclass(frozen=True)
class Sampled:
    """What is sampled: the disk under test by kernel name (None: unknown, only totals), the server,
    and the disk of its write-ahead log if that is a separate one.
    """

    disk: str | None  # "loop7", "nvme0n1"
    server: Server | None
    log: str | None = None
    # kernel names of all whole disks below the filesystems, also those with loop images
    disks: tuple[str, ...] = ()
    mounts: tuple[Path, ...] = ()  # directories on the filesystems under test
    # how many the load generator may open on the server; None: any number
    sessions: int | None = None
    has_burst: bool = False  # the limit of the disks


class Sampling(Protocol):
    """A sampler that is running or has run."""

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        """Return columns with units in their names, and warnings; call it after the block. Never
        raises for a dead or truncated recorder: missing data is a gap (None) and a warning.
        """


class Sampler(Protocol):
    """A kind of sampler. Satisfied by a module."""

    @property
    def PROGRAMS(self) -> tuple[str, ...]: ...

    def beside(self, target: Sampled, raw: Path) -> AbstractContextManager[Sampling | None]:
        """Record into `raw` within the block; None if the target has nothing to record."""


def gap_warning(sampler: str, column: Sequence[float | None]) -> TrialWarning | None:
    """Return W014 for gaps in `column`, which has a value in every good second. The last second
    alone does not count: the sampler's interval that ends in it may end after the block.
    """
    missing = [second for second, value in enumerate(column) if value is None]
    if not missing or missing == [len(column) - 1]:
        return None
    spans = ranges(missing)
    shown = ", ".join(spans[:_SHOWN]) + (
        f" and {len(spans) - _SHOWN} more" if len(spans) > _SHOWN else ""
    )
    text = f"{sampler}: {len(missing)} of {len(column)} seconds without data (second {shown})"
    return TrialWarning("W014", text, missing[0])
