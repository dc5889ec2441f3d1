"""The dataset (a data directory, or one tablespace of it) restored from its golden copy, and its server."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dbbench import datasets
from dbbench.datasets import Golden, Restored
from dbbench.datasets.copying import Progress
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, UsesBareDevice
from dbbench.model import CacheFacts, Cell, DatasetFacts, FsSetup, Phase, merge_settings
from dbbench.model.events import Emit, Event
from dbbench.operations import StoredDatabase
from dbbench.plan.server_settings import settings_of
from dbbench.run.workdir import WorkDir
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Mounted, Stored

TOLD_EVERY_S: Final = 1.0


def ensure_golden(cell: Cell, workdir: WorkDir, emit: Emit) -> Golden:
    """Return the cell's golden copy, and build it if the cache does not have it."""
    made_of = datasets.golden.recipe(cell.engine, cell.dataset, cell.raw)
    return datasets.golden.ensure(
        made_of, workdir.place(cell.engine), lambda what: emit(Event("prepare", {"what": what}))
    )


def restore(cell: Cell, setup: FsSetup, fs: Mounted, workdir: WorkDir, emit: Emit) -> Restored:
    """Restore the golden copy with the setup's attributes, and verify it; `datadir` is the server's data directory."""
    engine, golden = ENGINES[cell.engine.name], ensure_golden(cell, workdir, emit)
    datadir, account = filesystems.data_directory(setup, fs), engine.account()
    filesystems.apply_attributes(setup, datadir)
    server, here, tablespace = datadir, golden, str(cell.dataset.parameters.get("tablespace", ""))
    if tablespace:
        oid = golden.manifest.tablespaces[tablespace]
        here, rest = datasets.split(golden, f"pg_tblspc/{oid}")
    copy = datasets.restore_copy(here, datadir, account, pace(emit))
    if tablespace:  # the rest of the cluster is off the device under test, with a link to the tablespace
        shutil.rmtree(workdir.elsewhere, ignore_errors=True)
        workdir.elsewhere.mkdir(0o755)
        server = datasets.golden.way_to(workdir.elsewhere, account, workdir.root / "elsewhere") / "data"
        datasets.restore_copy(rest, server, account)
        (server / "pg_tblspc" / oid).symlink_to(datadir)
    filesystems.verify_files(setup, engine.data_files(server))
    if fs.raw is not None and isinstance(engine, UsesBareDevice):
        engine.move_data(datadir, fs.raw)
    if cell.dataset.kind == "archive":
        datasets.archive.hand_over(golden, datadir, engine, workdir.scratch)
    return dataclasses.replace(copy, datadir=server, facts=_facts(golden, here, cell, tablespace))


def _facts(golden: Golden, here: Golden, cell: Cell, tablespace: str) -> DatasetFacts:
    made, parameters = golden.manifest, cell.dataset.parameters
    of_user = cell.dataset.kind == "source"
    return DatasetFacts(
        kind=cell.dataset.kind,
        key=golden.key,
        bytes=here.manifest.logical_bytes,
        compressibility=made.compressibility,
        source=f"{parameters['form']} of {cell.engine.name} {parameters['version']}".strip() if of_user else "",
        tablespace=tablespace,
        told=tuple(map(datasets.sources.text, made.changes)),
        changes=made.changes,
    )


def pace(emit: Emit, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Return a function that reports bytes, rate (10^6 bytes per second) and remaining seconds, once per second."""
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


def fill(cell: Cell, stored: Stored, place: Place, cold: Callable[[Sequence[Path]], CacheFacts]) -> StoredDatabase:
    """Return the filesystem with its server at `place`, and another server with separate directories next to it."""
    engine, settings = ENGINES[cell.engine.name], settings_of(cell)
    second = dataclasses.replace(place, sockets=place.sockets.with_name("s2"), logs=place.logs / "clone")
    small = {**settings, **merge_settings(("clone", {**engine.PROFILE.small}))}
    return StoredDatabase(
        **vars(stored),
        serving=lambda data: engine.serving(data, settings, place),
        second=lambda data: engine.serving(data, small, second),
        cold=cold,
        check=lambda data: engine.check(data, settings, place),
        data_files=engine.data_files,
        log=place.log_dir,
    )
