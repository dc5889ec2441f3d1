"""Check what a plan needs of this machine before anything is changed."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from dbbench import errors, packages, process, remote, samplers
from dbbench.datasets import golden, sources
from dbbench.drivers import PROGRAMS, sessions_of
from dbbench.engines import ENGINES
from dbbench.engines.serving import most_files
from dbbench.engines.settings import (
    FILES_OF,
    numbers_of,
    open_files,
    own_cache_bytes,
    reservation,
    word,
)
from dbbench.errors.similar_names import did_you_mean
from dbbench.machine import cores, host, namespaces
from dbbench.machine.host import tunables
from dbbench.machine.limits import cgroup, throttle
from dbbench.model import Cell, EngineSpec, FsSetup, Phase, Plan, Settings
from dbbench.plan import Expanded
from dbbench.plan.request import PlanRequest
from dbbench.plan.server_settings import settings_of
from dbbench.plan.tomlfile import line_of
from dbbench.results import RunFolder
from dbbench.results.journal import Journal
from dbbench.run import disk_space, recover
from dbbench.storage import devices, filesystems
from dbbench.storage.devices import block, guard, image, sysfs
from dbbench.storage.devices.directory import check_directory
from dbbench.storage.devices.guard import Permit
from dbbench.storage.layers import delay
from dbbench.units import size_text

# for data on all disks in a dry run; the run itself searches longer
_SEARCH_S: Final = 0.5
CLIENT_FILES: Final = 32  # files of a load generator that are not connections

Problems = Iterator[errors.DbbenchError]


def check(wanted: PlanRequest, results: Path, images: dict[Path, int] | None = None) -> None:
    """Raise the first problem, with all others in its evidence; nothing is changed."""
    _raise_first(list(lacking(wanted, results, images)))


def check_for_lab(wanted: PlanRequest) -> None:
    """Raise the first problem of the servers and their settings, as `check` does; and that of a
    setup if none of them works. The power-loss lab needs nothing else of the plan.
    """
    expanded = wanted.expanded
    problems = [*_servers(expanded), *_settings(wanted)]
    if names := _absent(_server_programs(expanded)):
        problems.append(_not_installed(tuple(names)))
    setups = _made(wanted.plan, expanded)
    unable = list(_unable(setups))
    if len(unable) == len(setups):
        problems += unable
    _raise_first(problems)


def _raise_first(problems: list[errors.DbbenchError]) -> None:
    if not problems:
        return
    first, *others = problems
    first.evidence += "".join(f"\n  also {other.id}: {other.evidence}" for other in others)
    remedies = [other.remedy for other in others if other.remedy and other.remedy != first.remedy]
    first.remedy = "\n".join([first.remedy or "", *remedies]).strip()
    raise first


def lacking(wanted: PlanRequest, results: Path, images: dict[Path, int] | None = None) -> Problems:
    """Yield all problems. `images`: bytes that the run's images still need, by directory; None: all
    of them.
    """
    plan = wanted.plan
    expanded = wanted.expanded
    problems = itertools.chain(
        _servers(expanded),
        _programs(plan, expanded),
        _rights(plan, results),
        _accounts(expanded),
        _sources(expanded),
        _settings(wanted),
        _cores(plan),
        _memory(expanded),
        _open_files(expanded),
        _client(plan, expanded),
        disk_space.shortages(wanted, results, images),
        _device(plan),
        _limit(plan),
        _queues(plan),
    )
    yield from {error.evidence: error for error in problems}.values()


def refusals(wanted: PlanRequest, results: Path) -> list[errors.DbbenchError]:
    """Return everything for which a new run would be refused here, for a dry run; nothing is
    changed.
    """
    return [*lacking(wanted, results), *refused_disks(wanted.plan, results)]


def missing_programs(expanded: Expanded) -> list[str]:
    """Return missing programs of the engines, drivers and samplers of these cells."""
    drivers = [cell.workload.driver for cell in expanded.cells]
    return _absent(
        [
            *samplers.programs(),
            *_server_programs(expanded),
            *(PROGRAMS[driver] for driver in drivers if driver in PROGRAMS),
        ]
    )


def _server_programs(expanded: Expanded) -> list[str]:
    programs: list[str] = []
    for cell in expanded.cells:
        engine = ENGINES[cell.engine.name]
        folder = cell.engine.bin
        if folder is None or engine.installed_version(folder):  # `_servers` reports the others
            programs += engine.programs(folder)
    return programs


def _absent(programs: Iterable[str]) -> list[str]:
    return [
        name
        for name in dict.fromkeys(programs)
        if not (os.access(name, os.X_OK) if "/" in name else process.find(name))
    ]


def _rights(plan: Plan, results: Path) -> Problems:
    if not plan.device.existing and os.geteuid() != 0:
        yield errors.NotRoot(
            f'kind = "{plan.device.kind}" requires root, because it creates and mounts filesystems',
            remedy='Use sudo, or set kind = "dir" in [device].',
        )
    if os.geteuid() == 0 and not namespaces.has_capability():
        yield errors.NotRoot(
            "root has no CAP_SYS_ADMIN here, which the namespaces and mounts of a trial require",
            remedy=namespaces.CAPABLE,
        )
    yield from disk_space.unwritable(results, "--results DIR")


def _accounts(expanded: Expanded) -> Problems:
    """Yield why the caller's account cannot run a server; root runs it under an ID of its own."""
    names = {cell.engine.name for cell in expanded.cells}
    if os.geteuid() == 0 or not any(ENGINES[name].PROFILE.has_server for name in names):
        return
    try:
        process.user()
    except errors.DbbenchError as error:
        yield error


def _servers(expanded: Expanded) -> Problems:
    for name, folder in dict.fromkeys(
        (cell.engine.name, cell.engine.bin) for cell in expanded.cells
    ):
        engine = ENGINES[name]
        profile = engine.PROFILE
        version = engine.installed_version(folder)
        if version and numbers_of(version) < profile.oldest:
            oldest = ".".join(map(str, profile.oldest))
            yield errors.ProgramMissing(
                f"{folder or 'the installed server'} is {profile.title} {version}; {oldest} or "
                "later is required",
                remedy="Name the folder of a newer one as `bin` of [[engine]].",
            )
        elif folder and not version:
            what = f"contains no {profile.title} server" if folder.is_dir() else "does not exist"
            installed = engine.installed_version()
            instead = (
                f", or remove it to use the installed {profile.title} {installed}"
                if installed
                else ""
            )
            yield errors.ProgramMissing(
                f"{folder}, the `bin` of [[engine]] {name}, {what}",
                remedy=f"Correct `bin`{instead}.",
            )
        elif profile.has_server and not version and not _absent(engine.programs()):
            # MariaDB has a `mysqld`, too. `_programs` reports a program that does not exist.
            found = process.find(profile.programs[0])
            yield errors.ProgramMissing(
                f"no {profile.title} server is installed: {found} is another server",
                remedy="Name the folder of its programs as `bin` of [[engine]].",
            )


def _programs(plan: Plan, expanded: Expanded) -> Problems:
    setups = _made(plan, expanded)
    missing = map(filesystems.missing_programs, setups)
    # All missing programs are one error, with one command that installs them.
    if names := dict.fromkeys(
        (*missing_programs(expanded), *itertools.chain.from_iterable(missing))
    ):
        yield _not_installed(tuple(names))
    yield from _unable(setups)


def _made(plan: Plan, expanded: Expanded) -> list[FsSetup]:
    """Return the setups that are made; directories have filesystems already."""
    if plan.device.directories:
        return []
    setups = [setup for cell in expanded.cells for setup in cell.setups.values()]
    return list({setup.name: setup for setup in setups}.values())


def _unable(setups: Iterable[FsSetup]) -> Problems:
    for setup in setups:
        # Without its programs, only the kernel can be asked about a setup.
        reason = (
            "; ".join(filesystems.obstacles(setup))
            if filesystems.missing_programs(setup)
            else filesystems.works(setup)
        )
        if reason:
            yield errors.KernelLacks(
                f"fs setup {setup.name}: {reason}",
                effect="Nothing was changed.",
                remedy="List what works here with `dbbench fs`, or correct the options in the plan.",
            )


def _not_installed(names: tuple[str, ...]) -> errors.DbbenchError:
    error = errors.ProgramMissing(
        f"not installed: {', '.join(names)}", remedy=packages.remedy(names) or None
    )
    error.programs = names
    return error


def _sources(expanded: Expanded) -> Problems:
    for cell in (cell for cell in expanded.cells if cell.dataset.kind == "source"):
        try:
            if not golden.exists(golden.recipe(cell.engine, cell.dataset, cell.raw).key):
                source = sources.of(cell.dataset, cell.engine)
                if source is not None:
                    sources.examine(source, cell.engine.bin)
        except errors.DbbenchError as error:
            yield error


def _settings(wanted: PlanRequest) -> Problems:
    remedy = "Change the setting, the factor or the fs setup in the plan."
    requested: dict[str, tuple[Cell, Settings]] = {}
    for cell in wanted.expanded.cells:
        settings = settings_of(cell)
        io_uring = ENGINES[cell.engine.name].PROFILE.io_uring
        # Settings that are defaults were tried with every version.
        chosen = {
            name: setting for name, setting in settings.items() if setting.origin != "default"
        }
        requested.setdefault(repr((cell.engine.name, cell.engine.bin, chosen)), (cell, chosen))
        # io_uring may be missing in the kernel, or by_io_uring.
        by_io_uring = [
            name
            for name, value in io_uring.items()
            if name in settings and settings[name].value == value
        ]
        if by_io_uring and (reason := host.without_io_uring()):
            text = f"{by_io_uring[0]} = {settings[by_io_uring[0]].value} is not possible: {reason}"
            yield errors.KernelLacks(text, effect="Nothing was changed.", remedy=remedy)
    # Each combination is tried once.
    for cell, chosen in requested.values():
        for text in _refused_settings(cell.engine, chosen, wanted.text):
            yield errors.PlanInvalid(text, remedy=remedy)


def _refused_settings(
    spec: EngineSpec,
    chosen: Settings,
    plan_text: str,
) -> Iterator[str]:
    """Yield a sentence for each setting that is reserved or that the installed server refuses, or
    for all if it refuses none alone.
    """
    engine = ENGINES[spec.name]
    place = spec.bin
    for name, setting in chosen.items():
        if reason := reservation(engine.PROFILE.reserved, name):
            yield f"{name}, set by the {setting.origin.replace('_', ' ')}, is reserved: {reason}"
    # All at once first; one by one only to find which it is.
    title = engine.PROFILE.title
    version = engine.installed_version(place)
    if not chosen or version is None or not (whole := engine.refusal(chosen, place)):
        return
    answers = {name: engine.refusal({name: setting}, place) for name, setting in chosen.items()}
    # The server's own words, with where the value came from.
    for name, answer in answers.items():
        if answer:
            unknown = {name} - engine.defaults(None).keys() - engine.PROFILE.versions.keys()
            hint = did_you_mean(name, engine.defaults(None)) if unknown else ""
            value = word(chosen[name].value)
            origin = chosen[name].origin.replace("_", " ")
            line = line_of(plan_text, name) if chosen[name].origin == "plan" else None
            origin += f" in line {line}" if line else ""
            yield f"{title} {version} refuses {name} = {value}, set by the {origin}: {answer}{hint}"
    if not any(answers.values()):
        yield f"{title} {version} refuses the combination of {', '.join(chosen)}: {whole}"


def _cores(plan: Plan) -> Problems:
    for engine in plan.engine:
        try:
            cores.chosen_cores(engine, os.sched_getaffinity(0))
        except errors.MachineTooSmall as error:
            yield error


def _memory(expanded: Expanded) -> Problems:
    usable = cgroup.usable_bytes()
    for cell in expanded.cells:
        # The smaller of the plan's limit and of what there is.
        limit = cell.memory_bytes
        cache = own_cache_bytes(settings_of(cell)) or 0
        most = min((size for size in (limit, usable) if size is not None), default=None)
        texts = []
        if limit is not None and usable is not None and limit > usable:
            texts.append(
                f"memory = {size_text(limit)}, but only {size_text(usable)} is available here"
            )
        if most is not None and cache > most:
            what = f"the cache of {cell.engine.name} has {size_text(cache)}"
            texts.append(f"{what}, but {size_text(most)} is the most that the server may use")
        if cache > (pages := _huge_bytes(cell)):
            texts.append(
                f"huge_pages = on, but {size_text(pages)} of {size_text(cache)} are free huge pages"
            )
        for text in texts:
            yield errors.MachineTooSmall(
                text, remedy="Reduce `memory` or the server's cache in the plan."
            )


def _huge_bytes(cell: Cell) -> float:
    """Return the size of the free huge pages if PostgreSQL would not start without them."""
    settings = settings_of(cell)
    if "huge_pages" not in settings or word(settings["huge_pages"].value).lower() != "on":
        return math.inf
    meminfo = Path("/proc/meminfo").read_text()
    pages = dict(re.findall(r"^(HugePages_Free|Hugepagesize): +(\d+)", meminfo, re.MULTILINE))
    return 1024 * int(pages.get("HugePages_Free", 0)) * int(pages.get("Hugepagesize", 0))


def _open_files(expanded: Expanded) -> Problems:
    hard = most_files()
    for cell in expanded.cells:
        settings = settings_of(cell)
        sessions = 0 if cell.client else sessions_of(cell) or 0
        sizes = [f"{name} = {word(settings[name].value)}" for name in FILES_OF if name in settings]
        needs = {
            f"{cell.engine.name} with {' and '.join(sizes)}": open_files(settings),
            f"the load generator of {cell.workload.name}": sessions + CLIENT_FILES,
        }
        for what, needed in needs.items():
            if needed > hard:
                yield errors.MachineTooSmall(
                    f"{what} opens up to {needed} files, but the hard limit is {hard} (ulimit -Hn)",
                    remedy=f"Raise it, as root with: ulimit -Hn {needed}\nOr reduce these values in the "
                    "plan.",
                )


def _client(plan: Plan, expanded: Expanded) -> Problems:
    if plan.client is None:
        return
    # The client must speak to the server's version.
    drivers: dict[str, str] = {}
    for cell in expanded.cells:
        drivers[cell.workload.driver] = (
            ENGINES[cell.engine.name].installed_version(cell.engine.bin) or ""
        )
    with process.in_phase(Phase.START.value, plan.deadlines.get(Phase.START)):
        problems = list(remote.lacking(plan.client, drivers))
    yield from problems


def _disks(plan: Plan) -> list[Path]:
    return [Path(path) for spec in plan.device.volumes.values() for path in spec.disks]


def _device(plan: Plan) -> Problems:
    """Yield what can be checked about the device without acquiring it; the trial checks again, and
    locks it.
    """
    for path in _disks(plan):
        if not path.is_block_device():
            what = "not a block device" if path.exists() else "missing"
            remedy = "List the devices with: dbbench doctor"
            yield errors.DeviceUnusable(f"{path} is {what}", remedy=remedy)
    for folder in dict.fromkeys(Path(spec.at) for spec in plan.device.volumes.values() if spec.at):
        if folder.exists() and not folder.is_dir():
            remedy = "Name a directory as `at` in [device]."
            yield errors.DeviceUnusable(f"{folder} is not a directory", remedy=remedy)
        elif not folder.exists():
            make = f"Create it with mkdir -p {shlex.quote(str(folder))}"
            remedy = f"{make}, or correct `at` in [device]."
            yield errors.DeviceUnusable(f"{folder} does not exist", remedy=remedy)
    for path_of_arm in plan.device.directories.values():
        try:
            check_directory(Path(path_of_arm))
        except errors.DbbenchError as error:
            yield error


def _limit(plan: Plan) -> Problems:
    if plan.device.limit is None or os.geteuid() != 0:  # without root, `_rights` says so
        return
    throttles = bool(plan.device.limit.throttled)
    reasons = [throttle.obstacle()] if throttles else []
    delays = any(level.delays for level in plan.device.limit.levels)
    reasons += [delay.obstacle()] if delays else []
    for path in filter(Path.is_block_device, _disks(plan)):
        name = sysfs.name_at(path) or ""
        if throttles and (sysfs.folder(name) / "partition").exists():
            reasons.append(f"{path} is a partition; only whole disks can be limited")
        if delays and (mapped := delay.delayed_by(name)):
            yield throttle.refusal(
                f"{mapped} already delays {path}",
                remedy=f"Use another device, or remove that delay:  dmsetup remove {mapped}",
            )
    yield from (throttle.refusal(reason) for reason in reasons if reason)


def _queues(plan: Plan) -> Problems:
    # All loop devices have the same driver.
    loops = [Path("/dev", path.name) for path in Path("/sys/class/block").glob("loop[0-9]")]
    for path in filter(Path.is_block_device, _disks(plan) or loops[:1]):
        name = sysfs.name_at(path) or path.name
        reasons = list(tunables.queue_obstacles(name, plan.device.queue))
        if plan.device.queue and (sysfs.folder(name) / "partition").exists():
            reasons = [f"{path} is a partition, which shares the queue of its disk"]
        for reason in reasons:
            yield errors.KernelLacks(
                reason,
                effect="Nothing was changed.",
                remedy="Change [device] in the plan; a missing scheduler may be a module: modprobe NAME.",
            )


def refused_disks(plan: Plan, results: Path) -> Problems:
    """Yield why disks are refused. Only for a dry run: a resumed run may have left something on
    them.
    """
    if os.geteuid() != 0:
        return
    permit = Permit((), Journal(results / "journal.jsonl"), checking=True)
    problems = list[errors.DbbenchError]()
    names = devices.DiskNames()
    # all disks are open at the same time, so that one look at the processes is enough for them
    opened: dict[tuple[Path, str], tuple[int, bool]] = {}
    with contextlib.ExitStack() as stack:
        for spec in plan.device.volumes.values():
            for path in filter(Path.is_block_device, map(Path, spec.disks)):
                with errors.collect_errors(problems):
                    name = sysfs.name_at(path) or path.name
                    block.must_be(path, name, spec.identity, names)
                    opened[path, name] = stack.enter_context(guard.opened(path))
        reasons_of = guard.reasons_of(
            list(opened.values()),
            within_s=_SEARCH_S / max(1, len(opened)),
        )
    for (path, name), reasons in zip(opened, reasons_of, strict=True):
        with errors.collect_errors(problems):
            guard.refuse(path, name, reasons, permit, names)
    yield from problems


def check_run(
    wanted: PlanRequest,
    plan_file: str,
    root: Path,
    folder: RunFolder | None,
    wipe: tuple[str, ...],
) -> None:
    """Raise what keeps the plan from running. `root`: the results folder, `folder`: the run to
    resume. What that run has left on its disks is released first: after a SIGKILL or a power
    loss the layers of a trial still hold them.
    """
    if folder is not None:
        recover.release(folder)
    # A run that is resumed has written a part of its images already.
    missing = image.missing_bytes(folder.run, folder.path) if folder else None
    if wipe and not wanted.plan.device.disks:
        kind = wanted.plan.device.kind
        raise errors.UsageInvalid(
            f'--wipe has no effect: with kind = "{kind}" no disk is erased',
            remedy="Run the same command without it.",
        )
    check(wanted, root, missing)
    if wanted.plan.device.disks:
        journal = folder.journal if folder else Journal(root / "journal.jsonl")
        try:
            with devices.holding(wanted.plan.device, wipe, journal):
                pass
        except errors.DeviceNotEmpty as error:
            wrong = f"--wipe {' '.join(wipe)} does not give its identity. " if wipe else ""
            error.remedy = wrong + (error.remedy or "").replace(
                "run PLAN", f"run {shlex.quote(plan_file)}"
            )
            raise
