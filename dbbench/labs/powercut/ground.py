"""The filesystem under test: made and filled once, mounted on whatever disks the lab provides, and recovered after a
cut.

Recovering a cut means: mount, start, look up every acknowledged commit, check every page, check the filesystem. Each
phase of the lab's work has its deadline.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, Literal

from dbbench import durability, errors, process
from dbbench.engines import ENGINES
from dbbench.engines.port import ChecksRunning, Place, Server
from dbbench.labs.powercut import witness
from dbbench.labs.powercut.targets import LabTarget
from dbbench.model import Durability, Role
from dbbench.results.journal import Journal
from dbbench.run.record import stopping
from dbbench.run.stages import Volumes
from dbbench.run.stages.log import check_log, move_log
from dbbench.run.workdir import WorkDir
from dbbench.storage import filesystems
from dbbench.storage.devices import hold, loop
from dbbench.storage.devices.port import Device, joint
from dbbench.storage.filesystems import Mounted, MountPoint, Stored

# Size of each sparse disk: large enough that mkfs does not apply its rules for small devices.
IMAGE_BYTES: Final = 2**30
Images = Mapping[Role, tuple[Path, ...]]


# MySQL retries without end if recovery needs a page that cannot be read. It logs lines of this kind.
_UNREADABLE: Final = re.compile(r"\[ERROR\].*(page corruption|[Uu]nable to apply log to corrupted page)")
# An umount that had to write everything took 21 s; a phase that takes longer than these limits hangs.
DEADLINES_S: Final = {
    "prepare": 300.0, "mount": 60.0, "start": 120.0, "look up": 60.0,
    "check": 120.0, "umount": 90.0, "fsck": 120.0,
}  # fmt: skip


POLL_S: Final = 10.0


class Killed(BaseException):
    """Ends the block of a server that is to be killed with SIGKILL; not an Exception, so that no handler catches it."""


@dataclass(frozen=True)
class Lab:
    """The lab's working directories in its namespaces, all in memory."""

    workdir: WorkDir
    journal: Journal

    @property
    def scratch(self) -> Path:
        """Return the directory of images and logs."""
        return self.workdir.scratch

    def disks(self, stem: str, target: LabTarget) -> Images:
        """Return the images of that name for a target's disks."""
        return disks(self.scratch, stem, target)


@dataclass(frozen=True)
class Ground:
    """Disks with the filesystem and the tables of the witness, cleanly unmounted."""

    target: LabTarget
    base: Images
    place: Place  # directories of the server, and of its log if that is not in the data directory
    flags: tuple[Durability, ...]  # computed from what the kernel and the server report
    version: str  # version of the server
    fs: Mounted  # the filesystem after it was made


def disks(folder: Path, stem: str, target: LabTarget) -> Images:
    """Return the image files for the target's disks: STEM.img, or STEM-0.img and so on, and STEM-wal.img for the
    log."""
    numbers = range(target.disks)
    data = tuple(folder / (f"{stem}-{number}.img" if target.disks > 1 else f"{stem}.img") for number in numbers)
    return {role: data if role == "data" else (folder / f"{stem}-wal.img",) for role in target.setups}


def files_of(disks: Images) -> list[Path]:
    """Return the images of all volumes, in the order of the disks' numbers."""
    return [image for images in disks.values() for image in images]


def named(disks: Images, files: Iterable[Path]) -> Images:
    """Return these files in place of the images, in the order of `files_of`."""
    rest = iter(files)
    return {role: tuple(itertools.islice(rest, len(images))) for role, images in disks.items()}


@contextlib.contextmanager
def attached(disks: Images) -> Iterator[dict[Role, Device]]:
    """Attach loop devices over the images of each volume within the block."""
    with contextlib.ExitStack() as stack:
        yield {role: stack.enter_context(joint(map(loop.attached, images))) for role, images in disks.items()}


def prepared(lab: Lab, target: LabTarget) -> Ground:
    """Make the filesystem on new disks, a data directory on it, and the tables in that."""
    engine, base = ENGINES[target.engine.name], lab.disks("base", target)
    template = _template(lab, target)
    for image in files_of(base):
        image.unlink(missing_ok=True)
        with image.open("xb") as file:
            os.truncate(file.fileno(), IMAGE_BYTES)
    with phase("prepare"), attached(base) as volumes:
        for role, setup in target.setups.items():
            filesystems.make(setup, volumes[role], lab.journal)
        with _new(lab, target, volumes) as mounts:
            fs = mounts["data"]
            datadir = filesystems.data_directory(target.setup, fs)
            filesystems.apply_attributes(target.setup, datadir)
            process.run(["cp", "-a", "--reflink=never", f"{template}/.", datadir], timeout_s=120)
            filesystems.verify_files(target.setup, engine.data_files(datadir))
            place = move_log(target.setups, mounts, engine, datadir, lab.workdir.place(target.engine))
            with engine.serving(datadir, target.settings, place) as server:
                effective, version = server.effective_settings(), server.version
                check_log(engine, datadir, place, effective)
                server.settle()
            tears = fs.tears_pages_of(durability.page_bytes(effective))
            promised = durability.combined(*(mount.flags for mount in mounts.values()))
            reports = partial(filesystems.reports_of, fs.family, fs.options_effective)
            flags = durability.combined(promised, durability.of_server(engine.durability, effective, tears, reports)[0])
    return Ground(target, base, place, flags, version, fs)


@contextlib.contextmanager
def _new(lab: Lab, target: LabTarget, volumes: Volumes) -> Iterator[dict[Role, Mounted]]:
    """Mount the new filesystems within the block. Raises SetupNotInForce."""
    with contextlib.ExitStack() as stack:
        mounts: dict[Role, Mounted] = {}
        for role, setup in target.setups.items():
            to = MountPoint(lab.workdir.mount_point(role), lab.journal, stays=True)
            mounts[role] = stack.enter_context(filesystems.family_of(setup).opened(setup, volumes[role], to))
            filesystems.check_claim(setup, mounts[role])
        yield mounts


def _template(lab: Lab, target: LabTarget) -> Path:
    """Return a data directory of that server with the witness's tables, made once per lab."""
    engine, place = ENGINES[target.engine.name], lab.workdir.place(target.engine)
    name = f"template-{target.engine.name}-{abs(hash(target.engine.bin))}"
    folder = lab.scratch / name
    if not folder.exists():
        making = lab.scratch / f"{name}.making"
        process.run(["rm", "-rf", making])
        with phase("prepare"):
            engine.create(making, place)
            with engine.serving(making, target.settings, place) as server:
                witness.made(server)
                server.settle()
        making.rename(folder)
    return folder


@contextlib.contextmanager
def mounted(lab: Lab, target: LabTarget, volumes: Volumes) -> Iterator[Path]:
    """Mount the target's existing filesystems within the block; yield the data directory.

    Raises MountFailed, UnmountFailed.
    """
    again = contextlib.ExitStack()
    try:
        with phase("mount"):
            for role, setup in target.setups.items():
                family, at = filesystems.family_of(setup), lab.workdir.mount_point(role)
                again.enter_context(family.mounted_again(setup, volumes[role], at, lab.journal))
        yield lab.workdir.mount / "data"
    finally:
        with phase("umount"):
            again.close()


@contextlib.contextmanager
def serving(lab: Lab, ground: Ground, datadir: Path) -> Iterator[Server]:
    """Run the target's server within the block; then kill it with all its processes."""
    target, engine = ground.target, ENGINES[ground.target.engine.name]
    with contextlib.suppress(Killed), contextlib.ExitStack() as stack:
        with phase("start", lambda: _hopeless(lab.workdir.logs / "server.log")):
            server = stack.enter_context(engine.serving(datadir, target.settings, ground.place))
        yield server
        end(server)
        raise Killed


def end(server: Server) -> None:
    """Kill the server's first process with SIGKILL; its other processes end with its block."""
    if server.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)


def _hopeless(log: Path) -> None:
    """Raise EngineStartFailed if a starting server has reported unreadable pages."""
    with contextlib.suppress(OSError):
        if unreadable := _UNREADABLE.search(log.read_text(errors="replace")):
            raise errors.EngineStartFailed(f"it does not answer, and its log contains: {unreadable[0]}")


@contextmanager
def phase(name: str, hopeless: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise DeadlinePassed in the block if it exceeds the deadline of its phase. Main thread only; phases do not nest.

    `hopeless` is called every POLL_S, and may raise an error that ends the phase early.
    """
    until = time.monotonic() + DEADLINES_S[name]

    def passed(_number: int, _frame: FrameType | None) -> None:
        if time.monotonic() >= until:
            raise errors.DeadlinePassed(f"{name} took longer than {DEADLINES_S[name]:.0f} s")
        hopeless()

    before = signal.signal(signal.SIGALRM, passed)
    signal.setitimer(signal.ITIMER_REAL, POLL_S, POLL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


Harm = Literal["lost", "torn", "damaged", "unrecovered", "fsck"]
# Messages of PostgreSQL and InnoDB about a torn page, whose halves were written at different times.
_TORN: Final = re.compile(
    r"invalid page in block|page verification failed|checksum|[Cc]orrupt|Unable to read page|page_cleaner|"
    r"[Ii]nput/output error|could not read block",
)


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery. `lost`: acknowledged commits that are missing. `harms` {}: nothing is missing."""

    acknowledged: int
    lost: int = 0
    harms: dict[str, str] = field(default_factory=dict)  # kind -> evidence
    invalid: str = ""  # why the cut cannot be judged; `harms` is then empty
    seconds: float = 0.0


def recovered(
    lab: Lab, ground: Ground, disks: Images, acknowledged: Mapping[int, int], quick: bool = False
) -> Recovery:
    """Recover the disks and check them. `quick`: omit checks that cannot clear a harmed cut (for controls).

    A phase that exceeded its deadline, or a failed unmount or detach, makes the finding invalid: that is a fault of the
    lab, not of the filesystem.
    """
    began, harms, count = time.monotonic(), dict[str, str](), sum(acknowledged.values())
    recovery = Recovery(count)
    (lab.workdir.logs / "server.log").unlink(missing_ok=True)  # the new log must be of this recovery only
    try:
        with attached(disks) as volumes:
            try:
                with mounted(lab, ground.target, volumes) as datadir:
                    recovery = _served(lab, ground, datadir, acknowledged)
            except errors.MountFailed as error:
                harms["unrecovered"] = f"mount: {error}"
                recovery = Recovery(count, count)
            if not quick and not harms and not recovery.harms:
                with phase("fsck"):
                    _fsck(lab, ground, volumes, harms)
    except (errors.DbbenchError, OSError) as error:
        if stopping(error):
            raise
        return Recovery(count, invalid=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
    return Recovery(count, recovery.lost, {**recovery.harms, **harms}, "", time.monotonic() - began)


def _served(lab: Lab, ground: Ground, datadir: Path, acknowledged: Mapping[int, int]) -> Recovery:
    try:
        with serving(lab, ground, datadir) as server:
            return examined(server, acknowledged)
    except (errors.EngineStartFailed, errors.EngineDied) as error:
        return harm_of_start(error, acknowledged)
    except errors.DbbenchError:
        raise
    # An error of psycopg2 or mysql.connector: the server runs, but cannot read its catalogue.
    except Exception as error:
        return harm_of_start(errors.EngineStartFailed(f"the server answers with an error: {error}"), acknowledged)


def harm_of_start(error: errors.DbbenchError, acknowledged: Mapping[int, int]) -> Recovery:
    """Return the finding for a server that does not start, or that crashes when queried: nothing is accessible."""
    if not isinstance(error, errors.EngineStartFailed | errors.EngineDied):
        raise error
    count, evidence = sum(acknowledged.values()), str(error)
    harms = {"unrecovered": evidence, **({"torn": evidence} if _TORN.search(evidence) else {})}
    return Recovery(count, count, harms)


def examined(server: Server, acknowledged: Mapping[int, int]) -> Recovery:
    """Query a recovered server. Raises DeadlinePassed, or EngineDied if it crashes."""
    count, harms, lost = sum(acknowledged.values()), dict[str, str](), 0
    with phase("look up"), _told(server, "look up", harms):
        lost = witness.missing(server, acknowledged)
        if lost:
            harms["lost"] = f"{lost} of {count} acknowledged commits are missing"
        if wrong := witness.unequal(server):
            harms["damaged"] = f"{wrong} balances do not match the ledger"
    if not harms:
        with phase("check"), _told(server, "check", harms):
            engine = ENGINES[server.engine]
            assert isinstance(engine, ChecksRunning)
            engine.check_running(server)
    return Recovery(count, lost, harms)


@contextlib.contextmanager
def _told(server: Server, what: str, harms: dict[str, str]) -> Iterator[None]:
    """Convert the server's errors in the block into harms with its message."""
    try:
        yield
    except errors.DataCorrupt as error:
        harms["torn" if _TORN.search(str(error)) else "damaged"] = f"{what}: {error}"
    except errors.DbbenchError:
        raise
    except Exception as error:  # an error of psycopg2 or mysql.connector
        if not server.alive():
            raise errors.EngineDied(f"the server died during a query ({what}): {error}") from error
        harms["torn" if _TORN.search(str(error)) else "damaged"] = f"{what}: {str(error).strip()}"


def _fsck(lab: Lab, ground: Ground, volumes: Volumes, harms: dict[str, str]) -> None:
    """Run the checks that require an unmounted filesystem; a scrub reads again what the server has read."""
    for role, setup in ground.target.setups.items():
        datadir = lab.workdir.mount_point(role) / "data"
        stored = Stored(setup, volumes[role], ground.fs, datadir, lab.scratch)
        for check in filesystems.family_of(setup).checks:
            if not check.mounted:
                try:
                    with hold.lent():
                        check.run(stored)
                except errors.FilesystemDamaged as error:
                    harms["fsck"] = str(error)
