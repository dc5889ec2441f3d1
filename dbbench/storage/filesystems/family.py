"""The interface of a family of filesystems, and of a mounted filesystem. `Family` has defaults that
suit most families; a family overrides what differs. Families that are made by mkfs and mounted
by mount(8) derive from `formatted.Formatted`; a pool, or no filesystem at all, from `Family`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from dbbench.machine.libc import syncfs
from dbbench.machine.pagecache import Emptying
from dbbench.model import Commands, Durability, FsSetup, Scalar, Scalars, Volume, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.common import BLOCK, content_bytes, has_encoding, mount_of

if TYPE_CHECKING:
    from dbbench.storage.filesystems.zfs.pool import ZfsPool

FreeExtent = tuple[int, int, int]  # least size in bytes, number of extents, their total bytes


@dataclass(frozen=True)
class Made:
    """A filesystem that mkfs has made."""

    argv: tuple[Words, ...]
    uuid: str
    # what mkfs made: block_size, journal_bytes, agcount, nodesize, data_profile ...
    geometry: Scalars


@dataclass(frozen=True)
class MountPoint:
    """Where a filesystem is mounted, with values that only a pool uses."""

    path: Path  # created if it is missing
    journal: Journal | None = None  # records a pool, because it does not end with the namespaces
    arc_bytes: int | None = None  # the maximum of a pool's own cache
    stays: bool = False  # a pool is left on its device at the end, as other filesystems always are


@dataclass(frozen=True)
class Mounted:
    """A mounted filesystem, and what the kernel reports about it."""

    path: Path
    family: str
    options_asked: Words
    # Mount and superblock options from mountinfo, each once; then the properties of the data
    # volume.
    options_effective: Words
    read_ahead_kb: int | None  # from /sys/class/bdi/MAJ:MIN of st_dev
    # durability flags of the filesystem, computed from the effective options
    flags: tuple[Durability, ...]
    # whether a database page can tear when it is overwritten; False if data is copied on write
    tears: bool
    raw: Path | None = None  # device node, if there is no filesystem on the device
    # Settings of the driver or the pool: txg_timeout_s, arc_max_bytes ...
    tunables: Scalars = field(default_factory=dict)
    # for a pool: bytes that are copied on write together; a larger page can tear
    record_bytes: int | None = None
    # entries of options_effective that belong to the volume and not to the mount
    properties: Words = ()
    # the pool that dbbench created
    pool: ZfsPool | None = field(default=None, repr=False, compare=False)
    # size and alignment of the parts of a file that direct I/O overwrites in place; 0: not known
    unit_bytes: int = 0

    def tears_pages_of(self, page_bytes: int) -> Durability | None:
        """Return the flag of a server that does not repair torn pages, or None if pages of this
        size cannot tear. TORN_PREVENTED: direct I/O sends an aligned page to the disk as a
        whole.
        """
        record_bytes = page_bytes if self.record_bytes is None else self.record_bytes
        if not self.tears and page_bytes <= record_bytes:
            return None
        if page_bytes <= self.unit_bytes:
            return Durability.TORN_PREVENTED
        return Durability.TORN_PAGES


@dataclass(frozen=True)
class Stored:
    """A mounted filesystem with the dataset; no server is running."""

    setup: FsSetup
    # what the filesystem is on: the top layer, or the device; `volume.spare` may be added
    volume: Device
    fs: Mounted
    datadir: Path
    room: Path  # a private folder that is not on the device under test, for mount points
    # records what does not end with the namespaces
    journal: Journal | None = field(default=None, kw_only=True)
    # part of the names of snapshot and clone, if there are several
    tag: str = field(default="", kw_only=True)

    def sync(self) -> None:
        syncfs(self.fs.path)


class Snapshots(Protocol):
    """Copies of one moment. At most one exists for each `tag`, and the family chooses the rest of
    its name. Each operation leaves the filesystem mounted at `fs.path` with a data directory
    that a server can start from.
    """

    @property
    def name(self) -> str:
        """Return the mechanism: "btrfs", "lvm", "reflink"."""

    @property
    def atomic(self) -> bool:
        """Whether it may be taken while a server runs (crash-consistent); otherwise the server is
        stopped.
        """

    def lacks(self, stored: Stored) -> str | None:
        """Return why it is not possible here (no reflinks, no space in the pool), or None."""

    def snapshot(self, stored: Stored) -> None:
        """Take it."""

    def clone(self, stored: Stored) -> AbstractContextManager[Path]:
        """Mount a writable copy of the snapshot within the block; yield its data directory."""

    def taken_bytes(self, stored: Stored) -> int | None:
        """Return the space of snapshot and clone in addition to the filesystem itself; None:
        unknown.
        """

    def rollback(self, stored: Stored) -> None:
        """Restore the filesystem to the snapshot, mounted at the same place."""

    def drop(self, stored: Stored) -> None:
        """Remove the snapshot, rolled back or not; do nothing if there is none."""


class Growing(Protocol):
    """A filesystem, or a layer below it, that can use another device."""

    def add(self, stored: Stored, spare: Device) -> str:
        """Add the device; return a summary of the tool's output."""

    def rebalance(self, stored: Stored) -> str:
        """Distribute data over all devices (btrfs) or grow into them (LVM, md); return a summary of
        the output.
        """


@dataclass(frozen=True)
class Check:
    """A check of the whole filesystem, without changes."""

    name: str  # "e2fsck -fn", "scrub"
    run: Callable[[Stored], str]  # returns a summary in a few words; raises FilesystemDamaged
    # it checks the mounted filesystem; otherwise the filesystem is unmounted first
    mounted: bool = False


@dataclass(frozen=True)
class Character:
    """Features other than speed, from the manual pages: mount(8), btrfs(5), zfsprops(7),
    zpoolconcepts(7), resize2fs(8), xfs_growfs(8), lvm(8). `checksums` of data;
    `repairs` itself from a second copy; `resize` while mounted; `in_place`: a full filesystem
    can still overwrite blocks, as a database does with its pages.
    """

    checksums: str  # "data and metadata", "metadata", "none"
    repairs: bool
    snapshots: str  # "yes", "by LVM", "no"
    sends: bool  # incremental send and receive
    resize: str  # "grow and shrink", "grow", "no"
    in_place: bool


class Family:
    """A family, defined in its own module. The defaults suit a filesystem without any of these
    features.
    """

    name: str  # the name in `mkfs.NAME` and in the kernel
    # made by mkfs and mounted by mount(8); otherwise it caches files itself
    by_mkfs: ClassVar[bool] = False
    in_kernel: ClassVar[bool] = True  # it requires a kernel module of its name
    tuner: str = ""  # the program that gets the words of `Mkfs.tune`
    period_s: float | None = None  # how often it writes delayed data by itself, in seconds
    reads_with: Words = ()  # programs that read its facts, which `doctor` lists
    # the command that grows it, mounted, into a volume that has become larger
    resizing: Words = ()
    # exit statuses of the tool of `defragmenting` that mean success
    defragmented: tuple[int, ...] = (0,)
    snapshots: Snapshots | None = None
    growing: Growing | None = None
    described: Character | None = None  # without regard to its options
    checks: tuple[Check, ...] = ()  # every check of the whole filesystem

    def programs(self, setup: FsSetup) -> Words:
        return ()

    def commands(
        self,
        setup: FsSetup,
        targets: Words,
        at: str,
    ) -> Commands:
        """Return the commands for making and mounting, as a person would type them."""
        raise NotImplementedError

    def create(
        self,
        setup: FsSetup,
        device: Device,
        journal: Journal | None,
    ) -> Made:
        """Make it on a locked device, whose checks were passed when it was attached. Raises
        MakeFailed.
        """
        raise NotImplementedError

    def open(
        self,
        setup: FsSetup,
        device: Device,
        to: MountPoint,
    ) -> AbstractContextManager[Mounted]:
        """Mount it within the block. See `filesystems.mount`."""
        raise NotImplementedError

    @contextlib.contextmanager
    def mounted_again(
        self,
        setup: FsSetup,
        device: Device,
        at: Path,
        journal: Journal,
    ) -> Iterator[None]:
        """Mount it again with its volumes within the block; it stays on the device."""
        with self.open(
            setup,
            device,
            MountPoint(at, journal, stays=True),
        ):
            yield

    def read_at(self, path: Path) -> Mounted:
        raise NotImplementedError

    def emptying(
        self,
        setup: FsSetup,
        device: Device,
        fs: Mounted,
    ) -> Emptying:
        raise NotImplementedError

    def lacks(self, setup: FsSetup, root: Path = Path("/")) -> str | None:
        """Return what the setup requires and this kernel (/proc and /sys below `root`), page size
        or driver does not support, or None.
        """
        return None

    def promises(self, setup: FsSetup) -> tuple[Durability, ...]:
        """Return the durability flags that follow from the setup's options."""
        return ()

    def conflict(self, setup: FsSetup) -> str | None:
        """Return why the setup's options cannot be used together, whatever the machine, or None."""
        return None

    def sector_bytes(self, setup: FsSetup) -> int:
        """Return the sector size that a loop device for the setup should have; 0 for the driver's
        default.
        """
        return 0

    def give_back(self, journal: Journal) -> list[str]:
        """Release what a killed run left and no namespace has ended; return what it was."""
        return []

    def tears(self, effective: Words, attributes: Words) -> bool:
        """Whether a database page can be half written after a power loss; `attributes`: of the data
        directory.
        """
        return True

    def tears_pages_of(self, setup: FsSetup, page_bytes: int) -> bool:
        return self.tears(options_of(setup), attributes_of(setup))

    def reports(self, options: Words, unprotected: bool) -> Words:
        """Return public reports of losses after a power loss with these options, as
        "owner/project#number". `unprotected`: the server does not repair torn pages.
        """
        return ()

    def compresses(self, options: Words) -> str | None:
        return None

    def character(self, setup: FsSetup) -> Character | None:
        """Return the features of a setup, or None if unknown."""
        return self.described

    def writes_out_s(self, options: Sequence[str], tunables: Mapping[str, Scalar]) -> float | None:
        """Return the longest period after which it writes delayed data by itself, or None."""
        for option in options:
            name, _, value = option.partition("=")
            if name == "commit" and value.isdigit():
                return float(value)
        return self.period_s

    def bdi(self, path: Path) -> Path:
        """Return the directory in /sys with the mounted filesystem's read_ahead_kb: by the number
        from stat(2).
        """
        number = path.stat().st_dev
        return Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}")

    def compression_ratio(self, path: Path) -> float | None:
        """Return the bytes of the files' data in `path` divided by the bytes on disk, or None if
        unknown.
        """
        return None

    def has_compression(self, files: Sequence[Path]) -> bool:
        return any(has_encoding(path) for path in files)

    def free_extents(self, fs: Mounted) -> Iterable[FreeExtent] | None:
        """Return the extents of its free space, or None if no tool reports them."""
        return None

    def taken_bytes(self, fs: Mounted) -> tuple[int, int] | None:
        """Return the device bytes of metadata (all that is neither free nor content) and of files,
        or None. The default, for one volume: its size − free − blocks of the files.
        """
        size_of = Path(f"/sys/dev/block/{mount_of(fs.path).device}/size")
        if not os.path.lexists(size_of):
            return None
        total = os.statvfs(fs.path)
        free = total.f_bfree * total.f_frsize
        content = content_bytes(fs.path)
        metadata = int(size_of.read_text()) * BLOCK - free - content
        return max(0, metadata), content

    def defragmenting(self, datadir: Path, files: Sequence[Path]) -> list[list[str]] | None:
        """Return the commands of its tool that defragment the data files, or None without such a
        tool.
        """
        return None


def options_of(setup: FsSetup) -> Words:
    """Return the options of the filesystem, then properties of the volume that contains the data."""
    return (*setup.mount, *setup.volumes.get("data", Volume()).options)


def attributes_of(setup: FsSetup) -> Words:
    """Return what chattr sets on the data directory, or on its volume."""
    return (*setup.attributes, *setup.volumes.get("data", Volume()).attributes)
