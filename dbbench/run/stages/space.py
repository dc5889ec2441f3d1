"""What the load has left: whether data and filesystems are intact, the space of the data and how
its files are stored, the latency of fsync there and the limits of atomic writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dbbench.datasets import tpcc
from dbbench.engines.port import Engine, UsesBareDevice, log_files_of
from dbbench.errors import FilesystemDamaged
from dbbench.model import Cell, Dataset, FilesystemFacts, GrowthFacts, SpaceFacts
from dbbench.operations import StoredDatabase
from dbbench.run.stages import Mounts
from dbbench.storage import filesystems, small_io
from dbbench.storage.filesystems import Mounted, shape


def check(dataset: Dataset, mounts: Mounts, ready: StoredDatabase) -> str:
    """Return what was checked. Raises FilesystemDamaged, DataCorrupt."""
    for fs in mounts.values():
        damage = shape.healthy(fs)
        if damage:
            raise FilesystemDamaged(damage, remedy="Read the kernel log with dmesg.")
    text = ready.check(ready.datadir)
    if dataset.kind != "tpcc":
        return text
    with ready.serving() as server:
        return f"{text}; {tpcc.consistency(server, dataset)}"


def space(fs: Mounted, engine: Engine, files: Sequence[Path]) -> SpaceFacts:
    """Return the space of the data: logical, on disk, and its fragmentation."""
    if isinstance(engine, UsesBareDevice):
        logical = sum(map(engine.data_bytes, files))
    else:
        logical = sum(file.stat().st_size for file in files)
    if fs.raw is not None:
        return SpaceFacts(logical)  # a bare device has no used or free space
    return shape.find_shape(shape.space(fs, logical), fs, files)


def probe(
    cell: Cell,
    seed: int,
    mounts: Mounts,
    facts: FilesystemFacts,
    datadir: Path,
) -> FilesystemFacts:
    """Add the latency of fsync and the limits of atomic writes in the directories of data and log."""
    folders = {"data": datadir, "log": filesystems.log_directory(cell.setup, mounts)}
    each = {}
    for role, of_volume in facts.volumes.items():
        fs = mounts[role]
        folder = folders[role]
        # A bare device has no directory in which to measure.
        if fs.raw is not None:
            each[role] = dataclasses.replace(of_volume, syncs_note="there is no filesystem")
            continue
        if folder is None or not folder.is_dir() or not folder.is_relative_to(fs.path):
            folder = fs.path
        # In the directory where the server writes, because attributes are inherited there.
        rows, note = small_io.syncs(folder, cell.window.measure_s, seed)
        least, most = small_io.atomic_write_bytes(folder) or (None, None)
        each[role] = dataclasses.replace(
            of_volume,
            syncs=rows,
            syncs_note=note,
            atomic_write_min_bytes=least,
            atomic_write_max_bytes=most,
        )
    return dataclasses.replace(each["data"], wal=each.get("log"))


def file_sizes(
    engine: Engine,
    datadir: Path,
    effective: dict[str, str],
) -> dict[Path, int]:
    """Return the sizes of the server's data and log files."""
    return shape.sizes([*engine.data_files(datadir), *log_files_of(engine, datadir, effective)])


def growth(
    fs: Mounted,
    engine: Engine,
    datadir: Path,
    effective: dict[str, str],
    before: dict[Path, int],
) -> GrowthFacts:
    """Return how files that grew since `before` (of `file_sizes`) are stored. They are written back
    first.
    """
    data = engine.data_files(datadir)
    logs = log_files_of(engine, datadir, effective)
    return shape.growth(fs, before, shape.sizes(data), shape.sizes(logs), None)
