"""Filesystems: made, mounted, read back from the kernel, verified, measured. One module per family.

`make` and `mounted` are two stages of a trial; `existing` replaces both for a directory.
"""

from __future__ import annotations

from dbbench.storage.filesystems.families import (
    FAMILIES,
    PERIODS,
    Traits,
    driver_flags,
    family_of,
    give_back,
    period_s,
    tears_pages_of,
    traits,
)
from dbbench.storage.filesystems.making import (
    apply_attributes,
    check_claim,
    commands,
    data_directory,
    existing,
    install,
    make,
    missing_programs,
    mounted,
    obstacles,
    verify_files,
    wal_directory,
    works,
)
from dbbench.storage.filesystems.port import Family, Made, Mounted, MountPoint, Stored
from dbbench.storage.filesystems.shape import (
    free_space,
    growth,
    healthy,
    least_read_share,
    own_cache,
    restored_share,
    shaped,
    sizes,
    space,
    sync,
)
from dbbench.storage.filesystems.volumes import (
    character,
    devices_to_add,
    growing_of,
    layers_to_add,
    snapshots_of,
    unmounted,
)

__all__ = [
    "FAMILIES", "PERIODS", "Family", "Made", "MountPoint", "Mounted", "Stored", "Traits", "apply_attributes",
    "character", "check_claim", "commands", "data_directory", "devices_to_add", "driver_flags", "existing",
    "family_of", "free_space", "give_back", "growing_of", "growth", "healthy", "install", "layers_to_add",
    "least_read_share", "make", "missing_programs", "mounted", "obstacles", "own_cache", "period_s", "restored_share",
    "shaped", "sizes", "snapshots_of", "space", "sync", "tears_pages_of", "traits", "unmounted", "verify_files",
    "wal_directory", "works",
]  # fmt: skip
