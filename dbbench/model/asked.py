"""What a person writes: the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from dbbench.model.words import ONE_FOR_ALL, SEVERAL, STRICT, Bytes, EngineName, Phase, Scalar, Seconds


@dataclass(frozen=True)
class Arm:
    """One entry of a plan's `fs_setups`: a setup under a label that is unique in the plan.

    `wal`: with `[device.wal]` the arm's log lies there; false: beside the data, to be compared with it.
    """

    __pydantic_config__ = STRICT
    use: str
    label: str
    wal: bool = True


@dataclass(frozen=True)
class WalDevice:
    """`[device.wal]`: where pg_wal, redo and binary logs lie instead, under an fs setup of their own."""

    __pydantic_config__ = STRICT
    fs_setup: str
    size_bytes: Annotated[Bytes, Field(alias="size")] = 4 * 2**30  # kind loop
    at: str | None = None
    path: str | None = None  # kind block
    identity: str | None = None


@dataclass(frozen=True)
class DeviceSpec:
    """Where filesystems are made. `paths`: a list (block) or a table arm label -> directory (dir).

    An fs setup takes the first of several devices, as many as it wants (`FsSetup.devices`).
    """

    __pydantic_config__ = STRICT
    kind: Literal["loop", "block", "dir"] = "loop"
    size_bytes: Annotated[Bytes, Field(alias="size")] = 8 * 2**30
    at: str | None = None
    count: int = 1
    path: str | None = None
    paths: dict[str, str] | tuple[str, ...] = ()
    identity: str | None = None
    wal: WalDevice | None = None
    condition: Literal["none", "discard", "precondition"] = "none"  # kind block: the history of an SSD

    @property
    def given(self) -> int:
        """How many devices there are for an fs setup; of kind dir its arm's own directory."""
        return 1 if self.kind == "dir" else len(self.paths) or self.count


@dataclass(frozen=True)
class Ageing:
    """`[age]`: a filesystem that was used before the restore: filled and churned by a seeded sequence.

    `fill`: share of its space that stays taken beside the dataset; `churn`: how many times that much is written,
    deleted and written again in pieces.
    """

    __pydantic_config__ = STRICT
    fill: float = 0.5
    churn: float = 2.0


@dataclass(frozen=True)
class SnapshotSpec:
    """`[snapshots]`: while the load runs one every so often, the newest started as a second server; `keep` stay."""

    __pydantic_config__ = STRICT
    every_s: Annotated[Seconds, Field(alias="every")]
    keep: int = 3


@dataclass(frozen=True)
class EngineAgeing:
    """`[age_engine]`: after the load it goes on until so many times the data's bytes are written.

    `write_factors`: where tables are looked at and a window is measured; `repair`: the aged tables are put in order
    again, and scanned once more.
    """

    __pydantic_config__ = STRICT
    write_factors: tuple[float, ...] = (0.0, 1.0, 4.0)
    repair: bool = True


@dataclass(frozen=True)
class EngineSpec:
    """A server of the plan. `bin`: the folder of its programs; default: the newest that is installed.

    Several make the version a factor; in a cell there is one, or none. `cpus_server` and `cpus_client`: "0-3,8".
    """

    __pydantic_config__ = STRICT
    name: EngineName
    bins: Annotated[tuple[str, ...], Field(alias="bin"), SEVERAL] = ()
    settings: dict[str, Scalar] = field(default_factory=dict)
    cpus_server: str | None = None
    cpus_client: str | None = None
    numa_node: int | None = None  # of the server's cores and memory
    sweeps: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)  # settings that were given as a list

    @property
    def bin(self) -> str | None:
        """The folder of a cell's server."""
        return self.bins[0] if self.bins else None


@dataclass(frozen=True)
class ClientSpec:
    """`[client]`: the load generator runs on `host`, an ssh destination, and reaches the server at `address`, which is
    this machine's. `password_file`: full path, readable by its owner alone."""

    __pydantic_config__ = STRICT
    host: str
    address: str
    password_file: str
    port: int = 15432  # none that a server has by default


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload of the plan with its parameters (the workload's own keys beside `name`).

    `source`: the user's own data in place of the workload's dataset; of it one `tablespace` alone may be put onto the
    filesystem under test, and one `database` be worked on.

    `sweeps`: those that were given as a list; each value is a cell of its own.
    """

    name: str
    engines: tuple[EngineName, ...] = ()
    warmup_s: float | None = None
    measure_s: float | None = None
    source: Annotated[dict[str, str], ONE_FOR_ALL] = field(default_factory=dict)  # engine ("": each) -> path
    tablespace: str = ""
    database: str = ""
    parameters: dict[str, Scalar] = field(default_factory=dict)
    sweeps: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyOf:
    """Of which published study a plan is a scale: the page sets what was published beside what was measured."""

    __pydantic_config__ = STRICT
    name: str
    scale: str


@dataclass(frozen=True)
class Plan:
    """One question to this machine. `dbbench plan` shows what it expands to."""

    __pydantic_config__ = STRICT
    name: str
    fs_setups: tuple[Arm, ...]
    engine: tuple[EngineSpec, ...]
    workload: tuple[WorkloadSpec, ...]
    study: StudyOf | None = None  # of `dbbench study`
    baseline: str = ""  # an arm's label; default: the first
    blocks: int = 5
    seed: int = 1
    warmup_s: Annotated[Seconds, Field(alias="warmup")] = 60.0
    measure_s: Annotated[Seconds, Field(alias="measure")] = 120.0
    memory: Annotated[tuple[Bytes, ...], SEVERAL] = ()  # several: each a cell of its own
    checkpoints: Literal["time", "log"] = "time"  # what starts them: two in a window, or the log's size
    equal_readahead_bytes: Annotated[Bytes | None, Field(alias="equal_readahead")] = None  # of every filesystem
    repeat_suspect: bool = True  # a block with a suspect trial is repeated once, at the end
    device: DeviceSpec = DeviceSpec()
    client: ClientSpec | None = None  # the load generator is on another host
    restore: Literal["copy", "tar", "reflink"] = "copy"  # how a golden copy comes onto the filesystem
    age: Ageing | None = None
    snapshots: SnapshotSpec | None = None  # taken beside the load
    age_engine: EngineAgeing | None = None
    operations: tuple[str, ...] = ()  # of `operations.OPERATIONS`, timed on the filled filesystem after the load
    deadlines: dict[Phase, Seconds] = field(default_factory=dict)  # over the table in record.py
