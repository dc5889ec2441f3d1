"""Check what a plan needs of this machine before anything is changed."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dbbench import errors, packages, process
from dbbench.engines.port import Engine
from dbbench.engines.serving import most_files
from dbbench.engines.settings import FILES_OF, open_files, own_cache_bytes, redo_bytes, word
from dbbench.model import Cell, FsSetup, Plan, Role, Settings
from dbbench.plan import Expanded
from dbbench.plan.preview import RESULT_BYTES
from dbbench.plan.request import Asked
from dbbench.plan.server_settings import settings_of
from dbbench.plan.tomlfile import did_you_mean
from dbbench.plan.writes import ARCHIVE, dataset_bytes, kept_logs, table_bytes
from dbbench.results import RunFolder
from dbbench.storage.devices.directory import PREFIX
from dbbench.units import size_text

UNTOUCHED: Final = "Nothing was changed."
USABLE: Final = 0.9  # usable share of a device: ext reserves 5 %, xfs and btrfs need as much for their metadata
CLIENT_FILES: Final = 32  # files of a load generator that are not connections
SPARE: Final = 1.05  # factor on the required disk space, because other processes use the disk too


def check(plan: Plan, expanded: Expanded, results: Path, *, images: dict[Path, int] | None = None) -> None:
    """Raise the first problem, with all others in its evidence; nothing is changed."""
    problems = list(lacking(plan, expanded, results, images=images))
    if not problems:
        return
    first, others = problems[0], problems[1:]
    first.evidence += "".join(f"\n  also {other.id}: {other.evidence}" for other in others)
    remedies = [other.remedy for other in others if other.remedy and other.remedy != first.remedy]
    first.remedy = "\n".join([first.remedy or "", *remedies]).strip()
    raise first


def lacking(
    plan: Plan, expanded: Expanded, results: Path, *, images: dict[Path, int] | None = None
) -> Iterator[errors.DbbenchError]:
    """Yield all problems of the plan on this machine. `images`: bytes that the run's images still need, by directory;
    None: everything that the plan requires."""
    problems = itertools.chain(
        _programs(plan, expanded), _rights(plan, results), _sources(expanded), _settings(expanded), _cores(plan),
        _memory(expanded), _open_files(expanded), _client(plan, expanded), _space(plan, expanded, results, images),
        _device(plan),
    )  # fmt: skip
    yield from {error.evidence: error for error in problems}.values()


def refusals(wanted: Asked, results: Path) -> list[errors.DbbenchError]:
    """Return everything for which a new run would be refused here, for a dry run; nothing is changed."""
    return [*lacking(wanted.plan, wanted.expanded, results), *refused_disks(wanted.plan, results)]


def missing_programs(expanded: Expanded) -> list[str]:
    """Return missing programs of the engines, drivers and samplers of these cells."""
    from dbbench.drivers import PROGRAMS
    from dbbench.engines import ENGINES
    from dbbench.samplers import programs as sampled

    programs = list(sampled())
    for cell in expanded.cells:
        bin_ = Path(cell.engine.bin) if cell.engine.bin else None
        programs += ENGINES[cell.engine.name].programs(bin_)
        programs += [PROGRAMS[cell.workload.driver]] if cell.workload.driver in PROGRAMS else []
    return [name for name in dict.fromkeys(programs) if not _is_there(name)]


def _is_there(program: str) -> bool:
    return os.access(program, os.X_OK) if "/" in program else process.find(program) is not None


def _rights(plan: Plan, results: Path) -> Iterator[errors.DbbenchError]:
    if not plan.device.existing and os.geteuid() != 0:
        yield errors.NotRoot(
            f'kind = "{plan.device.kind}" requires root, because it creates and mounts filesystems',
            effect=UNTOUCHED,
            remedy='Use sudo, or set kind = "dir" in [device].',
        )
    there = nearest(results)
    if not os.access(there, os.W_OK):
        yield errors.ResultsUnwritable(
            f"{there} is not writable", effect=UNTOUCHED, remedy="Name another folder with --results DIR."
        )


def _programs(plan: Plan, expanded: Expanded) -> Iterator[errors.DbbenchError]:
    from dbbench.storage import filesystems

    absent = missing_programs(expanded)
    made = [] if plan.device.directories else [setup for cell in expanded.cells for setup in cell.setups.values()]
    setups = {setup.name: setup for setup in made}
    absent += [name for setup in setups.values() for name in filesystems.missing_programs(setup)]
    if absent:
        names = list(dict.fromkeys(absent))
        hint = packages.remedy(names) or "dbbench doctor"
        error = errors.ProgramMissing(f"not installed: {', '.join(names)}", effect=UNTOUCHED, remedy=hint)
        error.programs = tuple(names)
        yield error
    for setup in setups.values():
        missing = filesystems.missing_programs(setup)  # reported above as not installed
        reason = "; ".join(filesystems.obstacles(setup)) if missing else filesystems.works(setup)
        if reason:
            yield errors.KernelLacks(f"fs setup {setup.name}: {reason}", effect=UNTOUCHED, remedy="dbbench fs")


def _sources(expanded: Expanded) -> Iterator[errors.DbbenchError]:
    """Yield an error if an engine cannot load its source; an existing copy needs no source."""
    from dbbench.datasets import golden, sources

    for cell in expanded.cells:
        try:
            if cell.dataset.kind == "source" and not golden.exists(golden.key(cell.engine, cell.dataset, cell.raw)):
                sources.of(cell.dataset, cell.engine)
        except errors.DbbenchError as error:
            yield error


def _settings(expanded: Expanded) -> Iterator[errors.DbbenchError]:
    from dbbench.engines import ENGINES
    from dbbench.machine import host

    remedy = "Change the setting, the factor or the fs setup in the plan."
    requested: dict[str, tuple[Cell, Settings]] = {}
    for cell in expanded.cells:
        settings, io_uring = settings_of(cell), ENGINES[cell.engine.name].PROFILE.io_uring
        chosen = {name: setting for name, setting in settings.items() if setting.origin != "default"}
        requested.setdefault(repr((cell.engine.name, cell.engine.bin, chosen)), (cell, chosen))
        wanted = [name for name, value in io_uring.items() if name in settings and settings[name].value == value]
        if wanted and (reason := host.without_io_uring()):
            text = f"{wanted[0]} = {settings[wanted[0]].value} is not possible: {reason}"
            yield errors.KernelLacks(text, effect=UNTOUCHED, remedy=remedy)
    for cell, chosen in requested.values():
        for text in _refused_settings(ENGINES[cell.engine.name], cell.engine.bin, chosen):
            yield errors.PlanInvalid(text, effect=UNTOUCHED, remedy=remedy)


def _refused_settings(engine: Engine, bin_: str | None, chosen: Settings) -> Iterator[str]:
    """Yield a sentence for each setting that the installed server refuses; if it refuses none alone, for all. If the
    server is not installed, `_programs` says so."""
    place, title = Path(bin_) if bin_ else None, engine.PROFILE.title
    if not chosen or (version := engine.installed(place)) is None or not (whole := engine.refused(chosen, place)):
        return
    answers = {name: engine.refused({name: setting}, place) for name, setting in chosen.items()}
    for name, answer in answers.items():
        if answer:
            unknown = {name} - engine.defaults(None).keys() - engine.PROFILE.versions.keys()
            hint = did_you_mean(name, engine.defaults(None)) if unknown else ""
            value, origin = word(chosen[name].value), chosen[name].origin.replace("_", " ")
            yield f"{title} {version} refuses {name} = {value}, set by the {origin}: {answer}{hint}"
    if not any(answers.values()):
        yield f"{title} {version} refuses the combination of {', '.join(chosen)}: {whole}"


def _cores(plan: Plan) -> Iterator[errors.DbbenchError]:
    from dbbench.machine import cores

    for engine in plan.engine:
        try:
            cores.chosen_cores(engine, os.sched_getaffinity(0))
        except errors.MachineTooSmall as error:
            yield error


def _memory(expanded: Expanded) -> Iterator[errors.DbbenchError]:
    from dbbench.machine.limits import cgroup

    usable = cgroup.usable_bytes()
    for cell in expanded.cells:
        limit, cache = cell.memory_bytes, own_cache_bytes(settings_of(cell)) or 0
        most = min((size for size in (limit, usable) if size is not None), default=None)
        texts = []
        if limit is not None and usable is not None and limit > usable:
            texts.append(f"memory = {size_text(limit)}, but only {size_text(usable)} is available here")
        if most is not None and cache > most:
            what = f"the cache of {cell.engine.name} has {size_text(cache)}"
            texts.append(f"{what}, but {size_text(most)} is the most that the server may use")
        for text in texts:
            yield errors.MachineTooSmall(
                text, effect=UNTOUCHED, remedy="Reduce `memory` or the server's cache in the plan."
            )


def _open_files(expanded: Expanded) -> Iterator[errors.DbbenchError]:
    from dbbench.drivers import sessions_of

    hard = most_files()
    for cell in expanded.cells:
        settings, sessions = settings_of(cell), 0 if cell.client else sessions_of(cell) or 0
        sizes = [f"{name} = {word(settings[name].value)}" for name in FILES_OF if name in settings]
        needs = {f"{cell.engine.name} with {' and '.join(sizes)}": open_files(settings),
                 f"the load generator of {cell.workload.name}": sessions + CLIENT_FILES}  # fmt: skip
        for what, needed in needs.items():
            if needed > hard:
                yield errors.MachineTooSmall(
                    f"{what} opens up to {needed} files, but the hard limit is {hard} (ulimit -Hn)",
                    effect=UNTOUCHED,
                    remedy=f"Raise it, as root with: ulimit -Hn {needed}\nOr reduce these values in the plan.",
                )


def _client(plan: Plan, expanded: Expanded) -> Iterator[errors.DbbenchError]:
    if plan.client is None:
        return
    from dbbench import remote
    from dbbench.engines import ENGINES

    drivers: dict[str, str] = {}
    for cell in expanded.cells:
        version = ENGINES[cell.engine.name].installed(Path(cell.engine.bin) if cell.engine.bin else None)
        drivers[cell.workload.driver] = version or ""
    yield from remote.lacking(plan.client, drivers)


def _space(
    plan: Plan, expanded: Expanded, results: Path, images: dict[Path, int] | None
) -> Iterator[errors.DbbenchError]:
    from dbbench.datasets.golden import cache_folder

    needs: list[tuple[Path, int, str]] = [(results, len(expanded.order) * RESULT_BYTES, "results")]
    needs += [
        (folder, size, "image") for folder, size in (_images(plan, results) if images is None else images).items()
    ]
    if golden := _golden_bytes(expanded):
        needs.append((cache_folder(), golden, "golden copies"))
    if plan.device.directories:
        needs += _largest_trials(plan.device.directories, expanded)
    by_disk: dict[int, list[tuple[Path, int, str]]] = {}
    for path, size, what in needs:
        by_disk.setdefault(nearest(path).stat().st_dev, []).append((path, size, what))
    for group in by_disk.values():
        needed, free = int(sum(size for _, size, _ in group) * SPARE), free_bytes(group[0][0])
        if needed > free:
            what = ", ".join(f"{name} {size_text(size)} at {path}" for path, size, name in group)
            where = '"paths"' if plan.device.directories else '"at"'
            yield errors.DiskTooSmall(
                f"about {size_text(needed)} of disk space is required, but {size_text(free)} is free: {what}",
                effect=UNTOUCHED,
                remedy=f"Free some space, or use another disk: {where} in [device], --results DIR, or DBBENCH_CACHE.",
            )
    if expanded.cells:
        yield from fits(plan, expanded)
        yield from _log_fits(plan, expanded)


def _largest_trials(folders: Mapping[str, str], expanded: Expanded) -> list[tuple[Path, int, str]]:
    """Return, for each disk below the plan's directories, what its largest trial needs in addition to what a killed one
    has left; each trial removes its data, and what is left."""
    from dbbench.datasets.golden import disk_bytes

    largest: dict[int, tuple[Path, int, str]] = {}
    for cell in expanded.cells:
        folder, logs = Path(folders[cell.arm]), _log_bytes(cell)["data"]
        what = f"data of {cell.workload.name}" + (
            f" with {size_text(logs)} of {cell.engine.name}'s logs" if logs else ""
        )
        left = sum(map(disk_bytes, folder.glob(f"{PREFIX}*")))
        need = (folder, max(0, dataset_bytes(cell) + table_bytes(cell) + logs - left), what)
        disk = nearest(folder).stat().st_dev
        largest[disk] = max(need, largest.get(disk, need), key=lambda row: row[1])
    return list(largest.values())


def _redo_bytes(cell: Cell, setup: FsSetup) -> int:
    """Return the size of InnoDB's redo log on this filesystem, which is allocated completely at the start. MariaDB
    waits forever on a full filesystem. 0 with compression: zeros need no space."""
    from dbbench.storage import filesystems

    if setup.mkfs.family not in filesystems.FAMILIES or filesystems.traits(setup).compresses:
        return 0
    return redo_bytes(settings_of(cell))


def _log_bytes(cell: Cell) -> dict[Role, int]:
    """Return the bytes of logs on each volume: an archive is with the data, all others on the volume of the log."""
    kept = kept_logs(cell)
    sizes: dict[Role, int] = {"data": kept.pop(ARCHIVE, 0)}
    role, setup = list(cell.setups.items())[-1]
    return sizes | {role: sizes.get(role, 0) + sum(kept.values()) + _redo_bytes(cell, setup)}


def _log_fits(plan: Plan, expanded: Expanded) -> Iterator[errors.DbbenchError]:
    from dbbench.storage import devices

    logs = max(_log_bytes(cell).get("log", 0) for cell in expanded.cells)
    size = sum(plan.device.volumes["log"].disk_bytes(devices.size_bytes)) if logs else 0
    if size and logs > size * USABLE:
        yield errors.DiskTooSmall(
            f"logs of about {size_text(logs)} do not fit on [device.wal], which has {size_text(size)}",
            effect=UNTOUCHED,
            remedy="Use a larger device for [device.wal], a smaller redo log, or a shorter window.",
        )


def fits(plan: Plan, expanded: Expanded) -> Iterator[errors.DbbenchError]:
    """Yield an error if a dataset, its server's logs and the aged files do not fit on one device of the plan."""
    from dbbench.storage import devices

    if not (size := min(filter(None, plan.device.disk_bytes(devices.size_bytes)), default=0)):
        return
    sizes = [(dataset_bytes(cell) + table_bytes(cell), _log_bytes(cell)["data"], cell) for cell in expanded.cells]
    dataset, logs, cell = max(sizes, key=lambda row: row[0] + row[1])
    aged = int(plan.age.fill * size) if plan.age else 0
    if dataset + logs + aged > size * (USABLE if aged else 1):
        beside = f" in addition to {size_text(aged)} of aged files" if aged else ""
        with_logs = f" with {size_text(logs)} of {cell.engine.name}'s logs" if logs else ""
        yield errors.DiskTooSmall(
            (
                f"a dataset of about {size_text(dataset)}{with_logs}{beside} does not fit on a device of "
                f"{size_text(size)}"
            ),
            effect=UNTOUCHED,
            remedy="Use a larger device or a smaller dataset"
            + (", or smaller logs (redo log, window)" if logs else "")
            + (", or a smaller fill in [age]." if aged else "."),
        )


def _images(plan: Plan, results: Path) -> dict[Path, int]:
    sizes: dict[Path, int] = {}
    for spec in plan.device.volumes.values():
        if spec.image_bytes:
            folder = Path(spec.at) if spec.at else results
            sizes[folder] = sizes.get(folder, 0) + spec.image_bytes
    return sizes


def _golden_bytes(expanded: Expanded) -> int:
    from dbbench.datasets import golden

    sizes: dict[str, int] = {}
    for cell in expanded.cells:
        try:
            key = golden.key(cell.engine, cell.dataset, cell.raw)
            sizes[key] = 0 if golden.exists(key) else dataset_bytes(cell)
        except errors.ProgramMissing:  # already reported by _programs; without the engine's version a copy has no key
            sizes[cell.engine.name + repr(cell.dataset)] = dataset_bytes(cell)
    return sum(sizes.values())


def _device(plan: Plan) -> Iterator[errors.DbbenchError]:
    """Yield what can be checked about the device without acquiring it; the trial checks again, and locks it."""
    for path in _disks(plan):
        if not path.is_block_device():
            what = "not a block device" if path.exists() else "missing"
            remedy = "List the devices with: dbbench doctor"
            yield errors.DeviceUnusable(f"{path} is {what}", effect=UNTOUCHED, remedy=remedy)
    for folder in dict.fromkeys(Path(spec.at) for spec in plan.device.volumes.values() if spec.at):
        if not folder.is_dir():
            what = "is not a directory" if folder.exists() else "does not exist"
            remedy = f"Create it with mkdir -p {shlex.quote(str(folder))}, or correct `at` in [device]."
            yield errors.DeviceUnusable(f"{folder} {what}", effect=UNTOUCHED, remedy=remedy)
    if plan.device.directories:
        from dbbench.storage.devices.directory import checked

        for path_of_arm in plan.device.directories.values():
            try:
                checked(Path(path_of_arm))
            except errors.DbbenchError as error:
                yield error


def refused_disks(plan: Plan, results: Path) -> Iterator[errors.DbbenchError]:
    """Yield an error for each disk of the plan that is mounted, in use, not empty, or not the one that it names. Only
    for a dry run: a run that is resumed may itself have left something on them, and the trial checks again."""
    from dbbench.results.journal import Journal
    from dbbench.run.permit import RunPermit
    from dbbench.storage.devices import block, guard, sysfs

    if os.geteuid() != 0:
        return
    permit = RunPermit((), Journal(results / "journal.jsonl"), checking=True)
    for spec in plan.device.volumes.values():
        for path in filter(Path.is_block_device, map(Path, spec.disks)):
            try:
                name = sysfs.name_of(path.stat().st_rdev) or path.name
                block.must_be(path, name, spec.identity)
                guard.refuse(path, name, guard.reasons(path), permit)
            except errors.DbbenchError as error:
                yield error


def _disks(plan: Plan) -> list[Path]:
    return [Path(path) for spec in plan.device.volumes.values() for path in spec.disks]


def nearest(path: Path) -> Path:
    """Return the path, or the nearest existing directory above it."""
    path = path.absolute()
    return path if path.exists() else nearest(path.parent)


def free_bytes(path: Path) -> int:
    """Return the bytes that can still be written on the filesystem of `path`, existing or not."""
    space = os.statvfs(nearest(path))
    return space.f_frsize * space.f_bavail


def check_run(wanted: Asked, plan_file: str, root: Path, folder: RunFolder | None, wipe: tuple[str, ...]) -> None:
    """Raise what keeps the plan from being run. `root` is the results folder, `folder` that of a run to be resumed. The
    guards of a block device are passed once here, and again in each trial."""
    from dbbench.results.journal import Journal
    from dbbench.run.permit import RunPermit
    from dbbench.storage import devices
    from dbbench.storage.devices import image

    missing = image.missing_bytes(folder.run, folder.path) if folder else None
    check(wanted.plan, wanted.expanded, root, images=missing)
    if wanted.plan.device.disks:
        journal = folder.journal if folder else Journal(root / "journal.jsonl")
        permit = RunPermit(wipe, journal, checking=True)
        try:
            volumes = wanted.plan.device.volumes
            with devices.attached(
                {role: devices.DiskSet(spec, most=spec.given) for role, spec in volumes.items()}, permit
            ):
                pass
        except errors.DeviceNotEmpty as error:
            error.remedy = (error.remedy or "").replace("run PLAN", f"run {shlex.quote(plan_file)}")
            raise
