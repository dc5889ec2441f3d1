"""The input of operations, snapshots and ageing by the engine: the filesystem with the dataset."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dbbench.model import merged
from dbbench.operations import Filled
from dbbench.run.job import Job
from dbbench.run.stages import dataset
from dbbench.storage import filesystems
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import Mounted


def filled(job: Job, volume: Device, fs: Mounted, datadir: Path) -> Filled:
    """Return the filesystem, its server, and another server with separate directories."""
    engine, settings, setup = job.engine, job.settings, job.cell.setup
    place = dataclasses.replace(job.place, wal=filesystems.wal_directory(setup, fs))
    second = dataclasses.replace(place, sockets=job.workdir.root / "s2", logs=job.workdir.logs / "clone")
    small = {**settings, **merged(("clone", {**engine.PROFILE.small}))}
    (folder := job.workdir.root / "operations").mkdir(exist_ok=True)
    if volume.facts.existing:  # the options of an existing filesystem are its owner's
        setup = dataclasses.replace(setup, attributes=(), volumes={})
    return Filled(
        setup=setup,
        volume=volume,
        fs=fs,
        datadir=datadir,
        room=folder,
        serving=lambda data: engine.serving(data, settings, place),
        second=lambda data: engine.serving(data, small, second),
        journal=job.journal,
        cold=lambda: dataset.cold(job, fs, volume.leaves, engine.data_files(datadir)),
        check=lambda data: engine.check(data, settings, place),
        data_files=engine.data_files,
    )
