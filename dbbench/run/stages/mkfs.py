"""Make the layers and the filesystem of each volume."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dbbench.model import Role
from dbbench.results.journal import Journal
from dbbench.run.stages import Setups, Volumes
from dbbench.storage import devices, filesystems, layers
from dbbench.storage.devices.image import write_out
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import Made
from dbbench.storage.filesystems.volumes import layers_to_add
from dbbench.storage.layers.volume import note_signatures


@contextlib.contextmanager
def make_layers(
    setups: Setups,
    disks: Volumes,
    journal: Journal,
) -> Iterator[dict[Role, Device]]:
    """Make the layers within the block; for the journal, the content of the disks may be incomplete
    from now on.
    """
    for device in disks.values():
        devices.note(journal, "making", device.each)
    with contextlib.ExitStack() as stack:
        volumes: dict[Role, Device] = {}
        for role, setup in setups.items():
            to_add = layers_to_add(setup)
            made = layers.stack_layers(setup.layers, disks[role], journal, to_add)
            volumes[role] = stack.enter_context(made)
        yield volumes


def make(
    setups: Setups,
    volumes: Volumes,
    journal: Journal,
    cell_id: str,
) -> dict[Role, Made]:
    """Make the filesystems; afterwards every block of a loop image is allocated and written."""
    made = {role: filesystems.make(setup, volumes[role], journal) for role, setup in setups.items()}
    for role, volume in volumes.items():
        for member in volume.each:
            if member.facts.image:
                write_out(Path(member.facts.image))
            # so that the guard of the next trial recognises the layers
            note_signatures(member, journal)
        devices.note(
            journal,
            "made",
            volume.each,
            uuid=made[role].uuid,
            trial=cell_id,
        )
    return made
