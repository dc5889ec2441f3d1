"""Estimate the bytes that a plan writes, by cause, for deciding whether a disk should take them.
`of_trial` is what one trial writes to its devices. After a run it is compared with the bytes
that the devices counted; a figure that differs by more than `FACTOR` is reported. The shares
below were measured on small runs with PostgreSQL 15 and MariaDB 10.11 on ext4.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench.datasets import generated, golden, manifest
from dbbench.drivers.estimates import MB, WRITE_RATE, LoadEstimate, estimate
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.postgres_server import SLOT
from dbbench.engines.settings import switched_on
from dbbench.errors import ProgramMissing
from dbbench.model import Cell, Dataset, FsSetup, Plan, Status, Trial
from dbbench.model.run import COPIED
from dbbench.plan.expanding import Expanded
from dbbench.plan.server_settings import settings_of
from dbbench.storage import devices
from dbbench.storage.devices import ceiling, precondition
from dbbench.storage.filesystems.families import compression
from dbbench.storage.filesystems.volumes import devices_to_add
from dbbench.units import size_text

FACTOR: Final = 2.0
METADATA_BYTES: Final = 10 * MB  # metadata of an almost empty filesystem
# share of the device: inode tables, which mkfs writes completely; the same for the journal
EXT_SHARE: Final = 1 / 64
EXT_JOURNAL: Final = 2**30  # largest journal
# log as a share of the device, its smallest and largest size
XFS_SHARE = 1 / 2048
XFS_LOG = (64 * 2**20, 2 * 2**30)
# bytes/s of binary log under a load that changes rows: it contains the rows before and after each
# change
BINLOG_RATE: Final = 2 * MB
BINARY_LOG: Final = "binary log"
# a cause; the archive is next to the data, even if the log is on another device
ARCHIVE: Final = "archived WAL"
# bytes/s of archived or retained WAL under such a load, including full-page images
WAL_RATE: Final = 10 * MB
# size of tables after compression by the filesystem: lzo 0.45, random values nearly 1
COMPRESSED: Final = 0.6
EMPTY_SHARE: Final = 0.4  # share of the largest size of an empty server; a golden copy has less log
RANDOM_RATE: Final = 100 * MB  # bytes/s of preconditioning
ROUNDS: Final = 8  # rounds of preconditioning until the rate is steady; between 5 and 25
# profile of btrfs's data -> its copies
BTRFS_COPIES: Final = {
    "raid1": 2,
    "raid10": 2,
    "dup": 2,
    "raid1c3": 3,
    "raid1c4": 4,
}
# Operation -> multiple of the data.
OPERATIONS: Final = {
    "clone": 1.5,
    "grow": 0.5,
    "repair": 1.5,
    "base-backup": 1.0,
    "crash-recovery": 0.5,
    "snapshot": 0.1,
}


def dataset_bytes(cell: Cell) -> int:
    """Return the approximate size of the cell's dataset, with the server's own files."""
    return generated.size_bytes(cell.dataset, cell.engine.name)


def tables_bytes(cell: Cell) -> int:
    """Return the approximate size of the cell's tables and indexes; for a user's own data that of
    its copy, if there is one.
    """
    if COPIED in cell.dataset.parameters:
        return int(cell.dataset.parameters["bytes"])
    return dataset_bytes(cell) - profile_of(cell.engine.name).empty_bytes


def estimate_of(cell: Cell) -> LoadEstimate:
    """Return what the cell's load is expected to write."""
    return estimate(cell, tables_bytes(cell))


def with_copies(expanded: Expanded) -> Expanded:
    """Return the trials with the size of the golden copy of each user's own data, if the cache has
    it.
    """
    cells = tuple(replace(cell, dataset=_measure(cell)) for cell in expanded.cells)
    return expanded._replace(cells=cells)


def _measure(cell: Cell) -> Dataset:
    if cell.dataset.kind != "source":
        return cell.dataset
    copy = None
    with contextlib.suppress(ProgramMissing):  # reported by the checks of the machine
        key = golden.recipe(cell.engine, cell.dataset).key
        copy = manifest.load(golden.cache_folder() / key)
    if copy is None:
        return cell.dataset
    files = ENGINES[cell.engine.name].data_files(copy.data)
    sizes = {
        "bytes": sum(file.stat().st_size for file in files),
        COPIED: copy.manifest.logical_bytes,
    }
    return replace(cell.dataset, parameters={**cell.dataset.parameters, **sizes})


def spares(plan: Plan, setup: FsSetup) -> int:
    """Return the number of devices that the operation `grow` adds, which a setup leaves over."""
    if "grow" in plan.operations:
        return devices_to_add(setup)
    return 0


def devices_of(plan: Plan, setup: FsSetup) -> int:
    """Return the number of devices that a setup uses at first."""
    given = plan.device.device_count
    spare = spares(plan, setup)
    if given > spare:
        given -= spare
    return min(given, setup.devices.max)


def copies(plan: Plan, setup: FsSetup) -> int:
    """Return how often a setup writes each byte of data: mirrors write it to all of their sides."""
    # Layers below the filesystem multiply, and then its own profile.
    number = devices_of(plan, setup)
    times = 1
    for layer in setup.layers:
        if layer.kind == "md" and layer.level == 1:
            times *= max(1, number // layer.groups)
        elif layer.kind == "md" and layer.level == 10:
            times *= 2
    if setup.mkfs.family == "zfs" and setup.mkfs.topology == "mirror":
        return times * number
    if setup.mkfs.family == "btrfs":
        match = re.search(r"(?:-d|--data)[ =](\S+)", " ".join(setup.mkfs.options))
        times *= BTRFS_COPIES.get(match[1], 1) if match else 1
    if "data=journal" in setup.mount:
        times *= 2
    return times


def of_trial(plan: Plan, cell: Cell) -> dict[str, int]:
    """Return the bytes that one trial of the cell writes to its devices, by cause."""
    times = copies(plan, cell.setup)
    empty = profile_of(cell.engine.name).empty_bytes
    # What every trial writes: mkfs, and the copy of the data.
    data = tables_bytes(cell) + int(EMPTY_SHARE * empty)
    whole = sum(plan.device.disk_bytes(devices.size_bytes)[: devices_of(plan, cell.setup)])
    share = COMPRESSED if compression(cell.setup) else 1
    parts = {"mkfs": _mkfs_bytes(cell.setup, whole), "restore": int(data * share) * times}

    # Before, during and after the load.
    if plan.age is not None:  # a mirror needs no factor: half of the bytes, each written twice
        parts["ageing"] = int(plan.age.fill * whole * (1 + plan.age.churn))
    if cell.earlier is not None:  # these rates include all logs and copies
        load_s = cell.window.seconds if cell.window.kind == "fixed" else cell.earlier.load_s
        written = load_s * cell.earlier.write_bytes_per_s
        parts["load"] = int(written + cell.earlier.drain_bytes)
    else:
        parts["load"] = int(estimate_of(cell).write_bytes) * times
        for cause, size in kept_logs(cell).items():
            parts[cause] = size if cell.wal_setup else size * times
    if plan.operations:
        factor = sum(OPERATIONS.get(name, 0.0) for name in plan.operations)
        parts["operations"] = int(factor * data) * times
    return {cause: size for cause, size in parts.items() if size}


def _mkfs_bytes(setup: FsSetup, whole: int) -> int:
    """Return the bytes that mkfs writes to devices of `whole` bytes; 0 for existing directories."""
    if not whole:
        return 0
    if setup.mkfs.family.startswith("ext"):
        inodes = EXT_SHARE * whole
        return METADATA_BYTES + int(inodes + min(inodes, EXT_JOURNAL))
    if setup.mkfs.family == "xfs":
        least, most = XFS_LOG
        return METADATA_BYTES + max(least, min(most, int(XFS_SHARE * whole)))
    return METADATA_BYTES


def kept_logs(cell: Cell) -> dict[str, int]:
    """Return the bytes of log that one load of the cell leaves on its filesystem for others than
    the server itself. These are binary logs, which are removed after the load, and archived WAL
    or WAL that a slot keeps.
    """
    # Rates that an earlier run measured replace the usual ones.
    binlog_rate: float = BINLOG_RATE
    wal_rate: float = WAL_RATE
    if cell.earlier is not None and cell.earlier.binlog_bytes_per_s is not None:
        binlog_rate = cell.earlier.binlog_bytes_per_s
    if cell.earlier is not None and cell.earlier.log_bytes_per_s is not None:
        wal_rate = cell.earlier.log_bytes_per_s
    settings = settings_of(cell)
    load = estimate_of(cell)
    sizes = {}
    # Only logs that the settings switch on, and no more than the load writes.
    for cause, setting, rate in (
        (BINARY_LOG, "log_bin", binlog_rate),
        (ARCHIVE, "archive_mode", wal_rate),
        ("kept WAL", SLOT, wal_rate),
    ):
        size = int(load.log_bytes + min(load.log_rate, rate) * cell.window.seconds)
        if size and switched_on(settings, setting):
            sizes[cause] = size
    return sizes


def once(
    plan: Plan, size_bytes: Callable[[Path], int | None] = devices.size_bytes
) -> dict[str, int]:
    """Return the bytes that a run writes outside of its trials, by cause: the measurement of the
    bare device, the image files, preconditioning. `size_bytes` returns the size of a block
    device.
    """
    sizes = plan.device.disk_bytes(size_bytes)
    if not sizes:
        return {}
    # The baseline measures single flushed writes in two sizes, parallel writes, and writes of 1
    # MiB.
    # The measurement of the bare device is as long as the windows allow.
    windows = [spec.measure_s or 0 for spec in plan.workload]
    each_s = ceiling.row_seconds(max(plan.measure_s, *windows))
    parts = {"baseline measurement": int(each_s * (2 * WRITE_RATE + 2 * RANDOM_RATE))}
    if plan.device.image_bytes:
        parts["image"] = plan.device.image_bytes
    if plan.device.condition == "precondition":
        rounds = [ROUNDS * precondition.round_s(size) * RANDOM_RATE for size in sizes]
        parts["preconditioning"] = plan.blocks * int(precondition.FILLS * sum(sizes) + sum(rounds))
    return parts


def deviation(trials: Iterable[Trial]) -> str | None:
    """Compare the estimate of the finished trials with the bytes that their devices counted; return
    a sentence if they differ by more than `FACTOR`.
    """
    counted = 0
    estimated = 0
    for trial in trials:
        if trial.writes is None or trial.status is Status.FAILED:
            continue
        if trial.writes.counted_bytes is None:
            return None
        counted += trial.writes.counted_bytes
        estimated += trial.writes.estimated_bytes
    if counted / FACTOR <= estimated <= counted * FACTOR:
        return None
    return (
        f"the trials wrote {size_text(counted)} to their devices, and the estimate was "
        f"{size_text(estimated)}: they differ by more than a factor of {FACTOR:g}"
    )


def total(*parts: dict[str, int]) -> dict[str, int]:
    """Return the sums by cause."""
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update(part)
    return dict(whole)
