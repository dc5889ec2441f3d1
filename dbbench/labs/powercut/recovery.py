"""The filesystem under test: made and filled once, mounted on whatever disks the lab provides, and
recovered after a cut: mount, start, look up every acknowledged commit, check tables and indexes,
stop, read the checksum of every page, check the filesystem.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from dbbench import durability, errors, process
from dbbench.engines import ENGINES
from dbbench.engines.port import ChecksData, Engine, Place, Server, SmallCluster
from dbbench.engines.sql import cursor_of, execute
from dbbench.labs.powercut import MEMORY_BYTES, Lies, witness
from dbbench.labs.powercut.disk_images import UNITS, copy
from dbbench.labs.powercut.targets import LabTarget
from dbbench.model import Durability, Role, Setting
from dbbench.results.journal import Journal
from dbbench.run.record import stopping
from dbbench.run.stages import Volumes
from dbbench.run.stages.restore import check_log, move_log
from dbbench.run.workdir import WorkDir
from dbbench.storage import filesystems
from dbbench.storage.devices import hold, loop
from dbbench.storage.devices.port import Device, joint
from dbbench.storage.filesystems import Mounted, MountPoint, Stored

# Size of each sparse disk: large enough that mkfs does not apply its rules for small devices.
IMAGE_BYTES: Final = 2**30
# An umount that had to write everything took 21 s; a phase that takes longer than these limits
# hangs.
DEADLINES_S: Final = {
    "prepare": 300.0,
    "mount": 60.0,
    "start": 120.0,
    "look up": 60.0,
    "check": 120.0,
    "stop": 60.0,
    "umount": 90.0,
    "fsck": 120.0,
}
# Between two reports there are at most two recoveries, or one recording with its kills. What hangs
# where no signal ends it, in the kernel or in a client library, is killed then.
STEP_S: Final = 2 * sum(DEADLINES_S.values())
POLL_S: Final = 10.0
MOST_PROCESSES: Final = 8  # each keeps up to three images of harmed cuts
# MySQL retries without end if recovery needs a page that cannot be read. It logs lines of this
# kind.
_UNREADABLE: Final = re.compile(
    r"\[ERROR\].*(page corruption|[Uu]nable to apply log to corrupted page)"
)
# Messages of PostgreSQL and InnoDB about a torn page, whose halves were written at different times.
_TORN: Final = re.compile(
    r"invalid page in block|page verification failed|checksum|[Cc]orrupt|Unable to read page|page_cleaner|"
    r"[Ii]nput/output error|could not read block|Dumping the DBLWR page",
)
Images = Mapping[Role, tuple[Path, ...]]
HarmsOf = Callable[[Server], Mapping[str, str]]


class Killed(BaseException):
    """Ends the block of a server that is to be killed with SIGKILL; not an Exception, so that no
    handler catches it.
    """


@dataclass
class Lab:
    """A running lab: its directories in memory, and where it stores its results."""

    workdir: WorkDir
    folder: Path  # folder of the run, for images and logs of cuts with damage
    seed: int | str
    tell: Callable[[str], None]
    lies: Lies = ""
    until: float | None = None  # end of the current part's time on the monotonic clock
    units: Sequence[int] = UNITS  # power-fail units of the disks that are cut
    kept: dict[str, int] = field(default_factory=dict)  # by target: how many cuts' images are kept

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / "journal.jsonl")

    @property
    def scratch(self) -> Path:
        return self.workdir.scratch

    @property
    def server_log(self) -> Path:
        return self.workdir.logs / "server.log"

    @property
    def over(self) -> bool:
        return self.until is not None and time.monotonic() > self.until

    def process_count(
        self,
        target: LabTarget,
        cores: int,
        memory_bytes: float,
    ) -> int:
        """Return how many processes can work on the target: one more than cores, because each waits
        in between. A pool of ZFS has one name on a machine.
        """
        if self.over or any(setup.mkfs.family == "zfs" for setup in target.setups.values()):
            return 1
        return max(1, int(min(cores + 1, MOST_PROCESSES, memory_bytes / MEMORY_BYTES)))

    def of_process(self, number: int, target: LabTarget) -> Lab:
        """Return a lab with other directories and another seed, for a process that this one forks:
        it has the same account for servers, which is chosen here.
        """
        ENGINES[target.engine.name].account()
        workdir = WorkDir(self.workdir.root / str(number))
        workdir.root.mkdir(exist_ok=True)
        workdir.make()
        return replace(
            self,
            workdir=workdir,
            seed=f"{self.seed}-process-{number}",
            kept={},
        )

    def remove_images(self) -> None:
        """Remove images and logs of the last target, also those of other processes: they are in
        memory, and another target may have other disks or fewer processes.
        """
        for scratch in (self.scratch, *self.workdir.root.glob("[0-9]*/scratch")):
            shutil.rmtree(scratch / "log", ignore_errors=True)
            for image in scratch.glob("*.img"):
                image.unlink()

    def disks(self, stem: str, target: LabTarget) -> Images:
        return disks(self.scratch, stem, target)


@dataclass(frozen=True)
class BaseImages:
    """Disks with the filesystem and the tables of the witness, cleanly unmounted."""

    target: LabTarget
    images: Images
    place: Place  # directories of the server, and of its log if that is not in the data directory
    flags: tuple[Durability, ...]  # computed from what the kernel and the server report
    # the same of a server that is killed, which can end a write in the middle
    killed_flags: tuple[Durability, ...]
    version: str  # version of the server
    fs: Mounted  # the filesystem after it was made

    @property
    def engine(self) -> Engine:
        return ENGINES[self.target.engine.name]

    def copied(self, lab: Lab, stem: str) -> Images:
        """Copy the disks, and return the copies. Raises OSError."""
        return copy_disks(self.images, lab.disks(stem, self.target))


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery. `lost`: acknowledged commits that are missing. `harms` {}: nothing
    is missing.
    """

    acknowledged: int
    lost: int = 0
    harms: dict[str, str] = field(default_factory=dict)  # kind, see `model.CutFacts` -> evidence
    invalid: str = ""  # why the cut cannot be judged; `harms` is then empty
    seconds: float = 0.0


def disks(folder: Path, stem: str, target: LabTarget) -> Images:
    """Return the target's image files: STEM.img, or STEM-0.img and so on, and STEM-wal.img for the
    log.
    """
    images: dict[Role, tuple[Path, ...]] = {"data": (folder / f"{stem}.img",)}
    if target.disks > 1:
        names = [f"{stem}-{number}.img" for number in range(target.disks)]
        images["data"] = tuple(folder / name for name in names)
    if target.log is not None:
        images["log"] = (folder / f"{stem}-wal.img",)
    return images


def files_of(disks: Images) -> list[Path]:
    """Return the images of all volumes, in the order of the disks' numbers."""
    return [image for images in disks.values() for image in images]


def copy_disks(disks: Images, copies: Images) -> Images:
    """Copy each image to a new file in its place in `copies`; return `copies`. Raises OSError."""
    for source, target in zip(files_of(disks), files_of(copies), strict=True):
        target.unlink(missing_ok=True)
        copy(source, target)
    return copies


def name_files(disks: Images, files: Iterable[Path]) -> Images:
    """Return these files in place of the images, in the order of `files_of`."""
    rest = iter(files)
    return {role: tuple(itertools.islice(rest, len(images))) for role, images in disks.items()}


@contextlib.contextmanager
def attach(disks: Images) -> Iterator[dict[Role, Device]]:
    """Attach loop devices over the images of each volume within the block."""
    volumes = dict[Role, Device]()
    with contextlib.ExitStack() as stack:
        for role, images in disks.items():
            volumes[role] = stack.enter_context(joint(map(loop.attach, images)))
        yield volumes


def make_base(lab: Lab, target: LabTarget, small: bool = True) -> BaseImages:
    """Make the filesystem on new disks, a data directory on it, and the tables in that; `small`:
    see `SmallCluster`. Raises SetupNotInForce.
    """
    engine = ENGINES[target.engine.name]
    base = lab.disks("base", target)

    # The server's settings: without the sizes of a small cluster if it is not one.
    of_small = engine.PROFILE.lab_cluster
    cluster = of_small if small else SmallCluster()
    settings = dict(target.settings)
    for name in of_small.settings:
        settings.pop(name, None)
    for name, value in cluster.settings.items():
        settings[name] = Setting(value, "lab")
    target = replace(target, settings=settings)
    template = _template(lab, target, cluster)

    # New images, sparse until mkfs writes to them.
    for image in files_of(base):
        image.unlink(missing_ok=True)
        with image.open("xb") as file:
            os.truncate(file.fileno(), IMAGE_BYTES)
    with phase("prepare"), attach(base) as volumes, contextlib.ExitStack() as stack:
        for role, setup in target.setups.items():
            filesystems.make(setup, volumes[role], lab.journal)
        mounts: dict[Role, Mounted] = {}
        for role, setup in target.setups.items():
            to = MountPoint(lab.workdir.mount_point(role), lab.journal, stays=True)
            opened = filesystems.family_of(setup).open(setup, volumes[role], to)
            mounts[role] = stack.enter_context(opened)
            filesystems.check_promise(setup, mounts[role])

        # The data directory, and the server's state after a first start.
        fs = mounts["data"]
        datadir = filesystems.data_directory(target.setup, fs)
        filesystems.apply_attributes(target.setup, datadir)
        process.run(["cp", "-a", "--reflink=never", f"{template}/.", datadir], timeout_s=120)
        filesystems.verify_files(target.setup, engine.data_files(datadir))
        place = move_log(
            target.setups,
            mounts,
            engine,
            datadir,
            lab.workdir.place(target.engine),
        )
        with engine.serving(datadir, target.settings, place) as server:
            effective = server.effective_settings()
            version = server.version
            check_log(engine, datadir, place, effective)
            server.settle()

        # What filesystem and server guarantee together.
        tears = fs.tears_pages_of(durability.page_bytes(effective))
        # ZFS writes a record as a whole
        killed_tears = Durability.TORN_PAGES if fs.record_bytes is None else tears
        promised = durability.combined(*(mount.flags for mount in mounts.values()))
        reports = partial(filesystems.family_in(fs).reports, fs.options_effective)

        def flags_of(tears: Durability | None) -> tuple[Durability, ...]:
            by_server = durability.of_server(
                engine.durability,
                effective,
                durability.Storage(tears, reports),
                engine.PROFILE.restores_pages,
            )
            return durability.combined(promised, by_server.flags)

    for image in files_of(base):  # mkfs writes zeros, which each cut would copy
        process.run(["fallocate", "--dig-holes", image])
    return BaseImages(
        target,
        base,
        place,
        flags_of(tears),
        flags_of(killed_tears),
        version,
        fs,
    )


def _template(lab: Lab, target: LabTarget, cluster: SmallCluster) -> Path:
    """Return a data directory of that server with the witness's tables, made once per lab."""
    engine = ENGINES[target.engine.name]
    place = lab.workdir.place(target.engine)
    name = f"template-{target.engine.name}-{abs(hash((target.engine.bin, cluster.creation)))}"
    folder = lab.scratch / name
    if not folder.exists():
        making = lab.scratch / f"{name}.making"
        process.run(["rm", "-rf", making])
        with phase("prepare"):
            engine.create(making, place, *cluster.creation)
            with engine.serving(making, target.settings, place) as server:
                execute(server, *cluster.statements)
                witness.create_tables(server)
                server.settle()
        making.rename(folder)
    return folder


@contextlib.contextmanager
def mount(lab: Lab, target: LabTarget, volumes: Volumes) -> Iterator[Path]:
    """Yield the data directory on the target's mounted filesystems. Raises MountFailed,
    UnmountFailed.
    """
    stack = contextlib.ExitStack()
    try:
        with phase("mount"):
            for role, setup in target.setups.items():
                family = filesystems.family_of(setup)
                path = lab.workdir.mount_point(role)
                stack.enter_context(family.mounted_again(setup, volumes[role], path, lab.journal))
        yield lab.workdir.mount / "data"
    finally:
        with phase("umount"):
            stack.close()


@contextlib.contextmanager
def mounted(lab: Lab, base: BaseImages, disks: Images) -> Iterator[Path]:
    """Yield the data directory on these disks within the block. Raises as `mount`."""
    with attach(disks) as volumes, mount(lab, base.target, volumes) as datadir:
        yield datadir


@contextlib.contextmanager
def serving(
    lab: Lab,
    base: BaseImages,
    datadir: Path,
    clean: bool = False,
) -> Iterator[Server]:
    """Run the target's server within the block; then kill it with all its processes, or stop it if
    `clean`.
    """
    settings = base.target.settings
    with contextlib.suppress(Killed), contextlib.ExitStack() as stack:
        with starting(lab.server_log):
            server = stack.enter_context(base.engine.serving(datadir, settings, base.place))
        yield server
        if not clean:
            kill(server)
            raise Killed
        with phase("stop"):
            stack.close()


def kill(server: Server) -> None:
    """Kill the server's first process with SIGKILL; its other processes end with its block."""
    # the pid of a server that has ended may be of another process
    if server.pid is not None and server.alive():
        os.kill(server.pid, signal.SIGKILL)


@contextlib.contextmanager
def starting(
    log: Path,
    deadline_s: float = DEADLINES_S["start"],
    poll_s: float = POLL_S,
) -> Iterator[None]:
    """Run the phase in which a server starts; end it early if the log says that a page cannot be
    read.
    """

    def look_for_unreadable_pages() -> None:
        with contextlib.suppress(OSError):
            unreadable = _UNREADABLE.search(log.read_text(errors="replace"))
            if unreadable:
                text = f"it does not answer, and its log contains: {unreadable[0]}"
                raise errors.EngineStartFailed(text)

    with phase("start", look_for_unreadable_pages, deadline_s, poll_s):
        yield


@contextlib.contextmanager
def phase(
    name: str,
    look: Callable[[], None] = lambda: None,
    deadline_s: float | None = None,
    poll_s: float = POLL_S,
) -> Iterator[None]:
    """Raise DeadlinePassed in the block if it exceeds the deadline, by default that of its phase.
    Main thread only; phases do not nest. `look` is called every `poll_s`, and may raise an error
    that ends the phase early.
    """
    limit_s = DEADLINES_S[name] if deadline_s is None else deadline_s
    began = time.monotonic()

    def poll(_number: int, _frame: FrameType | None) -> None:
        if process.overdue(began, limit_s):
            raise errors.DeadlinePassed(f"{name} took longer than {limit_s:.0f} s")
        look()

    before = signal.signal(signal.SIGALRM, poll)
    signal.setitimer(signal.ITIMER_REAL, poll_s, poll_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def recover(
    lab: Lab,
    base: BaseImages,
    disks: Images,
    acknowledged: Mapping[int, int],
    quick: bool = False,
    also: HarmsOf = lambda _: {},
) -> Recovery:
    """Recover the disks and check them; `quick` omits checks that cannot clear a harmed cut (for
    controls), `also` returns more harms of the running server. A phase that exceeded its
    deadline, or a failed unmount or detach, is a fault of the lab: the result is invalid.
    """
    began = time.monotonic()
    harms = dict[str, str]()
    count = sum(acknowledged.values())
    recovery = Recovery(count)
    lab.server_log.unlink(missing_ok=True)  # the new log must be of this recovery only
    try:
        with attach(disks) as volumes:
            try:
                with mount(lab, base.target, volumes) as datadir:
                    recovery = _start_and_check(lab, base, datadir, acknowledged, also)
            except errors.MountFailed as error:
                harms["unrecovered"] = f"mount: {error}"
                recovery = Recovery(count, count)
            if not quick and not harms and not recovery.harms:
                check_filesystem(lab, base, volumes, harms)
    except (errors.DbbenchError, OSError) as error:
        if stopping(error):
            raise
        # a device may still use it, so that the next cut must be another file
        for image in files_of(disks):
            image.unlink(missing_ok=True)
        recovery = Recovery(count, invalid=f"{type(error).__name__}: {error}")
        harms = {}
    seconds = time.monotonic() - began
    return replace(recovery, harms={**recovery.harms, **harms}, seconds=seconds)


def _start_and_check(
    lab: Lab,
    base: BaseImages,
    datadir: Path,
    acknowledged: Mapping[int, int],
    also: HarmsOf,
) -> Recovery:
    engine = base.engine
    damaged = set[str]()
    try:
        with serving(lab, base, datadir, clean=True) as server:
            recovery = check_server(server, acknowledged, also)
            damaged = recovery.harms.keys() - {"lost", "schema"}
            # A clean stop takes MySQL a second longer than to write its pages. A damaged server may
            # be unable to do either.
            if engine.PROFILE.checks_killed and not damaged:
                with phase("stop"):
                    server.settle()
            if engine.PROFILE.checks_killed or damaged:
                kill(server)
                raise Killed
        if isinstance(engine, ChecksData):
            with phase("check"):
                engine.check_pages(datadir, base.target.settings, base.place)
        return recovery
    except errors.DataCorrupt as error:
        return replace(recovery, harms={**recovery.harms, "torn": f"check of every page: {error}"})
    except (errors.EngineStartFailed, errors.EngineDied) as error:
        return recovery if damaged else harm_of_start(error, acknowledged)
    except errors.DbbenchError:
        raise
    # An error of psycopg2 or mysql.connector: the server runs, but cannot read its catalogue.
    except Exception as error:
        failure = errors.EngineStartFailed(f"the server answers with an error: {error}")
        return harm_of_start(failure, acknowledged)


def harm_of_start(error: errors.DbbenchError, acknowledged: Mapping[int, int]) -> Recovery:
    """Return the result for a server that does not start, or that crashes when queried: nothing is
    accessible.
    """
    if not isinstance(error, errors.EngineStartFailed | errors.EngineDied):
        raise error
    count = sum(acknowledged.values())
    harms = {"unrecovered": str(error)}
    torn = list(filter(_TORN.search, str(error).splitlines()))
    if torn:
        harms["torn"] = torn[0].strip()
    return Recovery(count, count, harms)


def check_server(
    server: Server,
    acknowledged: Mapping[int, int],
    also: HarmsOf = lambda _: {},
) -> Recovery:
    """Query a recovered server. Raises DeadlinePassed, or EngineDied if it crashes."""
    count = sum(acknowledged.values())
    harms = dict[str, str]()
    lost = 0
    with phase("look up"), _errors_as_harms(server, "look up", harms), cursor_of(server) as cursor:
        lost = witness.missing(cursor, acknowledged)
        if lost:
            harms["lost"] = f"{lost} of {count} acknowledged commits are missing"
        unequal = witness.unequal(cursor)
        if unequal:
            harms["damaged"] = f"{unequal} balances do not match the ledger"
        harms.update(also(server))
    if any(session < 0 for session in acknowledged):
        what = "look up of changed tables"
        with (
            phase("look up"),
            _errors_as_harms(server, what, harms, "schema"),
            cursor_of(server) as cursor,
        ):
            wrong_tables = witness.wrong_tables(cursor, acknowledged)
            if wrong_tables:
                harms["schema"] = wrong_tables
    engine = ENGINES[server.engine]
    if not harms and isinstance(engine, ChecksData):
        with phase("check"), _errors_as_harms(server, "check", harms):
            engine.check_running(server)
    return Recovery(count, lost, harms)


@contextlib.contextmanager
def _errors_as_harms(
    server: Server,
    what: str,
    harms: dict[str, str],
    kind: str = "damaged",
) -> Iterator[None]:
    try:
        yield
    except errors.DbbenchError as error:
        if not isinstance(error, errors.DataCorrupt):
            raise
        harms[kind] = f"{what}: {error}"
    except Exception as error:  # an error of psycopg2 or mysql.connector
        if not server.alive():
            raise errors.EngineDied(f"the server died during a query ({what}): {error}") from error
        harms["torn" if _TORN.search(str(error)) else kind] = f"{what}: {str(error).strip()}"


def check_filesystem(
    lab: Lab,
    base: BaseImages,
    volumes: Volumes,
    harms: dict[str, str],
    mounted: bool = False,
) -> None:
    """Run the checks that require an unmounted filesystem, or those of a mounted one, which read
    everything again; add what they find as "fsck".
    """
    with phase("fsck"):
        for role, setup in base.target.setups.items():
            datadir = lab.workdir.mount_point(role) / "data"
            stored = Stored(setup, volumes[role], base.fs, datadir, lab.scratch)
            for check in filesystems.family_of(setup).checks:
                if check.mounted != mounted:
                    continue
                try:
                    with hold.lent():
                        check.run(stored)
                except errors.FilesystemDamaged as error:
                    harms["fsck"] = str(error)
