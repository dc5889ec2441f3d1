"""The write-ahead log at the place that the plan or the fs setup requests: moved after the restore, and verified.

`filesystems.wal_directory` alone decides the place, for `[device.wal]` and for a setup's volume `wal`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from dbbench.engines import SERVERLESS
from dbbench.engines.port import Engine, Place
from dbbench.errors import WalElsewhere
from dbbench.model import Cell, DeviceSpec, FsSetup
from dbbench.results.journal import Journal
from dbbench.storage import filesystems, layers
from dbbench.storage.devices.port import Device, Images
from dbbench.storage.filesystems import Made, Mounted


def wanted(cell: Cell, device: DeviceSpec, images: Images | None) -> tuple[DeviceSpec, Images | None]:
    """Return the plan's device and images; without those of the log in a cell that keeps its log with the data."""
    if cell.wal_setup is not None or device.wal is None:
        return device, images
    return dataclasses.replace(device, wal=None), images and dataclasses.replace(images, wal=None)


@contextlib.contextmanager
def layered(cell: Cell, volume: Device, journal: Journal) -> Iterator[Device]:
    """Yield the volume with the layers of the log's own setup made on its device, if it has one."""
    if cell.wal_setup is None or volume.wal is None:
        yield volume
        return
    with layers.stacked(cell.wal_setup.layers, volume.wal, journal) as log:
        yield dataclasses.replace(volume, wal=log)


def made(cell: Cell, volume: Device, journal: Journal) -> Made | None:
    """Make the log's own filesystem; return None if the cell has none."""
    if cell.wal_setup is None or volume.wal is None:
        return None
    return filesystems.make(cell.wal_setup, volume.wal, journal)


@contextlib.contextmanager
def mounted(cell: Cell, volume: Device, fs: Mounted, at: Path, journal: Journal) -> Iterator[Mounted]:
    """Yield `fs` with the log's own filesystem mounted at `at` as its `wal`, if the cell has one."""
    if cell.wal_setup is None or volume.wal is None:
        yield fs
        return
    with filesystems.mounted(cell.wal_setup, volume.wal, at, journal) as log:
        # Without a filesystem of its own the data directory lies beside the log; only its tables do not.
        yield dataclasses.replace(fs, wal=log, path=log.path if fs.raw else fs.path)


def moved(cell: Cell, engine: Engine, fs: Mounted, datadir: Path, place: Place) -> Place:
    """Move the restored log to its place; return the place with its directory, or unchanged."""
    folder = filesystems.wal_directory(cell.setup, fs)
    alone = "tablespace" in cell.dataset.parameters  # on the filesystem under test; the log is with the cluster
    if folder is None or cell.engine.name in SERVERLESS or (alone and cell.wal_setup is None):
        return place
    return moved_to(folder, cell.wal_setup, engine, datadir, place)


def moved_to(folder: Path, setup: FsSetup | None, engine: Engine, datadir: Path, place: Place) -> Place:
    """Move the log into that directory; return the place with it.

    `setup`: of the log's own filesystem, on which the directory is made; None for a volume of the data's filesystem.
    """
    if setup is not None:
        folder.mkdir(mode=0o700)
        filesystems.apply_attributes(setup, folder)
    engine.move_log(datadir, folder)
    return dataclasses.replace(place, wal=folder)


def proved(engine: Engine, datadir: Path, place: Place, effective: dict[str, str]) -> None:
    """Raise WalElsewhere if a file of the running server's log is not in the directory to which it was moved."""
    if place.wal is None:
        return
    files = engine.log_files(datadir, effective)
    folder = place.wal.resolve()
    astray = [path for path in files if folder not in path.parents]
    if astray or not files:
        raise WalElsewhere(
            f"{astray[0]} of the write-ahead log is not in {folder}" if astray else f"{folder} contains no log file",
            effect="Nothing was measured.",
            remedy="Remove settings for the location of the log (innodb_log_group_home_dir, log_bin) from the plan.",
        )
