"""Which ZFS this machine has: OpenZFS in its kernel, or zfs-fuse in a process; and what each of them can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, ZfsUnavailable
from dbbench.filesystems.zfs import properties
from dbbench.model import Durability, FsSetup, Scalar

MODULE: Final = Path("/sys/module/zfs")
ARCSTATS: Final = Path("/proc/spl/kstat/zfs/arcstats")
FUSE_POOL_VERSION: Final = 23  # of zfs-fuse 0.7.x, the last there is
_PARAMETERS: Final = ("zfs_txg_timeout", "zfs_dirty_data_max", "zfs_arc_max", "zfs_nocacheflush", "zil_nocacheflush")
_NEWER: Final = ("sync", "redundant_metadata", "relatime", "dnodesize", "acltype", "direct", "prefetch")
_NEWER_VALUES: Final = (("compression", r"lz4|zstd.*"), ("checksum", r"sha512|skein|edonr|blake3"), ("xattr", "sa"))
_SINCE: Final = (  # OpenZFS's own release notes
    ("compression", r"zstd.*", (2, 0)), ("checksum", "blake3", (2, 2)),
    ("redundant_metadata", "some|none", (2, 2)), ("direct", ".*", (2, 3)),
)  # fmt: skip


@dataclass(frozen=True)
class Driver:
    """One of the two. `version`: of the kernel module ("2.4.4-1"), "" where it is not loaded yet; of zfs-fuse "23",
    its pool version, as the program does not tell its own."""

    native: bool
    version: str

    def __str__(self) -> str:
        return f"OpenZFS {self.version}".strip() if self.native else f"zfs-fuse (pool version {self.version})"

    @property
    def flags(self) -> tuple[Durability, ...]:
        """What may be gone whatever a setup asks for. zfs-fuse answers fsync(2) of a file that was closed since it was
        written, and that nobody else has open, without doing anything (50 of them: no flush of the device; 50 where it
        stayed open: 50), and so loses what a server's checkpoint has made safe."""
        return () if self.native else (Durability.NO_BARRIER,)

    def lacks(self, setup: FsSetup) -> str | None:
        """The first thing that the setup asks for and this driver cannot do, or None."""
        asked = [properties.words(setup), *(properties.pairs(v.options) for v in setup.volumes.values())]
        return next((lack for words in asked for lack in self._lacking(words)), None)

    def refusal(self, setup: FsSetup) -> str | None:
        """Why a setup's pool is not made with this driver; None where it is."""
        native_only = "zfs" in setup.needs.kernel and not self.native
        return self.lacks(setup) or ("it asks for the kernel's own ZFS" if native_only else None)

    def _lacking(self, asked: dict[str, str]) -> Iterator[str]:
        release = tuple(int(word) for word in re.findall(r"\d+", self.version)[:2])
        for name, value in asked.items():
            if not self.native and _is_newer(name, value):
                yield f"{name}={value} needs OpenZFS in the kernel; {self} does not know it"
            for key, values, least in _SINCE:
                if self.native and release and name == key and re.fullmatch(values, value) and release < least:
                    yield f"{name}={value} needs OpenZFS {'.'.join(map(str, least))} or later; this is {self}"


def found() -> Driver | None:
    """The driver that pools are made with here: OpenZFS where the kernel has it or can load it, else zfs-fuse."""
    version = _read(MODULE / "version")
    if version is not None:
        return Driver(True, version)
    if _loadable():
        return Driver(True, "")
    if process.find("zfs-fuse") and Path("/dev/fuse").exists():
        return Driver(False, str(FUSE_POOL_VERSION))
    return None


def works(setup: FsSetup) -> str | None:
    """Why a setup of ZFS cannot work here, with what to install; None where it can."""
    driver = found()
    if driver is not None:
        lack = driver.refusal(setup)
        return f"{lack}: apt install {' '.join(install(setup))}" if lack and not driver.native else lack
    missing = "/dev/fuse is not there" if process.find("zfs-fuse") else "zfs-fuse is not installed"
    return f"this kernel has no zfs and {missing}: apt install {' '.join(install(setup))}"


def install(setup: FsSetup) -> tuple[str, ...]:
    """Debian packages that bring the ZFS that a setup needs."""
    fuse = Driver(False, str(FUSE_POOL_VERSION))
    driver = found()
    if (driver and driver.native) or fuse.lacks(setup) or "zfs" in setup.needs.kernel:
        return ("zfs-dkms", "zfsutils-linux")
    return ("zfs-fuse",)


def taken() -> Driver:
    """The driver, its module loaded. ZfsUnavailable."""
    driver = found()
    if driver is None:
        raise ZfsUnavailable("this kernel has no zfs and zfs-fuse is not installed", effect="Nothing was changed.",
                             remedy="apt install zfs-fuse")  # fmt: skip
    if driver.native and not driver.version:
        try:
            process.run(["modprobe", "zfs"], timeout_s=60)
        except CommandFailed as failure:
            raise ZfsUnavailable(f"the module zfs cannot be loaded: {failure}", effect="Nothing was changed.") from None
        return Driver(True, _read(MODULE / "version") or "")
    return driver


def parameters() -> dict[str, Scalar]:
    """The kernel module's parameters that figures or durability hang on; {} without the module."""
    values = {name: _read(MODULE / "parameters" / name) for name in _PARAMETERS}
    return {name: int(value) for name, value in values.items() if value is not None and value.isdigit()}


def arcstats() -> dict[str, int]:
    """The kernel's counts of the ARC, of all its pools together; {} where there are none."""
    text = _read(ARCSTATS)
    rows = (line.split() for line in (text or "").splitlines()[2:])
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


def _is_newer(name: str, value: str) -> bool:
    record = properties.size_bytes(value) or 0
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
