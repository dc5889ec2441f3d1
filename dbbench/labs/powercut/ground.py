"""The filesystem under test: made and filled once, then mounted on whatever disks the lab provides.

Phases of the lab's work, each with its deadline.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Final

from dbbench import durability, process
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import DeadlinePassed, EngineStartFailed
from dbbench.labs.powercut import witness
from dbbench.labs.powercut.targets import LabTarget
from dbbench.model import Durability, FsSetup
from dbbench.results.journal import Journal
from dbbench.run.job import WorkDir
from dbbench.run.stages import wal
from dbbench.storage import devices, filesystems
from dbbench.storage.devices.port import Device, Images
from dbbench.storage.filesystems import Mounted

IMAGE_BYTES: Final = 2**30  # of each disk; sparse; no mkfs has small-device rules of its own above it that matter here


# MySQL goes on for ever where a page that recovery needs cannot be read; it says so in lines of this kind.
_UNREADABLE: Final = re.compile(r"\[ERROR\].*(page corruption|[Uu]nable to apply log to corrupted page)")
# An umount that had everything to write took 21 s; a phase that takes longer than these hangs.
DEADLINES_S: Final = {
    "prepare": 300.0, "mount": 60.0, "start": 120.0, "look up": 60.0,
    "check": 120.0, "umount": 90.0, "fsck": 120.0,
}  # fmt: skip


POLL_S: Final = 10.0


class Killed(BaseException):
    """Leaves the block of a server that is to end with SIGKILL; not an Exception, so that nothing catches it on the
    way."""


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

    def volumes(self, target: LabTarget, device: Device) -> list[tuple[FsSetup, Device, Path]]:
        """Return setup, device and mount point of the filesystem of the data, and of the log if that has its
        own disk."""
        volumes = [(target.setup, device, self.workdir.mount)]
        if target.log is not None and device.wal is not None:
            volumes.append((target.log, device.wal, self.workdir.wal_mount))
        return volumes


@dataclass(frozen=True)
class Ground:
    """Disks with the filesystem and the tables of the witness, cleanly unmounted."""

    target: LabTarget
    base: Images
    place: Place  # of the server, and of its log where that lies elsewhere than in the data directory
    flags: tuple[Durability, ...]  # computed from what kernel and server say
    version: str  # the server's
    fs: Mounted  # as it was when it was made


def disks(folder: Path, stem: str, target: LabTarget) -> Images:
    """Make image files for the target's disks: STEM.img, or STEM-0.img and so on, and STEM-wal.img for the log."""
    numbers = range(target.disks)
    data = [folder / (f"{stem}-{number}.img" if target.disks > 1 else f"{stem}.img") for number in numbers]
    return Images(tuple(data), folder / f"{stem}-wal.img" if target.log else None)


def prepared(lab: Lab, target: LabTarget) -> Ground:
    """Make the filesystem on new disks, a data directory on it, and the tables in that."""
    engine, base = ENGINES[target.engine.name], lab.disks("base", target)
    template = _template(lab, target)
    for image in base.all:
        image.unlink(missing_ok=True)
        with image.open("xb") as file:
            os.truncate(file.fileno(), IMAGE_BYTES)
    with phase("prepare"), devices.over(base) as device:
        for setup, volume, _ in lab.volumes(target, device):
            filesystems.make(setup, volume, lab.journal)
        with _new(lab, target, device) as fs:
            datadir = filesystems.data_directory(target.setup, fs)
            filesystems.apply_attributes(target.setup, datadir)
            process.run(["cp", "-a", "--reflink=never", f"{template}/.", datadir], timeout_s=120)
            filesystems.verify_files(target.setup, engine.data_files(datadir))
            place, folder = lab.workdir.place(target.engine), filesystems.wal_directory(target.setup, fs)
            if folder is not None:
                place = wal.moved_to(folder, target.log, engine, datadir, place)
            with engine.serving(datadir, target.settings, place) as server:
                effective, version = server.effective_settings(), server.version
                wal.proved(engine, datadir, place, effective)
                server.settle()
            tears = fs.tears_pages_of(durability.page_bytes(effective))
            promised = durability.combined(fs.flags, fs.wal.flags if fs.wal else ())
            flags = durability.combined(promised, engine.durability(effective, tears))
    return Ground(target, base, place, flags, version, fs)


@contextlib.contextmanager
def _new(lab: Lab, target: LabTarget, device: Device) -> Iterator[Mounted]:
    """Mount the new filesystems within the block: that of the data, with that of the log as its `wal`. Raises
    ClaimWrong."""
    with contextlib.ExitStack() as stack:
        mounted_volumes = []
        for setup, volume, mount_point in lab.volumes(target, device):
            fs = stack.enter_context(filesystems.mounted(setup, volume, mount_point, lab.journal, stays=True))
            filesystems.check_claim(setup, fs)
            mounted_volumes.append(fs)
        yield replace(mounted_volumes[0], wal=mounted_volumes[1] if len(mounted_volumes) > 1 else None)


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
def mounted(lab: Lab, target: LabTarget, device: Device) -> Iterator[Path]:
    """Mount the target's existing filesystems on `device` within the block; yield the data directory.

    Raises MountFailed, UnmountFailed.
    """
    again = contextlib.ExitStack()
    try:
        with phase("mount"):
            for volume in lab.volumes(target, device):
                _mount(lab, again, *volume)
        yield lab.workdir.mount / "data"
    finally:
        with phase("umount"):
            again.close()


def _mount(lab: Lab, again: contextlib.ExitStack, setup: FsSetup, device: Device, at: Path) -> None:
    again.enter_context(filesystems.family_of(setup).mounted_again(setup, device, at, lab.journal))


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
    """Send SIGKILL to its process; its other processes end with its block."""
    if server.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)


def _hopeless(log: Path) -> None:
    """Raise EngineStartFailed if a starting server has reported unreadable pages."""
    with contextlib.suppress(OSError):
        if unreadable := _UNREADABLE.search(log.read_text(errors="replace")):
            raise EngineStartFailed(f"it does not answer, and its log has: {unreadable[0]}")


@contextmanager
def phase(name: str, hopeless: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise DeadlinePassed in the block if it exceeds the deadline of its phase. Main thread only; phases do not nest.

    `hopeless` is called every POLL_S, and may raise an error that ends the phase early.
    """
    until = time.monotonic() + DEADLINES_S[name]

    def passed(_number: int, _frame: FrameType | None) -> None:
        if time.monotonic() >= until:
            raise DeadlinePassed(f"{name} took longer than {DEADLINES_S[name]:.0f} s")
        hopeless()

    before = signal.signal(signal.SIGALRM, passed)
    signal.setitimer(signal.ITIMER_REAL, POLL_S, POLL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
