"""What a plan needs of this machine, looked at before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines.settings import redo_bytes
from dbbench.errors import (
    CoresMissing,
    DbbenchError,
    DeviceUnusable,
    DiskTooSmall,
    KernelLacks,
    NotRoot,
    ProgramMissing,
    ResultsUnwritable,
)
from dbbench.model import Cell, Plan
from dbbench.packages import package_of
from dbbench.plan import Expanded
from dbbench.plan.preview import RESULT_BYTES, dataset_bytes
from dbbench.plan.settings import settings_of
from dbbench.units import size_text

UNTOUCHED: Final = "Nothing was changed."
USABLE: Final = 0.9  # of a device's bytes: ext reserves 5 %, xfs and btrfs keep as much for their own metadata
SPARE: Final = 1.05  # of a disk's need: others use it too


def check(plan: Plan, expanded: Expanded, results: Path, *, images: dict[Path, int] | None = None) -> None:
    """Raise the first thing that is lacking, with all others in its evidence; nothing is changed."""
    found = list(lacking(plan, expanded, results, images=images))
    if not found:
        return
    first, others = found[0], found[1:]
    first.evidence += "".join(f"\n  also {other.id}: {other.evidence}" for other in others)
    remedies = [other.remedy for other in others if other.remedy and other.remedy != first.remedy]
    first.remedy = "\n".join([first.remedy or "", *remedies]).strip()
    raise first


def lacking(
    plan: Plan, expanded: Expanded, results: Path, *, images: dict[Path, int] | None = None
) -> Iterator[DbbenchError]:
    """All that stands in the plan's way here. `images`: bytes that the run's images still take, by folder;
    None: all that the plan asks for."""
    yield from _programs(plan, expanded)
    if plan.device.kind != "dir" and os.geteuid() != 0:
        yield NotRoot(
            f'kind = "{plan.device.kind}" makes and mounts filesystems, which only root may',
            effect=UNTOUCHED,
            remedy='Type it with sudo, or use kind = "dir" in [device].',
        )
    yield from _sources(expanded)
    yield from _cores(plan)
    yield from _client(plan, expanded)
    yield from _writable(results)
    yield from _space(plan, expanded, results, images)
    yield from _device(plan)


def missing_programs(expanded: Expanded) -> list[str]:
    """Programs that engines, drivers and samplers of these cells need and that are not here."""
    from dbbench.drivers import DRIVERS
    from dbbench.engines import ENGINES
    from dbbench.samplers import programs as sampled

    wanted = list(sampled())
    for cell in expanded.cells:
        bin_ = Path(cell.engine.bin) if cell.engine.bin else None
        wanted += ENGINES[cell.engine.name].programs(bin_)
        if cell.workload.driver != "pgbench":  # it lies with the engine's programs, not in PATH
            wanted += DRIVERS[cell.workload.driver].programs()
    return [name for name in dict.fromkeys(wanted) if not _is_there(name)]


def _is_there(program: str) -> bool:
    return os.access(program, os.X_OK) if "/" in program else process.find(program) is not None


def install_hint(programs: list[str]) -> str:
    """The command that installs what brings `programs`."""
    packages = list(dict.fromkeys(p for name in programs if (p := package_of(name))))
    return f"apt-get install --no-install-recommends {' '.join(packages)}" if packages else "dbbench doctor"


def _programs(plan: Plan, expanded: Expanded) -> Iterator[DbbenchError]:
    from dbbench import filesystems

    absent = missing_programs(expanded)
    made = [setup for cell in expanded.cells for setup in (cell.setup, cell.wal_setup) if setup is not None]
    setups = {} if plan.device.kind == "dir" else {setup.name: setup for setup in made}
    absent += [name for setup in setups.values() for name in filesystems.missing_programs(setup)]
    if absent:
        names = list(dict.fromkeys(absent))
        yield ProgramMissing(f"not installed: {', '.join(names)}", effect=UNTOUCHED, remedy=install_hint(names))
    for setup in setups.values():
        reason = filesystems.works(setup)
        if reason is not None and not filesystems.missing_programs(setup):
            yield KernelLacks(f"fs setup {setup.name}: {reason}", effect=UNTOUCHED, remedy="dbbench fs list")


def _sources(expanded: Expanded) -> Iterator[DbbenchError]:
    """Whether each engine can take what the plan names as its source; a copy that is there already needs none."""
    from dbbench.datasets import golden, sources

    told: set[str] = set()
    for cell in expanded.cells:
        if cell.dataset.kind != "source":
            continue
        try:
            if not golden.exists(golden.key(cell.engine, cell.dataset, cell.raw)):
                sources.of(cell.dataset, cell.engine)
        except DbbenchError as error:
            if error.evidence not in told:
                yield error
            told.add(error.evidence)


def _cores(plan: Plan) -> Iterator[DbbenchError]:
    from dbbench.limits import cores

    for engine in plan.engine:
        try:
            cores.chosen(engine, os.sched_getaffinity(0))
        except CoresMissing as error:
            yield error


def _client(plan: Plan, expanded: Expanded) -> Iterator[DbbenchError]:
    """Whether the load generator can be started on the client's host, and reach this one."""
    if plan.client is None:
        return
    from dbbench import remote
    from dbbench.engines import ENGINES

    drivers: dict[str, str] = {}
    for cell in expanded.cells:
        version = ENGINES[cell.engine.name].installed(Path(cell.engine.bin) if cell.engine.bin else None)
        drivers[cell.workload.driver] = version or ""
    yield from remote.lacking(plan.client, drivers)


def _writable(results: Path) -> Iterator[DbbenchError]:
    there = nearest(results)
    if not os.access(there, os.W_OK):
        yield ResultsUnwritable(
            f"{there} cannot be written", effect=UNTOUCHED, remedy="Name another folder with --results DIR."
        )


def _space(plan: Plan, expanded: Expanded, results: Path, images: dict[Path, int] | None) -> Iterator[DbbenchError]:
    """What each disk must hold: the image, the golden copies that are not there yet, the results."""
    from dbbench.datasets.cache import cache_folder

    needs: list[tuple[Path, int, str]] = [(results, len(expanded.order) * RESULT_BYTES, "results")]
    needs += [(at, size, "image") for at, size in (_images(plan, results) if images is None else images).items()]
    if golden := _golden_bytes(expanded):
        needs.append((cache_folder(), golden, "golden copies"))
    by_disk: dict[int, list[tuple[Path, int, str]]] = {}
    for path, size, what in needs:
        by_disk.setdefault(nearest(path).stat().st_dev, []).append((path, size, what))
    for group in by_disk.values():
        wanted, free = int(sum(size for _, size, _ in group) * SPARE), free_bytes(group[0][0])
        if wanted > free:
            what = ", ".join(f"{name} {size_text(size)} at {path}" for path, size, name in group)
            yield DiskTooSmall(
                f"{size_text(free)} free, about {size_text(wanted)} needed: {what}",
                effect=UNTOUCHED,
                remedy="Free some space, or name another disk: at = in [device], --results DIR, DBBENCH_CACHE.",
            )
    if plan.device.kind == "loop" and expanded.cells:
        yield from fits(plan, expanded)


def _redo_bytes(cell: Cell) -> int:
    """Of InnoDB's redo on the device of the data, all of which it allocates when it starts; MariaDB waits for ever on a
    filesystem that is full. 0 where it lies elsewhere, or is compressed: zeros take nothing there."""
    from dbbench import filesystems

    family = cell.setup.mkfs.family
    if cell.wal_setup or family not in filesystems.FAMILIES or filesystems.traits(cell.setup).compresses:
        return 0
    return redo_bytes(settings_of(cell))


def fits(plan: Plan, expanded: Expanded) -> Iterator[DbbenchError]:
    """Whether each dataset, its server's redo and what ageing leaves there have room on one loop device of the plan."""
    cell = max(expanded.cells, key=lambda cell: dataset_bytes(cell) + _redo_bytes(cell))
    size, aged = plan.device.size_bytes, int(plan.age.fill * plan.device.size_bytes) if plan.age else 0
    dataset, redo = dataset_bytes(cell), _redo_bytes(cell)
    if dataset + redo + aged > size * (USABLE if aged else 1):
        beside = f" beside {size_text(aged)} of aged files" if aged else ""
        with_redo = f" with {size_text(redo)} of {cell.engine.name}'s redo" if redo else ""
        yield DiskTooSmall(
            f"a dataset of about {size_text(dataset)}{with_redo}{beside} does not fit on a device of {size_text(size)}",
            effect=UNTOUCHED,
            remedy="Give [device] a larger size, or the workload a smaller dataset"
            + (", or the engine a smaller redo" if redo else "")
            + (", or [age] a smaller fill." if aged else "."),
        )


def _images(plan: Plan, results: Path) -> dict[Path, int]:
    """Bytes of all images of a new run, by folder."""
    device = plan.device
    if device.kind != "loop":
        return {}
    at = Path(device.at) if device.at else results
    found = {at: device.count * device.size_bytes}
    if device.wal:
        there = Path(device.wal.at) if device.wal.at else at
        found[there] = found.get(there, 0) + device.wal.size_bytes
    return found


def _golden_bytes(expanded: Expanded) -> int:
    """Bytes of the golden copies that are still to be built."""
    from dbbench.datasets import golden

    sizes: dict[str, int] = {}
    for cell in expanded.cells:
        try:
            key = golden.key(cell.engine, cell.dataset, cell.raw)
            sizes[key] = 0 if golden.exists(key) else dataset_bytes(cell)
        except ProgramMissing:  # told above; without its version a copy has no key
            sizes[cell.engine.name + repr(cell.dataset)] = dataset_bytes(cell)
    return sum(sizes.values())


def _device(plan: Plan) -> Iterator[DbbenchError]:
    """What can be said of the target without taking it; the trial itself checks again, and locks."""
    device = plan.device
    if device.kind == "block":
        path = Path(device.path or next(iter(device.paths)))
        if not path.is_block_device():
            what = "not a block device" if path.exists() else "not there"
            yield DeviceUnusable(f"{path} is {what}", effect=UNTOUCHED, remedy="dbbench doctor  lists the devices.")
    elif device.kind == "dir" and isinstance(device.paths, dict):
        from dbbench.devices.directory import checked

        for path_of_arm in device.paths.values():
            try:
                checked(Path(path_of_arm))
            except DbbenchError as error:
                yield error


def nearest(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    path = path.absolute()
    return path if path.exists() else nearest(path.parent)


def free_bytes(path: Path) -> int:
    """Bytes that may still be written on the filesystem of `path`, existing or not."""
    found = os.statvfs(nearest(path))
    return found.f_frsize * found.f_bavail
