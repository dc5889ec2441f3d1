"""The figures that every format is made from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArmFigures:
    """One metric of a setup under one engine and workload. `state` is a verdict, for a night its finding."""

    engine: str
    workload: str  # with its variant
    fs_setup: str
    metric: str  # a name of `metrics.METRICS`
    value: float | None
    ratio: float | None
    lo: float | None
    hi: float | None
    n: int
    state: str
    durability_class: str = "unknown"
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """ "postgres pgbench-tpcb, clients=8: xfs"."""
        return f"{self.engine} {self.workload}: {self.fs_setup}"


@dataclass(frozen=True)
class Report:
    """A run or a night. `problems` are sentences about all of it."""

    title: str
    run: str
    created: str
    entries: tuple[ArmFigures, ...]
    state: str = ""
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
