"""The dataset onto the filesystem under test: all of the data directory, or one tablespace of it."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from dbbench import datasets, filesystems
from dbbench.datasets import METHODS, Golden, Restored
from dbbench.datasets.copying import Progress
from dbbench.engines import ENGINES
from dbbench.engines.port import Engine
from dbbench.filesystems import Mounted
from dbbench.model import Cell, DatasetFacts, Phase, Run
from dbbench.parts.room import Room
from dbbench.progress.events import Emit, Event

TOLD_EVERY_S = 1.0


def restored(run: Run, cell: Cell, room: Room, golden: Golden, fs: Mounted, emit: Emit) -> Restored:
    """Restore the golden copy with the setup's attributes in force, verified; `Restored.datadir` is the server's."""
    engine, datadir = ENGINES[cell.engine.name], filesystems.data_directory(cell.setup, fs)
    method, own = run.plan.restore, run.plan.device.kind != "dir"  # an existing filesystem's options are its owner's
    if own:
        filesystems.apply_attributes(cell.setup, datadir)
        if method == "reflink":  # the files that blocks are shared with must be of the same kind
            (beside := datadir.with_name(f"{datadir.name}.golden")).mkdir(0o700)
            filesystems.apply_attributes(cell.setup, beside)
    tablespace = str(cell.dataset.parameters.get("tablespace", ""))
    here, rest = golden, None
    if tablespace:
        here, rest = datasets.split(golden, f"pg_tblspc/{golden.manifest.tablespaces[tablespace]}")
    found = METHODS[method](here, datadir, engine.account(), pace(emit))
    server = (
        datadir if rest is None else _elsewhere(room, rest, golden.manifest.tablespaces[tablespace], datadir, engine)
    )
    if own:
        filesystems.verify_files(cell.setup, engine.data_files(server))
    if fs.raw is not None:
        engine.move_data(datadir, fs.raw)
    if cell.dataset.kind == "archive":
        datasets.archive.handed(golden, datadir, engine, room.scratch)
    return dataclasses.replace(found, datadir=server, facts=_facts(golden, here, cell, method, tablespace))


def _elsewhere(room: Room, rest: Golden, oid: str, tablespace: Path, engine: Engine) -> Path:
    """The rest of the cluster, off the device under test: its data directory, with a link to the tablespace."""
    folder = room.elsewhere
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o755)
    datadir = datasets.golden.way_to(folder, engine.account(), room.root / "elsewhere") / "data"
    datasets.restored(rest, datadir, engine.account())
    (datadir / "pg_tblspc" / oid).symlink_to(tablespace)
    return datadir


def _facts(golden: Golden, here: Golden, cell: Cell, method: str, tablespace: str) -> DatasetFacts:
    made, own = golden.manifest, cell.dataset.parameters
    source = f"{own['form']} of {cell.engine.name} {own['version']}".strip() if cell.dataset.kind == "source" else ""
    return DatasetFacts(
        kind=cell.dataset.kind,
        key=golden.key,
        bytes=here.manifest.logical_bytes,
        compressibility=made.compressibility,
        restore=method,
        source=source,
        tablespace=tablespace,
        told=made.told,
    )


def pace(emit: Emit, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Tell bytes, rate (10^6 bytes a second) and the seconds that are left, once a second."""
    began = told = clock()

    def tell(done: int, of: int) -> None:
        nonlocal told
        now = clock()
        if now - told < TOLD_EVERY_S or not done:
            return
        told = now
        rate = done / (now - began)
        emit(Event("copied", {"phase": Phase.RESTORE.value, "bytes": done, "of": of, "mb_per_s": rate / 1e6,
                              "left_s": max(0.0, (of - done) / rate)}))  # fmt: skip

    return tell
