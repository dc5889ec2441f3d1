"""The trial's devices: attached, locked, erased, with the same history of writes; and the state of
the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dbbench.machine.host import tunables
from dbbench.model import (
    Cell,
    ConditionFacts,
    DeviceFacts,
    FsSetup,
    Json,
    Plan,
    Role,
    Scalar,
    WriteFacts,
)
from dbbench.model.plan import QUEUE
from dbbench.plan import writes
from dbbench.results import RunFolder, list_results
from dbbench.results.journal import Journal
from dbbench.run.stages import Volumes
from dbbench.samplers.accounting import DiskClock
from dbbench.storage import devices
from dbbench.storage.devices import hold
from dbbench.storage.devices.guard import Permit
from dbbench.storage.devices.image import allocation
from dbbench.storage.devices.port import Device, DiskSet
from dbbench.storage.devices.precondition import discard, fill
from dbbench.storage.filesystems import family_of

# entry of the journal: host and block layer at the beginning of the run's first trial
_STATE: Final = "state"


def setups_of(plan: Plan, cell: Cell) -> dict[Role, FsSetup]:
    """Return the setup of each volume. The options of an existing directory belong to its owner."""
    if not plan.device.existing:
        return cell.layered_setups
    return {"data": dataclasses.replace(cell.setup, layers=(), mount=(), attributes=(), volumes={})}


@contextlib.contextmanager
def attach(
    plan: Plan,
    cell: Cell,
    images: Mapping[Role, tuple[Path, ...]],
    permit: Permit,
) -> Iterator[dict[Role, Device]]:
    """Attach and lock the trial's devices within the block, with the queues of the plan."""
    specs = plan.device.volumes
    disk_sets = dict[Role, DiskSet]()
    for role, setup in setups_of(plan, cell).items():
        number = setup.devices.max
        spare = writes.spares(plan, setup)
        sectors = _sectors(setup)
        disk_sets[role] = DiskSet(specs[role], images.get(role, ()), number, spare, sectors)
    with devices.attach(disk_sets, permit, cell.arm) as volumes:
        # What is added after the load has the settings of the others.
        spares = {role: device.spare for role, device in volumes.items() if device.spare}
        leaves = devices.leaves_of(volumes) + devices.leaves_of(spares)
        with tunables.on_disks(leaves, cell.queue, permit.journal):
            disks = [disk for device in volumes.values() for disk in device.each]
            permit.note(disks)
            erase(disks)
            yield volumes


def erase(disks: Iterable[Device]) -> None:
    """Erase everything mountable from the disks: the next stages write to them, bypassing every
    filesystem.
    """
    for disk in disks:
        if disk.identity:
            hold.erase(disk.fd)


def precondition(
    folder: RunFolder,
    cell_id: str,
    device: Device,
) -> ConditionFacts | None:
    """Discard before each trial; precondition once per block, before its first trial."""
    plan = folder.run.plan
    done = list_results(folder.path)
    if plan.device.condition == "discard":
        return discard(device)
    blocks = {(spec.block, spec.attempt) for spec in folder.run.order if spec.id in done}
    now = next(spec for spec in folder.pending if spec.cell == cell_id)
    return None if (now.block, now.attempt) in blocks else fill(device, plan.seed)


def host_state(
    disks: Volumes,
    setup: FsSetup,
    journal: Journal,
) -> Json:
    """Return the state of host and block layer; the journal keeps the first one, and one for each
    sector size.
    """
    state = tunables.state()
    sectors = _sectors(setup)
    for role, device in disks.items():  # named separately: setups have different numbers of disks
        called = "disk" if role == "data" else "log disk"
        state |= tunables.block_layer(device.leaves, called=called)
    if sectors not in _first_states(journal):
        journal.note(_STATE, state=state, sectors=sectors)
    return state


def first_host_state(
    setup: FsSetup, journal: Journal, queue: Mapping[str, Scalar] = MappingProxyType({})
) -> Json:
    """Return host and block layer before the first trial, with sectors of the first that asks for
    the same, and without what this trial sets of the queues; or {}.
    """
    # A scheduler has its own defaults of these.
    changed = (QUEUE["nr_requests"], QUEUE["wbt_lat_us"]) if "scheduler" in queue else ()
    states = _first_states(journal)
    first = dict(next(iter(states.values()), {}))
    for name, value in states.get(_sectors(setup), {}).items():
        if name.rpartition(": ")[2] in tunables.SECTORS:
            first[name] = value
    attributes = {*queue, *changed}
    return {
        name: value for name, value in first.items() if name.rpartition(": ")[2] not in attributes
    }


def _first_states(journal: Journal) -> dict[Any, Json]:
    states = dict[Any, Json]()
    for entry in journal.entries():
        state = entry.get("state")
        if entry.get("event") == _STATE and isinstance(state, dict):
            states[entry.get("sectors")] = state
    return states


def _sectors(setup: FsSetup) -> int:
    return family_of(setup).sector_bytes(setup)


def facts_after(disks: Volumes) -> DeviceFacts:
    """Return the facts of the devices with their images as they are after the trial."""
    each: dict[Role, DeviceFacts] = {}
    for role, device in disks.items():
        members = tuple(map(_image_facts, device.facts.members))
        each[role] = dataclasses.replace(_image_facts(device.facts), members=members)
    return dataclasses.replace(each["data"], wal=each.get("log"))


def count_writes(
    plan: Plan,
    cell: Cell,
    clock: DiskClock,
) -> WriteFacts | None:
    """Return the estimated and the counted bytes; None for a directory, because other processes use
    its disk.
    """
    if plan.device.existing:
        return None
    estimated = sum(writes.of_trial(plan, cell).values())
    return WriteFacts(estimated, clock.difference()["write_bytes"])


def _image_facts(before: DeviceFacts) -> DeviceFacts:
    if not before.image:
        return before
    blocks, extents = allocation(Path(before.image))
    return dataclasses.replace(
        before,
        image_blocks_after=blocks,
        image_extents_after=extents,
    )
