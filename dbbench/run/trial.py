"""THE STRAIGHT ROAD of a trial. Read this first.

`run_trial` runs one trial and publishes its result. `drive` is the road: device → filesystem → dataset → engine → cold
cache → load and samplers (`loaded`) → result. What outlives its stage (device, mount) is on one stack; what ends with
its stage is a `with`. The details are in `stages/`: `device` (attach, condition, probe), `filesystem` (make, mount,
space), `dataset` (restore, cold start, sizes), `snapshots`, and `age_engine`.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dbbench import durability, process, results, samplers
from dbbench.drivers import AWAY, DRIVERS, beside, sessions_of
from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.engines.port import Place, Server
from dbbench.engines.settings import taken
from dbbench.machine import kernel_log, threads
from dbbench.metrics.outcome import Outcome
from dbbench.model import CeilingFacts, Phase, Status
from dbbench.operations import Filled, operated
from dbbench.remote import Client
from dbbench.results.fileio import naming_full
from dbbench.run.evaluate import Observed, judge, settings_changed
from dbbench.run.job import Job, client_of, reached
from dbbench.run.meter import Meter
from dbbench.run.record import Record, keep_logs, stopping
from dbbench.run.stages import dataset, filesystem
from dbbench.run.stages.age_engine import Loads, worn
from dbbench.run.stages.dataset import filled
from dbbench.run.stages.device import (
    attached,
    conditioned,
    facts_after,
    first_host_state,
    host_state,
    probed,
    wear,
    written_by,
)
from dbbench.run.stages.filesystem import Mounts, Volumes
from dbbench.run.stages.snapshots import snapshotting
from dbbench.samplers import Samples
from dbbench.samplers.accounting import DiskClock
from dbbench.storage import ageing, layers
from dbbench.storage.devices.directory import shared_disks
from dbbench.storage.devices.port import leaves_of


def run_trial(trial: Record, job: Job) -> Status:
    """Run one trial and publish it; return its status.

    Errors during the trial make it failed. Only a request to stop, or a refusal to begin (a device that may not be
    used, a missing program: exit codes 2 and 5), is raised; then there is no result.
    """
    with process.recording() as commands:
        try:
            with threads.all_checked(), naming_full(trial.draft.folder):
                drive(trial, job)
        except BaseException as error:
            if stopping(error) or getattr(error, "exit_code", None) in (2, 5):
                raise
            trial.fail(error)
        trial.facts.commands = tuple(tuple(argv) for argv in commands)
    keep_logs(job.workdir.logs, trial.draft.raw)
    return trial.publish().status


def drive(trial: Record, job: Job) -> None:
    """Run the stages. Each is timed, reported as progress, and stopped at its deadline."""
    stage, facts, plan, engine, settings = trial.stage, trial.facts, job.run.plan, job.engine, job.settings

    with ExitStack() as stack:
        kernel = stack.enter_context(kernel_log.Watch())

        with stage(Phase.CANARY):  # from here on the device is locked; dbbench has not made a filesystem on it yet
            disks = stack.enter_context(attached(job))
            facts.device, facts.host_state = disks["data"].facts, host_state(disks, job)
            facts.canary, facts.wear = probed(disks["data"]), wear(disks["data"])

        if plan.device.condition != "none":
            with stage(Phase.CONDITION):  # all trials of a comparison begin with the same history of writes
                facts.condition = conditioned(job, disks["data"])

        written = DiskClock(leaves_of(disks))
        with stage(Phase.MKFS):
            volumes = stack.enter_context(filesystem.layered(job, disks))
            made = filesystem.make(job, volumes)

        with stage(Phase.MOUNT):
            mounts = stack.enter_context(filesystem.mounted(job, volumes))
            fs, facts.filesystem = mounts["data"], filesystem.facts(job, volumes, made, mounts)

        if plan.age:
            with stage(Phase.AGE):
                facts.age = None if fs.raw else ageing.aged(fs, volumes["data"].facts.size_bytes, plan.age, plan.seed)

        with stage(Phase.RESTORE):  # the same bytes on every filesystem
            restored = dataset.restored(job, fs)
            facts.dataset, datadir = restored.facts, restored.datadir or fs.path / "data"
            place = filesystem.move_log(job.setups, mounts, engine, datadir, job.place)
            ready = filled(job, volumes, mounts, datadir, place)

        with stage(Phase.SETTLE):
            with engine.serving(datadir, settings, place) as server:
                server.settle()  # so that the window does not write what the restore left dirty
            facts.growth = dataset.restored_growth(fs, engine.data_files(datadir))
            # This takes the snapshot that a layer holds during the load.
            facts.filesystem = replace(facts.filesystem, layers=layers.held(volumes["data"]))

        with stage(Phase.DROP_CACHE):
            facts.cache = dataset.cold_start(job, ready)

        load, samples, meter = loaded(trial, job, disks, mounts, ready, place)

        with stage(Phase.CHECK), reading(load) as outcome:
            filesystem.must_be_healthy(mounts)
            facts.checked = engine.check(datadir, settings, place) + dataset.consistent(job, datadir, place)

        with stage(Phase.SPACE):
            facts.space, facts.device = filesystem.space(fs, engine, engine.data_files(datadir)), facts_after(disks)
            facts.host_state_end, facts.wear_end = host_state(disks, job), wear(disks["data"])
            facts.ceiling = results.load_ceiling(job.results) or CeilingFacts(note="not measured")
            facts.filesystem = filesystem.probed(job, mounts, facts.filesystem, datadir)

        if plan.age_engine:
            with stage(Phase.AGE_ENGINE), job.confined():  # with the same limits as the load
                facts.age_engine = worn(ready, plan.age_engine, job.cell.window, loads(trial, job))

        if plan.operations:
            with stage(Phase.OPERATIONS):  # last, because some operations destroy the filesystem
                facts.operations = operated(plan.operations, ready)
        facts.writes = written_by(job, written)

    judge(
        trial,
        Observed(
            outcome.result(),
            samples,
            meter,
            restored,
            kernel,
            engine,
            fs.tears_pages_of(durability.page_bytes(facts.effective_settings)),
            first_host_state(job),
        ),
    )


def loaded(
    trial: Record, job: Job, disks: Volumes, mounts: Mounts, ready: Filled, place: Place
) -> tuple[Load, Samples, Meter]:
    """Run from a cold start to a clean stop: the server, the load and the samplers, the window, the drain."""
    stage, facts, window, engine, raw = trial.stage, trial.facts, job.cell.window, job.engine, trial.draft.raw
    client = client_of(job)
    with ExitStack() as stack:
        # From here on, programs start with limits of memory and cores.
        limits = stack.enter_context(job.confined())
        place = stack.enter_context(reached(client, place, trial.clock, raw, job.workdir.scratch))
        with stage(Phase.START):
            server = stack.enter_context(engine.serving(ready.datadir, job.settings, place))
            facts.engine_version, facts.effective_settings = server.version, server.effective_settings()
            filesystem.check_log(engine, ready.datadir, place, facts.effective_settings)
            facts.settings = taken(job.settings, facts.effective_settings)
            before = dataset.file_sizes(engine, ready.datadir, facts.effective_settings)

        samples = stack.enter_context(samplers.beside(sampled(job, disks, mounts, server), raw))
        idle = server.counters()
        with driving(trial, job, ready, server, client) as load:
            meter = Meter(disks, server, load, limits, engine.data_files(ready.datadir), idle=idle, client=client)
            meter.elsewhere = facts.dataset is not None and bool(facts.dataset.tablespace)
            meter.places = (*filesystem.paths(mounts), job.workdir.root, job.results, Path("/dev"))
            if window.kind == "fixed" or job.cell.workload.prepares:
                with stage(Phase.WARMUP):
                    load.wait_until(window.warmup_s, watching(trial, Phase.WARMUP))
            with stage(Phase.MEASURE), snapshotting(trial, ready, server), meter.window():
                load.wait(watching(trial, Phase.MEASURE))

        with stage(Phase.DRAIN), meter.drain():  # writes that caches deferred are completed and counted here
            server.checkpoint()
            filesystem.sync(mounts)
        meter.read_ended()
        trial.warn(*settings_changed(job.settings, facts.effective_settings, server.effective_settings()))

        with stage(Phase.STOP):
            grown = dataset.grown_files(ready.fs, engine, ready.datadir, facts.effective_settings, before)
            facts.growth = replace(grown, restored_share=facts.growth.restored_share if facts.growth else None)
            server.purge_log()  # the log that is kept for replicas is not part of the data's space
            stack.close()
    return load, samples, meter


@contextlib.contextmanager
def driving(trial: Record, job: Job, ready: Filled, server: Server, client: Client | None) -> Iterator[Load]:
    """Yield the cell's load generator, on the client's host if there is one, with the statement of `during`."""
    driver, seed = job.cell.workload.driver, job.run.plan.seed
    task = LoadTask(server, job.cell, seed, trial.clock, trial.draft.raw, job.workdir.scratch, ready.cold)
    started = DRIVERS[driver].driving(task) if client is None else AWAY[driver].driving_from(client, task)
    with started as load:
        if not job.cell.workload.during:
            yield load
            return
        with beside.beside(load, task) as both:
            yield both


def sampled(job: Job, disks: Volumes, mounts: Mounts, server: Server) -> samplers.Sampled:
    """Return what the samplers read: the disks, the mounts, the server."""
    first = {role: device.leaves[0] for role, device in disks.items() if device.leaves}
    return samplers.Sampled(
        first.get("data"),
        server if job.has_server else None,
        first.get("log"),
        disks=tuple(dict.fromkeys((*leaves_of(disks), *shared_disks(disks)))),
        mounts=filesystem.paths(mounts),
        sessions=sessions_of(job.cell),
    )


@contextlib.contextmanager
def reading(load: Load) -> Iterator[Future[Outcome]]:
    """Read the load generator's results in a thread within the block, which waits for other programs.

    An error is raised where the outcome is used.
    """
    with ThreadPoolExecutor(1) as reader:
        yield reader.submit(contextvars.copy_context().run, load.outcome)


def loads(trial: Record, job: Job) -> Loads:
    """Return the loads that age the tables, with separate directories."""
    raw, scratch = trial.draft.raw / "age_engine", job.workdir.scratch / "age_engine"
    return Loads(job.cell, job.run.plan.seed, trial.clock, raw, scratch)


def watching(trial: Record, phase: Phase) -> Callable[[Live], None]:
    """Return a function that reports the load generator's last line as progress, once per second."""
    window = trial.cell.window
    warm = window.warmup_s if phase is Phase.MEASURE else 0.0
    whole = window.measure_s if phase is Phase.MEASURE else window.warmup_s

    def tell(live: Live) -> None:
        second = live.second - warm
        trial.tell("second", phase=phase.value, second=second, of=whole or None, tps=live.tps, p95_ms=live.p95_ms)

    return tell
