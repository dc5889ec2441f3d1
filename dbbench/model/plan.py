"""The plan that a person writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field

from dbbench.model.base import (
    ONE_FOR_ALL,
    SEVERAL,
    STANDALONE,
    STRICT,
    Bytes,
    EngineName,
    Phase,
    Role,
    Scalar,
    Seconds,
)


@dataclass(frozen=True)
class Arm:
    """One entry of `fs_setups` in a plan: an fs setup with a label that is unique in the plan.

    `wal`: with `[device.wal]`, true puts this arm's log on that device; false leaves it with the data, for comparison.
    """

    __pydantic_config__ = STRICT
    use: str
    label: str
    wal: bool = True


@dataclass(frozen=True)
class WalDevice:
    """`[device.wal]`: a separate device, with its own fs setup, for pg_wal, redo logs and binary logs."""

    __pydantic_config__ = STRICT
    fs_setup: str
    size_bytes: Annotated[Bytes, Field(alias="size")] = 4 * 2**30  # only for kind loop
    at: str | None = None
    path: str | None = None  # only for kind block
    identity: str | None = None


@dataclass(frozen=True)
class DeviceSpec:
    """The device on which filesystems are made. `paths`: a list (block), or a table of arm label -> directory (dir).

    If there are several devices, an fs setup uses the first ones, as many as it needs (`FsSetup.devices`).
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
    condition: Literal["none", "discard", "precondition"] = "none"  # only for kind block: preparation of an SSD

    @property
    def existing(self) -> bool:
        """Whether these are existing directories: dbbench makes and mounts nothing on them."""
        return self.kind == "dir"

    @property
    def imaged(self) -> bool:
        """Whether these are loop devices over image files that dbbench makes."""
        return self.kind == "loop"

    @property
    def real(self) -> bool:
        """Whether these are block devices: their content is erased, and the user must confirm their identity."""
        return self.kind == "block"

    @property
    def volumes(self) -> dict[Role, DeviceSpec]:
        """Return the devices of each volume, as if it were the only one."""
        if (log := self.wal) is None:
            return {"data": self}
        own = DeviceSpec(self.kind, log.size_bytes, log.at or self.at, path=log.path, identity=log.identity)
        return {"data": replace(self, wal=None), "log": own}

    @property
    def given(self) -> int:
        """Return the number of devices available to an fs setup; for kind dir this is the arm's directory."""
        return 1 if self.existing else len(self.paths) or self.count


@dataclass(frozen=True)
class Ageing:
    """`[age]`: fill and churn the filesystem with a seeded sequence of writes before the dataset is restored.

    `fill`: share of the space that stays occupied next to the dataset; `churn`: how many times that amount is written,
    deleted and written again in pieces.
    """

    __pydantic_config__ = STRICT
    fill: float = 0.5
    churn: float = 2.0


@dataclass(frozen=True)
class SnapshotSpec:
    """`[snapshots]`: take snapshots at intervals during the load and start a second server on the newest;
    keep `keep`."""

    __pydantic_config__ = STRICT
    every_s: Annotated[Seconds, Field(alias="every")]
    keep: int = 3


@dataclass(frozen=True)
class EngineAgeing:
    """`[age_engine]`: continue the load after the window until several times the size of the data has been written.

    `write_factors`: multiples of the data's size at which the tables are inspected and another window is measured;
    `repair`: afterwards reorganise the tables and scan them again.
    """

    __pydantic_config__ = STRICT
    write_factors: tuple[float, ...] = (0.0, 1.0, 4.0)
    repair: bool = True


@dataclass(frozen=True)
class EngineSpec:
    """A server of the plan. `bin`: the directory of its programs; default: the newest version that is installed.

    `profile`: which of the engine's `settings_profiles` is the base of its settings; a plan's default is "production".

    Several values of `bin` make the version a factor; in a cell there is at most one. `cpus_server` and `cpus_client`:
    "0-3,8".
    """

    __pydantic_config__ = STRICT
    name: EngineName
    bins: Annotated[tuple[str, ...], Field(alias="bin"), SEVERAL] = ()
    profile: str = STANDALONE
    settings: dict[str, Scalar] = field(default_factory=dict)
    cpus_server: str | None = None
    cpus_client: str | None = None
    numa_node: int | None = None  # the node of the server's CPUs and memory
    sweeps: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)  # settings that the plan gives as a list

    @property
    def bin(self) -> str | None:
        """Return the directory of a cell's server programs."""
        return self.bins[0] if self.bins else None


@dataclass(frozen=True)
class ClientSpec:
    """`[client]`: run the load generator on another host.

    `host`: the ssh destination; `address`: the address of this machine at which it reaches the server; `password_file`:
    an absolute path, readable only by its owner.
    """

    __pydantic_config__ = STRICT
    host: str
    address: str
    password_file: str
    port: int = 15432  # no server uses this port by default


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload of the plan with its parameters (the keys other than `name` that the workload defines).

    `source`: the user's data instead of the workload's dataset; `tablespace` puts only that tablespace on the
    filesystem under test, and `database` selects one database. `settle`: vacuum and freeze a physical copy once.
    `checksums`: whether its pages have checksums; None: as in the source.

    `sweeps`: parameters that were given as a list; each value becomes a separate cell.
    """

    name: str
    engines: tuple[EngineName, ...] = ()
    warmup_s: float | None = None
    measure_s: float | None = None
    source: Annotated[dict[str, str], ONE_FOR_ALL] = field(default_factory=dict)  # engine ("" for every engine) -> path
    tablespace: str = ""
    database: str = ""
    settle: bool = True
    checksums: bool | None = None
    parameters: dict[str, Scalar] = field(default_factory=dict)
    sweeps: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyOf:
    """The published study that a plan reproduces, and its scale; the page shows both results side by side."""

    __pydantic_config__ = STRICT
    name: str
    scale: str


@dataclass(frozen=True)
class Plan:
    """A question to this machine: what to compare, on which device, under which loads."""

    __pydantic_config__ = STRICT
    name: str
    fs_setups: tuple[Arm, ...]
    engine: tuple[EngineSpec, ...]
    workload: tuple[WorkloadSpec, ...]
    factors: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)  # settings of the engines: name -> levels
    study: StudyOf | None = None  # set by `dbbench study`
    baseline: str = ""  # the label of an arm; "": the first arm
    blocks: int = 5
    budget_s: Annotated[Seconds | None, Field(alias="budget")] = None  # for the whole run; sets the number of blocks
    seed: int = 1
    warmup_s: Annotated[Seconds, Field(alias="warmup")] = 60.0
    measure_s: Annotated[Seconds, Field(alias="measure")] = 120.0
    memory: Annotated[tuple[Bytes, ...], SEVERAL] = ()  # each value becomes a separate cell
    checkpoints: Literal["time", "log"] = "time"  # what starts a checkpoint; "time": two per window
    equal_readahead_bytes: Annotated[Bytes | None, Field(alias="equal_readahead")] = None  # set on every filesystem
    repeat_suspect: bool = True  # a block with a suspect trial is repeated once, at the end
    device: DeviceSpec = DeviceSpec()
    client: ClientSpec | None = None  # None: the load generator runs on this machine
    age: Ageing | None = None
    snapshots: SnapshotSpec | None = None  # taken during the load
    age_engine: EngineAgeing | None = None
    operations: tuple[str, ...] = ()  # from `operations.OPERATIONS`; timed after the load
    deadlines: dict[Phase, Seconds] = field(default_factory=dict)  # override the default deadlines in run/record.py
