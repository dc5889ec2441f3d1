"""The filesystem under test: made and filled once, then mounted on whatever the lab puts below it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dbbench import devices, durability, filesystems, process, wal
from dbbench.devices.port import Device, Images
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import EngineStartFailed
from dbbench.filesystems import Mounted, mounting
from dbbench.filesystems.families import POOLED
from dbbench.journal import Journal
from dbbench.model import Durability, FsSetup
from dbbench.parts import Room
from dbbench.powercut import witness
from dbbench.powercut.phases import phase
from dbbench.powercut.targets import Target

IMAGE_BYTES: Final = 2**30  # of each disk; sparse; no mkfs has small-device rules of its own above it that matter here


# MySQL goes on for ever where a page that recovery needs cannot be read; it says so in lines of this kind.
_UNREADABLE: Final = re.compile(r"\[ERROR\].*(page corruption|[Uu]nable to apply log to corrupted page)")


class Killed(BaseException):
    """Leaves the block of a server that is to end with SIGKILL; no `except Exception` on the way takes it."""


@dataclass(frozen=True)
class Lab:
    """Where the lab works: the room of its namespaces, all of it in memory."""

    room: Room
    journal: Journal

    @property
    def scratch(self) -> Path:
        """Images and logs."""
        return self.room.scratch

    def disks(self, stem: str, target: Target) -> Images:
        """The images of that name for a target's disks."""
        return disks(self.scratch, stem, target)

    def volumes(self, target: Target, device: Device) -> list[tuple[FsSetup, Device, Path]]:
        """The filesystem of the data, and that of the log where it has a disk of its own: setup, device, where it is
        mounted."""
        found = [(target.setup, device, self.room.mount)]
        if target.log is not None and device.wal is not None:
            found.append((target.log, device.wal, self.room.wal_mount))
        return found


@dataclass(frozen=True)
class Ground:
    """Disks with the filesystem and the tables of the witness on them, cleanly unmounted."""

    target: Target
    base: Images
    place: Place  # of the server, and of its log where that lies elsewhere than in the data directory
    flags: tuple[Durability, ...]  # computed from what kernel and server say
    version: str  # the server's
    fs: Mounted  # as it was when it was made


def disks(folder: Path, stem: str, target: Target) -> Images:
    """Image files for the target's disks: STEM.img, or STEM-0.img and so on, and STEM-wal.img for the log's."""
    numbers = range(target.disks)
    data = [folder / (f"{stem}-{number}.img" if target.disks > 1 else f"{stem}.img") for number in numbers]
    return Images(tuple(data), folder / f"{stem}-wal.img" if target.log else None)


def prepared(lab: Lab, target: Target) -> Ground:
    """Make the filesystem on new disks, a data directory on it, and the tables in that."""
    engine, base = ENGINES[target.engine.name], lab.disks("base", target)
    template = _template(lab, target)
    for image in base.all:
        image.unlink(missing_ok=True)
        with image.open("xb") as file:
            os.truncate(file.fileno(), IMAGE_BYTES)
    with phase("prepare"), devices.over(base) as device:
        for setup, one, _ in lab.volumes(target, device):
            filesystems.make(setup, one, lab.journal)
        with _new(lab, target, device) as fs:
            datadir = filesystems.data_directory(target.setup, fs)
            filesystems.apply_attributes(target.setup, datadir)
            process.run(["cp", "-a", "--reflink=never", f"{template}/.", datadir], timeout_s=120)
            filesystems.verify_files(target.setup, engine.data_files(datadir))
            place, folder = lab.room.place(target.engine), filesystems.wal_directory(target.setup, fs)
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
def _new(lab: Lab, target: Target, device: Device) -> Iterator[Mounted]:
    """The filesystems that were just made, mounted while the block lasts: that of the data, which has the log's as its
    `wal`. ClaimWrong."""
    with contextlib.ExitStack() as stack:
        found = []
        for setup, one, at in lab.volumes(target, device):
            fs = stack.enter_context(filesystems.mounted(setup, one, at, lab.journal, stays=True))
            filesystems.check_claim(setup, fs)
            found.append(fs)
        yield replace(found[0], wal=found[1] if len(found) > 1 else None)


def _template(lab: Lab, target: Target) -> Path:
    """A data directory of that server with the witness's tables, made once a lab."""
    engine, place = ENGINES[target.engine.name], lab.room.place(target.engine)
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
def mounted(lab: Lab, target: Target, device: Device) -> Iterator[Path]:
    """The target's filesystems, which are on `device` already, mounted while the block lasts: the data directory.
    MountFailed, UnmountFailed."""
    again = contextlib.ExitStack()
    try:
        with phase("mount"):
            for volume in lab.volumes(target, device):
                _mount(lab, again, *volume)
        yield lab.room.mount / "data"
    finally:
        with phase("umount"):
            again.close()


def _mount(lab: Lab, again: contextlib.ExitStack, setup: FsSetup, device: Device, at: Path) -> None:
    if setup.mkfs.family in POOLED:
        again.enter_context(filesystems.mounted(setup, device, at, lab.journal, stays=True))
    else:
        mounting.mount(setup, device, at)
        again.callback(mounting.unmount, at, device)


@contextlib.contextmanager
def serving(lab: Lab, ground: Ground, datadir: Path) -> Iterator[Server]:
    """The target's server while the block lasts; then it is killed with all its processes, whatever it does."""
    target, engine = ground.target, ENGINES[ground.target.engine.name]
    with contextlib.suppress(Killed), contextlib.ExitStack() as stack:
        with phase("start", lambda: _hopeless(lab.room.logs / "server.log")):
            server = stack.enter_context(engine.serving(datadir, target.settings, ground.place))
        yield server
        end(server)
        raise Killed


def end(server: Server) -> None:
    """SIGKILL its process; what it leaves of others is ended with its block."""
    if server.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)


def _hopeless(log: Path) -> None:
    """EngineStartFailed where a server that is still starting has told of pages that it cannot read."""
    with contextlib.suppress(OSError):
        if found := _UNREADABLE.search(log.read_text(errors="replace")):
            raise EngineStartFailed(f"it does not answer, and its log has: {found[0]}")
