"""The parts that work on this machine, bound to one run, cell and place."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench import (
    ageing,
    canary,
    condition,
    datasets,
    drivers,
    filesystems,
    pagecache,
    samplers,
    store,
    wal,
    wearing,
)
from dbbench.datasets import Golden
from dbbench.devices.port import Device, Images
from dbbench.engines import ENGINES, SERVERLESS
from dbbench.filesystems import Mounted
from dbbench.journal import Journal
from dbbench.kmsg import Watch
from dbbench.limits import Confined, confined
from dbbench.meter import Meter
from dbbench.model import (
    CacheFacts,
    CeilingFacts,
    Cell,
    EngineAgeFacts,
    Run,
    Scalar,
    merged,
)
from dbbench.operations import Filled, operated
from dbbench.parts import away, beside, facts, ground, past, restoring
from dbbench.parts.loads import Loads
from dbbench.parts.port import Parts
from dbbench.parts.room import Permit, Room
from dbbench.plan.settings import settings_of
from dbbench.progress.events import Emit, Event
from dbbench.record import Record
from dbbench.samplers import Target

# A load that makes its own files begins on a filesystem that was just made: what it reads later it must itself make
# cold, and say so.
_NOTHING_YET: Final = CacheFacts("no files yet", 0, 0, proved=True)


# Of a second server on a clone, beside the trial's own: it answers a query or two, and its cache is no question.
SMALL_CACHE: Final[dict[str, dict[str, Scalar]]] = {
    "postgres": {"shared_buffers": "16MB"},
    "mariadb": {"innodb_buffer_pool_size": 32 * 2**20},
    "mysql": {"innodb_buffer_pool_size": 32 * 2**20},
}


def real_parts(run: Run, cell: Cell, journal: Journal, images: Images | None, typed: tuple[str, ...], room: Room,
               emit: Emit) -> Parts:  # fmt: skip
    """The parts that work on this machine."""
    engine, root = ENGINES[cell.engine.name], os.geteuid() == 0
    serverless = cell.engine.name in SERVERLESS
    client = away.client_of(cell, room)

    def confining() -> AbstractContextManager[Confined]:
        at = room.root if root else None
        return confined(cell.engine, cell.memory_bytes, run.name, journal, at, alone=client is not None)

    def worn(volume: Device, fs: Mounted, datadir: Path, trial: Record) -> EngineAgeFacts | None:
        if run.plan.age_engine is None:
            return None
        filled = _filled(cell, journal, room, run.plan.seed, volume, fs, datadir)
        loads = Loads(cell, run.plan.seed, trial.clock, trial.draft.raw / "age_engine", room.scratch / "age_engine")
        with confining():  # as its load was
            return wearing.worn(filled, run.plan.age_engine, cell.window, loads)

    return Parts(
        engine=engine,
        settings=settings_of(cell),
        attached=lambda: ground.attached(run, cell, images, Permit(typed, journal)),
        kernel_messages=Watch,
        probe=lambda device: canary.probe(device.path if device.facts.kind == "dir" else device),
        host_state=lambda device: past.host_state(device, journal),
        first_state=lambda: past.first_state(journal),
        wear=lambda device: condition.wear(device.leaves[0] if device.leaves else ""),
        conditioned=lambda device: past.conditioned(run, cell, device, journal),
        layered=lambda device: ground.layered(cell, device, journal),
        make=lambda device: ground.make(cell, device, journal),
        mounted=lambda device: ground.mounted(run, cell, device, room, journal),
        filesystem_facts=lambda device, made, fs: facts.filesystem_facts(cell, device, made, fs),
        aged=lambda volume, fs: ageing.aged(fs, volume.facts.size_bytes, run.plan.age, run.plan.seed)
        if run.plan.age and fs.raw is None else None,
        restored=lambda fs: restoring.restored(run, cell, room, golden_of(cell, room, emit), fs, emit),
        log_moved=lambda fs, datadir, place: wal.moved(cell, engine, fs, datadir, place),
        effective=lambda server, datadir, place: facts.effective(engine, server, datadir, place),
        held=facts.held,
        drop_and_prove=lambda files, device, fs: _NOTHING_YET if serverless and not files else _cold(
            device, fs, files, run.plan.seed
        ),
        sampled=lambda device, server, raw: samplers.beside(
            Target(
                device.leaves[0] if device.leaves else None, None if serverless else server,
                device.wal.leaves[0] if device.wal and device.wal.leaves else None,
            ), raw
        ),
        reached=lambda place, clock, raw: away.reached(client, place, clock, raw, room.scratch),
        driving=lambda server, clock, raw: drivers.driving(
            server, cell, run.plan.seed, clock, raw, room.scratch, client
        ),
        ceiling=lambda: store.load_ceiling(journal.path.parent) or CeilingFacts(note="not measured"),
        confined=confining,
        snapshotting=lambda trial, volume, fs, datadir, server: beside.snapshotting(
            trial, _filled(cell, journal, room, run.plan.seed, volume, fs, datadir), server
        ),
        meter=lambda device, server, load, limits, files: Meter(device, server, load, limits, files, client=client),
        sync=facts.sync,
        must_be_healthy=facts.must_be_healthy,
        consistent=lambda datadir, place: facts.consistent(engine, cell, datadir, place),
        space=lambda fs, files: facts.space(engine, fs, files),
        device_facts=facts.device_facts,
        worn=worn,
        operated=lambda volume, fs, datadir: operated(
            run.plan.operations, _filled(cell, journal, room, run.plan.seed, volume, fs, datadir)
        ),
    )  # fmt: skip


def _filled(cell: Cell, journal: Journal, room: Room, seed: int, volume: Device, fs: Mounted, datadir: Path) -> Filled:
    """What operations work on: the filesystem, its server, and another one with a place of its own."""
    engine, settings = ENGINES[cell.engine.name], settings_of(cell)
    place = dataclasses.replace(room.place(cell.engine), wal=filesystems.wal_directory(cell.setup, fs))
    second = dataclasses.replace(place, sockets=room.root / "s2", logs=room.logs / "clone")
    small = {**settings, **merged(("clone", SMALL_CACHE.get(cell.engine.name, {})))}
    (own := room.root / "operations").mkdir(exist_ok=True)
    setup = cell.setup
    if volume.facts.kind == "dir":  # the options of an existing filesystem are its owner's
        setup = dataclasses.replace(setup, attributes=(), volumes={})
    return Filled(
        setup=setup,
        volume=volume,
        fs=fs,
        datadir=datadir,
        room=own,
        serving=lambda data: engine.serving(data, settings, place),
        second=lambda data: engine.serving(data, small, second),
        journal=journal,
        cold=lambda: _cold(volume, fs, engine.data_files(datadir), seed),
        check=lambda data: engine.check(data, settings, place),
        data_files=engine.data_files,
    )


def _cold(device: Device, fs: Mounted, files: Sequence[Path], seed: int) -> CacheFacts:
    """Empty the caches and prove it."""
    return pagecache.drop_and_prove(
        files, seed, device.leaves, root=os.geteuid() == 0,
        least_share=filesystems.least_read_share(fs), own=filesystems.own_cache(fs),
    )  # fmt: skip


def golden_of(cell: Cell, room: Room, emit: Emit) -> Golden:
    """The cell's golden copy, built now where the cache does not hold it."""

    def tell(what: str) -> None:
        emit(Event("prepare", {"what": what}))

    return datasets.golden.ensure(cell.engine, cell.dataset, room.place(cell.engine), tell, raw=cell.raw)
