"""What is read once a second beside the load: one module a sampler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbbench.engines.port import Server
from dbbench.model import TrialWarning
from dbbench.series import Series


@dataclass(frozen=True)
class Target:
    """What is sampled: the disk under test by kernel name (None: unknown, only totals), the server, and the disk of
    its write-ahead log where that lies on one of its own."""

    disk: str | None  # "loop7", "nvme0n1"
    server: Server | None
    log: str | None = None


class Sampling(Protocol):
    """A sampler that runs, or has run."""

    def series(self, begin_utc: float, seconds: int) -> Series:
        """After the block has ended: columns with units in their names, gaps as None. Never raises for a
        dead or truncated recorder: what is missing is a gap and a warning."""
        ...

    def warnings(self) -> tuple[TrialWarning, ...]:
        """W013 and W014 with evidence; to be asked after `series`."""
        ...


class Sampler(Protocol):
    """A kind of sampler. Satisfied by a module."""

    def programs(self) -> tuple[str, ...]: ...

    def beside(self, target: Target, raw: Path) -> AbstractContextManager[Sampling]:
        """Record into `raw` while the block runs."""
        ...
