"""Disk space that a plan needs on this machine: for images, golden copies and results, and on its
own devices.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dbbench import errors
from dbbench.datasets import golden
from dbbench.engines.settings import redo_bytes
from dbbench.model import Cell, Plan, Role
from dbbench.plan import Expanded
from dbbench.plan.preview import RESULT_BYTES
from dbbench.plan.request import PlanRequest
from dbbench.plan.server_settings import settings_of
from dbbench.plan.writes import ARCHIVE, dataset_bytes, estimate_of, kept_logs
from dbbench.storage import devices
from dbbench.storage.devices.directory import PREFIX, nearest
from dbbench.storage.filesystems.families import FAMILIES, compression
from dbbench.units import group_by, size_text

# usable share of a device: ext reserves 5 %, xfs and btrfs need as much for their metadata
USABLE: Final = 0.9
SPARE: Final = 1.05  # factor on the required disk space, because other processes use the disk too


def shortages(
    wanted: PlanRequest, results: Path, images: dict[Path, int] | None = None
) -> Iterator[errors.DbbenchError]:
    """Yield an error for each disk without space, and for a cache that cannot be written. `images`:
    bytes that the run's images still need, by directory.
    """
    plan = wanted.plan
    expanded = wanted.expanded
    # What the run puts where: results, images, golden copies, data of directories.
    needs: list[tuple[Path, int, str]] = [(results, len(expanded.order) * RESULT_BYTES, "results")]
    if images is None:
        for spec in plan.device.volumes.values():
            if spec.image_bytes:
                needs.append((Path(spec.at or results), spec.image_bytes, "image"))
    else:
        needs += [(folder, size, "image") for folder, size in images.items()]
    missing = golden_bytes(expanded)
    if missing is not None:
        needs.append((golden.cache_folder(), missing, "golden copies"))
        yield from unwritable(golden.cache_folder(), "the environment variable DBBENCH_CACHE")
    if plan.device.directories:
        needs += _largest_trials(plan.device.directories, expanded)

    # Directories on one disk share its space.
    for group in group_by(needs, lambda need: nearest(need[0]).stat().st_dev).values():
        needed = int(sum(size for _, size, _ in group) * SPARE)
        folder = group[0][0]
        free = free_bytes(folder)
        # 0: a filesystem without a size
        if needed > free and os.statvfs(nearest(folder)).f_blocks:
            parts = [f"{name} {size_text(size)} at {path}" for path, size, name in group]
            what = ", ".join(parts)
            where = '"paths"' if plan.device.directories else '"at"'
            yield errors.DiskTooSmall(
                f"about {size_text(needed)} of disk space is required, but {size_text(free)} is "
                f"free: {what}",
                remedy=f"Free some space, or use another disk: {where} in [device], --results DIR, "
                "or DBBENCH_CACHE.",
            )
    if expanded.cells:
        yield from fits(plan, expanded)


def _largest_trials(folders: Mapping[str, str], expanded: Expanded) -> list[tuple[Path, int, str]]:
    """Return what the largest trial on each disk needs in addition to what a killed one has left,
    which is removed.
    """
    # One trial at a time, so the largest on each disk counts.
    largest: dict[int, tuple[Path, int, str]] = {}
    for cell in expanded.cells:
        folder = Path(folders[cell.arm])
        logs = _log_bytes(cell)["data"]
        what = f"data of {cell.workload.name}"
        if logs:
            what += f" with {size_text(logs)} of {cell.engine.name}'s logs"
        left = sum(map(golden.disk_bytes, folder.glob(f"{PREFIX}*")))
        size = dataset_bytes(cell) + estimate_of(cell).table_bytes + logs - left
        need = (folder, max(0, size), what)
        disk = nearest(folder).stat().st_dev
        largest[disk] = max(need, largest.get(disk, need), key=lambda row: row[1])
    return list(largest.values())


def _log_bytes(cell: Cell) -> dict[Role, int]:
    """Return the bytes of logs on each volume: an archive is with the data, all others on the
    volume of the log.
    """
    kept = kept_logs(cell)
    sizes: dict[Role, int] = {"data": kept.pop(ARCHIVE, 0)}
    role, setup = list(cell.setups.items())[-1]
    stored = setup.mkfs.family in FAMILIES and not compression(setup)
    # MariaDB waits for it forever on a full filesystem
    redo = redo_bytes(settings_of(cell)) if stored else 0
    logs = sum(kept.values()) + redo
    sizes[role] = sizes.get(role, 0) + logs
    return sizes


def fits(plan: Plan, expanded: Expanded) -> Iterator[errors.DbbenchError]:
    """Yield an error for each volume on whose device a dataset, its server's logs or the aged files
    do not fit.
    """
    # The volume of the data: the largest dataset with the logs that are there.
    size = min(filter(None, plan.device.disk_bytes(devices.size_bytes)), default=0)
    if size:
        # The cell that needs most, with its data and its log.
        dataset = 0
        logs = 0
        engine = ""
        for cell in expanded.cells:
            data_bytes = dataset_bytes(cell) + estimate_of(cell).table_bytes
            log_bytes = _log_bytes(cell)["data"]
            needs_more = data_bytes + log_bytes > dataset + logs
            if needs_more or not engine:
                dataset = data_bytes
                logs = log_bytes
                engine = cell.engine.name
        # Aged files are on the same device, and ageing leaves some space unusable.
        fill = plan.age.fill if plan.age else 0.0
        aged = int(fill * size)
        share = USABLE - fill if aged else 1.0
        if dataset + logs > size * share:
            what = f"a dataset of about {size_text(dataset)}"
            larger = "a larger device"
            if share > 0:
                larger = f"a device of at least {math.ceil((dataset + logs) / share / 2**30)} GiB"
            remedy = f"Use {larger} or a smaller dataset"
            # Only what takes space is named, and only what would help.
            if logs:
                what += f" with {size_text(logs)} of {engine}'s logs"
                remedy += " or smaller logs (redo log, window)"
            if aged:
                what += f" in addition to {size_text(aged)} of aged files"
                remedy += " or a smaller fill in [age]"
            text = f"{what} does not fit on a device of {size_text(size)}"
            yield errors.DiskTooSmall(text, remedy=f"{remedy}.")

    # The volume of the log.
    logs = max(_log_bytes(cell).get("log", 0) for cell in expanded.cells)
    log_size = 0
    if logs:
        log_size = sum(plan.device.volumes["log"].disk_bytes(devices.size_bytes))
    if log_size and logs > log_size * USABLE:
        text = f"logs of about {size_text(logs)} do not fit on [device.wal]"
        yield errors.DiskTooSmall(
            f"{text}, which has {size_text(log_size)}",
            remedy="Use a larger device for [device.wal], a smaller redo log, or a shorter window.",
        )


def unwritable(folder: Path, option: str) -> Iterator[errors.DbbenchError]:
    """Yield an error if this account cannot create the folder or write to it. `option`: what names
    another one.
    """
    there = nearest(folder)
    space = os.statvfs(there)
    virtual = not space.f_blocks and not space.f_files  # /proc, /sys
    if virtual or not os.access(there, os.W_OK):
        text = f"{there} is not writable"
        if virtual:
            text = f"{there} is on a filesystem of the kernel, which holds no files of users"
        if there != folder.absolute():
            text = f"{folder} cannot be created: {text}"
        yield errors.NotWritable(text, remedy=f"Name another folder with {option}.")


def golden_bytes(expanded: Expanded) -> int | None:
    """Return the bytes of the golden copies that are still to be built; None: there are none. A copy
    may have no data, as that of a load that makes its own files.
    """
    sizes: dict[str, int] = {}
    for cell in expanded.cells:
        try:
            key = golden.recipe(cell.engine, cell.dataset, cell.raw).key
        # already reported by _programs; without the engine's version a copy has no key
        except errors.ProgramMissing:
            key = cell.engine.name + repr(cell.dataset)
        if not golden.exists(key):
            sizes[key] = dataset_bytes(cell)
    if sizes:
        return sum(sizes.values())
    return None


def free_bytes(path: Path) -> int:
    """Return the bytes that can still be written on the filesystem of `path`, existing or not."""
    return shutil.disk_usage(nearest(path)).free
