"""The plan that a person writes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from dbbench.model.base import (
    NAME,
    ONE_FOR_ALL,
    SEVERAL,
    STANDALONE,
    STRICT,
    Bytes,
    EngineName,
    Located,
    Phase,
    Role,
    Scalar,
    Seconds,
    Share,
    Whole,
)
from dbbench.model.times import MEASURE_S, WARMUP_S

# 10 s each take more than two days; each trial is a line of run.json and of many tables
MOST_TRIALS: Final = 20_000
MARGIN: Final = 0.05  # a difference within it does not matter: "same"
LEAST_BYTES: Final = 320 * 2**20  # mkfs.xfs refuses less than 300 MiB
_ABSOLUTE: Final = re.compile(r"/.*", re.DOTALL)
# ssh would take a leading "-" as an option
_DESTINATION: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._@%:-]*")


def _matches(pattern: re.Pattern[str], kind: str) -> AfterValidator:
    def check(written: str) -> str:
        if not pattern.fullmatch(written):
            raise ValueError(f'must be {kind}, not "{written}"')
        return written

    return AfterValidator(check)


def _check_whole(seconds: float) -> float:
    if seconds != int(seconds):  # drivers report whole seconds
        raise ValueError(f"must be a whole number of seconds, not {seconds:g} s")
    return seconds


def _check_address(written: str) -> str:
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        raise ValueError(f'must be an IP address of this machine, not "{written}"') from None
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f'must be a specific address, not "{written}"')
    if address.is_loopback:
        raise ValueError(f'cannot be "{written}", which other hosts cannot connect to')
    return written


def _check_limits(limits: DeviceLimits) -> DeviceLimits:
    if limits.tables and any(limits.lists):
        raise ValueError('cannot have "levels" next to lists')
    if len(set(map(len, limits.lists)) - {0, 1}) > 1:
        raise ValueError(
            "has lists of different lengths; the first values of all lists are one level, and so on"
        )
    for level in limits.levels:
        if level.burst_iops is None and level.burst_s is None:
            continue
        if not (level.iops and level.burst_s and (level.burst_iops or 0) > level.iops):
            raise ValueError('requires "iops", a larger "burst_iops", and "burst_s" for a burst')
    if not any(level.throttles or any(level.delays.values()) for level in limits.levels):
        raise ValueError('requires "iops", "mb_per_s", or a delay above 0')
    names = [level.name for level in limits.levels]
    if len(set(names)) < len(names):
        raise ValueError("lists a level twice")
    return limits


def _check_distinct(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    if len(set(values)) < len(values):
        raise ValueError("lists a value twice")
    return values


WholeSeconds = Annotated[Seconds, AfterValidator(_check_whole)]
Deadline = Annotated[Seconds, Field(gt=0)]
Measure = Annotated[WholeSeconds, Field(ge=1)]
DeviceBytes = Annotated[Bytes, Field(ge=LEAST_BYTES)]
MemoryBytes = Annotated[Bytes, Field(ge=2**23)]  # no server starts with less


Iops = Annotated[Whole, Field(ge=10, le=10**7)]
MbPerS = Annotated[float, Field(ge=0.1, le=10**6)]
Price = Annotated[float, Field(gt=0)]
# device-mapper delays by whole milliseconds; a second is more than any disk takes
Delay = Annotated[Whole, Field(ge=0, le=1000)]
DISTINCT: Final = AfterValidator(_check_distinct)
# The bounds are the kernel's (block/blk-mq-sched.h).
Requests = Annotated[Whole, Field(ge=4, le=2048)]
Microseconds = Annotated[Whole, Field(ge=0, le=10**7)]
# A longer one would fill the page cache of most machines.
ReadAhead = Annotated[Bytes, Field(le=2**30, multiple_of=4096)]
SchedulerName = Annotated[str, _matches(re.compile(r"[\w-]+"), "the name of a scheduler")]
Burst = Annotated[Whole, Field(ge=1, le=86400)]
READ_AHEAD: Final = "read_ahead_kb"
# Settings of a disk's queue: key of [device] -> the kernel's name. The scheduler is first: it
# changes the two after it.
QUEUE: Final = {
    "scheduler": "scheduler",
    "nr_requests": "nr_requests",
    "wbt_lat_us": "wbt_lat_usec",
    "readahead": READ_AHEAD,
}
NO_KEY: Final = "computed, not a key of a plan"  # mark of a field


@dataclass(frozen=True)
class Arm:
    """One entry of `fs_setups` in a plan: an fs setup with a unique label. `mount`, `mkfs`,
    `tuning` are added to those of the setup and replace the ones of the same name. `wal`: with
    `[device.wal]`, whether this arm's log is on that device; false for comparison.
    """

    __pydantic_config__ = STRICT
    use: str
    label: str = ""  # "": what it uses, with the added options
    wal: bool = True
    mount: tuple[str, ...] = ()
    mkfs: tuple[str, ...] = ()
    tuning: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)

    @property
    def adds(self) -> bool:
        return bool(self.mount or self.mkfs or self.tuning)


@dataclass(frozen=True)
class WalDevice:
    """`[device.wal]`: a separate device, with its own fs setup, for pg_wal, redo logs and binary
    logs.
    """

    __pydantic_config__ = STRICT
    fs_setup: str
    size_bytes: Annotated[DeviceBytes, Field(alias="size")] = 4 * 2**30  # only for kind loop
    at: Located | None = None
    path: Located | None = None  # only for kind block
    identity: str | None = None


@dataclass(frozen=True)
class DeviceLimit:
    """The limit of each device, of reads and of writes separately, and what each I/O takes longer.
    `price`: of a volume with it, in any currency.
    """

    __pydantic_config__ = STRICT
    iops: Iops | None = None
    mb_per_s: MbPerS | None = None  # 10^6 bytes
    price: Price | str | None = None
    read_ms: Delay | None = None
    write_ms: Delay | None = None
    flush_ms: Delay | None = None
    burst_iops: Iops | None = None  # in place of iops, for burst_s from the server's start
    burst_s: Burst | None = None
    # None: the values are the name
    label: Annotated[
        Annotated[str, _matches(NAME, "letters, digits and . _ + : = -")] | None,
        Field(alias="name"),
    ] = None

    @property
    def throttles(self) -> bool:
        return self.iops is not None or self.mb_per_s is not None

    @property
    def delays(self) -> dict[str, int]:
        """Return the delays in milliseconds by kind of I/O: read, write, flush."""
        each = {"read": self.read_ms, "write": self.write_ms, "flush": self.flush_ms}
        return {kind: delay for kind, delay in each.items() if delay is not None}

    @property
    def name(self) -> str:
        """Return the level's name in a variant: "model-3000iops-125MBps-flush5ms"."""
        if self.label:
            return f"model-{self.label}"
        text = self.text.replace(" IOPS", "iops").replace(" MB/s", "MBps").replace(" and ", "-")
        text = text.replace("burst of ", "burst").replace(" for ", "-")
        return f"model-{text.replace(' +', '').replace(' ms', 'ms').replace(' s', 's')}"

    @property
    def text(self) -> str:
        """Return "3000 IOPS and 125 MB/s and flush +5 ms"."""
        rates = (self.iops, "IOPS"), (self.mb_per_s, "MB/s")
        texts = [f"{rate:.10g} {unit}" for rate, unit in rates if rate is not None]
        texts += [f"{kind} +{delay} ms" for kind, delay in self.delays.items()]
        if self.burst_iops is not None:
            texts.append(f"burst of {self.burst_iops} IOPS for {self.burst_s} s")
        return " and ".join(texts)


@dataclass(frozen=True)
class DeviceLimits:
    """`limit` of `[device]`: the nth values of the lists are one level; a single value applies to
    every level.
    """

    __pydantic_config__ = STRICT
    iops: Annotated[tuple[Iops, ...], SEVERAL] = ()
    mb_per_s: Annotated[tuple[MbPerS, ...], SEVERAL] = ()
    price: Annotated[tuple[Price, ...], SEVERAL] = ()
    read_ms: Annotated[tuple[Delay, ...], SEVERAL] = ()
    write_ms: Annotated[tuple[Delay, ...], SEVERAL] = ()
    flush_ms: Annotated[tuple[Delay, ...], SEVERAL] = ()
    burst_iops: Annotated[tuple[Iops, ...], SEVERAL] = ()
    burst_s: Annotated[tuple[Burst, ...], SEVERAL] = ()
    tables: Annotated[tuple[DeviceLimit, ...], Field(alias="levels")] = ()  # in place of the lists

    @property
    def lists(self) -> tuple[tuple[float, ...], ...]:
        """Return the lists in the order of the fields of DeviceLimit, without `tables`."""
        return tuple(getattr(self, each.name) for each in fields(self)[:-1])

    @property
    def levels(self) -> tuple[DeviceLimit, ...]:
        number = max(map(len, self.lists))
        columns: list[tuple[Any, ...]] = []
        for values in self.lists:
            repeated = values * number if len(values) == 1 else values
            columns.append(repeated or (None,) * number)
        levels = self.tables or tuple(DeviceLimit(*level) for level in zip(*columns, strict=True))
        # Where one level has a delay, the others have the same layer.
        kinds = {f"{kind}_ms" for level in levels for kind in level.delays}
        same = []
        for level in levels:
            delays: dict[str, Any] = {key: getattr(level, key) or 0 for key in kinds}
            same.append(replace(level, **delays))
        return tuple(same)

    @property
    def throttled(self) -> tuple[DeviceLimit, ...]:
        """Return the levels that the block layer limits."""
        return tuple(level for level in self.levels if level.throttles)


@dataclass(frozen=True)
class DeviceSpec:
    """The device for filesystems. `paths`: a list (block), or a table of arm label -> directory
    (dir). Of several devices, an fs setup uses the first ones, as many as it needs
    (`FsSetup.devices`).
    """

    __pydantic_config__ = STRICT
    kind: Literal["loop", "block", "dir"] = "loop"
    size_bytes: Annotated[DeviceBytes, Field(alias="size")] = 8 * 2**30
    at: Located | None = None
    count: Annotated[Whole, Field(ge=1, le=256)] = 1
    path: Located | None = None
    paths: dict[str, Located] | tuple[Located, ...] = ()
    identity: str | None = None
    wal: WalDevice | None = None
    # only for kind block: preparation of an SSD
    condition: Literal["none", "discard", "precondition"] = "none"
    limit: Annotated[DeviceLimits, AfterValidator(_check_limits)] | None = None  # not with kind dir
    # Settings of the disks' queues; several values are levels of a factor.
    scheduler: Annotated[tuple[SchedulerName, ...], SEVERAL, DISTINCT] = ()
    nr_requests: Annotated[tuple[Requests, ...], SEVERAL, DISTINCT] = ()
    wbt_lat_us: Annotated[tuple[Microseconds, ...], SEVERAL, DISTINCT] = ()
    readahead: Annotated[tuple[ReadAhead, ...], SEVERAL, DISTINCT] = ()

    @property
    def existing(self) -> bool:
        """Whether the filesystems exist already."""
        return self.kind == "dir"

    @property
    def has_images(self) -> bool:
        """Whether the filesystems are in image files."""
        return self.kind == "loop"

    @property
    def queue(self) -> dict[str, tuple[Scalar, ...]]:
        """Return the values of each setting of the disks' queues that is given, by the kernel's name."""
        every = {name: getattr(self, key) for key, name in QUEUE.items()}
        every[READ_AHEAD] = tuple(size // 1024 for size in self.readahead)
        return {name: values for name, values in every.items() if values}

    @property
    def volumes(self) -> dict[Role, DeviceSpec]:
        """Return the devices of each volume, as if it were the only one."""
        log = self.wal
        if log is None:
            return {"data": self}
        of_log = DeviceSpec(
            self.kind,
            log.size_bytes,
            log.at or self.at,
            path=log.path,
            identity=log.identity,
        )
        return {"data": replace(self, wal=None), "log": of_log}

    @property
    def disks(self) -> tuple[str, ...]:
        if self.existing or self.has_images:
            return ()
        return (self.path,) if self.path else tuple(self.paths)

    @property
    def directories(self) -> dict[str, str]:
        return self.paths if isinstance(self.paths, dict) else {}

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the names of the disks in commands that are only shown: loop devices have none
        before they exist.
        """
        if not self.has_images:
            return self.disks
        if self.count == 1:
            return ("LOOP",)
        return tuple(f"LOOP{number}" for number in range(1, self.count + 1))

    @property
    def image_bytes(self) -> int:
        """Return the size of all image files, with that of the log."""
        if not self.has_images:
            return 0
        return sum(spec.count * spec.size_bytes for spec in self.volumes.values())

    def disk_bytes(self, measure: Callable[[Path], int | None]) -> list[int]:
        """Return the size of each disk, 0 for one that does not exist; `measure` returns that of a
        block device.
        """
        sizes = [self.size_bytes] * self.count if self.has_images else []
        return sizes + [measure(Path(path)) or 0 for path in self.disks]

    @property
    def device_count(self) -> int:
        """Return the number of devices available to an fs setup; for kind dir this is the arm's
        directory.
        """
        return 1 if self.directories else len(self.paths) or self.count


@dataclass(frozen=True)
class Ageing:
    """`[age]`: fill and churn the filesystem with seeded writes before the restore. `fill`: share
    of the space that stays occupied; `churn`: how many times that amount is written, deleted and
    written again in pieces.
    """

    __pydantic_config__ = STRICT
    fill: Annotated[float, Field(gt=0, lt=1)] = 0.5
    churn: Annotated[float, Field(ge=0)] = 2.0


@dataclass(frozen=True)
class SnapshotSpec:
    """`[snapshots]`: take snapshots at intervals during the load, start a second server on the
    newest, keep `keep`.
    """

    __pydantic_config__ = STRICT
    every_s: Annotated[Seconds, Field(alias="every", ge=1)]
    keep: Annotated[Whole, Field(ge=1)] = 3


@dataclass(frozen=True)
class EngineSpec:
    """A server of the plan. `bin`: its directories of programs, at most one in a cell; default: the
    newest installed version. `profile`: the base of its settings in `settings_profiles`.
    `cpus_server` and `cpus_client`: "0-3,8".
    """

    __pydantic_config__ = STRICT
    name: EngineName
    bins: Annotated[tuple[Located, ...], Field(alias="bin"), SEVERAL] = ()
    profile: str = STANDALONE
    settings: dict[str, Scalar] = field(default_factory=dict)
    cpus_server: str | None = None
    cpus_client: str | None = None
    # the node of the server's CPUs and memory
    numa_node: Annotated[Whole, Field(ge=0)] | None = None
    # settings that the plan gives as a list
    sweeps: Annotated[dict[str, tuple[Scalar, ...]], NO_KEY] = field(default_factory=dict)

    @property
    def bin(self) -> Path | None:
        return Path(self.bins[0]) if self.bins else None


@dataclass(frozen=True)
class ClientSpec:
    """`[client]`: run the load generator on another host."""

    __pydantic_config__ = STRICT
    host: Annotated[str, _matches(_DESTINATION, 'a destination for ssh such as "user@db2"')]
    # of this machine, at which it reaches the server
    address: Annotated[str, AfterValidator(_check_address)]
    # readable only by its owner
    password_file: Annotated[str, _matches(_ABSOLUTE, "an absolute path")]
    port: Annotated[Whole, Field(ge=1024, le=65535)] = 15432  # no server uses this port by default


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload of the plan; `parameters` are the keys that are not named here. `source`: the
    user's data instead of the workload's; `tablespace` puts only that one on the filesystem
    under test, `database` selects one. `settle`: vacuum and freeze a physical copy once.
    `checksums`: of its pages; None: as in the source. `sweeps`: parameters given as lists, a
    cell per value.
    """

    __pydantic_config__ = STRICT
    name: str
    engines: tuple[EngineName, ...] = ()
    warmup_s: Annotated[WholeSeconds | None, Field(alias="warmup")] = None
    measure_s: Annotated[Measure | None, Field(alias="measure")] = None
    # engine, "" for all -> path
    source: Annotated[dict[str, Located], ONE_FOR_ALL] = field(default_factory=dict)
    tablespace: str = ""
    database: str = ""
    settle: bool = True
    checksums: bool | None = None
    parameters: dict[str, Scalar] = field(default_factory=dict)
    sweeps: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyOf:
    """The published study that a plan reproduces, and its scale; the page shows both results side
    by side.
    """

    __pydantic_config__ = STRICT
    name: str
    scale: str


@dataclass(frozen=True)
class Plan:
    """A question to this machine: what to compare, on which device, under which loads."""

    __pydantic_config__ = STRICT
    name: Annotated[str, _matches(NAME, "at most 240 letters, digits and . _ + : = -")]
    fs_setups: tuple[Arm, ...]
    engine: tuple[EngineSpec, ...]
    workload: tuple[WorkloadSpec, ...]
    # settings of the engines: name -> levels
    factors: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    study: StudyOf | None = None  # set by `dbbench study`
    baseline: str = ""  # the label of an arm; "": the first arm
    # label -> verdict that fails no gate
    expect: dict[str, Literal["slower"]] = field(default_factory=dict)
    blocks: Annotated[Whole, Field(ge=1, le=MOST_TRIALS)] = 5
    # for the whole run; sets the number of blocks
    budget_s: Annotated[Deadline | None, Field(alias="budget")] = None
    margin: Share = MARGIN
    seed: Whole = 1
    warmup_s: Annotated[WholeSeconds, Field(alias="warmup")] = WARMUP_S
    measure_s: Annotated[Measure, Field(alias="measure")] = MEASURE_S
    memory: Annotated[tuple[MemoryBytes, ...], SEVERAL] = ()  # each value becomes a separate cell
    checkpoints: Literal["time", "log"] = "time"  # what starts a checkpoint; "time": two per window
    # set on every filesystem
    equal_readahead_bytes: Annotated[ReadAhead | None, Field(alias="equal_readahead")] = None
    repeat_suspect: bool = True  # a block with a suspect trial is repeated once, at the end
    device: DeviceSpec = DeviceSpec()
    client: ClientSpec | None = None  # None: the load generator runs on this machine
    age: Ageing | None = None
    snapshots: SnapshotSpec | None = None  # taken during the load
    operations: tuple[str, ...] = ()  # from `operations.OPERATIONS`; timed after the load
    # override those of DEADLINES_S
    deadlines: dict[Phase, Deadline] = field(default_factory=dict)

    @property
    def baseline_label(self) -> str:
        """Return the label of the setup that others are compared with."""
        return self.baseline or self.fs_setups[0].label
