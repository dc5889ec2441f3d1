"""THE STRAIGHT ROAD of a trial. Read this first.

`run_trial` drives one trial of a run from its folder alone (run folder, trial id) and publishes its result;
`drive` is the road: device → filesystem → dataset → engine → cold cache → load and samplers → result. What
outlives its stage (device, mount) is on one stack, what lives within one is a `with`. The parts it calls are in
`parts.py`; how each does its work is in the room of its name.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from dbbench import process, store
from dbbench.judging import judge
from dbbench.model import Phase, Status
from dbbench.parts import Parts, Room, real_parts
from dbbench.record import Emit, Record, keep_logs, stopping
from dbbench.store import Draft


def run_trial(folder: Path, trial_id: str, room: Room, emit: Emit) -> Status:
    """Drive one trial of the run in `folder` and publish it; its status.

    Errors on the road make the trial failed. Only being stopped, or a refusal to begin at all (a device that is
    not ours, a missing program: exit codes 2 and 5), is raised; then there is no result.
    """
    run = store.load_spec(folder)
    spec = run.trial(trial_id)
    cell = run.cell(spec.cell)
    record = Record(run, spec, cell, Draft(folder, trial_id), emit)
    with process.recording() as commands:
        try:
            drive(record, real_parts(folder, run, cell, room), room)
        except BaseException as error:
            if stopping(error) or refused(error):
                raise
            record.fail(error)
        record.note(commands=tuple(tuple(argv) for argv in commands))
    keep_logs(room.logs, record.draft.raw)
    return record.publish().status


def drive(trial: Record, parts: Parts, room: Room) -> None:
    """The road. Each stage is timed, told, held to its deadline and journalled."""
    stage, cell, engine, settings = trial.stage, trial.cell, parts.engine, parts.settings
    place, datadir = room.place(cell.engine), room.mount / "data"

    with ExitStack() as taken:
        with stage(Phase.CANARY):  # from here on the device is locked; nothing was written to it yet
            device = taken.enter_context(parts.attached())
            kernel = taken.enter_context(parts.kernel_messages(device))
            trial.note(canary=parts.probe(device), host_state=parts.host_state())

        with stage(Phase.MKFS):
            made = parts.make(device)

        with stage(Phase.MOUNT):
            fs = taken.enter_context(parts.mounted(device, room.mount))
            trial.note(filesystem=parts.filesystem_facts(device, made, fs))

        with stage(Phase.RESTORE):  # the same bytes on every filesystem
            restored = parts.restored(datadir, fs)

        with stage(Phase.SETTLE), engine.serving(datadir, settings, place) as server:
            server.settle()  # nothing of the restore is still being written in the window

        with stage(Phase.DROP_CACHE):
            trial.note(cache=parts.drop_and_prove(engine.data_files(datadir), device))

        with ExitStack() as serving:
            with stage(Phase.START):
                server = serving.enter_context(engine.serving(datadir, settings, place))
                trial.note(engine_version=server.version, settings=settings)
            samples = serving.enter_context(parts.sampled(device, server, trial.draft.raw))

            with parts.driving(server, trial.clock, trial.draft.raw, room.scratch) as load:
                meter = parts.meter(device, server, load)
                if cell.window.kind == "fixed":
                    with stage(Phase.WARMUP):
                        load.wait_until(cell.window.warmup_s, parts.watch(trial))
                with stage(Phase.MEASURE), meter.window():
                    load.wait(parts.watch(trial))

            with stage(Phase.DRAIN), meter.drain():  # what was borrowed from caches is paid back here
                server.checkpoint()
                parts.sync(fs)

            trial.note(effective_settings=server.effective_settings())
            with stage(Phase.STOP):
                serving.close()

        with stage(Phase.CHECK):
            parts.healthy(fs)
            engine.check(datadir, settings, place)

        with stage(Phase.SPACE):
            trial.note(space=parts.space(fs, datadir))

    judge(trial, load.outcome(), samples, meter, restored, kernel, device, parts)


def refused(error: BaseException) -> bool:
    """Whether nothing was begun: the environment or the device is not what the plan needs."""
    return getattr(error, "exit_code", None) in (2, 5)
