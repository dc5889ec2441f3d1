"""The input of a trial's process: its cell, folders, permission to format a device, and load generator's host."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from dbbench.engines import ENGINES
from dbbench.engines.port import Engine, Place
from dbbench.machine.limits import Confined, confined
from dbbench.metrics.series import Clock
from dbbench.model import Cell, EngineSpec, FsSetup, Role, Run, Settings
from dbbench.model.events import Emit
from dbbench.plan.server_settings import settings_of
from dbbench.remote import Client
from dbbench.results.journal import Journal
from dbbench.storage import devices
from dbbench.storage.devices.port import Device


@dataclass(frozen=True)
class WorkDir:
    """The private directory of a trial: a tmpfs of its namespaces, or a temporary directory without root."""

    root: Path
    elsewhere: Path = Path("elsewhere")  # on the disk of the run: the parts of a cluster that are not under test

    @property
    def mount(self) -> Path:
        """Return the mount point of the filesystem under test; not used with kind dir."""
        return self.root / "mnt"

    def mount_point(self, role: Role) -> Path:
        """Return the mount point of a volume."""
        return self.mount if role == "data" else self.root / "wal"

    @property
    def scratch(self) -> Path:
        """Return a directory in memory, for large logs of the load generator that must not be on the device
        under test."""
        return self.root / "scratch"

    @property
    def logs(self) -> Path:
        """Return the directory of the running server's configuration and log; copied into raw/ at the end."""
        return self.root / "logs"

    def make(self) -> None:
        """Make the directories; other accounts, which run servers, can enter them."""
        self.root.chmod(0o755)
        for folder in (self.mount, self.root / "s", self.scratch, self.logs):
            folder.mkdir(exist_ok=True)

    def place(self, engine: EngineSpec) -> Place:
        """Return the place of a server of that engine."""
        return Place(self.root / "s", self.logs, Path(engine.bin) if engine.bin else None)


@dataclass(frozen=True)
class Job:
    """One trial to run: its cell, the directories and devices that it may use, and the receiver of its
    progress events."""

    run: Run
    cell: Cell
    journal: Journal  # journal of the run, not of the trial
    workdir: WorkDir
    emit: Emit
    images: Mapping[Role, tuple[Path, ...]] = field(default_factory=dict)  # only for kind loop
    wipe: tuple[str, ...] = ()  # identities of the devices that may be erased, as the user typed them

    @property
    def setups(self) -> dict[Role, FsSetup]:
        """Return the setup of each volume. The options of an existing directory belong to its owner."""
        if not self.run.plan.device.existing:
            return self.cell.setups
        return {"data": dataclasses.replace(self.cell.setup, layers=(), mount=(), attributes=(), volumes={})}

    @property
    def engine(self) -> Engine:
        return ENGINES[self.cell.engine.name]

    @property
    def has_server(self) -> bool:
        """Whether the engine is a server; otherwise the load works on files."""
        return self.engine.PROFILE.has_server

    @property
    def settings(self) -> Settings:
        return settings_of(self.cell)

    @property
    def place(self) -> Place:
        """Return the location of the server's files outside of its data directory."""
        return self.workdir.place(self.cell.engine)

    @property
    def results(self) -> Path:
        """Return the run's directory."""
        return self.journal.path.parent

    def confined(self) -> AbstractContextManager[Confined]:
        """Return the plan's limits of memory and CPUs for programs that are started in the block."""
        mount_point = self.workdir.root if os.geteuid() == 0 else None
        return confined(self.cell, self.run.name, self.journal, mount_point)


@dataclass(frozen=True)
class RunPermit:
    """The devices whose identity the user typed, and the filesystems that the run's journal records.

    A typed identity permits erasing what was on the device when the command started, which is while `checking` is set.
    Anything that appears later, between two trials, was put there by another process.
    """

    typed: Collection[str]
    journal: Journal
    checking: bool = False

    def wipe(self, identity: str) -> bool:
        return identity in self.typed and (self.checking or not self.journal.erased(identity))

    def made_by_us(self, device: str, uuid: str) -> bool:
        return self.journal.made(device, uuid) or self.journal.making(device)

    def had_by_us(self, device: str) -> bool:
        return self.journal.had(device)

    def note(self, disks: Iterable[Device]) -> None:
        """Record in the journal, before anything is written to them, that these disks may contain dbbench's data."""
        for disk in disks:
            if disk.facts.real and not self.journal.erased(name := devices.identity(disk.path)):
                self.journal.note("had", device=name)


def client_of(job: Job) -> Client | None:
    """Return the client's host of a trial, or None for a local load generator."""
    spec, engine = job.cell.client, job.cell.engine
    if spec is None:
        return None
    version = job.engine.installed(Path(engine.bin) if engine.bin else None)
    return Client(spec, job.cell.workload.driver, version or "", job.workdir.root / "client")


@contextlib.contextmanager
def reached(client: Client | None, place: Place, clock: Clock, raw: Path, scratch: Path) -> Iterator[Place]:
    """Yield the place of a server that the load can reach: on the network for another host, otherwise unchanged."""
    if client is None:
        yield place
        return
    with client.reached(clock, raw, scratch) as network:
        yield dataclasses.replace(place, network=network)
