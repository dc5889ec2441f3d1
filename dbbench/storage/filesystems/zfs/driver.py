"""The ZFS of this machine: OpenZFS in the kernel, or zfs-fuse as a process, and what each of them can do.

The size of the ARC is limited separately, because the memory limit of a cgroup does not include it. Properties are
parsed, compared with those requested, and translated into durability, torn pages and compression.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import packages, process
from dbbench.errors import CommandFailed, ZfsUnavailable
from dbbench.model import Durability, FsSetup, Scalar
from dbbench.results.journal import Journal

MODULE: Final = Path("/sys/module/zfs")
ARCSTATS: Final = Path("/proc/spl/kstat/zfs/arcstats")
FUSE_POOL_VERSION: Final = 23  # pool version of zfs-fuse 0.7.x, the last release
ARC_JOURNALLED: Final = "zfs_arc"
ARC_LEAST_BYTES: Final = 64 * 2**20  # OpenZFS accepts no smaller zfs_arc_max
_ARC_SETTLED: Final = 1.01  # the ARC reports its new limit at once, but rounded
_PARAMETERS: Final = ("zfs_txg_timeout", "zfs_dirty_data_max", "zfs_arc_max", "zfs_nocacheflush", "zil_nocacheflush")
_NEWER: Final = ("sync", "redundant_metadata", "relatime", "dnodesize", "acltype", "direct", "prefetch", "autotrim")
_NEWER_VALUES: Final = (("compression", r"lz4|zstd.*"), ("checksum", r"sha512|skein|edonr|blake3"), ("xattr", "sa"))
_SINCE: Final = (  # first version with each property, from the release notes of OpenZFS
    ("compression", r"zstd.*", (2, 0)), ("checksum", "blake3", (2, 2)),
    ("redundant_metadata", "some|none", (2, 2)), ("direct", ".*", (2, 3)), ("autotrim", ".*", (0, 8)),
)  # fmt: skip
# Properties of each dataset that a result contains, as far as the driver's version has them.
SHOWN: Final = ("recordsize", "compression", "checksum", "sync", "logbias", "primarycache", "secondarycache", "atime",
                "xattr", "redundant_metadata", "copies", "dedup", "direct")  # fmt: skip
SMALLEST_PAGE: Final = 8192  # smallest page of the supported engines: PostgreSQL's; InnoDB's is 16384
_DEFAULT_RECORD: Final = 128 * 2**10
# Public reports of losses after a power cut, or a crash of the whole machine, that ZFS should have prevented.
_LOGBIAS_REPORT: Final = "openzfs/zfs#18996"  # acknowledged data was lost
_RECORD_REPORT: Final = "openzfs/zfs#17879"  # a record was torn
_REPORTED_RECORD: Final = 16 * 2**10  # the only size of records with which one was torn
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20}
_ON: Final = {"compression": "lzjb"}  # what "on" meant before feature flags; newer pools use lz4 and report "on"


@dataclass(frozen=True)
class ZfsDriver:
    """One of the two drivers. `version` is that of the kernel module ("2.4.4-1"; "" before it is loaded). For zfs-fuse
    it is the version of its pools, "23", because the program does not report its own."""

    native: bool
    version: str

    def __str__(self) -> str:
        return f"OpenZFS {self.version}".strip() if self.native else f"zfs-fuse (pool version {self.version})"

    @property
    def flags(self) -> tuple[Durability, ...]:
        """Return what may be lost, independent of the setup's options.

        zfs-fuse ignores fsync(2) of a file that was closed after it was written, if no process has it open (50 calls
        caused no flush of the device, but 50 flushes with the file open). So it loses what a checkpoint has written.
        """
        return () if self.native else (Durability.NO_BARRIER,)

    def lacks(self, setup: FsSetup) -> str | None:
        """Return the first option of the setup that this driver does not support, or None."""
        asked = [words(setup), pairs(setup.mkfs.options),
                 *(pairs(v.options) for v in setup.volumes.values())]  # fmt: skip
        return next((lack for options in asked for lack in self._lacking(options)), None)

    def refusal(self, setup: FsSetup) -> str | None:
        """Return why this driver cannot make a setup's pool, or None if it can."""
        native_only = "zfs" in setup.needs.kernel and not self.native
        return self.lacks(setup) or ("it requires OpenZFS in the kernel" if native_only else None)

    def _lacking(self, asked: dict[str, str]) -> Iterator[str]:
        release = tuple(int(word) for word in re.findall(r"\d+", self.version)[:2])
        for name, value in asked.items():
            if not self.native and _is_newer(name, value):
                yield f"{name}={value} needs OpenZFS in the kernel; {self} does not support it"
            for key, values, least in _SINCE:
                if self.native and release and name == key and re.fullmatch(values, value) and release < least:
                    yield f"{name}={value} needs OpenZFS {'.'.join(map(str, least))} or later; this is {self}"


def found() -> ZfsDriver | None:
    """Return the driver that makes pools here: OpenZFS if the kernel has it or can load it, otherwise zfs-fuse, or
    None."""
    version = _read(MODULE / "version")
    if version is not None:
        return ZfsDriver(True, version)
    if _loadable():
        return ZfsDriver(True, "")
    if process.find("zfs-fuse") and Path("/dev/fuse").exists():
        return ZfsDriver(False, str(FUSE_POOL_VERSION))
    return None


def works(setup: FsSetup) -> str | None:
    """Return why a setup of ZFS cannot work here, with what to install; None if it can."""
    driver = found()
    if driver is not None:
        lack = driver.refusal(setup)
        return f"{lack}: {packages.install(install(setup))}" if lack and not driver.native else lack
    missing = "/dev/fuse does not exist" if process.find("zfs-fuse") else "zfs-fuse is not installed"
    return f"this kernel has no zfs and {missing}: {packages.install(install(setup))}"


def install(setup: FsSetup) -> tuple[str, ...]:
    """Return the Debian packages with the ZFS that a setup needs."""
    fuse = ZfsDriver(False, str(FUSE_POOL_VERSION))
    driver = found()
    if (driver and driver.native) or fuse.lacks(setup) or "zfs" in setup.needs.kernel:
        return ("zfs-dkms", "zfsutils-linux")
    return ("zfs-fuse",)


def taken() -> ZfsDriver:
    """Return the driver, with its module loaded. Raises ZfsUnavailable."""
    driver = found()
    if driver is None:
        raise ZfsUnavailable(
            "the kernel has no zfs module, and zfs-fuse is not installed",
            effect="Nothing was changed.",
            remedy=f"Install OpenZFS for this kernel, or zfs-fuse: {packages.install(['zfs-fuse'])}",
        )
    if driver.native and not driver.version:
        try:
            process.run(["modprobe", "zfs"], timeout_s=60)
        except CommandFailed as failure:
            raise ZfsUnavailable(
                f"the kernel module zfs cannot be loaded: {failure}", effect="Nothing was changed."
            ) from None
        return ZfsDriver(True, _read(MODULE / "version") or "")
    return driver


def parameters() -> dict[str, Scalar]:
    """Return the kernel module's parameters that affect performance or durability; {} without the module."""
    values = {name: _read(MODULE / "parameters" / name) for name in _PARAMETERS}
    return {name: int(value) for name, value in values.items() if value is not None and value.isdigit()}


def arcstats() -> dict[str, int]:
    """Return the kernel's counts of the ARC, for all its pools together; {} if there are none."""
    text = _read(ARCSTATS)
    rows = (line.split() for line in (text or "").splitlines()[2:])
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


@contextlib.contextmanager
def arc_limited(arc_bytes: int | None, journal: Journal | None) -> Iterator[None]:
    """Set zfs_arc_max, and zfs_arc_min below it, within the block; None leaves them unchanged.

    They apply to all pools of the kernel, also to those of others. Raises ZfsUnavailable if the kernel does not accept
    the limit.
    """
    if arc_bytes is None:
        yield
        return
    most_bytes = max(arc_bytes, ARC_LEAST_BYTES)
    before = {path: path.read_text().strip() for path in _arc_parameters()}
    for path, value in before.items():
        if journal is not None:
            journal.note("take", what=ARC_JOURNALLED, path=f"{path}={value}")
    try:
        least, most = before
        least.write_text(str(min(ARC_LEAST_BYTES // 2, most_bytes // 2)))
        most.write_text(str(most_bytes))
        if arcstats().get("c_max", 0) > most_bytes * _ARC_SETTLED:
            raise ZfsUnavailable(
                f"the kernel limits the ARC to {arcstats().get('c_max')} bytes instead of the requested {most_bytes}"
            )
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)
            if journal is not None:
                journal.note("give_back", what=ARC_JOURNALLED, path=f"{path}={value}")


def arc_given_back(journal: Journal) -> list[str]:
    """Restore the limits of the ARC that a killed run has changed; return which."""
    gone = []
    for taken in journal.outstanding(ARC_JOURNALLED):
        path, _, value = taken.partition("=")
        if Path(path) in _arc_parameters() and Path(path).exists() and value.isdecimal() and len(value) < 20:
            Path(path).write_text(value)
            gone.append(f"{Path(path).name} {value}")
        journal.note("give_back", what=ARC_JOURNALLED, path=taken)
    return gone


def _arc_parameters() -> tuple[Path, ...]:
    return tuple(MODULE / "parameters" / name for name in ("zfs_arc_min", "zfs_arc_max"))


def _is_newer(name: str, value: str) -> bool:
    record = size_bytes(value) or 0
    values = any(name == key and re.fullmatch(values, value) for key, values in _NEWER_VALUES)
    return name in _NEWER or values or (name == "recordsize" and record > 128 * 2**10)


def _loadable() -> bool:
    if process.find("modprobe") is None:
        return False
    return process.run(["modprobe", "-n", "-q", "zfs"], ok=(0, 1, 255), note=False).returncode == 0


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def words(setup: FsSetup) -> dict[str, str]:
    """Return properties of the pool's root dataset from the setup's `mount`: "recordsize=8K" as
    {"recordsize": "8K"}."""
    return pairs(setup.mount)


def pairs(options: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE words as a dictionary, later ones overriding; words without a value are omitted."""
    split = (option.partition("=") for option in options)
    return {name: value for name, equals, value in split if equals}


@process.understood("zfs get")
def parse_get(text: str) -> dict[str, str]:
    """Parse `zfs get -H -o property,value` and `zpool get -H`: property -> value."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


@process.understood("zdb")
def parse_label(text: str) -> dict[str, Scalar]:
    """Return name, pool_guid, version and ashift of the first label in `zdb -l`; {} without one.

    `ashift` is the value in use; the pool's property of that name is 0 if ZFS has chosen it.
    """
    label: dict[str, Scalar] = {}
    for name, value in re.findall(r"^\s*(name|pool_guid|version|ashift): '?([^'\n]+)'?$", text, re.MULTILINE):
        label.setdefault(name, int(value) if value.isdigit() else value)
    return label


def size_bytes(text: str) -> int | None:
    """Return "8K" or "8192" in bytes, or None if the text is not a size."""
    match = re.fullmatch(r"(\d+)([kKmM]?)", text)
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


def same(asked: str, found: str) -> bool:
    """Return whether two spellings of a value mean the same, like "8K" and "8192"."""
    size = size_bytes(asked)
    return asked == found or (size is not None and size == size_bytes(found))


def differences(asked: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Describe properties that differ from the setup."""
    return [f"{name} is {found.get(name, 'missing')}, expected {value}"
            for name, value in asked.items() if not same(value, found.get(name, ""))]  # fmt: skip


def shown(found: Mapping[str, str]) -> dict[str, Scalar]:
    """Return the properties for a result, sizes as numbers."""
    return {name: _scalar(found[name]) for name in SHOWN if found.get(name, "-") != "-"}


def effective(found: Mapping[str, str]) -> tuple[str, ...]:
    """Return the properties of a result in the form of options: "recordsize=8192", "sync=standard"."""
    return tuple(f"{name}={value}" for name, value in shown(found).items())


def record_bytes(options: Iterable[str]) -> int:
    """Return the size that is copied on write together: the recordsize among the options, or ZFS's default."""
    return size_bytes(pairs(options).get("recordsize", "")) or _DEFAULT_RECORD


def flags(options: Iterable[str], live: Mapping[str, Scalar]) -> tuple[Durability, ...]:
    """Return the durability flags.

    sync=disabled answers an fsync at once and writes with the next transaction group: after a power loss the data is
    consistent, but some seconds old, which is `async-commit`. Two parameters of the module omit cache flushes:
    zil_nocacheflush for the log, so commits are lost; zfs_nocacheflush for everything, so the pool itself may be lost.
    """
    flags_of_setup = []
    if live.get("zfs_nocacheflush") == 1:
        flags_of_setup.append(Durability.NO_BARRIER)
    if pairs(options).get("sync") == "disabled" or live.get("zil_nocacheflush") == 1:
        flags_of_setup.append(Durability.ASYNC_COMMIT)
    if reports(options, unprotected=False):
        flags_of_setup.append(Durability.REPORTED_UNSAFE)
    return tuple(flags_of_setup)


def reports(options: Iterable[str], unprotected: bool) -> tuple[str, ...]:
    """Return the public reports of a loss with these options; `unprotected`: the server does not repair torn pages."""
    logbias = pairs(options).get("logbias") == "throughput"
    record = unprotected and record_bytes(options) == _REPORTED_RECORD
    return (*((_LOGBIAS_REPORT,) if logbias else ()), *((_RECORD_REPORT,) if record else ()))


def tears(options: Iterable[str]) -> bool:
    """Whether the smallest database page is larger than a record, and so can tear.

    A record is copied on write. A page of several records may be written by several transactions, and power may be lost
    between them.
    """
    return record_bytes(options) < SMALLEST_PAGE


def compresses(options: Iterable[str]) -> str | None:
    """Return the algorithm, or None for off."""
    compression = pairs(options).get("compression", "off")
    return None if compression == "off" else _ON["compression"] if compression == "on" else compression


def _scalar(value: str) -> Scalar:
    return int(value) if value.isdigit() else value
