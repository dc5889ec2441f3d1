"""Filesystems: made, mounted, read back from the kernel, verified, measured. One module a family.

`make` and `mounted` are the two stages of the road; `existing` stands for both where a directory is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbbench.filesystems.ext import lazy_init_running
from dbbench.filesystems.families import COMPRESSING, FAMILIES, POOLED
from dbbench.filesystems.files import apply_attributes, data_attributes, data_directory, verify_files, wal_directory
from dbbench.filesystems.making import commands, install, make, missing_programs, works
from dbbench.filesystems.mounting import check_claim, driver_flags, existing, mounted
from dbbench.filesystems.port import Family, Made, Mounted
from dbbench.filesystems.shape import free_space, shaped
from dbbench.filesystems.state import healthy, least_read_share, own_cache, space, sync
from dbbench.filesystems.zfs import properties
from dbbench.model import FsSetup, Volume

__all__ = [
    "COMPRESSING", "FAMILIES", "Family", "Made", "Mounted", "Traits", "apply_attributes", "check_claim", "commands",
    "data_directory", "driver_flags", "existing", "free_space",
    "healthy", "install", "lazy_init_running", "least_read_share", "make", "missing_programs", "mounted", "own_cache",
    "shaped", "space", "sync", "tears_pages_of", "traits", "verify_files", "wal_directory", "works",
]  # fmt: skip


@dataclass(frozen=True)
class Traits:
    """What a setup can do, as far as its options say (`dbbench fs list`)."""

    cow: bool  # data is copied on write: a page cannot tear
    compresses: str | None  # the algorithm
    snapshots: bool


def traits(setup: FsSetup) -> Traits:
    """The traits of a setup, without making it. KeyError for a family that is not known."""
    family = FAMILIES[setup.mkfs.family]
    compressing = COMPRESSING.get(setup.mkfs.family)
    data = setup.volumes.get("data", Volume())
    return Traits(
        cow=not family.tears(setup.mount, data_attributes(setup)),
        compresses=compressing.compresses((*setup.mount, *data.options)) if compressing else None,
        snapshots=family.SNAPSHOTS,
    )


def tears_pages_of(setup: FsSetup, page_bytes: int) -> bool:
    """Whether a page of that size can tear, as far as the options say; of a mounted one `Mounted` says it."""
    options = (*setup.mount, *setup.volumes.get("data", Volume()).options)
    if setup.mkfs.family in POOLED and properties.record_bytes(options) < page_bytes:
        return True
    return FAMILIES[setup.mkfs.family].tears(options, data_attributes(setup))
