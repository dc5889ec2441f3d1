"""The dataset on the filesystem under test: restored, read cold, checked; the input of operations on it.

Either the whole data directory or one tablespace of it is there.

Files that grow during the load are compared with the restored ones.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dbbench import datasets
from dbbench.datasets import Golden, Restored, generated
from dbbench.datasets.copying import Progress
from dbbench.engines.port import Engine, Place, UsesBareDevice, log_files_of
from dbbench.machine import pagecache
from dbbench.model import CacheFacts, Cell, DatasetFacts, GrowthFacts, Phase, merged
from dbbench.model.events import Emit, Event
from dbbench.operations import Filled
from dbbench.run.job import Job, WorkDir
from dbbench.run.stages import filesystem
from dbbench.run.stages.filesystem import Mounts, Volumes
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Mounted

TOLD_EVERY_S: Final = 1.0
# A load that makes its own files begins on a new filesystem. It must itself empty the cache of files that it reads
# later, and report that.
_NO_FILES: Final = CacheFacts("no files yet", 0, 0, proved=True)


def golden_of(cell: Cell, workdir: WorkDir, emit: Emit) -> Golden:
    """Return the cell's golden copy, and build it if the cache does not have it."""

    def tell(what: str) -> None:
        emit(Event("prepare", {"what": what}))

    made_of = datasets.golden.recipe(cell.engine, cell.dataset, cell.raw)
    return datasets.golden.ensure(made_of, workdir.place(cell.engine), tell)


def restored(job: Job, fs: Mounted) -> Restored:
    """Restore the golden copy with the setup's attributes in effect, and verify it; `Restored.datadir` is the data
    directory of the server."""
    cell, engine, golden = job.cell, job.engine, golden_of(job.cell, job.workdir, job.emit)
    setup = job.setups["data"]
    filesystems.apply_attributes(setup, datadir := filesystems.data_directory(setup, fs))
    tablespace = str(cell.dataset.parameters.get("tablespace", ""))
    here, rest = golden, None
    if tablespace:
        here, rest = datasets.split(golden, f"pg_tblspc/{golden.manifest.tablespaces[tablespace]}")
    copy = datasets.restored(here, datadir, engine.account(), pace(job.emit))
    server = datadir if rest is None else _elsewhere(job, rest, golden.manifest.tablespaces[tablespace], datadir)
    filesystems.verify_files(setup, engine.data_files(server))
    if fs.raw is not None and isinstance(engine, UsesBareDevice):
        engine.move_data(datadir, fs.raw)
    if cell.dataset.kind == "archive":
        datasets.archive.handed(golden, datadir, engine, job.workdir.scratch)
    return dataclasses.replace(copy, datadir=server, facts=_facts(golden, here, cell, tablespace))


def _elsewhere(job: Job, rest: Golden, oid: str, tablespace: Path) -> Path:
    """Return the data directory of the rest of the cluster, off the device under test, with a link to the
    tablespace."""
    folder, account = job.workdir.elsewhere, job.engine.account()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o755)
    datadir = datasets.golden.way_to(folder, account, job.workdir.root / "elsewhere") / "data"
    datasets.restored(rest, datadir, account)
    (datadir / "pg_tblspc" / oid).symlink_to(tablespace)
    return datadir


def _facts(golden: Golden, here: Golden, cell: Cell, tablespace: str) -> DatasetFacts:
    made, asked = golden.manifest, cell.dataset.parameters
    source = f"{asked['form']} of {cell.engine.name} {asked['version']}" if cell.dataset.kind == "source" else ""
    return DatasetFacts(
        kind=cell.dataset.kind,
        key=golden.key,
        bytes=here.manifest.logical_bytes,
        compressibility=made.compressibility,
        source=source.strip(),
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


def cold_start(job: Job, ready: Filled) -> CacheFacts:
    """Empty the caches of the data files, and prove it. A load that makes its own files has none yet."""
    files = job.engine.data_files(ready.datadir)
    return ready.cold(files) if files or job.has_server else _NO_FILES


def consistent(job: Job, datadir: Path, place: Place) -> str:
    """Return which conditions of the dataset were checked; "" if its kind has none. Raises DataCorrupt."""
    check = generated.CONSISTENCY.get(job.cell.dataset.kind)
    if check is None:
        return ""
    with job.engine.serving(datadir, job.settings, place) as server:
        return f"; {check(server, job.cell.dataset)}"


def filled(job: Job, volumes: Volumes, mounts: Mounts, datadir: Path, place: Place) -> Filled:
    """Return the filesystem, its server, and another server with separate directories."""
    engine, settings, volume, fs = job.engine, job.settings, volumes["data"], mounts["data"]
    second = dataclasses.replace(place, sockets=job.workdir.root / "s2", logs=job.workdir.logs / "clone")
    small = {**settings, **merged(("clone", {**engine.PROFILE.small}))}
    (folder := job.workdir.root / "operations").mkdir(exist_ok=True)
    return Filled(
        setup=job.setups["data"],
        volume=volume,
        fs=fs,
        datadir=datadir,
        room=folder,
        serving=lambda data: engine.serving(data, settings, place),
        second=lambda data: engine.serving(data, small, second),
        journal=job.journal,
        cold=functools.partial(
            pagecache.empty_and_prove,
            seed=job.run.plan.seed,
            disks=volume.leaves,
            by=filesystem.emptying(job, volumes, mounts),
            least_share=filesystems.least_read_share(fs),
        ),
        check=lambda data: engine.check(data, settings, place),
        data_files=engine.data_files,
        log=place.log_dir,
    )


def restored_growth(fs: Mounted, files: Sequence[Path]) -> GrowthFacts:
    """Return how the restored files are stored, before anything grew."""
    return GrowthFacts(restored_share=filesystems.restored_share(fs, filesystems.sizes(files)))


def file_sizes(engine: Engine, datadir: Path, effective: dict[str, str]) -> dict[Path, int]:
    """Return the sizes of the server's data and log files."""
    return filesystems.sizes([*engine.data_files(datadir), *log_files_of(engine, datadir, effective)])


def grown_files(
    fs: Mounted, engine: Engine, datadir: Path, effective: dict[str, str], before: dict[Path, int]
) -> GrowthFacts:
    """Return how the files that grew since `before` (the result of `file_sizes`) are stored. They are written back
    first."""
    data, logs = engine.data_files(datadir), log_files_of(engine, datadir, effective)
    return filesystems.growth(fs, before, filesystems.sizes(data), filesystems.sizes(logs), None)
