"""The nouns, each once, as frozen dataclasses.

What a person writes (Plan, FsSetup, Workload), what it expands to (Cell, TrialSpec, Run) and what a trial
found (Trial and its parts). `store/` and `plan/` turn them into JSON and out of TOML with pydantic's
TypeAdapter; no noun is written a second time as a schema. Units are in the names; `None` is "not measured".
The file is long because it is the vocabulary: whoever reads a word elsewhere finds it here, beside its neighbours.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from dbbench.units import bytes_of, seconds_of

SCHEMA: Final = 1  # of run.json and trial.json; raised when the meaning of a key changes

Bytes = Annotated[int, BeforeValidator(bytes_of)]
Seconds = Annotated[float, BeforeValidator(seconds_of)]
Scalar = bool | int | float | str
EngineName = Literal["postgres", "mariadb", "mysql"]
_STRICT: Final[Any] = {"extra": "forbid", "populate_by_name": True}


class Phase(StrEnum):
    """A named stage of a trial, in the order of the road."""

    CANARY = "canary"
    MKFS = "mkfs"
    MOUNT = "mount"
    RESTORE = "restore"
    SETTLE = "settle"
    DROP_CACHE = "drop_cache"
    START = "start"
    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"
    STOP = "stop"
    CHECK = "check"
    SPACE = "space"


class Status(StrEnum):
    """ok; suspect: telemetry says that something else disturbed it; failed: no figure of it counts."""

    OK = "ok"
    SUSPECT = "suspect"
    FAILED = "failed"


class Durability(StrEnum):
    """What may be lost or torn in a power cut, worst first. No flag at all is the class `full`."""

    NO_BARRIER = "no-barrier"
    NO_JOURNAL = "no-journal"
    ASYNC_COMMIT = "async-commit"
    TORN_PAGES = "torn-pages-possible"


def durability_class(flags: tuple[Durability, ...]) -> str:
    """The flags in one word, worst first; `full` when nothing applies."""
    return " + ".join(flag.value for flag in Durability if flag in flags) or "full"


# --- what is declared in data files ----------------------------------------------------------------


@dataclass(frozen=True)
class Mkfs:
    """How the filesystem proper is made: its family (the word behind `mkfs.`) and options."""

    __pydantic_config__ = _STRICT
    family: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceCount:
    """How many devices a setup takes."""

    __pydantic_config__ = _STRICT
    min: int = 1
    max: int = 1


@dataclass(frozen=True)
class Needs:
    """What must be there: programs, kernel filesystems or modules, and the packages that bring them."""

    __pydantic_config__ = _STRICT
    programs: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()
    packages: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class FsSetup:
    """How to make a filesystem: layers, mkfs and mount options, tuning per engine. `fs_setups/NAME.toml`."""

    __pydantic_config__ = _STRICT
    title: str
    mkfs: Mkfs
    name: str = ""  # the file's; given by the catalogue
    claims: tuple[Durability, ...] = ()
    devices: DeviceCount = DeviceCount()
    layers: tuple[dict[str, Any], ...] = ()
    mount: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    needs: Needs = Needs()
    tuning: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """A workload's own parameter, as a plan may set it."""

    __pydantic_config__ = _STRICT
    type: Literal["integer", "number", "string", "boolean", "duration", "size"]
    default: Scalar | None = None
    min: float | None = None
    max: float | None = None
    choices: tuple[Scalar, ...] = ()
    help: str = ""


@dataclass(frozen=True)
class Dataset:
    """What is loaded. `parameters` (scale, tables, table_size ...) are those of its kind."""

    kind: Literal["pgbench", "sysbench", "clone-tables", "none"]
    parameters: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """What drives the engine and what it measures. `workloads/NAME.toml`.

    `dataset` is a table with `kind` and the dataset's parameters; a parameter of the workload with the same
    name as a dataset parameter overrides it. `settings` are server settings per engine. `script` names a
    file beside the TOML file, or one that the driver ships.
    """

    __pydantic_config__ = _STRICT
    title: str
    driver: Literal["sysbench", "pgbench", "scan"]
    engines: tuple[EngineName, ...]
    dataset: dict[str, Scalar]
    name: str = ""
    window: Literal["fixed", "to-completion"] = "fixed"
    primary: str = "tps"
    script: str = ""
    options: dict[str, Scalar] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    settings: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)


# --- what a person writes --------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    """One entry of a plan's `fs_setups`: a setup under a label that is unique in the plan."""

    __pydantic_config__ = _STRICT
    use: str
    label: str


@dataclass(frozen=True)
class DeviceSpec:
    """Where filesystems are made. `paths`: a list (block) or a table arm label -> directory (dir)."""

    __pydantic_config__ = _STRICT
    kind: Literal["loop", "block", "dir"] = "loop"
    size_bytes: Annotated[Bytes, Field(alias="size")] = 8 * 2**30
    at: str | None = None
    count: int = 1
    path: str | None = None
    paths: dict[str, str] | tuple[str, ...] = ()
    identity: str | None = None


@dataclass(frozen=True)
class EngineSpec:
    """A server of the plan. `bin`: the folder of its programs; default: the newest that is installed."""

    __pydantic_config__ = _STRICT
    name: EngineName
    bin: str | None = None
    settings: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload of the plan with its parameters (the workload's own keys beside `name`)."""

    name: str
    engines: tuple[EngineName, ...] = ()
    warmup_s: float | None = None
    measure_s: float | None = None
    parameters: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """One question to this machine. `dbbench plan` shows what it expands to."""

    __pydantic_config__ = _STRICT
    name: str
    fs_setups: tuple[Arm, ...]
    engine: tuple[EngineSpec, ...]
    workload: tuple[WorkloadSpec, ...]
    baseline: str = ""  # an arm's label; default: the first
    blocks: int = 5
    seed: int = 1
    warmup_s: Annotated[Seconds, Field(alias="warmup")] = 60.0
    measure_s: Annotated[Seconds, Field(alias="measure")] = 120.0
    memory_bytes: Annotated[Bytes | None, Field(alias="memory")] = None
    repeat_suspect: bool = True  # a block with a suspect trial is repeated once, at the end
    device: DeviceSpec = DeviceSpec()
    deadlines: dict[Phase, Seconds] = field(default_factory=dict)  # over the table in record.py


# --- what it expands to ----------------------------------------------------------------------------


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


# --- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A server setting and who set it: `default`, `workload`, `fs_setup` or `plan`."""

    value: Scalar
    origin: str


Settings = dict[str, Setting]


def merged(*layers: tuple[str, dict[str, Scalar]]) -> Settings:
    """Server settings of (origin, settings) layers, the later ones winning; the one place where they meet."""
    return {name: Setting(value, origin) for origin, layer in layers for name, value in layer.items()}


# --- what a trial found ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialWarning:
    """A finding about a trial: an ID of `errors.WARNINGS`, its evidence, the second it belongs to."""

    id: str
    text: str
    second: int | None = None
    suspect: bool = False  # True: the trial's status becomes `suspect`


@dataclass(frozen=True)
class PhaseTime:
    """When a phase was, and how long it took."""

    name: Phase
    start: str  # UTC, ISO 8601 with ms
    end: str
    seconds: float  # by the monotonic clock


@dataclass(frozen=True)
class FilesystemFacts:
    """What was made, what was asked for, and what the kernel took."""

    family: str
    mkfs: tuple[tuple[str, ...], ...] = ()
    mount_options_asked: tuple[str, ...] = ()
    mount_options_effective: tuple[str, ...] = ()  # of mount and superblock, from mountinfo
    geometry: dict[str, Scalar] = field(default_factory=dict)
    read_ahead_kb: int | None = None  # of the mounted filesystem's own bdi
    queue: dict[str, str] = field(default_factory=dict)  # /sys/block/DEV/queue attributes at attach
    claims: tuple[Durability, ...] = ()
    durability_flags: tuple[Durability, ...] = ()  # computed: filesystem and server together
    durability_class: str = "full"


@dataclass(frozen=True)
class CacheFacts:
    """How the page cache was emptied, and the proof. Bytes are of the data files."""

    method: str = ""
    before_bytes: int | None = None  # resident before the drop
    after_bytes: int | None = None
    sample_bytes: int | None = None  # of the seeded sample that was read afterwards
    sample_read_bytes: int | None = None  # what the device delivered for it
    proved: bool = False
    reason: str = ""  # why not proved


@dataclass(frozen=True)
class CheckpointFacts:
    """Checkpoints in the measured window, by the server's own counters."""

    begun: int | None = None
    ended: int | None = None
    by_cause: dict[str, int] = field(default_factory=dict)
    fpi_bytes: int | None = None
    note: str = ""  # "burst: no checkpoint in the window"


@dataclass(frozen=True)
class DrainFacts:
    """What was owed at the end of the window, and what paying it back took."""

    debt_bytes: int | None = None  # dirty and under write-back when the window ended
    drain_s: float | None = None
    write_bytes: int | None = None  # to the device during the drain


@dataclass(frozen=True)
class MemoryFacts:
    """How large the dataset is beside the memory, and how much was served from the server's own cache."""

    limit_bytes: int | None = None
    dataset_bytes: int | None = None
    dataset_ratio: float | None = None
    hit_ratio: float | None = None
    direct: str | None = None


@dataclass(frozen=True)
class SpaceFacts:
    """What the dataset takes."""

    logical_bytes: int | None = None  # sum of the data files' sizes
    disk_bytes: int | None = None  # used on the filesystem
    free_bytes: int | None = None
    compression_ratio: float | None = None  # logical ÷ on disk


@dataclass(frozen=True)
class IoFacts:
    """Device and engine totals over the measured window."""

    read_bytes: int | None = None
    write_bytes: int | None = None
    flushes: int | None = None
    flushes_note: str = ""  # "not measurable (reason)"
    engine_write_bytes: int | None = None
    write_amplification: float | None = None


@dataclass(frozen=True)
class DeviceFacts:
    """What was measured on."""

    kind: str
    path: str
    name: str  # kernel name: loop7, nvme0n1
    size_bytes: int
    serial: str = ""
    model: str = ""
    direct_io: bool | None = None  # of a loop device
    image: str = ""
    image_blocks_before: int | None = None
    image_blocks_after: int | None = None
    image_extents_before: int | None = None
    image_extents_after: int | None = None


@dataclass(frozen=True)
class Fault:
    """The error that a trial failed with."""

    id: str
    phase: str
    text: str


@dataclass(frozen=True)
class Trial:
    """What was found: the content of trial.json. `summary` has the metrics of `metrics.METRICS`."""

    id: str
    run: str
    host: str
    fs_setup: str  # the arm's label
    engine: str
    workload: str
    block: int
    attempt: int
    position: int
    status: Status
    engine_version: str = ""
    setup: str = ""  # the fs setup's name in the catalogue
    window: Window | None = None
    anchor_utc: str = ""  # of second 0, the start of warm-up
    error: Fault | None = None
    warnings: tuple[TrialWarning, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    summary: dict[str, float | None] = field(default_factory=dict)
    parameters: dict[str, Scalar] = field(default_factory=dict)
    filesystem: FilesystemFacts | None = None
    cache: CacheFacts | None = None
    checkpoints: CheckpointFacts | None = None
    drain: DrainFacts | None = None
    memory: MemoryFacts | None = None
    space: SpaceFacts | None = None
    io: IoFacts | None = None
    device: DeviceFacts | None = None
    settings: Settings = field(default_factory=dict)
    effective_settings: dict[str, str] = field(default_factory=dict)
    canary: dict[str, float] = field(default_factory=dict)
    checked: str = ""  # what the integrity check looked at
    host_state: dict[str, Any] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()
    dbbench_version: str = ""
    schema: int = SCHEMA

    def phase_s(self, name: Phase) -> float | None:
        """Seconds that the phase took, or None where it was not reached."""
        return next((phase.seconds for phase in self.phases if phase.name == name), None)


def plain(noun: Any) -> Any:
    """A noun as dicts, lists and scalars, for JSON."""
    if dataclasses.is_dataclass(noun) and not isinstance(noun, type):
        return {f.name: plain(getattr(noun, f.name)) for f in dataclasses.fields(noun)}
    if isinstance(noun, dict):
        return {str(key): plain(value) for key, value in noun.items()}
    if isinstance(noun, list | tuple):
        return [plain(value) for value in noun]
    return noun.value if isinstance(noun, StrEnum) else noun
