"""What a plan expands to: cells, trials, the run; and server settings with their origins."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from dbbench.model.base import SCHEMA, Role, Scalar
from dbbench.model.catalog_files import Dataset, FsSetup, Layer, Workload
from dbbench.model.plan import ClientSpec, DeviceLimit, EngineSpec, Plan

# a parameter of a user's own data: the size of its golden copy, if that exists
COPIED: Final = "copied_bytes"
# A key of the plan, its phase and its deadline: only in results of earlier versions.
REMOVED: Final = "age_engine"


def _drop_old_key(plan: Any) -> Any:
    """Return a plan of the results without the removed key and its deadline."""
    if not isinstance(plan, dict):
        return plan
    kept = {key: value for key, value in plan.items() if key != REMOVED}
    deadlines = kept.get("deadlines")
    if isinstance(deadlines, dict):
        kept["deadlines"] = {key: value for key, value in deadlines.items() if key != REMOVED}
    return kept


@dataclass(frozen=True)
class Window:
    """The measured part of a trial. `to-completion` has no warm-up and lasts until the work is
    done.
    """

    kind: Literal["fixed", "to-completion"]
    warmup_s: float
    measure_s: float

    @property
    def seconds(self) -> float:
        return self.warmup_s + self.measure_s


@dataclass(frozen=True)
class EarlierLoad:
    """What the load of a cell did in earlier trials on this host, as medians; for estimates only."""

    load_s: float
    write_bytes_per_s: float  # writes to the devices during the load
    drain_bytes: float  # written to the devices after the load
    log_bytes_per_s: float | None = None  # write-ahead log; None: not counted
    binlog_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Cell:
    """A combination of fs setup, engine and workload, complete: a trial needs nothing else from the
    plan.
    """

    id: str
    arm: str  # the fs setup's label in the plan
    setup: FsSetup
    engine: EngineSpec
    workload: Workload
    parameters: dict[str, Scalar]  # parameters of the workload, including the defaults
    dataset: Dataset
    window: Window
    wal_setup: FsSetup | None = None  # for `[device.wal]`
    memory_bytes: int | None = None
    limit: DeviceLimit | None = None  # of each device
    # settings of the disks' queues, by the kernel's name
    queue: dict[str, Scalar] = field(default_factory=dict)
    checkpoints: str = "time"  # what starts a checkpoint: time or log
    # the cell's values from lists in the plan: "clients=8", "clients=8+memory=1GiB"
    variant: str = ""
    client: ClientSpec | None = None  # None: the load generator runs on this machine
    earlier: EarlierLoad | None = None  # None: no earlier trial of this cell, or not looked up
    # factor of the plan -> the cell's level
    levels: dict[str, Scalar] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Scalar]:
        """Return the parameters with the constant options of the workload."""
        return {**self.workload.options, **self.parameters}

    @property
    def setups(self) -> dict[Role, FsSetup]:
        if self.wal_setup is None:
            return {"data": self.setup}
        return {"data": self.setup, "log": self.wal_setup}

    @property
    def layered_setups(self) -> dict[Role, FsSetup]:
        """Return the setups with the delays of the limit as the lowest of their layers."""
        if self.limit is None or not self.limit.delays:
            return self.setups
        delay = Layer("delay", delays=self.limit.delays)
        return {
            role: replace(setup, layers=(delay, *setup.layers))
            for role, setup in self.setups.items()
        }

    @property
    def group(self) -> tuple[str, str, str]:
        """Return engine, workload and variant: cells with the same are compared with each other."""
        return self.engine.name, self.workload.name, self.variant

    @property
    def raw(self) -> bool:
        """Whether the tables are directly on the block device and therefore in one tablespace."""
        return self.setup.mkfs.family == "raw"

    @property
    def title(self) -> str:
        return title_of(self.workload.name, self.variant)

    @property
    def without_measurements(self) -> Cell:
        """Return the cell without what earlier trials and a copy of the user's own data tell; only
        estimates use it.
        """
        sizes = ("bytes", COPIED) if self.dataset.kind == "source" else ()
        kept = {name: value for name, value in self.dataset.parameters.items() if name not in sizes}
        return replace(
            self,
            earlier=None,
            dataset=replace(self.dataset, parameters=kept),
        )


def title_of(workload: str, variant: str) -> str:
    """Return a workload's name with the values of a variant: "pgbench-tpcb, clients=8"."""
    return ", ".join(word for word in (workload, *variant.split("+")) if word)


def without_levels(variant: str, factors: Container[str]) -> str:
    """Return a variant without its parts that are factors."""
    return "+".join(part for part in variant.split("+") if part.partition("=")[0] not in factors)


@dataclass(frozen=True)
class TrialSpec:
    """One cell in one block with its attempt number: the unit of statistics."""

    id: str  # CELL-bBLOCK-aATTEMPT
    cell: str  # Cell.id
    block: int  # from 1
    attempt: int  # from 1
    position: int  # place in the order of the run, from 1


QuestionKind = Literal["open", "settled", "decided", "given-up"]


@dataclass(frozen=True)
class Question:
    """Whether a cell differs from the baseline. `kind`: `settled` with the requested precision,
    `decided` by the stopping rule, `given-up` (it or its baseline failed in every block). Only
    cells of open questions are measured again.
    """

    kind: QuestionKind
    pairs: int | None = None
    # half the width of the interval, as a share; None: too few pairs
    half_width: float | None = None
    verdict: str = ""  # of a decided question


BudgetEnd = Literal["", "time", "cut", "first", "precision", "decided", "most"]


@dataclass(frozen=True)
class Budget:
    """The used part of a run's time (`plan.budget_s`), and its number of blocks. `ended` is why no
    block is added: `time`: another does not fit; `cut`: within a block, whose trials do not
    count; `first`: the first blocks took longer; `precision`, `decided`: no question is open;
    `most`: a run cannot have more. "": not finished.
    """

    step: int = 1  # distance between block numbers: N of --share K/N
    used_s: float = 0.0  # preparation and trials, including those before an interruption
    # cell -> wall-clock time of a trial, including its process
    cell_s: dict[str, float] = field(default_factory=dict)
    blocks: int | None = None  # complete blocks; None while blocks may still be added
    ended: BudgetEnd = ""


@dataclass(frozen=True)
class Search:
    """The question of `dbbench size`: which level of the limit keeps a rate and a percentile."""

    rate: int  # transactions per second
    p99_ms: float | None = None


@dataclass(frozen=True)
class Run:
    """A plan in progress or completed, in one directory: the content of run.json."""

    name: str
    created: str  # UTC, ISO 8601
    plan: Annotated[Plan, BeforeValidator(_drop_old_key)]
    plan_sha256: str
    cells: tuple[Cell, ...]
    order: tuple[TrialSpec, ...]
    host: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    dbbench_version: str = ""
    precision: float | None = None  # --until-precision as a share: 0.02
    # cell -> state, with `precision` or a budget
    questions: dict[str, Question] = field(default_factory=dict)
    budget: Budget | None = None  # None: the plan has no budget
    search: Search | None = None  # adds blocks until it is answered
    # arm -> why it was not run with all or some engines
    skipped: dict[str, str] = field(default_factory=dict)
    # name -> facts, for trials from other hosts
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    schema: int = SCHEMA

    def trial(self, trial_id: str) -> TrialSpec:
        """Return the trial with that ID. Raises KeyError."""
        return {spec.id: spec for spec in self.order}[trial_id]

    def cell(self, cell_id: str) -> Cell:
        """Return the cell with that ID. Raises KeyError."""
        return {cell.id: cell for cell in self.cells}[cell_id]

    @property
    def blocks(self) -> int:
        if self.budget is None or self.budget.blocks is None:
            return self.plan.blocks
        return self.budget.blocks

    @property
    def primary(self) -> dict[str, str]:
        """Return the primary metric of each workload."""
        return {cell.workload.name: cell.workload.primary for cell in self.cells}

    @property
    def baseline(self) -> str:
        return self.plan.baseline_label


@dataclass(frozen=True)
class Setting:
    """A server setting and its origin: `default`, `workload`, `fs_setup` or `plan`."""

    value: Scalar
    origin: str


Settings = dict[str, Setting]


# this value of a setting means the server's default, even if an earlier layer sets another
DROPPED: Final = "default"


def merge_settings(*layers: tuple[str, dict[str, Scalar]]) -> Settings:
    """Merge (origin, settings) layers of server settings, later ones overriding; the value
    `DROPPED` removes one.
    """
    settings: Settings = {}
    for origin, layer in layers:
        dropped = {spelt(name) for name, value in layer.items() if value == DROPPED}
        # A dropped setting may be spelt differently in an earlier layer.
        for name in [name for name in settings if spelt(name) in dropped]:
            del settings[name]
        for name, value in layer.items():
            if value != DROPPED:
                settings[name] = Setting(value, origin)
    return settings


def spelt(name: str) -> str:
    """Normalise the name of a setting for comparison: servers ignore case and treat "-" as "_"."""
    return name.replace("-", "_").lower()
