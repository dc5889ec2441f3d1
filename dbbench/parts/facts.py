"""What a trial writes down of its ground, and the checks that go with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dbbench import (
    devices,
    durability,
    filesystems,
    layers,
    wal,
)
from dbbench.datasets import generated
from dbbench.devices import loop
from dbbench.devices.port import Device
from dbbench.engines.port import Engine, Place, Server
from dbbench.errors import FilesystemGone
from dbbench.filesystems import Made, Mounted
from dbbench.model import (
    Cell,
    DeviceFacts,
    FilesystemFacts,
    FsSetup,
    SpaceFacts,
    durability_class,
)
from dbbench.plan.settings import settings_of
from dbbench.record import Record


def filesystem_facts(cell: Cell, device: Device, made: Made, fs: Mounted) -> FilesystemFacts:
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


def effective(engine: Engine, server: Server, datadir: Path, place: Place) -> dict[str, str]:
    """The running server's settings; its log lies where they say, and where it was moved to."""
    effective = server.effective_settings()
    wal.proved(engine, datadir, place, effective)
    return effective


def sync(fs: Mounted) -> None:
    """Write back what is dirty of data and log; a pool writes out its own too."""
    for one in (fs, fs.wal):
        if one is not None:
            filesystems.sync(one.path)
            if one.pool is not None:
                one.pool.sync()


def held(volume: Device, trial: Record) -> None:
    """Take what the setup holds while it is measured, and write it down beside the layers as they were made."""
    facts = trial.fact("filesystem", FilesystemFacts)
    trial.note(filesystem=dataclasses.replace(facts, layers=layers.held(volume)))


def must_be_healthy(fs: Mounted) -> None:
    """FilesystemGone where data or log are no longer to be trusted."""
    if bad := filesystems.healthy(fs) or (fs.wal and filesystems.healthy(fs.wal)):
        raise FilesystemGone(bad, effect="The trial is marked failed.", remedy="Read the kernel's lines: dmesg")


def consistent(engine: Engine, cell: Cell, datadir: Path, place: Place) -> str:
    """What the dataset's own conditions were, to be put behind what the engine checked; "" where its kind has none.
    DataInconsistent."""
    check = generated.CONSISTENCY.get(cell.dataset.kind)
    if check is None:
        return ""
    with engine.serving(datadir, settings_of(cell), place) as server:
        return f"; {check(server)}"


def space(engine: Engine, fs: Mounted, files: Sequence[Path]) -> SpaceFacts:
    """What the data takes: logical, on disk, and the shape of it."""
    logical = sum(map(engine.data_bytes, files))
    if fs.raw is not None:
        return SpaceFacts(logical)  # nothing is used or free on a bare device
    return filesystems.shaped(filesystems.space(fs, logical), fs, files)


def device_facts(device: Device) -> DeviceFacts:
    """The device's facts with its images as they are after the trial."""
    facts = _image_facts(device.facts)
    members = tuple(_image_facts(member) for member in facts.members)
    return dataclasses.replace(facts, members=members, wal=_image_facts(device.wal.facts) if device.wal else None)


def _image_facts(facts: DeviceFacts) -> DeviceFacts:
    if not facts.image:
        return facts
    after = loop.image_facts(Path(facts.image))
    return dataclasses.replace(facts, image_blocks_after=after.blocks, image_extents_after=after.extents)
