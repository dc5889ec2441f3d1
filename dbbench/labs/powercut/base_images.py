"""The lab's directories and disks, and the filesystem under test on them, which is made and filled
once for each target.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import durability, process
from dbbench.engines import ENGINES
from dbbench.engines.port import Engine, Place, SmallCluster
from dbbench.engines.sql import execute
from dbbench.labs.powercut import MEMORY_BYTES, Lies, witness
from dbbench.labs.powercut.disk_images import UNITS, copy
from dbbench.labs.powercut.phases import phase
from dbbench.labs.powercut.targets import LabTarget
from dbbench.model import Durability, Role, Setting
from dbbench.results.journal import Journal
from dbbench.run.stages.restore import check_log, move_log
from dbbench.run.workdir import WorkDir
from dbbench.storage import filesystems
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import Device, joint
from dbbench.storage.filesystems import Mounted, MountPoint

# Size of each sparse disk: large enough that mkfs does not apply its rules for small devices.
IMAGE_BYTES: Final = 2**30
MOST_PROCESSES: Final = 8  # each keeps up to three images of harmed cuts
Images = Mapping[Role, tuple[Path, ...]]


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

    def copy(self, lab: Lab, stem: str) -> Images:
        """Copy the disks, and return the copies. Raises OSError."""
        return copy_disks(self.images, lab.disks(stem, self.target))


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
        promised = durability.combine(*(mount.flags for mount in mounts.values()))
        reports = partial(filesystems.family_in(fs).reports, fs.options_effective)

        def flags_of(tears: Durability | None) -> tuple[Durability, ...]:
            by_server = durability.of_server(
                engine.durability,
                effective,
                durability.Storage(tears, reports),
                engine.PROFILE.restores_pages,
            )
            return durability.combine(promised, by_server.flags)

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
