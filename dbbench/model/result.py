"""The result of a trial: the content of trial.json. `None` is "not measured"."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from dbbench.errors import warning_kinds
from dbbench.model.base import SCHEMA, STANDALONE, Phase, Scalar, Status
from dbbench.model.device import (
    AgeFacts,
    CeilingFacts,
    ConditionFacts,
    DeviceFacts,
    FilesystemFacts,
    GrowthFacts,
    IoFacts,
    LimitFacts,
    SpaceFacts,
    WearFacts,
    WriteFacts,
)
from dbbench.model.run import Settings, Window
from dbbench.model.time_facts import TimeFacts

# Kinds of work, as fields of `Work`: a load does the same number of each in every transaction.
WORK_KINDS: Final = {
    "rows": "rows inserted",
    "updated": "rows updated",
    "deleted": "rows deleted",
    "read": "rows read",
    "pages": "pages read into the cache",
}


@dataclass(frozen=True)
class TrialWarning:
    """A warning about a trial: an ID of warnings.toml, its evidence, and the second to which it
    belongs.
    """

    id: str
    text: str
    second: int | None = None
    # True: the trial's status becomes `suspect`. Default: as in warnings.toml
    suspect: bool | None = None

    def __post_init__(self) -> None:
        if self.suspect is None:
            kind = warning_kinds().get(self.id)
            object.__setattr__(self, "suspect", kind is not None and kind.suspect)


@dataclass(frozen=True)
class PhaseTime:
    """Start and duration of a phase."""

    name: Phase | Literal["age_engine"]  # the latter only in results of earlier versions
    start: str  # UTC, ISO 8601 with ms
    end: str
    seconds: float  # measured with the monotonic clock


@dataclass(frozen=True)
class CacheFacts:
    """How the page cache was emptied, with the proof. Bytes refer to the data files."""

    method: str = ""
    before_bytes: int | None = None  # resident before the drop
    after_bytes: int | None = None
    sample_bytes: int | None = None  # size of the seeded sample that was read after the drop
    sample_read_bytes: int | None = None  # read from the device for the sample
    proved: bool = False
    reason: str = ""  # why `proved` is false
    # the page cache of the whole machine was dropped, because nothing else was enough
    whole_machine: bool = False


@dataclass(frozen=True)
class CheckpointFacts:
    """Checkpoints in the measured window, according to the server's counters."""

    begun: int | None = None
    ended: int | None = None
    by_cause: dict[str, int] = field(default_factory=dict)
    fpi_bytes: int | None = None
    note: str = ""  # "burst: no checkpoint in the window"


@dataclass(frozen=True)
class DrainFacts:
    """Unwritten data at the end of the window, and the time to write it."""

    debt_bytes: int | None = None  # dirty and under write-back when the window ended
    drain_s: float | None = None
    write_bytes: int | None = None  # to the device during the drain


@dataclass(frozen=True)
class MemoryFacts:
    """The size of the dataset compared with memory, and the share of reads that the server's own
    cache served.
    """

    limit_bytes: int | None = None  # `memory` of the plan
    dataset_bytes: int | None = None
    dataset_ratio: float | None = None  # dataset_bytes ÷ effective_bytes
    hit_ratio: float | None = None
    # "direct", "buffered-fallback" (although direct I/O was requested), "buffered"
    direct: str | None = None
    effective_bytes: int | None = None  # limit_bytes, or the machine's memory without a limit
    label: str | None = None  # "cached", "edge", "io-bound"
    # by the kernel: "cgroup v2" or "cgroup v1"; "": only the server's caches are sized for it
    enforced: str = ""
    peak_bytes: int | None = None  # peak of the control group: memory of the server and page cache
    resident_bytes: int | None = None  # data files in the page cache at the end of the window
    # peak of the server's processes in the window; shared memory counts once
    server_bytes: int | None = None


@dataclass(frozen=True)
class CoresFacts:
    """The CPUs of server and load generator, as the kernel reports them: "0-3,8"."""

    server: str | None = None
    client: str | None = None
    shared: int = 0  # CPUs that both may use
    numa_node: int | None = None
    # used share of the CPU time that the load generator had, in the window
    client_share: float | None = None


@dataclass(frozen=True)
class ClientFacts:
    """The host of the load generator, if `[client]` of the plan names another one."""

    host: str  # as the plan names it
    hostname: str
    peer: str  # its address, as this machine sees it
    address: str  # address of this machine on which the server listened
    port: int
    tool: str  # version of the load generator there
    tool_here: str = ""  # version of the load generator on this machine
    kernel: str = ""
    cpus: int = 0  # number of CPUs that the load generator could use
    # median time of a TCP connection from there to the server's address
    round_trip_ms: float | None = None
    # how far its clock is ahead of this machine's; its times were corrected
    clock_offset_s: float | None = None
    clock_error_s: float | None = None  # largest possible error of the offset
    clock_drift_s: float | None = None  # change of the offset during the load
    # share of its CPU time in the window that other processes used
    others_share: float | None = None


class SourceChangeKind(StrEnum):
    """A kind of difference between the user's data and the copy that dbbench uses."""

    # `settings` were removed from the configuration files of the server
    CONFIGURATION = "configuration"
    PERSISTED = "persisted-settings"  # mysqld-auto.cnf was removed
    DATABASE_SETTINGS = "database-settings"  # `settings` of ALTER DATABASE were reset
    RENAMED = "database-renamed"  # `database` was renamed to `name`
    CHOSEN = "database-chosen"  # `database` was selected because it is the largest
    CHECKSUMS = "checksums-added"
    CHECKSUMS_REMOVED = "checksums-removed"
    NO_CHECKSUMS = "no-checksums"  # neither the source nor the copy has them
    SETTLED = "settled"  # `done` was executed once, before the copy became golden
    NOT_SETTLED = "not-settled"  # settle = false
    # `statements` of the dump were left out: this server does not have them, or they are for a
    # whole server
    SKIPPED = "statements-skipped"
    WARNED = "warnings"  # `warnings` of the server while it loaded the dump
    # `tables` have several files, and the dump does not tell how many
    NOT_COUNTED = "files-not-counted"
    NOT_MEASURED = "tables-not-measured"  # `tables` are not InnoDB's


@dataclass(frozen=True)
class SourceChange:
    """One such difference with its values by name; `datasets.sources.text` describes it in words."""

    kind: SourceChangeKind
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetFacts:
    """What was restored."""

    kind: str
    key: str  # key of the golden copy
    bytes: int  # on the filesystem under test
    # size ÷ size after zlib level 1, for a sample of tables and indexes
    compressibility: float | None
    source: str = ""  # form, engine and version of the user's data
    tablespace: str = ""  # the only tablespace on the filesystem under test
    told: tuple[str, ...] = ()  # `changes` in words
    changes: tuple[SourceChange, ...] = ()  # differences from the source


@dataclass(frozen=True)
class Work:
    """Work counted by the server and the kernel between two readings; None for what is not counted."""

    # ended by COMMIT or ROLLBACK; PostgreSQL: also single statements
    transactions: int | None = None
    statements: int | None = None  # received from clients; PostgreSQL: the number of transactions
    rows: int | None = None  # inserted
    # size of the pages that were read, including those in the server's cache
    table_bytes: int | None = None
    log_bytes: int | None = None  # written to the write-ahead log
    writes: int | None = None  # commits of transactions that changed something; a lower bound
    # by system calls of the load generator, from its start to its end
    read_bytes: int | None = None
    write_bytes: int | None = None
    # written to the binary log; None: there is none, or it is not counted
    binlog_bytes: int | None = None
    updated: int | None = None  # rows
    deleted: int | None = None  # rows
    # pages that were requested, at least one for each row that is read by an index
    read: int | None = None
    pages: int | None = None  # that were not in the server's cache


@dataclass(frozen=True)
class WorkFacts:
    """A count of the load generator, compared with that of the server or the kernel."""

    count: str  # a field of `Work`, "flushes", "dirtied_bytes" or "device_..._bytes"
    # count of the load generator; for flushes and log bytes: the commits that need them; for the
    # devices: the bytes of load or server that no cache can have saved
    claimed: int | None
    counted: int | None  # None: not counted
    least: int | None = None  # lower bound of `counted`; None: no bound, or not compared
    most: int | None = None


@dataclass(frozen=True)
class SnapshotTaken:
    """A snapshot during the load, and the second server started on it. Seconds count from the start
    of the load.
    """

    at_s: float  # when the snapshot began
    until_s: float  # when the second server had stopped and the oldest snapshot was dropped
    snapshot_s: float
    # from the start of making a writable copy to the first answer of its server, including recovery
    ready_s: float
    drop_s: float | None = None  # time to drop the oldest snapshot; None: there were at most `keep`
    # space used only by it and its copy, after the window; None: dropped or unknown
    bytes: int | None = None
    text: str = ""  # answer of the second server


@dataclass(frozen=True)
class SnapshotFacts:
    """`[snapshots]` of the plan: the snapshots taken, and the throughput that remained meanwhile."""

    every_s: float
    keep: int
    how: str = ""  # "btrfs", "zfs", "lvm", "reflink"; "": not possible here
    note: str = ""  # why it was not possible, or ended early
    taken: tuple[SnapshotTaken, ...] = ()
    # mean rate in seconds with a snapshot: tx/s, or kB/s of an apply
    rate_within: float | None = None
    rate_beside: float | None = None  # mean rate in the other seconds of the window
    cost_ratio: float | None = None  # rate_within ÷ rate_beside


@dataclass(frozen=True)
class OperationFacts:
    """A timed operation on the filled filesystem: snapshot, clone, fsck, adding a device ..."""

    name: str  # name of the operation, or of a step of it: "snapshot", "snapshot: create"
    seconds: float | None  # None: not possible here, failed, or not tried after a failure
    bytes: int | None = None  # space that it used on the filesystem
    text: str = ""
    failed: bool = False  # it was started and failed; `text` is the reason


@dataclass(frozen=True)
class TypeLatency:
    """Latencies of one type of transaction in the window, in ms."""

    type: str  # "payment", or the script of a workload with several
    transactions: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None

    @property
    def percentiles(self) -> dict[str, float | None]:
        return {"p50": self.p50_ms, "p95": self.p95_ms, "p99": self.p99_ms, "max": self.max_ms}


@dataclass(frozen=True)
class Fault:
    """The error that made a trial fail."""

    id: str
    phase: str
    text: str


@dataclass(frozen=True)
class Trial:
    """The result of a trial: the content of trial.json. `summary` has the metrics of
    `metrics.METRICS`.
    """

    id: str
    run: str
    host: str
    fs_setup: str  # label of the arm
    engine: str
    workload: str
    block: int
    attempt: int
    position: int
    status: Status
    engine_version: str = ""
    # how this version reads and writes
    engine_features: dict[str, str] = field(default_factory=dict)
    profile: str = STANDALONE  # profile of the server settings; "": there is no server
    setup: str = ""  # name of the fs setup in the catalogue
    variant: str = ""  # the cell's values from lists in the plan: "clients=8"
    window: Window | None = None
    anchor_utc: str = ""  # time of second 0, the start of warm-up
    error: Fault | None = None
    warnings: tuple[TrialWarning, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    summary: dict[str, float | None] = field(default_factory=dict)
    types: tuple[TypeLatency, ...] = ()  # empty: the load generator does not say the type
    parameters: dict[str, Scalar] = field(default_factory=dict)
    filesystem: FilesystemFacts | None = None
    cache: CacheFacts | None = None
    checkpoints: CheckpointFacts | None = None
    drain: DrainFacts | None = None
    memory: MemoryFacts | None = None
    cores: CoresFacts | None = None
    time: TimeFacts | None = None  # None: there is no server, or an earlier version
    client: ClientFacts | None = None  # None: the load generator ran on this machine
    ceiling: CeilingFacts | None = None
    limit: LimitFacts | None = None
    condition: ConditionFacts | None = None
    wear: WearFacts | None = None
    wear_end: WearFacts | None = None
    space: SpaceFacts | None = None
    growth: GrowthFacts | None = None  # None: not measured
    io: IoFacts | None = None
    writes: WriteFacts | None = None  # from the first access to the device to the last
    work: tuple[WorkFacts, ...] = ()  # empty: the driver has nothing to compare
    device: DeviceFacts | None = None
    dataset: DatasetFacts | None = None
    age: AgeFacts | None = None
    snapshots: SnapshotFacts | None = None
    operations: tuple[OperationFacts, ...] = ()
    settings: Settings = field(default_factory=dict)
    effective_settings: dict[str, str] = field(default_factory=dict)
    canary: dict[str, float] = field(default_factory=dict)
    checked: str = ""  # what the integrity check examined
    # host and block layer when the device was attached
    host_state: dict[str, Any] = field(default_factory=dict)
    host_state_end: dict[str, Any] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()
    dbbench_version: str = ""
    schema: int = SCHEMA

    def phase_s(self, name: Phase) -> float | None:
        return next((phase.seconds for phase in self.phases if phase.name == name), None)
