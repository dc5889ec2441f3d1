"""What a trial found about its device and its filesystem."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbbench.model.base import Durability, Role, Scalar
from dbbench.model.plan import DeviceLimit


@dataclass(frozen=True)
class DeviceFacts:
    """The device under test."""

    kind: str
    path: str
    name: str  # kernel name: loop7, nvme0n1
    size_bytes: int
    serial: str = ""
    model: str = ""
    direct_io: bool | None = None  # only for a loop device
    image: str = ""
    image_blocks_before: int | None = None
    image_blocks_after: int | None = None
    image_extents_before: int | None = None
    image_extents_after: int | None = None
    members: tuple[DeviceFacts, ...] = ()  # the devices, if the filesystem is on several
    wal: DeviceFacts | None = None  # the device of `[device.wal]`

    @property
    def volumes(self) -> dict[Role, DeviceFacts]:
        if self.wal is None:
            return {"data": self}
        return {"data": self, "log": self.wal}

    @property
    def existing(self) -> bool:
        return self.kind == "dir"


@dataclass(frozen=True)
class ConditionFacts:
    """How the device was preconditioned (`condition` of the plan) before this trial or its block."""

    how: str
    seconds: float
    written_bytes: int = 0
    rounds_iops: tuple[float, ...] = ()
    steady: bool = True


@dataclass(frozen=True)
class WearFacts:
    """Wear and health that the first disk reports."""

    written_bytes: int | None = None  # since the disk was made
    used_share: float | None = None  # used share of the rated endurance; may be above 1
    temperature_c: float | None = None


@dataclass(frozen=True)
class CeilingRow:
    """One access pattern on the bare device, measured with fio."""

    name: str
    iops: float
    mb_per_s: float  # 10^6 bytes
    mean_ms: float  # latency of an access, including its flush


@dataclass(frozen=True)
class LimitFacts:
    """The limit of each device (`limit` of the plan), and what fio measured with it on the bare
    device.
    """

    asked: DeviceLimit
    enforced: str = ""  # "cgroup v1"
    rows: tuple[CeilingRow, ...] = ()


@dataclass(frozen=True)
class DeviceRate:
    """A rate of the device in a trial's window, to compare with what fio measured."""

    # "reads", "writes" or "reads and writes"; the transactions have that of the CeilingRow to
    # compare with
    side: str
    unit: str  # "IOPS" or "MB/s"
    median: float  # of the seconds; of transactions, their rate over the window
    constant: bool  # enough seconds, which hardly differ


@dataclass(frozen=True)
class CeilingFacts:
    """What the bare device achieved before the run, and what it did during a trial."""

    rows: tuple[CeilingRow, ...] = ()
    note: str = ""  # why `rows` is empty
    again: tuple[CeilingRow, ...] = ()  # the same after the run, if a trial exceeded them
    rates: tuple[DeviceRate, ...] = ()
    limits: tuple[LimitFacts, ...] = ()  # in ceiling.json, for each level of the plan's limit


@dataclass(frozen=True)
class IoFacts:
    """Device and engine totals over the measured window; with `[device.wal]` the sum of both
    devices.
    """

    read_bytes: int | None = None
    write_bytes: int | None = None
    flushes: int | None = None
    flushes_note: str = ""  # "not measurable (reason)"
    engine_write_bytes: int | None = None
    write_amplification: float | None = None
    wal: IoFacts | None = None  # bytes, flushes and operations of the log device alone
    read_operations: int | None = None  # completed by the device, after merging
    write_operations: int | None = None

    @property
    def operations(self) -> int | None:
        reads = self.read_operations
        writes = self.write_operations
        if reads is None or writes is None:
            return None
        return reads + writes


@dataclass(frozen=True)
class WriteFacts:
    """What `dbbench plan` estimated that the trial writes to its devices, and what they counted."""

    estimated_bytes: int
    counted_bytes: int | None


@dataclass(frozen=True)
class FilesystemFacts:
    """The filesystem: what was made, which options were requested, and which the kernel uses."""

    family: str
    mkfs: tuple[tuple[str, ...], ...] = ()
    mount_options_asked: tuple[str, ...] = ()
    # options of mount and superblock, read from mountinfo
    mount_options_effective: tuple[str, ...] = ()
    geometry: dict[str, Scalar] = field(default_factory=dict)
    read_ahead_kb: int | None = None  # from the backing device info (bdi) of the mounted filesystem
    # attributes in /sys/block/DEV/queue when attached
    queue: dict[str, str] = field(default_factory=dict)
    claims: tuple[Durability, ...] = ()
    # computed for the filesystem and the server together
    durability_flags: tuple[Durability, ...] = ()
    durability_class: str = "full"
    # by others, of losses with these settings, for which the class is reported-unsafe
    reports: tuple[str, ...] = ()
    # kind, and what its tool reports (level, chunk_kb ...)
    layers: tuple[dict[str, Scalar], ...] = ()
    # settings of the driver or the pool: txg_timeout_s, sync ...
    tunables: dict[str, Scalar] = field(default_factory=dict)
    wal: FilesystemFacts | None = None  # the filesystem of `[device.wal]`
    syncs: tuple[SyncFacts, ...] = ()  # measured after the load
    syncs_note: str = ""  # why `syncs` is empty
    # reported by statx(2) for a file; 0: not possible. None: not reported
    atomic_write_min_bytes: int | None = None
    atomic_write_max_bytes: int | None = None

    @property
    def volumes(self) -> dict[Role, FilesystemFacts]:
        if self.wal is None:
            return {"data": self}
        return {"data": self, "log": self.wal}

    @property
    def atomic_writes(self) -> str | None:
        """Return the sizes of atomic writes to a file, which happen completely or not at all; None
        if not reported.
        """
        if self.atomic_write_max_bytes is None:
            return None
        sizes = f"{self.atomic_write_min_bytes} to {self.atomic_write_max_bytes} bytes"
        return sizes if self.atomic_write_max_bytes else "none"

    @property
    def discards(self) -> bool:
        """Whether freed space is discarded online: a mount option, or ZFS's pool property
        `autotrim`.
        """
        options = {option.partition("=")[0] for option in self.mount_options_effective}
        return "discard" in options or self.geometry.get("autotrim") == "on"


@dataclass(frozen=True)
class SyncFacts:
    """Latency of an append of 16 KiB with the call after it, one at a time, on the mounted
    filesystem.
    """

    call: str  # "fsync" or "fdatasync"
    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class FileShape:
    """A data file and its extents."""

    path: str  # relative to the mount point
    bytes: int
    # counted by the filesystem: compressed data on btrfs has one per 128 KiB
    extents: int | None = None


@dataclass(frozen=True)
class FreeExtents:
    """One bin of a free-space histogram: free extents of `from_bytes` up to twice that size."""

    from_bytes: int  # a power of two
    extents: int
    bytes: int  # total size of these extents


@dataclass(frozen=True)
class SpaceFacts:
    """The space that the dataset occupies, and the fragmentation of the data and of the free space."""

    logical_bytes: int | None = None  # sum of the sizes of the data files
    disk_bytes: int | None = None  # used space of the filesystem
    free_bytes: int | None = None
    compression_ratio: float | None = None  # logical size ÷ size on disk
    # space on the device that is neither free nor content of files
    metadata_bytes: int | None = None
    metadata_share: float | None = None  # metadata_bytes ÷ (metadata_bytes + content of files)
    largest: tuple[FileShape, ...] = ()  # the largest data files, largest first
    free: tuple[FreeExtents, ...] | None = None  # smallest first; None: no tool reports it
    # which values are None because their tool was missing or failed, and the reason
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extents:
    """The extents of a file, or of its end from an offset on, by FIEMAP. Bytes are those of the
    file's content.
    """

    count: int
    compressed_bytes: int = 0  # in extents that store the bytes encoded
    preallocated_bytes: int = 0  # allocated but not yet written


@dataclass(frozen=True)
class GrownFile:
    """A file that grew during the load: what it was, and how the new end is stored."""

    path: str  # relative to the mount point
    bytes: int
    grown_bytes: int
    # extents of the new end; None: the filesystem does not report extents (ZFS)
    extents: Extents | None = None


@dataclass(frozen=True)
class GrowthFacts:
    """The files that grew during the load, by kind. Shares are of bytes; None if nothing grew or it
    is not reported.
    """

    data_bytes: int | None = None  # growth of tables and indexes; None: the load did not end
    log_bytes: int | None = None  # growth of write-ahead logs and binary logs
    extents: int | None = None  # in the new ends of tables and indexes
    compressed_share: float | None = None  # compressed part of the new ends of tables and indexes
    # compressed part of the largest tables and indexes, before the load
    restored_share: float | None = None
    preallocated_share: float | None = None
    largest: tuple[GrownFile, ...] = ()  # the tables, indexes and logs that grew most


@dataclass(frozen=True)
class AgeFacts:
    """How the filesystem was aged before the restore, and its free space afterwards."""

    seed: int
    fill: float  # `fill` of the plan
    churn: float  # `churn` of the plan
    files: int  # files that were left
    files_written: int
    written_bytes: int
    # digest of the sequence: equal digests mean the same names, sizes and bytes in the same order
    digest: str
    filled: float  # share of the space that was used in the end
    before: tuple[FreeExtents, ...] | None = None
    after: tuple[FreeExtents, ...] | None = None
