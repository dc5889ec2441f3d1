"""Empty the caches of the data files before the load, and prove it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dbbench.engines import profile_of
from dbbench.machine import pagecache
from dbbench.model import CacheFacts, Cell
from dbbench.operations import StoredDatabase
from dbbench.run.stages import Mounts, Setups, Volumes
from dbbench.run.stages.mount import equalize_readahead
from dbbench.samplers import Samples
from dbbench.storage import filesystems
from dbbench.storage.filesystems import shape

# A load that makes its own files begins on a new filesystem. It must itself empty the cache of
# files that it reads later, and report that.
_NO_FILES: Final = CacheFacts("no files yet", 0, 0, proved=True)


def emptier(
    cell: Cell,
    seed: int,
    setups: Setups,
    volumes: Volumes,
    mounts: Mounts,
) -> Callable[[Sequence[Path]], CacheFacts]:
    """Return a function that empties the caches of all volumes while no process uses them, and
    proves it for files.
    """
    emptiers = []
    for role, setup in setups.items():
        emptiers.append(filesystems.emptying(setup, volumes[role], mounts[role]))

    def empty() -> None:
        for volume in emptiers:
            volume.empty()
        for fs in mounts.values():
            equalize_readahead(fs, cell)

    # One way for all volumes; the proof is that of the data.
    by = dataclasses.replace(emptiers[0], empty=empty)
    share = shape.least_read_share(mounts["data"])
    disks = volumes["data"].leaves
    return partial(
        pagecache.empty_and_prove,
        seed=seed,
        disks=disks,
        by=by,
        least_share=share,
    )


def drop(cell: Cell, ready: StoredDatabase) -> CacheFacts:
    """Empty the caches of the trial's data files."""
    files = ready.data_files(ready.datadir)
    if not files and not profile_of(cell.engine.name).has_server:
        return _NO_FILES
    return ready.cold(files)


def during_load(ready: StoredDatabase, samples: Samples) -> Callable[[Sequence[Path]], CacheFacts]:
    """Return `ready.cold` for a load that empties the caches of its own files between two steps."""

    def cold(files: Sequence[Path]) -> CacheFacts:
        with samples.remounting():
            return ready.cold(files)

    return cold
