"""What a plan expands to: cells, trials, the run; and server settings with their origins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dbbench.model.asked import ClientSpec, EngineSpec, Plan
from dbbench.model.declared import Dataset, FsSetup, Workload
from dbbench.model.words import SCHEMA, Scalar


@dataclass(frozen=True)
class Window:
    """The measured part of a trial. `to-completion` has no warm-up and lasts as long as the work does."""

    kind: Literal["fixed", "to-completion"]
    warmup_s: float
    measure_s: float


@dataclass(frozen=True)
class Cell:
    """One combination of fs setup, engine and workload, complete: a trial needs nothing else from the plan."""

    id: str
    arm: str  # the fs setup's label in the plan
    setup: FsSetup
    engine: EngineSpec
    workload: Workload
    parameters: dict[str, Scalar]  # the workload's, defaults filled in
    dataset: Dataset
    window: Window
    wal_setup: FsSetup | None = None  # of `[device.wal]`
    memory_bytes: int | None = None
    checkpoints: str = "time"  # what starts them: time or log
    variant: str = ""  # what of the plan's lists it takes: "clients=8", "clients=8+memory=1GiB"
    client: ClientSpec | None = None  # where the load generator is, if not here

    @property
    def raw(self) -> bool:
        """Whether the tables lie on the bare device, so in one tablespace."""
        return self.setup.mkfs.family == "raw"

    @property
    def title(self) -> str:
        """The workload's name with the variant's values."""
        return titled(self.workload.name, self.variant)


def titled(workload: str, variant: str) -> str:
    """A workload's name with a variant's values: "pgbench-tpcb, clients=8"."""
    return ", ".join(word for word in (workload, *variant.split("+")) if word)


@dataclass(frozen=True)
class TrialSpec:
    """One cell in one block, and its attempt number: the unit of statistics."""

    id: str  # CELL-bBLOCK-aATTEMPT
    cell: str  # Cell.id
    block: int  # from 1
    attempt: int  # from 1
    position: int  # in the run's order, from 1


@dataclass(frozen=True)
class Run:
    """One plan being worked off, or done, in one folder: the content of run.json."""

    name: str
    created: str  # UTC, ISO 8601
    plan: Plan
    plan_sha256: str
    cells: tuple[Cell, ...]
    order: tuple[TrialSpec, ...]
    host: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    dbbench_version: str = ""
    precision: float | None = None  # of --until-precision, as a share: 0.02
    settled: dict[str, str] = field(default_factory=dict)  # cell -> what became of its question, with precision
    skipped: dict[str, str] = field(default_factory=dict)  # arm -> why this machine cannot make it
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)  # its trials came from others: name -> facts
    schema: int = SCHEMA

    def trial(self, trial_id: str) -> TrialSpec:
        """The trial of that id; KeyError where the run has none."""
        for spec in self.order:
            if spec.id == trial_id:
                return spec
        raise KeyError(trial_id)

    def cell(self, cell_id: str) -> Cell:
        """The cell of that id; KeyError where the run has none."""
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        raise KeyError(cell_id)

    @property
    def baseline(self) -> str:
        """The arm that others are compared with."""
        return self.plan.baseline or self.plan.fs_setups[0].label


@dataclass(frozen=True)
class Setting:
    """A server setting and who set it: `default`, `workload`, `fs_setup` or `plan`."""

    value: Scalar
    origin: str


Settings = dict[str, Setting]


def merged(*layers: tuple[str, dict[str, Scalar]]) -> Settings:
    """Server settings of (origin, settings) layers, the later ones winning; the one place where they meet."""
    return {name: Setting(value, origin) for origin, layer in layers for name, value in layer.items()}
