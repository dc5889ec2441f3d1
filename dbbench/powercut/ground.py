"""The filesystem under test: made and filled once, then mounted on whatever the lab puts below it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import durability, filesystems, process
from dbbench.devices import loop
from dbbench.devices.port import Device
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import EngineStartFailed
from dbbench.filesystems import Mounted, mounting
from dbbench.filesystems.families import POOLED
from dbbench.journal import Journal
from dbbench.model import Durability
from dbbench.parts import Room
from dbbench.powercut import witness
from dbbench.powercut.phases import phase
from dbbench.powercut.targets import Target

IMAGE_BYTES: Final = 2**30  # sparse; no mkfs has small-device rules of its own above it that matter here


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

    def place(self, target: Target) -> Place:
        """Where the target's server lives beside its data."""
        return self.room.place(target.engine)


@dataclass(frozen=True)
class Ground:
    """An image with the filesystem and the tables of the witness on it, cleanly unmounted."""

    target: Target
    base: Path
    flags: tuple[Durability, ...]  # computed from what kernel and server say
    version: str  # the server's
    fs: Mounted  # as it was when it was made


def prepared(lab: Lab, target: Target, base: Path) -> Ground:
    """Make the filesystem in the new file `base`, a data directory on it, and the tables in that."""
    engine, place = ENGINES[target.engine.name], lab.place(target)
    template = _template(lab, target)
    base.unlink(missing_ok=True)
    with base.open("xb") as file:
        os.truncate(file.fileno(), IMAGE_BYTES)
    with phase("prepare"), loop.attached(base) as device:
        filesystems.make(target.setup, device, lab.journal)
        with filesystems.mounted(target.setup, device, lab.room.mount, lab.journal, stays=True) as fs:
            filesystems.check_claim(target.setup, fs)
            datadir = filesystems.data_directory(target.setup, fs)
            filesystems.apply_attributes(target.setup, datadir)
            process.run(["cp", "-a", "--reflink=never", f"{template}/.", datadir], timeout_s=120)
            filesystems.verify_files(target.setup, engine.data_files(datadir))
            with engine.serving(datadir, target.settings, place) as server:
                effective, version = server.effective_settings(), server.version
                server.settle()
            tears = fs.tears_pages_of(durability.page_bytes(effective))
            flags = durability.combined(fs.flags, engine.durability(effective, tears))
    return Ground(target, base, flags, version, fs)


def _template(lab: Lab, target: Target) -> Path:
    """A data directory of that server with the witness's tables, made once a lab."""
    engine, place = ENGINES[target.engine.name], lab.place(target)
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
    """The target's filesystem, which is on `device` already, mounted while the block lasts: its data directory.
    MountFailed, UnmountFailed."""
    at, again = lab.room.mount, contextlib.ExitStack()
    with phase("mount"):
        if target.setup.mkfs.family in POOLED:
            again.enter_context(filesystems.mounted(target.setup, device, at, lab.journal, stays=True))
        else:
            mounting.mount(target.setup, device, at)
            again.callback(mounting.unmount, at, device)
    try:
        yield at / "data"
    finally:
        with phase("umount"):
            again.close()


@contextlib.contextmanager
def serving(lab: Lab, target: Target, datadir: Path) -> Iterator[Server]:
    """The target's server while the block lasts; then it is killed with all its processes, whatever it does."""
    engine = ENGINES[target.engine.name]
    with contextlib.suppress(Killed), contextlib.ExitStack() as stack:
        with phase("start", lambda: _hopeless(lab.room.logs / "server.log")):
            server = stack.enter_context(engine.serving(datadir, target.settings, lab.place(target)))
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
