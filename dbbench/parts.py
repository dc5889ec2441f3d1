"""The parts that a trial's road calls, bound to one run, cell and place. Tests hand the road other ones."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbbench import (
    ageing,
    canary,
    condition,
    datasets,
    devices,
    durability,
    filesystems,
    host,
    layers,
    pagecache,
    samplers,
    store,
    wal,
)
from dbbench.clock import Clock
from dbbench.datasets import Golden, Restored
from dbbench.devices import loop
from dbbench.devices.image import write_out
from dbbench.devices.port import Device, Images
from dbbench.drivers import DRIVERS
from dbbench.drivers.port import Load
from dbbench.engines import ENGINES
from dbbench.engines.port import Engine, Place, Server
from dbbench.engines.settings import own_cache_bytes
from dbbench.errors import FilesystemGone
from dbbench.filesystems import Made, Mounted
from dbbench.filesystems.families import FAMILIES
from dbbench.journal import Journal
from dbbench.kmsg import Watch
from dbbench.limits import Confined, confined, readahead
from dbbench.meter import Meter
from dbbench.model import (
    AgeFacts,
    CacheFacts,
    CeilingFacts,
    Cell,
    ConditionFacts,
    DeviceFacts,
    EngineSpec,
    FilesystemFacts,
    FsSetup,
    OperationFacts,
    Run,
    Settings,
    SpaceFacts,
    TrialSpec,
    WearFacts,
    durability_class,
)
from dbbench.operations import Filled, operated
from dbbench.plan.settings import settings_of
from dbbench.progress.events import Emit, Event
from dbbench.record import Record
from dbbench.samplers import Samples, Target

_STATE = "state"  # in the journal: host and block layer at the begin of the run's first trial


@dataclass(frozen=True)
class Room:
    """The private folder of a trial: a tmpfs of its own namespaces, or a temporary folder without root."""

    root: Path

    @property
    def mount(self) -> Path:
        """Where the filesystem under test is mounted (kind dir: a link is not made, see `Parts.mounted`)."""
        return self.root / "mnt"

    @property
    def wal_mount(self) -> Path:
        """Where the filesystem of `[device.wal]` is mounted."""
        return self.root / "wal"

    @property
    def scratch(self) -> Path:
        """Memory-backed: large logs of the load generator, off the device under test."""
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """Configuration and log of the server while it runs; copied into raw/ at the end."""
        return self.root / "logs"

    def make(self) -> None:
        """Make the folders; servers run as other accounts and must get through."""
        self.root.chmod(0o755)
        for folder in (self.mount, self.root / "s", self.scratch, self.logs):
            folder.mkdir(exist_ok=True)

    def place(self, engine: EngineSpec) -> Place:
        """Where a server of that engine lives."""
        return Place(self.root / "s", self.logs, Path(engine.bin) if engine.bin else None)


@dataclass(frozen=True)
class Permit:
    """What may be formatted: identities that were typed, and filesystems that our journal knows."""

    typed: tuple[str, ...]
    journal: Journal

    def wipe(self, identity: str) -> bool:
        return identity in self.typed

    def made_by_us(self, device: str, uuid: str) -> bool:
        return self.journal.made(device, uuid)


@dataclass(frozen=True)
class Parts:
    """What the road calls, in the order in which it calls it."""

    engine: Engine
    settings: Settings
    attached: Callable[[], AbstractContextManager[Device]]
    kernel_messages: Callable[[], AbstractContextManager[Watch]]
    probe: Callable[[Device], dict[str, float]]
    host_state: Callable[[Device], dict[str, Any]]
    first_state: Callable[[], dict[str, Any]]
    wear: Callable[[Device], WearFacts | None]
    conditioned: Callable[[Device], ConditionFacts | None]
    layered: Callable[[Device], AbstractContextManager[Device]]
    make: Callable[[Device], Made]
    mounted: Callable[[Device], AbstractContextManager[Mounted]]
    filesystem_facts: Callable[[Device, Made, Mounted], FilesystemFacts]
    aged: Callable[[Device, Mounted], AgeFacts | None]
    restored: Callable[[Mounted], Restored]
    log_moved: Callable[[Mounted, Path, Place], Place]
    effective: Callable[[Server, Path, Place], dict[str, str]]
    held: Callable[[Device, Record], None]
    drop_and_prove: Callable[[Sequence[Path], Device, Mounted], CacheFacts]
    sampled: Callable[[Device, Server, Path], AbstractContextManager[Samples]]
    driving: Callable[[Server, Clock, Path], AbstractContextManager[Load]]
    ceiling: Callable[[], CeilingFacts]
    confined: Callable[[], AbstractContextManager[Confined]]
    meter: Callable[[Device, Server, Load, Confined, Sequence[Path]], Meter]
    sync: Callable[[Mounted], None]
    must_be_healthy: Callable[[Mounted], None]
    space: Callable[[Mounted, Sequence[Path]], SpaceFacts]
    device_facts: Callable[[Device], DeviceFacts]
    operated: Callable[[Device, Mounted, Path], tuple[OperationFacts, ...]]


def real_parts(run: Run, cell: Cell, journal: Journal, images: Images | None, typed: tuple[str, ...], room: Room,
               emit: Emit) -> Parts:  # fmt: skip
    """The parts that work on this machine."""
    engine, root = ENGINES[cell.engine.name], os.geteuid() == 0

    def restored(fs: Mounted) -> Restored:
        golden, datadir = golden_of(cell, room, emit), filesystems.data_directory(cell.setup, fs)
        if run.plan.device.kind == "dir":  # the options of an existing filesystem are its owner's
            return datasets.restored(golden, datadir, engine.account())
        filesystems.apply_attributes(cell.setup, datadir)
        found = datasets.restored(golden, datadir, engine.account())
        filesystems.verify_files(cell.setup, engine.data_files(datadir))
        if fs.raw is not None:
            engine.move_data(datadir, fs.raw)
        return found

    return Parts(
        engine=engine,
        settings=settings_of(cell),
        attached=lambda: _attached(run, cell, images, Permit(typed, journal)),
        kernel_messages=Watch,
        probe=lambda device: canary.probe(device.path if device.facts.kind == "dir" else device),
        host_state=lambda device: _host_state(device, journal),
        first_state=lambda: next((e["state"] for e in journal.entries() if e.get("event") == _STATE), {}),
        wear=lambda device: condition.wear(device.leaves[0] if device.leaves else ""),
        conditioned=lambda device: _conditioned(run, cell, device, journal),
        layered=lambda device: _layered(cell, device, journal),
        make=lambda device: _make(cell, device, journal),
        mounted=lambda device: _mounted(run, cell, device, room, journal),
        filesystem_facts=lambda device, made, fs: _filesystem_facts(cell, device, made, fs),
        aged=lambda volume, fs: ageing.aged(fs, volume.facts.size_bytes, run.plan.age, run.plan.seed)
        if run.plan.age and fs.raw is None else None,
        restored=restored,
        log_moved=lambda fs, datadir, place: wal.moved(cell, engine, fs, datadir, place),
        effective=lambda server, datadir, place: _effective(engine, server, datadir, place),
        held=_held,
        drop_and_prove=lambda files, device, fs: pagecache.drop_and_prove(
            files, run.plan.seed, device.leaves, root=root,
            least_share=filesystems.least_read_share(fs), own=filesystems.own_cache(fs),
        ),
        sampled=lambda device, server, raw: samplers.beside(
            Target(
                device.leaves[0] if device.leaves else None, server,
                device.wal.leaves[0] if device.wal and device.wal.leaves else None,
            ), raw
        ),
        driving=lambda server, clock, raw: DRIVERS[cell.workload.driver].driving(
            server, cell, run.plan.seed, clock, raw, room.scratch
        ),
        ceiling=lambda: store.load_ceiling(journal.path.parent) or CeilingFacts(note="not measured"),
        confined=lambda: confined(
            cell.engine, cell.memory_bytes, run.name, journal, room.root if root else None
        ),
        meter=Meter,
        sync=_sync,
        must_be_healthy=_must_be_healthy,
        space=lambda fs, files: _space(engine, fs, files),
        device_facts=_device_facts,
        operated=lambda volume, fs, datadir: operated(
            run.plan.operations, _filled(cell, journal, room, settings_of(cell), volume, fs, datadir)
        ),
    )  # fmt: skip


@contextlib.contextmanager
def _layered(cell: Cell, device: Device, journal: Journal) -> Iterator[Device]:
    with layers.stacked(cell.setup.layers, device, journal) as volume, wal.layered(cell, volume, journal) as whole:
        yield whole


@contextlib.contextmanager
def _attached(run: Run, cell: Cell, images: Images | None, permit: Permit) -> Iterator[Device]:
    asked = devices.attached(
        *wal.wanted(cell, run.plan.device, images), permit, cell.arm, cell.setup.devices.max,
        spare="grow" in run.plan.operations,
    )  # fmt: skip
    with asked as device, readahead.on_disks(device.all_leaves, run.plan.equal_readahead_bytes):
        yield device


def _equal_readahead(run: Run, fs: Mounted) -> Mounted:
    """The mounted filesystem with the read-ahead that the plan wants of all; btrfs has one of its own."""
    size = run.plan.equal_readahead_bytes
    if size is None:
        return fs
    return dataclasses.replace(fs, read_ahead_kb=readahead.on_mount(FAMILIES[fs.family].bdi(fs.path), size))


def _conditioned(run: Run, cell: Cell, device: Device, journal: Journal) -> ConditionFacts | None:
    """Discard before each trial; precondition once a block, before the first trial of it that is driven."""
    how = run.plan.device.condition
    if how == "discard":
        return condition.discarded(device)
    if how == "none":
        return None
    blocks = {(spec.block, spec.attempt) for spec in run.order if _driven(spec, journal)}
    now = next(spec for spec in run.order if spec.cell == cell.id and not _driven(spec, journal))
    return None if (now.block, now.attempt) in blocks else condition.preconditioned(device, run.plan.seed)


def _driven(spec: TrialSpec, journal: Journal) -> bool:
    return (journal.path.parent / "trials" / spec.id).is_dir()


def _host_state(device: Device, journal: Journal) -> dict[str, Any]:
    """Host and block layer now; the first of a run is kept, as what the later ones are held against."""
    found = {**host.state(), **host.block_layer(device.all_leaves)}
    if not any(entry.get("event") == _STATE for entry in journal.entries()):
        journal.note(_STATE, state=found)
    return found


def _make(cell: Cell, device: Device, journal: Journal) -> Made:
    if device.facts.kind == "dir":
        return Made((), "", {})
    made = dataclasses.replace(filesystems.make(cell.setup, device, journal), wal=wal.made(cell, device, journal))
    for member in device.disks:
        if member.facts.image:
            write_out(Path(member.facts.image))
    if device.facts.kind == "block":
        for member in device.each:
            journal.note("made", device=devices.identity(member.path), uuid=made.uuid, trial=cell.id)
        if made.wal is not None and device.wal is not None:
            journal.note("made", device=devices.identity(device.wal.path), uuid=made.wal.uuid, trial=cell.id)
    return made


@contextlib.contextmanager
def _mounted(run: Run, cell: Cell, device: Device, room: Room, journal: Journal) -> Iterator[Mounted]:
    if device.facts.kind == "dir":
        with filesystems.existing(device.path) as found:
            yield found
        return
    with (
        filesystems.mounted(cell.setup, device, room.mount, journal, _arc_bytes(cell)) as fs,
        wal.mounted(cell, device, fs, room.wal_mount, journal) as whole,
    ):
        yield _equal_readahead(run, whole)


def _arc_bytes(cell: Cell) -> int | None:
    """What the plan's memory leaves beside the server's own cache: a page cache may grow so far within the server's
    control group, and a pool's own cache, which no group counts, gets the same; None without a limit."""
    if cell.memory_bytes is None:
        return None
    return max(0, cell.memory_bytes - (own_cache_bytes(settings_of(cell)) or 0))


def _filesystem_facts(cell: Cell, device: Device, made: Made, fs: Mounted) -> FilesystemFacts:
    """What the kernel took; durability is that of data and log together. ClaimWrong where a setup promises other."""
    facts = _facts_of(cell.setup, device, made, fs)
    if fs.wal is None or made.wal is None or device.wal is None or cell.wal_setup is None:
        return facts
    log = _facts_of(cell.wal_setup, device.wal, made.wal, fs.wal)
    flags = durability.combined(facts.durability_flags, log.durability_flags)
    return dataclasses.replace(facts, wal=log, durability_flags=flags, durability_class=durability_class(flags))


def _facts_of(setup: FsSetup, device: Device, made: Made, fs: Mounted) -> FilesystemFacts:
    if device.facts.kind != "dir":
        filesystems.check_claim(setup, fs)
    return FilesystemFacts(
        family=fs.family,
        mkfs=made.argv,
        mount_options_asked=fs.options_asked,
        mount_options_effective=fs.options_effective,
        geometry=made.geometry,
        read_ahead_kb=fs.read_ahead_kb,
        tunables=fs.tunables,
        layers=tuple(device.layers),
        queue=devices.queue_attributes(device.leaves[0]) if device.leaves else {},
        claims=setup.claims,
        durability_flags=fs.flags,
        durability_class=durability_class(fs.flags),
    )


def _effective(engine: Engine, server: Server, datadir: Path, place: Place) -> dict[str, str]:
    """The running server's settings; its log lies where they say, and where it was moved to."""
    effective = server.effective_settings()
    wal.proved(engine, datadir, place, effective)
    return effective


def _sync(fs: Mounted) -> None:
    for one in (fs, fs.wal):
        if one is not None:
            filesystems.sync(one.path)
            if one.pool is not None:
                one.pool.sync()


def _held(volume: Device, trial: Record) -> None:
    """Take what the setup holds while it is measured, and write it down beside the layers as they were made."""
    facts = trial.fact("filesystem", FilesystemFacts)
    trial.note(filesystem=dataclasses.replace(facts, layers=layers.held(volume)))


def _must_be_healthy(fs: Mounted) -> None:
    if bad := filesystems.healthy(fs) or (fs.wal and filesystems.healthy(fs.wal)):
        raise FilesystemGone(bad, effect="The trial is marked failed.", remedy="Read the kernel's lines: dmesg")


def _filled(
    cell: Cell, journal: Journal, room: Room, settings: Settings, volume: Device, fs: Mounted, datadir: Path
) -> Filled:
    """What operations work on: the filesystem, its server, and another one with a place of its own."""
    engine, place = ENGINES[cell.engine.name], room.place(cell.engine)
    second = dataclasses.replace(place, sockets=room.root / "s2", logs=room.logs / "clone")
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
        second=lambda data: engine.serving(data, settings, second),
        journal=journal,
    )


def _space(engine: Engine, fs: Mounted, files: Sequence[Path]) -> SpaceFacts:
    logical = sum(map(engine.data_bytes, files))
    if fs.raw is not None:
        return SpaceFacts(logical)  # nothing is used or free on a bare device
    return filesystems.shaped(filesystems.space(fs, logical), fs, files)


def _device_facts(device: Device) -> DeviceFacts:
    """The device's facts with its images as they are after the trial."""
    facts = _image_facts(device.facts)
    members = tuple(_image_facts(member) for member in facts.members)
    return dataclasses.replace(facts, members=members, wal=_image_facts(device.wal.facts) if device.wal else None)


def _image_facts(facts: DeviceFacts) -> DeviceFacts:
    if not facts.image:
        return facts
    after = loop.image_facts(Path(facts.image))
    return dataclasses.replace(facts, image_blocks_after=after.blocks, image_extents_after=after.extents)


# --- golden copies ---------------------------------------------------------------------------------


def golden_of(cell: Cell, room: Room, emit: Emit) -> Golden:
    """The cell's golden copy, built now where the cache does not hold it."""

    def tell(what: str) -> None:
        emit(Event("prepare", {"what": what}))

    return datasets.golden.ensure(cell.engine, cell.dataset, room.place(cell.engine), tell, raw=cell.raw)
