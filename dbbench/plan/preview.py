"""What running a plan would do, before it does anything: commands, time, disk and bytes written.

Times and bytes are estimates, for deciding whether to begin; a run tells the true ones as it goes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from dbbench import filesystems
from dbbench.datasets import generated
from dbbench.model import Cell, DeviceSpec, FsSetup, Plan, plain
from dbbench.plan.expanding import Expanded

MB: Final = 10**6
MOUNT_POINT: Final = "/run/dbbench/mnt"  # in the trial's own namespace
WAL_MOUNT_POINT: Final = "/run/dbbench/wal"

# Measured with four busy neighbours on two cores and a virtual disk; an idle machine with an SSD is quicker.
STAGES_S: Final = 3.5  # mkfs, mount, two starts, two stops, cache proof, drain, checks
COPY_RATE: Final = 250 * MB  # bytes/s of restore, and again of the integrity check
LOAD_RATE: Final = 40 * MB  # bytes/s at which a dataset is generated, by the tools' own loaders
IMAGE_RATE: Final = 250 * MB  # bytes/s at which the image is written
SCAN_RATE: Final = 300 * MB  # a disk; much more where the host's cache holds the image
WRITE_RATE: Final = 30 * MB  # bytes/s to the device under an OLTP load; a fast disk takes ten times that
AGE_RATE: Final = 100 * MB  # bytes/s at which a filesystem is aged; btrfs wrote 130, xfs 450
RESULT_BYTES: Final = 3 * MB  # a trial's folder with its raw output


@dataclass(frozen=True)
class Preview:
    """Estimates are rounded nowhere; `commands` are argv lists with the place where each belongs."""

    eta_s: float
    trial_s: dict[str, float]  # by cell
    disk_bytes: int  # image, golden copies and results at their largest
    written_bytes: int
    commands: tuple[tuple[str, tuple[str, ...]], ...]  # (arm, argv)


def preview(plan: Plan, expanded: Expanded) -> Preview:
    """What driving all trials of `expanded` would take. Nothing is looked at or changed on the machine."""
    cells, trials = {cell.id: cell for cell in expanded.cells}, expanded.order
    goldens = {_key(cell): dataset_bytes(cell) for cell in expanded.cells}
    golden_bytes = sum(goldens.values())
    image_bytes = _image_bytes(plan.device)
    aged_bytes = _aged_bytes(plan)
    worn = {cell.id: _worn_bytes(plan, cell) for cell in expanded.cells}
    trial_s = {cell.id: _trial_s(cell) + aged_bytes / AGE_RATE + worn[cell.id] / WRITE_RATE for cell in expanded.cells}
    load_bytes = sum(_loaded_bytes(cells[spec.cell]) + aged_bytes + worn[spec.cell] for spec in trials)
    return Preview(
        eta_s=image_bytes / IMAGE_RATE + golden_bytes / LOAD_RATE + sum(trial_s[spec.cell] for spec in trials),
        trial_s=trial_s,
        disk_bytes=image_bytes + golden_bytes + len(trials) * RESULT_BYTES,
        written_bytes=image_bytes + 2 * golden_bytes + load_bytes + len(trials) * RESULT_BYTES,
        commands=_commands(plan, expanded),
    )


def targets_of(device: DeviceSpec, setup: FsSetup) -> tuple[str, ...]:
    """The devices that a setup takes, as the plan names them; loop devices have no names before they are made."""
    if device.kind == "loop":
        number = min(device.count, setup.devices.max)
        return ("LOOP",) if number == 1 else tuple(f"LOOP{index}" for index in range(1, number + 1))
    return (device.path,) if device.path else tuple(device.paths)[: setup.devices.max]


def dataset_bytes(cell: Cell) -> int:
    """About how large the cell's dataset is, with the server's own files."""
    return generated.size_bytes(cell.dataset, cell.engine.name)


def _image_bytes(device: DeviceSpec) -> int:
    if device.kind != "loop":
        return 0
    return device.count * device.size_bytes + (device.wal.size_bytes if device.wal else 0)


def _aged_bytes(plan: Plan) -> int:
    """What ageing writes in one trial; of a block device the size is not known here."""
    if plan.age is None or plan.device.kind != "loop":
        return 0
    return int(plan.age.fill * plan.device.size_bytes * (1 + plan.age.churn))


def _worn_bytes(plan: Plan, cell: Cell) -> int:
    """What the engine writes to age its tables, and the repairs after it, which write all of them twice."""
    if plan.age_engine is None or not plan.age_engine.write_factors:
        return 0
    return int(dataset_bytes(cell) * (max(plan.age_engine.write_factors) + 2 * plan.age_engine.repair))


def _key(cell: Cell) -> str:
    """Cells with the same key share a golden copy."""
    return json.dumps([plain(cell.engine), plain(generated.completed(cell.dataset, cell.engine.name))])


def _trial_s(cell: Cell) -> float:
    size = dataset_bytes(cell)
    load_s = cell.window.warmup_s + cell.window.measure_s
    if cell.window.kind == "to-completion":
        load_s = size / SCAN_RATE
    return STAGES_S + 2 * size / COPY_RATE + load_s


def _loaded_bytes(cell: Cell) -> int:
    """Written to the device in one trial: the restored dataset and what the load changes."""
    seconds = cell.window.warmup_s + cell.window.measure_s  # 0 of a workload that only reads to its end
    return dataset_bytes(cell) + int(seconds * WRITE_RATE)


def _commands(plan: Plan, expanded: Expanded) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """mkfs and mount of each arm; a directory is taken as it is."""
    if plan.device.kind == "dir":
        return ()
    setups = {cell.arm: (cell.setup, cell.wal_setup) for cell in expanded.cells}
    said = []
    for arm, (setup, log) in setups.items():
        said += [(arm, argv) for argv in filesystems.commands(setup, targets_of(plan.device, setup), MOUNT_POINT)]
        if log is not None and plan.device.wal is not None:
            target = plan.device.wal.path or "LOOP-WAL"
            said += [(arm, argv) for argv in filesystems.commands(log, (target,), WAL_MOUNT_POINT)]
    return tuple(said)
