"""Golden copies, built once and restored for each trial, and their cache with its limit. The lock
file `.KEY.lock` next to a copy is locked exclusively to build or evict it, shared to restore it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import engines, process
from dbbench.datasets import archive, generated, manifest, sources
from dbbench.datasets.manifest import FORMAT, Golden, Manifest, load, lock_of
from dbbench.engines.port import Engine, Place, Profile
from dbbench.errors import DatasetBuildFailed, DiskTooSmall, PlanInvalid, ProgramMissing
from dbbench.machine import namespaces
from dbbench.machine.libc import syncfs
from dbbench.model import (
    Dataset,
    EngineSpec,
    Scalars,
    Settings,
    SourceChange,
    merge_settings,
    plain,
    spelt,
)
from dbbench.model.run import COPIED
from dbbench.process import User
from dbbench.results.fileio import kept_if_used, lock_file, naming_full, sha256, sync
from dbbench.units import bytes_of, size_text

Tell = Callable[[str], None]  # receives a few words about the current step

# parameters of a source that do not affect the copy: its path, its size, that of the copy
_NOT_BYTES: Final = ("path", "bytes", COPIED)
DEFAULT_LIMIT: Final = 50 * 2**30  # bytes; a dozen copies as large as the memory of a small server
# × the dataset's size: on a raw device a tablespace cannot grow for rows that a load adds
TABLESPACE_ROOM: Final = 1.5
TABLESPACE_STEP: Final = 64 * 2**20


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the bytes of a copy."""

    engine: EngineSpec
    version: str
    build: str  # SHA-256 of the server program
    dataset: Dataset  # completed: with all its parameters
    settings: Settings
    tablespace_bytes: int = 0  # see `engines.port.Place`
    # settings of the primary that writes an archive
    primary: Settings = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return a directory name: readable at the beginning, followed by a hash of everything."""
        profile = engines.profile_of(self.engine.name)
        dataset = plain(self.dataset)
        for name in _NOT_BYTES:
            dataset["parameters"].pop(name, None)
        whole = [
            FORMAT,
            self.engine.name,
            self.version,
            self.build,
            profile.locale,
            dataset,
            _values(self.settings, profile),
        ]
        if self.tablespace_bytes:
            whole.append(self.tablespace_bytes)
        primary = _values(self.primary, profile)
        if primary:
            whole.append(primary)
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        return f"{self.engine.name}-{self.version}-{self.dataset.kind}-{digest[:16]}"


def _values(settings: Settings, profile: Profile) -> Scalars:
    """Return the values of settings without limits, which do not affect the copy."""
    names = settings.keys() - profile.limits
    return {name: settings[name].value for name in names}


def recipe(spec: EngineSpec, dataset: Dataset, raw: bool = False) -> Recipe:
    """Return what a copy of the dataset would be made from now. Raises ProgramMissing, PlanInvalid.
    `raw`: in one tablespace, for a bare device.
    """
    engine: Engine = engines.ENGINES[spec.name]
    version = engine.installed_version(spec.bin)
    if version is None:
        raise ProgramMissing(
            f"{spec.name} is not installed", remedy="Run dbbench doctor to see how to install it."
        )
    # What is not the plan's is written down too, because a default may change.
    whole = generated.fill_in(dataset, spec.name)
    if raw and dataset.kind == "source":
        raise PlanInvalid(
            "a raw device holds a single tablespace of generated data, so it cannot hold data "
            'from a "source"'
        )
    profile = engine.PROFILE
    defaults = ("default", engine.defaults(None))
    # The server need not be durable: the copy is synced as a whole afterwards, and a killed build
    # is discarded.
    building = dict(profile.building)
    tablespace_bytes = 0
    if raw:
        building |= profile.one_tablespace
        least = int(generated.size_bytes(whole, spec.name) * TABLESPACE_ROOM)
        tablespace_bytes = -(-least // TABLESPACE_STEP) * TABLESPACE_STEP
    if sources.kept_as_it_is(whole):
        building |= profile.unsettled
    # What a plan decides of the build: what a server may open, and what the data may require.
    with_plan = (*profile.limits, *profile.required)
    limits = {name: value for name, value in spec.settings.items() if spelt(name) in with_plan}
    settings = merge_settings(defaults, ("build", building), ("plan", limits))
    # An archive is made by a second server, which is as durable as a real one.
    primary: Settings = {}
    if whole.kind == "archive":
        primary = merge_settings(defaults, ("build", {**building, **profile.primary}))
        if not profile.standby:  # a standby does not start with lower limits than its primary's
            primary |= merge_settings(("plan", limits))
    build = _program_sum(engine.programs(spec.bin), profile.programs)
    return Recipe(spec, version, build, whole, settings, tablespace_bytes, primary)


def ensure(
    made_of: Recipe,
    place: Place,
    tell: Tell = lambda _: None,
    *,
    cache: Path | None = None,
) -> Golden:
    """Return the golden copy of that recipe; build it, or wait for another process that builds it,
    if there is none. `place`: for the build's server. Raises DiskTooSmall before anything is
    built, DatasetBuildFailed, and the engine's own errors.
    """
    cache = cache or cache_folder()
    place = dataclasses.replace(place, tablespace_bytes=made_of.tablespace_bytes)
    folder = cache / made_of.key
    with kept_if_used(cache), alone(folder, tell):
        golden = load(folder)
        if golden is None:
            shutil.rmtree(folder, ignore_errors=True)  # a damaged copy
            make_room(cache, generated.building_bytes(made_of.dataset, made_of.engine.name))
            golden = _build(folder, made_of, place, tell)
        os.utime(lock_of(folder))
        return golden


def _build(folder: Path, made_of: Recipe, place: Place, tell: Tell) -> Golden:
    making = folder.with_name(f".making-{folder.name}")
    # left by a killed build: this process holds the lock of the copy
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(0o755)
    try:
        with naming_full(making):
            whole = _load(making, made_of, place, tell)
        manifest.save(making, whole)
        syncfs(making)
        making.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return Golden(folder, whole)


def _load(making: Path, made_of: Recipe, place: Place, tell: Tell) -> Manifest:
    """Make `data/`; return its manifest."""
    engine: Engine = engines.ENGINES[made_of.engine.name]
    source = sources.of(made_of.dataset, made_of.engine)
    changes: tuple[SourceChange, ...] = ()
    # The server's account gets a path to the copy that is being made.
    with reachable(
        making,
        engine.account(),
        place.sockets.parent / "golden",
    ) as seen:
        data = seen / "data"
        if source is not None and source.physical:
            tell(f"copying {sources.describe(source)}")
            changes += sources.lay(source, data, place)
        else:
            tell(f"making an empty {made_of.engine.name}")
            engine.create(data, place)
        # A server fills it, so that it has no crash recovery to do later.
        with engine.serving(data, made_of.settings, place) as server:
            if source is not None:
                tell(f"loading {sources.describe(source)}")
                changes += sources.load(source, made_of.dataset, server, data)
            else:
                tell(f"loading the dataset {made_of.dataset.kind}")
                generated.build(server, made_of.dataset)
            if not sources.kept_as_it_is(made_of.dataset):
                server.settle()
            spaces = sources.tablespaces_of(server)
        if source is not None:
            for change in changes:
                tell(sources.text(change))
            changes += sources.seal(source, made_of.dataset, data, place)
        # What is checked here needs no check before each trial.
        tell("checking it")
        engine.check(data, made_of.settings, place)
        if made_of.primary:
            tell("running a load on the primary to produce its log")
            archive.record(seen, engine, made_of.primary, made_of.dataset, place)
        files = [making / path.relative_to(seen) for path in engine.data_files(data)]
    if os.geteuid() == 0:  # the stopped server's files belong to its account
        for path in (*(making / "data").rglob("*"), making / "data"):
            os.chown(path, 0, 0, follow_symlinks=False)
    tell("reading it back")
    # The checksums of what is on the disk, not of what was written.
    entries = manifest.scan(making / "data", len(os.sched_getaffinity(0)))
    size = sum(entry.size for entry in entries)
    return Manifest(
        made_of.key,
        made_of.dataset,
        size,
        manifest.compressibility(files),
        entries,
        changes,
        spaces,
    )


@contextlib.contextmanager
def reachable(making: Path, account: User, open_place: Path) -> Iterator[Path]:
    """Yield a path to `making` that the engine's account can reach: itself, or in a private mount
    namespace `open_place`, where it is mounted: the cache is in root's home directory, which
    others cannot enter.
    """
    way = way_to(making, account, open_place)
    try:
        yield way
    finally:
        if way != making:
            namespaces.unmount(way, lazy=True)


def way_to(making: Path, account: User, open_place: Path) -> Path:
    """Like `reachable`, for the lifetime of this process's mount namespace."""
    test = [process.find("test") or "test", "-x", making]
    if account.uid == os.geteuid() or process.run(test, ok=(0, 1), as_user=account).returncode == 0:
        return making
    # no private mount namespace: others would see the mount
    if namespaces.host_proc() == Path("/proc"):
        raise DatasetBuildFailed(
            f"the account {account.name} cannot access {making}",
            effect="Nothing was built.",
            remedy="Set DBBENCH_CACHE to a folder that this account can access, such as "
            "/var/cache/dbbench.",
        )
    open_place.mkdir(0o755, exist_ok=True)
    namespaces.mount(making, open_place, flags=namespaces.MS_BIND)
    return open_place


def _program_sum(programs: tuple[str, ...], servers: tuple[str, ...]) -> str:
    """Return the SHA-256 of the server program, "" if it is missing: two builds of one version may
    differ.
    """
    for program in programs:
        name = Path(program).name
        if name in servers:
            path = Path(program) if Path(program).is_absolute() else process.find(name)
            if path is None or not path.is_file():
                return ""
            return sha256(path.resolve(), path.resolve().parent)
    return ""


def cache_folder() -> Path:
    """Return DBBENCH_CACHE, or dbbench/golden in the XDG cache. It need not exist."""
    configured = os.environ.get("DBBENCH_CACHE")
    if configured:
        return Path(configured).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if xdg.startswith("/") else Path.home() / ".cache"
    return base / "dbbench" / "golden"


def size_limit() -> int:
    """Return the maximum size of the cache in bytes: DBBENCH_CACHE_LIMIT ("80GiB") or the default."""
    return bytes_of(os.environ.get("DBBENCH_CACHE_LIMIT") or DEFAULT_LIMIT)


def exists(key: str, cache: Path | None = None) -> bool:
    """Whether the cache has the copy with that key, complete according to the sizes of its files."""
    return load((cache or cache_folder()) / key) is not None


@contextlib.contextmanager
def alone(folder: Path, tell: Tell) -> Iterator[None]:
    """Hold the lock of a golden copy exclusively within the block; wait if another process holds
    it. An error in the block removes the file, unless there is a copy; who waits makes another.
    """
    lock = lock_of(folder)
    while True:
        with lock_file(lock) as (fd, locked):
            if not locked:
                tell("waiting for another process that uses the same golden copy")
                fcntl.flock(fd, fcntl.LOCK_EX)
            if not os.fstat(fd).st_nlink:
                continue  # the other process has removed it
            try:
                yield
            except BaseException:
                # Processes that copy the files hold the lock of a copy.
                if not folder.exists():
                    lock.unlink(missing_ok=True)
                raise
            return


def make_room(cache: Path, needed: int) -> None:
    """Evict copies until `needed` bytes fit below the limit and on the disk. Raises DiskTooSmall. A
    copy that is in use is not evicted, even if the limit is then exceeded.
    """
    # Evicting everything would not help.
    limit = size_limit()
    if needed > limit:
        raise DiskTooSmall(
            f"the dataset needs about {size_text(needed)}, but the cache of golden copies is "
            f"limited to {size_text(limit)}",
            remedy="Raise the limit, for example: DBBENCH_CACHE_LIMIT=200GiB",
        )
    # Remains of killed builds go before any copy does.
    for making in cache.glob(".making-*"):  # left by killed builds of other keys
        with lock_file(lock_of(cache / making.name.removeprefix(".making-"))) as (_, locked):
            if locked:  # otherwise another process is building it
                shutil.rmtree(making, ignore_errors=True)
    # The copy that was not used for the longest time goes first.
    folders = {file.parent for file in cache.glob("[!.]*/manifest*.json")}
    sizes = {folder: disk_bytes(folder) for folder in folders}
    for folder in sorted(folders, key=_used_at):
        if sum(sizes.values()) + needed <= limit and shutil.disk_usage(cache).free >= needed:
            break
        if evict(folder):
            del sizes[folder]
    # Other files may fill the disk.
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise DiskTooSmall(
            f"the dataset needs about {size_text(needed)}, but {cache} has {size_text(free)} free",
            effect="Nothing was built.",  # but copies were evicted
            remedy="Free some disk space, or set DBBENCH_CACHE to a folder on a larger disk.",
        )


def _used_at(folder: Path) -> float:
    lock = lock_of(folder)
    if lock.exists():
        return lock.stat().st_mtime
    return 0.0


def evict(folder: Path) -> bool:
    """Remove the copy in `folder`; return False if a process uses or builds it."""
    with lock_file(lock_of(folder)) as (_, locked):
        if locked:
            # first, because a copy without a manifest is invalid
            (folder / "manifest.json").unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
    return locked


def disk_bytes(folder: Path) -> int:
    """Return the space that the directory occupies on its disk."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process is evicting the copy
            blocks += path.lstat().st_blocks
    return blocks * 512
