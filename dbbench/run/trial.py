"""THE STRAIGHT ROAD of a trial; read this first. `run_trial` runs one and publishes it. `drive` is
the road: device → filesystem → dataset → engine → cold cache → load and samplers (`run_load`) →
what is left (`examine`) → result. What outlives its stage (device, mount) is on one stack; the
rest is a `with`. `stages/` has the phases.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from dbbench import durability, process, results, samplers
from dbbench.drivers import AWAY, DRIVERS, beside
from dbbench.drivers.protocol import Load, LoadTask
from dbbench.engines import ENGINES
from dbbench.engines.settings import keep_existing
from dbbench.machine import kernel_log, threads
from dbbench.machine.limits import Confined, confine
from dbbench.model import CeilingFacts, GrowthFacts, Phase, Role, Status, TrialWarning
from dbbench.operations import StoredDatabase, operate
from dbbench.plan.server_settings import settings_of
from dbbench.remote import Client
from dbbench.results.fileio import naming_full
from dbbench.run import stages
from dbbench.run.evaluate import Observed, compare_settings, judge
from dbbench.run.meter import Bench, Meter, Readings
from dbbench.run.record import Record, keep_logs, stopping
from dbbench.run.stages import attach, drop_cache, load, mkfs, mount, restore, snapshots, space
from dbbench.run.workdir import WorkDir
from dbbench.samplers import Samples
from dbbench.samplers.accounting import DiskClock
from dbbench.storage import ageing, layers
from dbbench.storage.devices import canary, leaves_of, smart
from dbbench.storage.devices.ceiling import limit_facts
from dbbench.storage.devices.guard import Permit
from dbbench.storage.filesystems import Stored, shape

Images = Mapping[Role, tuple[Path, ...]]  # only for kind loop


def run_trial(
    trial: Record,
    workdir: WorkDir,
    images: Images,
    permit: Permit,
) -> Status:
    """Run one trial and publish it; return its status. Errors make it failed; only a request to
    stop, or a refusal to begin (a device that may not be used, a missing program: exit codes 2
    and 5), is raised, without a result.
    """
    with process.recording() as commands:
        try:
            with threads.check_all(), naming_full(trial.draft.folder):
                drive(trial, workdir, images, permit)
        except BaseException as error:
            if stopping(error) or getattr(error, "exit_code", None) in (2, 5):
                raise
            trial.fail(error)
        trial.facts.commands = tuple(tuple(argv) for argv in commands)
    keep_logs(workdir.logs, trial.draft.raw)
    return trial.publish().status


def drive(
    trial: Record,
    workdir: WorkDir,
    images: Images,
    permit: Permit,
) -> None:
    """Run the stages. Each is timed, reported as progress, and stopped at its deadline."""
    stage = trial.stage
    facts = trial.facts
    cell = trial.cell
    plan = trial.run.plan
    journal = trial.folder.journal
    setups = attach.setups_of(plan, cell)
    engine = ENGINES[cell.engine.name]

    with ExitStack() as stack:
        kernel = stack.enter_context(kernel_log.Watch())

        # From here on the device is locked; dbbench has not made a filesystem on it yet.
        with stage(Phase.CANARY):
            disks = stack.enter_context(attach.attach(plan, cell, images, permit))
            examine_device(trial, disks)

        # All trials of a comparison begin with the same history of writes.
        if plan.device.condition != "none":
            with stage(Phase.CONDITION):
                facts.condition = attach.precondition(trial.folder, cell.id, disks["data"])

        # The counters of the disks begin here: everything from mkfs on is the trial's.
        clock = DiskClock(leaves_of(disks))
        with stage(Phase.MKFS):
            volumes = stack.enter_context(mkfs.make_layers(setups, disks, journal))
            made = mkfs.make(setups, volumes, journal, cell.id)

        with stage(Phase.MOUNT):
            mounts = stack.enter_context(mount.mount(plan, cell, volumes, workdir, journal))
            fs = mounts["data"]
            facts.filesystem = mount.facts(setups, volumes, made, mounts)

        # A filesystem in use has files and holes before the database comes.
        if plan.age:
            with stage(Phase.AGE):
                facts.age = (
                    None
                    if fs.raw
                    else ageing.age(fs, volumes["data"].facts.size_bytes, plan.age, plan.seed)
                )

        with stage(Phase.RESTORE):  # the same bytes on every filesystem
            restored = restore.restore(cell, setups["data"], fs, workdir, trial.emit)
            facts.dataset = restored.facts
            datadir = restored.datadir or fs.path / "data"
            place = restore.move_log(setups, mounts, engine, datadir, workdir.place(cell.engine))
            stored = Stored(
                setups["data"],
                volumes["data"],
                fs,
                datadir,
                workdir.operations,
                journal=journal,
            )
            ready = restore.fill(
                cell,
                stored,
                place,
                drop_cache.emptier(cell, plan.seed, setups, volumes, mounts),
            )

        # The server runs once before the load, so that it starts from a quiet state.
        with stage(Phase.SETTLE):
            with ready.serving() as server:
                server.settle()  # so that the window does not write what the restore left dirty
            facts.growth = GrowthFacts(
                restored_share=shape.restored_share(fs, shape.sizes(engine.data_files(datadir)))
            )
            # This takes the snapshot that a layer holds during the load.
            facts.filesystem = replace(
                facts.filesystem, layers=layers.take_snapshots(volumes["data"])
            )

        with stage(Phase.DROP_CACHE):
            facts.cache = drop_cache.drop(cell, ready)

        generator, samples, readings = run_load(trial, workdir, disks, mounts, ready)

        # The data is checked while it is still as the load has left it.
        with stage(Phase.CHECK), load.reading(generator) as outcome:
            facts.checked = space.check(cell.dataset, mounts, ready)

        examine(trial, disks, mounts, ready)
        facts.writes = attach.count_writes(plan, cell, clock)

    # The verdict about the trial needs everything that was found on the way.
    first = attach.first_host_state(cell.setup, journal, cell.queue)
    page_bytes = durability.page_bytes(facts.effective_settings)
    tears = fs.tears_pages_of(page_bytes)
    judge(
        trial, Observed(outcome.result(), samples, readings, restored, kernel, engine, tears, first)
    )


def examine_device(trial: Record, disks: stages.Volumes) -> None:
    """Record the state of device and host before the filesystem is made."""
    facts = trial.facts
    device = disks["data"]
    facts.device = device.facts
    facts.host_state = attach.host_state(disks, trial.cell.setup, trial.folder.journal)
    facts.canary = canary.measure(device)
    facts.wear = smart.wear(device.leaves)


def run_load(
    trial: Record,
    workdir: WorkDir,
    disks: stages.Volumes,
    mounts: stages.Mounts,
    ready: StoredDatabase,
) -> tuple[Load, Samples, Readings]:
    """Run from a cold start to a clean stop: the server, the load and the samplers, the window, the
    drain.
    """
    stage = trial.stage
    facts = trial.facts
    cell = trial.cell
    plan = trial.run.plan
    raw = trial.draft.raw
    engine = ENGINES[cell.engine.name]
    settings = settings_of(cell)
    window = cell.window
    datadir = ready.datadir
    with ExitStack() as stack:
        # From here on, programs start with limits of memory and cores.
        limits = stack.enter_context(limits_of(trial, workdir, disks))
        with process.in_phase(Phase.START.value, plan.deadlines.get(Phase.START)):
            client, place = stack.enter_context(load.reach(cell, workdir, trial.clock, raw))
        place = replace(place, log_dir=ready.log)
        with stage(Phase.START):
            server = stack.enter_context(engine.serving(datadir, settings, place))
            facts.engine_version = server.version
            effective = server.effective_settings()
            facts.effective_settings = effective
            facts.settings = keep_existing(settings, effective)
            restore.check_log(engine, datadir, place, effective)
            before = space.file_sizes(engine, datadir, effective)

        samples = stack.enter_context(
            samplers.beside(load.list_samplers(cell, disks, mounts, server), raw)
        )
        # What is read at both ends of the window: disks, processes, the server, the client.
        meter = Meter(
            Bench(
                disks,
                server,
                limits,
                client,
                files=engine.data_files(datadir),
                places=(*stages.paths(mounts), workdir.root, trial.folder.path),
                elsewhere=facts.dataset is not None and bool(facts.dataset.tablespace),
            )
        )
        task = LoadTask(
            server,
            cell,
            plan.seed,
            trial.clock,
            raw,
            workdir.scratch,
            drop_cache.during_load(ready, samples),
        )
        # A load that runs to its end has no warm-up, unless it prepares something.
        with generate_load(task, client) as generator:
            meter.begin()
            if window.kind == "fixed" or cell.workload.prepares:
                with stage(Phase.WARMUP):
                    generator.wait_until(
                        window.warmup_s, load.watch(Phase.WARMUP, window, trial.tell)
                    )
            with (
                stage(Phase.MEASURE),
                snapshots.beside_load(plan.snapshots, ready, server, trial.clock.now_utc) as taking,
                meter.window(generator),
            ):
                generator.wait(load.watch(Phase.MEASURE, window, trial.tell))
        if taking is not None:
            facts.snapshots = taking.facts
            trial.warn(*taking.warnings)

        # writes that caches deferred are completed and counted here
        with stage(Phase.DRAIN), meter.drain():
            load.drain(server, mounts)
        meter.read_end()
        trial.warn(*compare_settings(settings, effective, server.effective_settings()))
        # A user's own data was examined when it was loaded.
        if cell.dataset.kind != "source" and (volatile := server.volatile_tables()):
            trial.warn(
                TrialWarning("W151", f"tables without log or flushes: {', '.join(volatile)}")
            )

        # The files are measured before the server stops, because stopping changes them.
        with stage(Phase.STOP):
            grown = space.growth(ready.fs, engine, datadir, effective, before)
            facts.growth = replace(
                grown, restored_share=facts.growth.restored_share if facts.growth else None
            )
            server.purge_log()  # the log that is kept for replicas is not part of the data's space
            stack.close()
    return generator, samples, meter.readings


@contextlib.contextmanager
def generate_load(task: LoadTask, client: Client | None) -> Iterator[Load]:
    """Yield the cell's load generator, on the client's host if there is one, with the statement of
    `during`.
    """
    workload = task.cell.workload
    started = (
        DRIVERS[workload.driver].driving(task)
        if client is None
        else AWAY[workload.driver].driving_from(client, task)
    )
    with started as load:
        if not workload.during:
            yield load
            return
        with beside.beside(load, task) as both:
            yield both


def examine(
    trial: Record,
    disks: stages.Volumes,
    mounts: stages.Mounts,
    ready: StoredDatabase,
) -> None:
    """Read what the load has left; then run the plan's stages that change the data."""
    stage = trial.stage
    facts = trial.facts
    cell = trial.cell
    plan = trial.run.plan
    folder = trial.folder
    with stage(Phase.SPACE):
        facts.space = space.space(ready.fs, ENGINES[cell.engine.name], ready.files)
        facts.device = attach.facts_after(disks)
        facts.wear_end = smart.wear(disks["data"].leaves)
        facts.host_state_end = attach.host_state(disks, cell.setup, folder.journal)
        ceiling = results.load_ceiling(folder.path) or CeilingFacts(note="not measured")
        facts.ceiling = replace(ceiling, limits=())
        facts.limit = limit_facts(cell.limit, ceiling)
        facts.filesystem = space.probe(cell, plan.seed, mounts, facts.filesystem, ready.datadir)

    if plan.operations:
        with stage(Phase.OPERATIONS):  # last, because some operations destroy the filesystem
            facts.operations = operate(plan.operations, ready)


def limits_of(
    trial: Record,
    workdir: WorkDir,
    disks: stages.Volumes,
) -> AbstractContextManager[Confined]:
    """Return the plan's limits of memory, CPUs and disks for programs that are started in the
    block.
    """
    mount_point = workdir.root if os.geteuid() == 0 else None
    numbers = [disk.number for device in disks.values() for disk in device.each]
    return confine(
        trial.cell,
        trial.run.name,
        trial.folder.journal,
        mount_point,
        numbers,
    )
