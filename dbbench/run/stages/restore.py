"""The dataset (a data directory, or one tablespace of it) restored from its golden copy; its
write-ahead log, moved to the place that the plan or the fs setup requests; its server.
"""

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
from dbbench.engines.port import Engine, HasLog, Place, UsesBareDevice, log_files_of
from dbbench.errors import FilesElsewhere
from dbbench.model import CacheFacts, Cell, DatasetFacts, FsSetup, Phase, merge_settings
from dbbench.model.events import Emit, Event
from dbbench.operations import StoredDatabase
from dbbench.plan.server_settings import settings_of
from dbbench.run.stages import Mounts, Setups
from dbbench.run.workdir import WorkDir
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Mounted, Stored

_EVERY_S: Final = 1.0


def ensure_golden(cell: Cell, workdir: WorkDir, emit: Emit) -> Golden:
    """Return the cell's golden copy, and build it if the cache does not have it."""
    recipe = datasets.golden.recipe(cell.engine, cell.dataset, cell.raw)

    def tell(what: str) -> None:
        emit(Event("prepare", {"what": what}))

    return datasets.golden.ensure(recipe, workdir.place(cell.engine), tell)


def restore(
    cell: Cell,
    setup: FsSetup,
    fs: Mounted,
    workdir: WorkDir,
    emit: Emit,
) -> Restored:
    """Restore the golden copy with the setup's attributes, and verify it; `datadir` is the server's
    data directory.
    """
    engine = ENGINES[cell.engine.name]
    golden = ensure_golden(cell, workdir, emit)

    # The copy, or the part of it that is one tablespace, on the filesystem under test.
    datadir = filesystems.data_directory(setup, fs)
    account = engine.account()
    filesystems.apply_attributes(setup, datadir)
    server = datadir
    here = golden
    tablespace = str(cell.dataset.parameters.get("tablespace", ""))
    if tablespace:
        oid = golden.manifest.tablespaces[tablespace]
        here, rest = datasets.split(golden, f"pg_tblspc/{oid}")
    copy = datasets.restore_copy(here, datadir, account, pace(emit))

    # The rest of the cluster is off the device under test, with a link to the tablespace.
    if tablespace:
        shutil.rmtree(workdir.elsewhere, ignore_errors=True)
        workdir.elsewhere.mkdir(0o755)
        way = datasets.golden.way_to(workdir.elsewhere, account, workdir.root / "elsewhere")
        server = way / "data"
        datasets.restore_copy(rest, server, account)
        (server / "pg_tblspc" / oid).symlink_to(datadir)

    # The setup's promises about files are confirmed before a server opens them.
    filesystems.verify_files(setup, engine.data_files(server))
    if fs.raw is not None and isinstance(engine, UsesBareDevice):
        engine.move_data(datadir, fs.raw)
    # A standby begins with the archive that the trial will offer to it.
    if cell.dataset.kind == "archive":
        datasets.archive.hand_over(golden, datadir, engine, workdir.scratch)
    return dataclasses.replace(
        copy,
        datadir=server,
        facts=_facts(golden, here, cell, tablespace),
    )


def _facts(
    golden: Golden,
    here: Golden,
    cell: Cell,
    tablespace: str,
) -> DatasetFacts:
    made = golden.manifest
    parameters = cell.dataset.parameters
    source = ""
    if cell.dataset.kind == "source":
        source = f"{parameters['form']} of {cell.engine.name} {parameters['version']}".strip()
    return DatasetFacts(
        kind=cell.dataset.kind,
        key=made.key,
        bytes=here.manifest.logical_bytes,
        compressibility=made.compressibility,
        source=source,
        tablespace=tablespace,
        told=tuple(map(datasets.sources.text, made.changes)),
        changes=made.changes,
    )


def pace(emit: Emit, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Return a function that reports bytes, rate (10^6 bytes per second) and remaining seconds,
    once per second.
    """
    began = clock()
    last = began

    def tell(done: int, of: int) -> None:
        nonlocal last
        now = clock()
        if now - last < _EVERY_S or not done:
            return
        last = now
        # The mean rate so far, because copying is uneven.
        rate = done / (now - began)
        progress = {
            "phase": Phase.RESTORE.value,
            "bytes": done,
            "of": of,
            "mb_per_s": rate / 1e6,
            "left_s": max(0.0, (of - done) / rate),
        }
        emit(Event("copied", progress))

    return tell


def move_log(
    setups: Setups,
    mounts: Mounts,
    engine: Engine,
    datadir: Path,
    place: Place,
) -> Place:
    """Move the restored log to its own filesystem or volume; return the place with its directory,
    or unchanged.
    """
    folder = filesystems.log_directory(setups["data"], mounts)
    # If only a tablespace is on the filesystem under test, the log stays with the rest of the
    # cluster.
    alone = "log" not in mounts and not datadir.is_relative_to(mounts["data"].path)
    if folder is None or alone or not isinstance(engine, HasLog):
        return place
    if "log" in setups:
        folder.mkdir(mode=0o700)
        filesystems.apply_attributes(setups["log"], folder)
    engine.place_log(datadir, folder)
    return dataclasses.replace(place, log_dir=folder)


def check_log(
    engine: Engine,
    datadir: Path,
    place: Place,
    effective: dict[str, str],
) -> None:
    """Raise FilesElsewhere if a file of the running server's log is not in the directory to which
    it was moved.
    """
    if place.log_dir is None:
        return
    files = log_files_of(engine, datadir, effective)
    folder = place.log_dir.resolve()
    astray = [path for path in files if folder not in path.parents]
    if astray or not files:
        text = f"{folder} contains no log file"
        if astray:
            text = f"{astray[0]} of the write-ahead log is not in {folder}"
        raise FilesElsewhere(
            text,
            effect="Nothing was measured.",
            remedy="Remove settings for the location of the log (innodb_log_group_home_dir, "
            "log_bin) from the plan.",
        )


def fill(
    cell: Cell,
    stored: Stored,
    place: Place,
    cold: Callable[[Sequence[Path]], CacheFacts],
) -> StoredDatabase:
    """Return the filesystem with its server at `place`, and another server with separate
    directories next to it.
    """
    engine = ENGINES[cell.engine.name]
    settings = settings_of(cell)
    sockets = place.sockets.with_name("s2")
    second = dataclasses.replace(place, sockets=sockets, logs=place.logs / "clone")
    small = {**settings, **merge_settings(("clone", {**engine.PROFILE.small}))}
    return StoredDatabase(
        **vars(stored),
        serving=lambda: engine.serving(stored.datadir, settings, place),
        second=lambda data: engine.serving(data, small, second),
        cold=cold,
        check=lambda data: engine.check(data, settings, place),
        data_files=engine.data_files,
        log=place.log_dir,
    )
