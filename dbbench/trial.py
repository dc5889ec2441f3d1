"""THE STRAIGHT ROAD of a trial. Read this first.

`run_trial` drives one trial of a run from its folder alone (run folder, trial id) and publishes its result;
`drive` is the road: device → filesystem → dataset → engine → cold cache → load and samplers (`loaded`) → result. What
outlives its stage (device, mount) is on one stack, what lives within one is a `with`. The parts it calls are
bound in `parts/`; how each does its work is in the room of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from dbbench import durability, process
from dbbench.devices.port import Device
from dbbench.drivers.port import Live, Load
from dbbench.engines.port import Place
from dbbench.filesystems import Mounted
from dbbench.judging import Seen, judge, settings_changed
from dbbench.meter import Meter
from dbbench.model import Phase, Status
from dbbench.parts import Parts, Room
from dbbench.record import Record, keep_logs, stopping
from dbbench.samplers import Samples


def run_trial(trial: Record, parts: Parts, room: Room) -> Status:
    """Drive one trial and publish it; its status.

    Errors on the road make the trial failed. Only being stopped, or a refusal to begin at all (a device that is
    not ours, a missing program: exit codes 2 and 5), is raised; then there is no result.
    """
    with process.recording() as commands:
        try:
            drive(trial, parts, room)
        except BaseException as error:
            if stopping(error) or getattr(error, "exit_code", None) in (2, 5):
                raise
            trial.fail(error)
        trial.note(commands=tuple(tuple(argv) for argv in commands))
    keep_logs(room.logs, trial.draft.raw)
    return trial.publish().status


def drive(trial: Record, parts: Parts, room: Room) -> None:
    """The road. Each stage is timed, told, and held to its deadline."""
    stage, engine, settings, place = trial.stage, parts.engine, parts.settings, room.place(trial.cell.engine)

    with ExitStack() as taken:
        kernel = taken.enter_context(parts.kernel_messages())

        with stage(Phase.CANARY):  # from here on the device is locked; no filesystem of ours is on it yet
            device = taken.enter_context(parts.attached())
            trial.note(device=device.facts, host_state=parts.host_state(device), canary=parts.probe(device),
                       wear=parts.wear(device))  # fmt: skip

        with stage(Phase.CONDITION, asked=trial.run.plan.device.condition != "none"):  # the same history for all
            trial.note(condition=parts.conditioned(device))

        with stage(Phase.MKFS):
            volume = taken.enter_context(parts.layered(device))
            made = parts.make(volume)

        with stage(Phase.MOUNT):
            fs = taken.enter_context(parts.mounted(volume))
            trial.note(filesystem=parts.filesystem_facts(volume, made, fs))

        with stage(Phase.AGE, asked=trial.run.plan.age):
            trial.note(age=parts.aged(volume, fs))

        with stage(Phase.RESTORE):  # the same bytes on every filesystem
            restored = parts.restored(fs)
            trial.note(dataset=restored.facts)
            datadir = restored.datadir or fs.path / "data"
            place = parts.log_moved(fs, datadir, place)

        with stage(Phase.SETTLE):
            with engine.serving(datadir, settings, place) as server:
                server.settle()  # nothing of the restore is still being written in the window
            parts.held(volume, trial)  # a snapshot of what is there now, for all of the load

        with stage(Phase.DROP_CACHE):
            trial.note(cache=parts.drop_and_prove(engine.data_files(datadir), device, fs))

        load, samples, meter = loaded(trial, parts, device, volume, fs, datadir, place)

        with stage(Phase.CHECK):
            parts.must_be_healthy(fs)
            sound = engine.check(datadir, settings, place)
            trial.note(checked=sound + parts.consistent(datadir, place))

        with stage(Phase.SPACE):
            trial.note(space=parts.space(fs, engine.data_files(datadir)), device=parts.device_facts(device),
                       host_state_end=parts.host_state(device), wear_end=parts.wear(device),
                       ceiling=parts.ceiling())  # fmt: skip

        with stage(Phase.AGE_ENGINE, asked=trial.run.plan.age_engine):
            trial.note(age_engine=parts.worn(volume, fs, datadir, trial))

        with stage(Phase.OPERATIONS, asked=trial.run.plan.operations):  # the last: some end the filesystem
            trial.note(operations=parts.operated(volume, fs, datadir))

    tears = fs.tears_pages_of(durability.page_bytes(trial.fact("effective_settings", dict)))
    judge(trial, Seen(load.outcome(), samples, meter, restored, kernel, engine, tears, parts.first_state()))


def loaded(
    trial: Record, parts: Parts, device: Device, volume: Device, fs: Mounted, datadir: Path, place: Place
) -> tuple[Load, Samples, Meter]:
    """From a cold start to a clean stop: the server, the load beside its samplers, the window, the drain."""
    stage, window, engine, raw = trial.stage, trial.cell.window, parts.engine, trial.draft.raw
    with ExitStack() as serving:
        limits = serving.enter_context(parts.confined())  # memory and cores of what is started from here on
        place = serving.enter_context(parts.reached(place, trial.clock, raw))  # where the load comes from another host
        with stage(Phase.START):
            server = serving.enter_context(engine.serving(datadir, parts.settings, place))
            effective = parts.effective(server, datadir, place)
            trial.note(engine_version=server.version, settings=parts.settings, effective_settings=effective)

        samples = serving.enter_context(parts.sampled(device, server, raw))
        with parts.driving(server, trial.clock, raw) as load:
            meter = parts.meter(device, server, load, limits, engine.data_files(datadir))
            if window.kind == "fixed" or trial.cell.workload.prepares:
                with stage(Phase.WARMUP):
                    load.wait_until(window.warmup_s, watching(trial, Phase.WARMUP))
            with stage(Phase.MEASURE), parts.snapshotting(trial, volume, fs, datadir, server), meter.window():
                load.wait(watching(trial, Phase.MEASURE))

        with stage(Phase.DRAIN), meter.drain():  # what was borrowed from caches is paid back here
            server.checkpoint()
            parts.sync(fs)
        trial.warn(*settings_changed(parts.settings, effective, server.effective_settings()))

        with stage(Phase.STOP):
            serving.close()
    return load, samples, meter


def watching(trial: Record, phase: Phase) -> Callable[[Live], None]:
    """Tell what the load generator printed last, once a second."""
    window = trial.cell.window
    warm = window.warmup_s if phase is Phase.MEASURE else 0.0
    whole = window.measure_s if phase is Phase.MEASURE else window.warmup_s

    def tell(live: Live) -> None:
        second = live.second - warm
        trial.tell("second", phase=phase.value, second=second, of=whole or None, tps=live.tps, p95_ms=live.p95_ms)

    return tell


__all__ = ["drive", "run_trial"]
