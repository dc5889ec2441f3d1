"""What running a plan would do: commands, time, disk space and bytes written. Times and bytes are
estimates; during a run the progress display shows the actual values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dbbench.datasets import generated
from dbbench.drivers.estimates import COPY_RATE, MB
from dbbench.model import Cell, Plan, plain
from dbbench.model.run import COPIED
from dbbench.plan import writes
from dbbench.plan.expanding import Expanded
from dbbench.plan.writes import dataset_bytes
from dbbench.storage import filesystems, layers
from dbbench.storage.filesystems import volumes

MOUNT_POINT: Final = "/run/dbbench/mnt"  # in the mount namespace of the trial
WAL_MOUNT_POINT: Final = "/run/dbbench/wal"

# Measured on two cores with a virtual disk and four other busy processes; an idle machine with an
# SSD is faster.
STAGES_S: Final = 3.5  # mkfs, mount, two starts, two stops, cache proof, drain, checks
LOAD_RATE: Final = 40 * MB  # bytes/s at which the loaders of the tools generate a dataset
IMAGE_RATE: Final = 250 * MB  # bytes/s at which the image is written
SCAN_RATE: Final = 300 * MB  # bytes/s of a disk; much higher if the host has the image in its cache
# bytes/s at which a filesystem is aged; btrfs reached 130 MB/s, xfs 450 MB/s
AGE_RATE: Final = 100 * MB
RESULT_BYTES: Final = 3 * MB  # directory of a trial, with the raw output of its tools


@dataclass(frozen=True)
class Preview:
    """The estimates, not rounded; `commands` are argv lists with the arm to which each belongs."""

    eta_s: float
    prepare_s: float  # part of eta_s: images and golden copies
    trial_s: dict[str, float]  # cell -> time of a trial
    disk_bytes: int  # largest total size of images, golden copies and results
    written: dict[str, int]  # cause -> bytes
    arm_bytes: dict[str, int]  # arm -> bytes of its trials, part of `written`
    remembered: int  # cells whose load is estimated from earlier runs of this host
    commands: tuple[tuple[str, tuple[str, ...]], ...]  # (arm, argv)

    @property
    def written_bytes(self) -> int:
        return sum(self.written.values())


def preview(plan: Plan, expanded: Expanded) -> Preview:
    """Return what running all trials of `expanded` would require. The machine is neither inspected
    nor changed.
    """
    goldens: dict[str, int] = {}  # cells with the same engine and dataset share a golden copy
    trial_s: dict[str, float] = {}
    written: dict[str, dict[str, int]] = {}  # cell -> cause -> bytes of a trial
    by_arm: dict[str, dict[str, int]] = {}  # cell -> its arm -> bytes of a trial

    # What a trial of each cell writes, and how long it takes.
    for cell in expanded.cells:
        if COPIED not in cell.dataset.parameters:
            dataset = generated.fill_in(cell.dataset, cell.engine.name)
            key = json.dumps([plain(cell.engine), plain(dataset)])
            goldens[key] = dataset_bytes(cell)
        by_cause = writes.of_trial(plan, cell)
        written[cell.id] = by_cause
        by_arm[cell.id] = {cell.arm: sum(by_cause.values())}
        trial_s[cell.id] = _trial_s(cell, by_cause)

    # What the run prepares once, and keeps.
    trials = [spec.cell for spec in expanded.order]
    image_bytes = plan.device.image_bytes
    golden_bytes = sum(goldens.values())
    files = {
        "golden copies": golden_bytes,
        "results": len(trials) * RESULT_BYTES,
    }
    prepare_s = image_bytes / IMAGE_RATE + golden_bytes / LOAD_RATE

    # All trials together.
    written_by_trials = [written[cell] for cell in trials]
    return Preview(
        eta_s=prepare_s + sum(trial_s[cell] for cell in trials),
        prepare_s=prepare_s,
        trial_s=trial_s,
        disk_bytes=image_bytes + sum(files.values()),
        written=writes.total(writes.once(plan), files, *written_by_trials),
        arm_bytes=writes.total(*(by_arm[cell] for cell in trials)),
        remembered=sum(cell.earlier is not None for cell in expanded.cells),
        commands=_commands(plan, expanded),
    )


def _trial_s(cell: Cell, written: Mapping[str, int]) -> float:
    size = dataset_bytes(cell)
    # The golden copy is read and written.
    copy_s = 2 * size / COPY_RATE
    load_s = _load_s(cell, size, written.get("load", 0))
    aged_s = written.get("ageing", 0) / AGE_RATE
    return STAGES_S + copy_s + load_s + aged_s


def _load_s(cell: Cell, size: int, written: int) -> float:
    """Return the seconds of the load and of what it makes before: by its window, by earlier trials,
    or by sizes.
    """
    extra_s = writes.estimate_of(cell).extra_s
    if cell.window.kind == "fixed":
        return cell.window.seconds + extra_s
    if cell.earlier is not None:
        return cell.earlier.load_s
    work_s = size / SCAN_RATE + written / COPY_RATE
    return extra_s + max(work_s, float(cell.values.get("repeat_for", 0)))


def _commands(plan: Plan, expanded: Expanded) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the mkfs and mount commands of each arm; there are none for existing directories."""
    if plan.device.directories:
        return ()
    setups = {cell.arm: cell.layered_setups for cell in expanded.cells}
    names = plan.device.targets
    commands = []
    for arm, of_role in setups.items():
        setup = of_role["data"]
        log = of_role.get("log")
        number = writes.devices_of(plan, setup)
        devices = names[:number]
        spares = names[number : number + writes.spares(plan, setup)]  # for the operation `grow`
        of_spares, _ = layers.commands(volumes.layers_to_add(setup), spares, "-spare")
        of_arm = list(of_spares)
        of_arm += filesystems.commands(setup, devices, MOUNT_POINT)
        if log is not None and plan.device.wal is not None:
            target = plan.device.wal.path or "LOOP-WAL"
            of_arm += filesystems.commands(log, (target,), WAL_MOUNT_POINT)
        commands += [(arm, argv) for argv in of_arm]
    return tuple(commands)
