"""The cache of golden copies: a dataset is built once and restored for each trial.

`ensure` gives the copy of an engine and a dataset, and builds it where the cache has none: under a lock of its key,
in a folder beside its place, checked, synced and renamed at the end. What a build that was killed has left counts for
nothing and is removed by the next. The key holds all that makes the bytes: engine, version, the server program
itself (its page size is compiled in), locale, the dataset with all its parameters, and the settings of the build.
Deleting the cache costs only time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import engines, namespaces, process
from dbbench.datasets import archive, generated, manifest, sources
from dbbench.datasets.cache import alone, cache_folder, exists, make_room
from dbbench.datasets.copying import Restored, restored
from dbbench.datasets.manifest import FORMAT, Golden, Manifest, in_use, load, lock_of
from dbbench.engines.port import Engine, Place
from dbbench.errors import DatasetBuildFailed, PlanInvalid, ProgramMissing
from dbbench.model import Dataset, EngineSpec, Scalar, Settings, merged, plain
from dbbench.pagecache import syncfs
from dbbench.process import User
from dbbench.store.files import sha256, sync

Tell = Callable[[str], None]  # what is being done, in a few words

LOCALES: Final = {"postgres": "C.UTF-8", "mariadb": "utf8mb4", "mysql": "utf8mb4", "files": ""}
SERVERS: Final = ("postgres", "mariadbd", "mysqld")

# Of the build alone: the copy is synced as a whole afterwards, and data checksums stay on. A killed build is thrown
# away. InnoDB stops slowly: undo is purged and the change buffer merged, so that no trial starts with the rest of it.
# Logs are kept short, and MariaDB's system tablespace grows in steps of 8 MiB instead of 64: all of it is restored.
_CACHE: Final = 512 * 2**20
_NOT_BYTES: Final = ("path", "bytes")  # of a user's own data: where it lay, and a guess of how large it becomes
TABLESPACE_ROOM: Final = 1.5  # a tablespace on a bare device cannot grow: rows that a load adds need room
FAST: Final[dict[str, dict[str, Scalar]]] = {
    "postgres": {
        "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "wal_level": "minimal",
        "max_wal_senders": 0, "shared_buffers": "512MB", "maintenance_work_mem": "512MB",
        "max_wal_size": "128MB", "min_wal_size": "32MB", "checkpoint_timeout": "1h", "autovacuum": "off",
    },
    "mariadb": {
        "innodb_flush_log_at_trx_commit": 0, "innodb_doublewrite": "OFF", "innodb_buffer_pool_size": _CACHE,
        "innodb_fast_shutdown": 0, "innodb_autoextend_increment": 8,
    },
    "mysql": {
        "innodb_flush_log_at_trx_commit": 0, "innodb_doublewrite": "OFF", "innodb_buffer_pool_size": _CACHE,
        "innodb_fast_shutdown": 0,
    },
    "files": {},
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """All that the bytes of a copy follow from."""

    engine: EngineSpec
    version: str
    build: str  # SHA-256 of the server program
    dataset: Dataset  # with all its parameters
    settings: Settings
    tablespace_bytes: int = 0  # see `engines.port.Place`
    primary: Settings = dataclasses.field(default_factory=dict)  # of an archive's primary

    @property
    def locale(self) -> str:
        return LOCALES[self.engine.name]

    @property
    def key(self) -> str:
        """A name for a folder: readable in front, and a hash of everything."""
        settings = {name: setting.value for name, setting in self.settings.items()}
        loaded = plain(self.dataset)
        loaded["parameters"] = {name: value for name, value in loaded["parameters"].items() if name not in _NOT_BYTES}
        whole = [FORMAT, self.engine.name, self.version, self.build, self.locale, loaded, settings]
        whole += [self.tablespace_bytes] if self.tablespace_bytes else []
        whole += [{name: setting.value for name, setting in self.primary.items()}] if self.primary else []
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        return f"{self.engine.name}-{self.version}-{self.dataset.kind}-{digest[:16]}"


def recipe(spec: EngineSpec, dataset: Dataset, raw: bool = False) -> Recipe:
    """What a copy of the dataset would be made from now; `raw`: in one tablespace, to be put onto a bare device.
    ProgramMissing, PlanInvalid."""
    engine: Engine = engines.ENGINES[spec.name]
    bin_ = Path(spec.bin) if spec.bin else None
    version = engine.installed(bin_)
    if version is None:
        raise ProgramMissing(f"{spec.name} is not installed", effect="Nothing was changed.", remedy="dbbench doctor")
    whole = generated.completed(dataset, spec.name)
    if raw and dataset.kind == "source":
        raise PlanInvalid("a user's own data cannot be put into the one tablespace of a bare device")
    one: dict[str, Scalar] = {"innodb_file_per_table": False} if raw else {}
    settings = merged(("default", engine.defaults(None)), ("build", {**FAST[spec.name], **one}))
    space = -(-int(generated.size_bytes(whole, spec.name) * TABLESPACE_ROOM) // 2**26) * 2**26 if raw else 0
    primary: Settings = {}
    if whole.kind == "archive":
        primary = merged(("default", engine.defaults(None)),
                         ("build", {**FAST[spec.name], **one, **archive.PRIMARY[spec.name]}))  # fmt: skip
    return Recipe(spec, version, _program_sum(engine.programs(bin_)), whole, settings, space, primary)


def key(spec: EngineSpec, dataset: Dataset, raw: bool = False) -> str:
    """The name of the copy in the cache. ProgramMissing, PlanInvalid."""
    return recipe(spec, dataset, raw).key


def ensure(
    spec: EngineSpec,
    dataset: Dataset,
    place: Place,
    tell: Tell = lambda _: None,
    *,
    raw: bool = False,
    cache: Path | None = None,
) -> Golden:
    """The golden copy of the dataset for that engine; built now where the cache does not hold it.

    `place` is where the server of the build lives. Where another process builds the same one, this waits for it.
    Raises DiskTooSmall before anything is built, DatasetBuildFailed, and the engine's own errors.
    """
    cache, made_of = cache or cache_folder(), recipe(spec, dataset, raw)
    place = dataclasses.replace(place, tablespace_bytes=made_of.tablespace_bytes)
    folder = cache / made_of.key
    cache.mkdir(0o755, parents=True, exist_ok=True)
    with alone(lock_of(folder), tell):
        golden = load(folder)
        if golden is None:
            shutil.rmtree(folder, ignore_errors=True)  # damaged
            make_room(cache, generated.building_bytes(made_of.dataset, spec.name))
            golden = _built(folder, made_of, place, tell)
        os.utime(golden.lock)
        return golden


# --- building --------------------------------------------------------------------------------------


def _built(folder: Path, made_of: Recipe, place: Place, tell: Tell) -> Golden:
    began, making = time.monotonic(), folder.with_name(f".making-{folder.name}")
    shutil.rmtree(making, ignore_errors=True)  # of a build that was killed; the lock says that nobody works there
    making.mkdir(0o755)
    try:
        found = _load(making, made_of, place, tell)
        tell("reading it back")
        entries = manifest.scan(making / "data", len(os.sched_getaffinity(0)))
        whole = Manifest(
            key=made_of.key,
            engine=made_of.engine.name,
            version=made_of.version,
            build=made_of.build,
            dataset=made_of.dataset,
            page_size=found.page_size,
            locale="of the source" if made_of.dataset.kind == "source" else made_of.locale,
            logical_bytes=sum(entry.size for entry in entries),
            build_s=round(time.monotonic() - began, 3),
            compressibility=manifest.compressibility(found.data_files),
            entries=entries,
            settings={name: setting.value for name, setting in made_of.settings.items()},
            told=found.told,
            tablespaces=found.tablespaces,
        )
        manifest.save(making, whole)
        syncfs(making)
        making.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return Golden(folder, whole)


@dataclass(frozen=True)
class _Found:
    page_size: int | None
    data_files: list[Path]
    told: tuple[str, ...] = ()
    tablespaces: dict[str, str] = dataclasses.field(default_factory=dict)


def _load(making: Path, made_of: Recipe, place: Place, tell: Tell) -> _Found:
    """Make the data directory, load the dataset, stop the server and check what it left."""
    engine: Engine = engines.ENGINES[made_of.engine.name]
    source = sources.of(made_of.dataset, made_of.engine)
    told: tuple[str, ...] = ()
    with reachable(making, engine.account(), place.sockets.parent / "golden") as seen:
        data = seen / "data"
        if source is not None and source.physical:
            tell(f"copying {sources.described(source)}")
            told += sources.laid(source, data, place)
        else:
            tell(f"making an empty {made_of.engine.name}")
            engine.create(data, place)
        with engine.serving(data, made_of.settings, place) as server:
            if source is not None:
                tell(f"loading {sources.described(source)}")
                told += sources.loaded(source, made_of.dataset, server, data)
            else:
                tell(f"loading the dataset {made_of.dataset.kind}")
                generated.build(server, made_of.dataset)
            server.settle()
            page_size = _page_size(server.effective_settings())
            spaces = sources.tablespaces_of(server)
        if source is not None:
            told += sources.sealed(source, data, place)
        tell("checking it")
        engine.check(data, made_of.settings, place)
        if made_of.primary:
            archive.record(seen, engine, made_of.primary, made_of.dataset, place, tell)
        files = [making / path.relative_to(seen) for path in engine.data_files(data)]
    return _Found(page_size, files, told, spaces)


@contextlib.contextmanager
def reachable(making: Path, account: User, open_place: Path) -> Iterator[Path]:
    """A way to the folder `making` that the engine's account may go: itself, or `open_place`.

    The cache lies in the home folder of root, which is closed to others. In a mount namespace of our own the folder
    is bound to a place that is open; elsewhere there is no such way.
    """
    way = way_to(making, account, open_place)
    try:
        yield way
    finally:
        if way != making:
            namespaces.unmount(way, lazy=True)


def way_to(making: Path, account: User, open_place: Path) -> Path:
    """`reachable` for as long as this process's mount namespace is there."""
    test = [process.find("test") or "test", "-x", making]
    if account.uid == os.geteuid() or process.run(test, ok=(0, 1), as_user=account).returncode == 0:
        return making
    if not _own_mounts():
        raise DatasetBuildFailed(
            f"the account {account.name} cannot reach {making}",
            effect="Nothing was built.",
            remedy="Set DBBENCH_CACHE to a folder that it can reach, such as /var/cache/dbbench.",
        )
    open_place.mkdir(0o755, exist_ok=True)
    namespaces.mount(making, open_place, flags=namespaces.MS_BIND)
    return open_place


def _own_mounts() -> bool:
    """Whether this process has a mount namespace of its own, so that nobody else sees what it mounts."""
    return namespaces.host_proc() != Path("/proc")  # kept only by `isolated`


def _page_size(effective: dict[str, str]) -> int | None:
    """Bytes of a database page, as the server says."""
    for name in ("block_size", "innodb_page_size"):
        if effective.get(name, "").isdigit():
            return int(effective[name])
    return None


def _program_sum(programs: tuple[str, ...]) -> str:
    """SHA-256 of the server program, "" where it is not found: two builds of one version may differ in all."""
    for program in map(Path, programs):
        if program.name in SERVERS:
            found = program if program.is_absolute() else process.find(program.name)
            return sha256(found) if found is not None and found.is_file() else ""
    return ""


__all__ = ["Golden", "Recipe", "Restored", "cache_folder", "ensure", "exists", "in_use", "key", "recipe", "restored"]
