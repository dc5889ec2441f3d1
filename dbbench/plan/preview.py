"""What running a plan would do, before it does anything: commands, time, disk and bytes written.

Times and bytes are estimates, for deciding whether to begin; a run tells the true ones as it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dbbench.filesystems.families import FAMILIES
from dbbench.model import Cell, Dataset, DeviceSpec, FsSetup, Plan
from dbbench.plan.expanding import Expanded

MB: Final = 10**6
MOUNT_POINT: Final = "/run/dbbench/mnt"  # in the trial's own namespace

# Bytes on disk of a loaded dataset by its kind. pgbench: accounts with their index are 16 MB a scale (100 000
# rows of 97 + 24 bytes, B-tree, fill). sysbench: 120 + 60 bytes of text and keys a row, page fill: 250 bytes.
PGBENCH_SCALE_BYTES: Final = 16 * MB
SYSBENCH_ROW_BYTES: Final = 250
BASE_BYTES: Final = 150 * MB  # system tables, first log files

STAGES_S: Final = 8.0  # mkfs, mount, two starts, two stops, cache proof, drain, checks: of an idle small machine
COPY_RATE: Final = 150 * MB  # bytes/s of restore, and again of the integrity check; a SATA SSD does 2-3 times that
LOAD_RATE: Final = 15 * MB  # bytes/s at which a dataset is generated, by the tools' own loaders
IMAGE_RATE: Final = 250 * MB  # bytes/s at which the image is written
SCAN_RATE: Final = 200 * MB
WRITE_RATE: Final = 30 * MB  # bytes/s to the device under an OLTP load; a fast disk takes ten times that
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
    goldens = {(cell.engine.name, _key(cell.dataset)): dataset_bytes(cell.dataset) for cell in expanded.cells}
    golden_bytes = sum(goldens.values())
    image_bytes = plan.device.size_bytes if plan.device.kind == "loop" else 0
    trial_s = {cell.id: _trial_s(cell) for cell in expanded.cells}
    load_bytes = sum(_loaded_bytes(cells[spec.cell]) for spec in trials)
    return Preview(
        eta_s=image_bytes / IMAGE_RATE + golden_bytes / LOAD_RATE + sum(trial_s[spec.cell] for spec in trials),
        trial_s=trial_s,
        disk_bytes=image_bytes + golden_bytes + len(trials) * RESULT_BYTES,
        written_bytes=image_bytes + 2 * golden_bytes + load_bytes + len(trials) * RESULT_BYTES,
        commands=_commands(plan, expanded),
    )


def dataset_bytes(dataset: Dataset) -> int:
    """About how large a loaded dataset is on disk, with the server's own files."""
    own = dataset.parameters

    def number(name: str, default: int) -> float:
        value = own.get(name, default)
        return float(value) if isinstance(value, int | float) else float(default)

    match dataset.kind:
        case "pgbench":
            return BASE_BYTES + int(number("scale", 1) * PGBENCH_SCALE_BYTES)
        case "none":
            return BASE_BYTES
        case _:
            return BASE_BYTES + int(number("tables", 1) * number("table_size", 10000) * SYSBENCH_ROW_BYTES)


def target_of(device: DeviceSpec, label: str) -> str:
    """The device as the plan names it; a loop device has no name before it is made."""
    if device.kind == "loop":
        return "LOOP"
    if isinstance(device.paths, dict):
        return device.paths.get(label, "")
    return device.path or next(iter(device.paths), "")


def _key(dataset: Dataset) -> str:
    return f"{dataset.kind} {sorted(dataset.parameters.items())}"


def _trial_s(cell: Cell) -> float:
    size = dataset_bytes(cell.dataset)
    load_s = cell.window.warmup_s + cell.window.measure_s
    if cell.window.kind == "to-completion":
        load_s = size / SCAN_RATE
    return STAGES_S + 2 * size / COPY_RATE + load_s


def _loaded_bytes(cell: Cell) -> int:
    """Written to the device in one trial: the restored dataset and what the load changes."""
    seconds = cell.window.warmup_s + cell.window.measure_s  # 0 of a workload that only reads to its end
    return dataset_bytes(cell.dataset) + int(seconds * WRITE_RATE)


def making(setup: FsSetup, target: str) -> list[tuple[str, ...]]:
    """mkfs and mount of a setup on `target`, as a trial runs them. KeyError for an unknown family."""
    family = FAMILIES[setup.mkfs.family]
    options = ",".join(family.mount_options(setup))
    mount = ("mount", "-t", setup.mkfs.family, "-o", options, target, MOUNT_POINT)
    return [tuple(family.mkfs_argv(setup, target)), mount]


def _commands(plan: Plan, expanded: Expanded) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """mkfs and mount of each arm; a directory is taken as it is."""
    if plan.device.kind == "dir":
        return ()
    setups = {cell.arm: cell.setup for cell in expanded.cells}
    return tuple((arm, argv) for arm, setup in setups.items() for argv in making(setup, target_of(plan.device, arm)))
