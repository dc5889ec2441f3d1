"""The rehearsal of a run tests whether each step succeeds: its plan at the smallest scale
(`small`), and its trials within the second kernel (`python -m
dbbench.labs.second_kernel.rehearsal RUN`). The plan keeps its filesystems, layers, servers and
operations. Sizes, sessions and windows become what a slow kernel with one core does in seconds;
of lists, the first value remains. If a setup fails, its trials are marked as failed, and the
others are tried.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench import results
from dbbench.errors import EXIT_OK, DbbenchError, Interrupted, KernelLacks, Terminated
from dbbench.machine import host
from dbbench.machine.host import tunables
from dbbench.model import Cell, Dataset, DeviceSpec, EngineSpec, Plan, Scalar, TrialSpec, WalDevice
from dbbench.model.events import Emit
from dbbench.plan import Expanded
from dbbench.results import RunFolder, pending
from dbbench.run.queue import execute
from dbbench.run.record import DEADLINES_S, Record
from dbbench.run.worker import events_to
from dbbench.storage import filesystems

# Exists only inside: nothing that its journal names exists outside.
PLACE: Final = Path("/var/tmp/dbbench-second-kernel")
# size of each device: large enough for every family and for a server with its log
DEVICE_BYTES: Final = 2**30
# limit of a phase: one that hangs is reported by name, and the rest continues
PHASE_S: Final = 600.0
WARMUP_S: Final = 1.0
MEASURE_S: Final = 4.0
MOST: Final[dict[str, int]] = {
    "scale": 2,
    "tables": 2,
    "table_size": 2000,
    "table_bytes": 4 * 2**20,
    "rows": 2000,
    "clients": 2,
    "threads": 1,
    "file_size": 64 * 2**20,
    "files": 1000,
    "file_bytes": 4096,
    "warehouses": 1,
    "districts": 2,
    "customers": 100,
    "items": 200,
}
# Settings of sizes that are too large for this small machine; the defaults of the engine fit.
_SIZES: Final = (
    "shared_buffers",
    "huge_pages",
    "effective_cache_size",
    "maintenance_work_mem",
    "wal_buffers",
    "max_wal_size",
    "min_wal_size",
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "innodb_redo_log_capacity",
    "innodb_log_buffer_size",
    "large_pages",
    "key_buffer_size",
    "tmp_table_size",
    "max_heap_table_size",
)


def small(plan: Plan, expanded: Expanded, arms: Sequence[str], at: Path) -> tuple[Plan, Expanded]:
    """Return the plan and its cells for `arms`: one block, on loop files below `at`."""
    chosen = tuple(arm for arm in plan.fs_setups if arm.label in arms)
    baseline = plan.baseline if plan.baseline in arms else chosen[0].label
    wal = (
        WalDevice(plan.device.wal.fs_setup, DEVICE_BYTES // 2, str(at)) if plan.device.wal else None
    )
    less = dataclasses.replace(
        plan,
        fs_setups=chosen,
        baseline=baseline,
        blocks=1,
        budget_s=None,
        warmup_s=WARMUP_S,
        measure_s=MEASURE_S,
        memory=(),
        repeat_suspect=False,
        client=None,
        device=DeviceSpec("loop", DEVICE_BYTES, str(at), count=plan.device.device_count, wal=wal),
        deadlines={phase: float(min(PHASE_S, limit_s)) for phase, limit_s in DEADLINES_S.items()},
    )
    first: dict[tuple[str, str, str], Cell] = {}
    for cell in expanded.cells:
        if cell.arm in arms:
            first.setdefault((cell.arm, cell.engine.name, cell.workload.name), _cell(cell))
    cells = tuple(first.values())
    order = tuple(
        TrialSpec(f"{cell.id}-b1-a1", cell.id, 1, 1, number) for number, cell in enumerate(cells, 1)
    )
    return less, Expanded(cells, order)


def _cell(cell: Cell) -> Cell:
    window = cell.window
    if window.kind == "fixed":
        window = dataclasses.replace(window, warmup_s=WARMUP_S, measure_s=MEASURE_S)
    settings = {name: value for name, value in cell.engine.settings.items() if name not in _SIZES}
    return dataclasses.replace(
        cell,
        engine=EngineSpec(cell.engine.name, cell.engine.bins, cell.engine.profile, settings),
        parameters=_less(cell.parameters),
        dataset=Dataset(cell.dataset.kind, _less(cell.dataset.parameters)),
        window=window,
        memory_bytes=None,
        client=None,  # the second kernel has no network
    )


def _less(parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return parameters with reduced sizes. Smaller values stay, and so does 0, which means
    "derived from others".
    """
    smaller = dict(parameters)
    for name, most in MOST.items():
        value = smaller.get(name)
        if isinstance(value, str) or (isinstance(value, int | float) and value > most):
            smaller[name] = most
    return smaller


def main(argv: list[str]) -> int:
    """Exit status 0: every trial has a result. stdout carries progress events."""
    folder = Path(argv[0])
    emit = events_to(1)
    run = results.load_spec(folder)
    run = dataclasses.replace(
        run, host={**host.facts(), "state": tunables.state()}, versions=host.versions()
    )
    results.save_spec(folder, run)
    PLACE.mkdir(parents=True, exist_ok=True)
    for spec in pending(folder, run):
        if reason := filesystems.works(run.cell(spec.cell).setup):
            lacks = KernelLacks(f"the second kernel does not support it either: {reason}")
            _publish_failure(folder, spec, lacks, emit)
    while left := pending(folder, run):
        try:
            execute(folder, run.plan_sha256, emit=emit)  # the command made this run just now
        except (Interrupted, Terminated):
            raise
        # the trial could not begin: it was refused, or its dataset failed
        except DbbenchError as error:
            _publish_failure(folder, next(iter(pending(folder, run)), left[0]), error, emit)
    return EXIT_OK


def _publish_failure(folder: Path, spec: TrialSpec, error: DbbenchError, emit: Emit) -> None:
    record = Record(RunFolder(folder), spec, emit)
    record.fail(error)
    record.publish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
