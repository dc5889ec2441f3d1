"""Power loss below the results folder, on real filesystems: completed trials survive.

Trials are published on a disk of the power-loss lab. From its log the disk is rebuilt as power
losses would have left it; three of five are aimed at a flush that is not carried out. The tests
make twelve cuts, the soak DBBENCH_SOAK_RESULT_CUTS (120) on each filesystem.
`tests/unit/test_cuts.py` does the same on a model of a disk, which may lose more than these
filesystems do.
"""

import dataclasses
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dbbench import results
from dbbench.errors import ResultDamaged, RunMissing
from dbbench.labs.powercut import disk, disk_images, unavailable
from dbbench.labs.powercut.disk_images import Media, copy
from dbbench.machine import namespaces
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Series
from dbbench.model import (
    Cell,
    Dataset,
    EngineSpec,
    FsSetup,
    Mkfs,
    Plan,
    Run,
    Status,
    Trial,
    TrialSpec,
    Window,
    Workload,
)
from dbbench.results.trials import damage
from dbbench.storage.devices import loop

pytestmark = [
    pytest.mark.needs("root", "mkfs.ext4", "fs:ext4"),
    pytest.mark.skipif(
        unavailable() is not None, reason=f"no disk of the lab's kind: {unavailable()}"
    ),
    pytest.mark.usefixtures("nothing_left"),
]

SIZE = 384 * 2**20  # bytes: as mkfs.xfs wants at least
TRIALS = 24
CUTS = int(os.environ.get("DBBENCH_SOAK_RESULT_CUTS", "120"))
SEED = os.environ.get("DBBENCH_SOAK_SEED", "1")
AIMS: tuple[disk_images.Aim, ...] = (
    "commit",
    "commit",
    "commit",
    "subset",
    "drop",
)  # three of five: a flush not carried out
MKFS = {"ext4": ("mkfs.ext4", "-q"), "xfs": ("mkfs.xfs", "-q"), "btrfs": ("mkfs.btrfs", "-q")}


@dataclasses.dataclass(frozen=True)
class Published:
    """What was published on a disk, and the disk's log of it."""

    base: Path
    log: disk.Log
    run: Run
    done_ns: dict[str, int]  # trial -> when its publishing had returned


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: images are made and thrown away by the dozen."""
    with tempfile.TemporaryDirectory(prefix="dbbench-cuts-", dir="/dev/shm") as folder:
        yield Path(folder)


def a_run() -> Run:
    """A run of so many trials of one cell."""
    workload = Workload("TPC-B", "pgbench", ("postgres",), {"kind": "pgbench"}, name="w")
    cell = Cell(
        "ext4.postgres.w",
        "ext4",
        FsSetup("ext4", Mkfs("ext4"), name="ext4"),
        EngineSpec("postgres"),
        workload,
        {},
        Dataset("pgbench", {"scale": 1}),
        Window("fixed", 1, 2),
    )
    order = tuple(
        TrialSpec(f"ext4.postgres.w-b{n}-a1", "ext4.postgres.w", n, 1, n)
        for n in range(1, TRIALS + 1)
    )
    return Run(
        "r",
        "2026-01-01T00:00:00Z",
        Plan("p", (), (), (), blocks=TRIALS),
        "cafe",
        (cell,),
        order,
    )


@contextmanager
def mounted(image: Path, family: str, at: Path) -> Iterator[Path]:
    """The filesystem in that file, mounted on a loop device."""
    with loop.attach(image) as device:
        namespaces.mount(device.path, at, family)
        try:
            yield at
        finally:
            namespaces.unmount(at)


def published(folder: Path, family: str) -> Published:
    """A run with its trials, published one after the other on a new filesystem on the lab's disk."""
    base = folder / "base.img"
    logged = folder / "log"
    run = a_run()
    (at := folder / "mnt").mkdir()
    logged.mkdir()
    base.touch(0o600)
    os.truncate(base, SIZE)
    subprocess.run([*MKFS[family], base], check=True)
    copy(base, live := folder / "live.img")
    done = dict[str, int]()
    with (
        disk.serve_disks(folder, [live], logged, folder / "disk.log") as (file,),
        mounted(file, family, at),
    ):
        run_folder = results.create_run(at / "results", run, "# plan\n")
        for spec in run.order:
            draft = results.Draft(run_folder, spec.id)
            (draft.raw / "pgbench.out").write_text("tps = 9.5\n" * 5000)
            trial = Trial(
                spec.id,
                run.name,
                "h",
                "ext4",
                "postgres",
                "w",
                spec.block,
                1,
                spec.position,
                Status.OK,
            )
            draft.publish(
                trial,
                Series(3, {"tps": [1.0, 0.0, None]}),
                ["m"] * 3,
                Histogram({500: 3}),
            )
            done[spec.id] = time.monotonic_ns()
    # nothing of libfuse's, and no warning of Python's
    assert (folder / "disk.log").read_text() == ""
    return Published(base, disk.read_log(logged), run, done)


def missed(
    seen: Published,
    family: str,
    folder: Path,
    count: int,
) -> tuple[list[str], Counter[str]]:
    """Make so many cuts and read what each has left: what was finished and is not there whole, and
    the cuts' aims.
    """
    found: list[str] = []
    # While there is something to lose, and up to the last trial: at its unmount xfs overwrites
    # directory blocks in place, and does not mount again where the disk tears one (units of 512
    # bytes).
    span = (seen.log.at(min(seen.done_ns.values())), seen.log.at(max(seen.done_ns.values())))
    cuts = disk_images.choose_cuts(disk_images.Section(seen.log, [span]), count, SEED, AIMS)
    media = Media([seen.base], seen.log, [folder / "medium.img"])
    image = folder / "cut.img"
    for cut in cuts:
        media.cut(cut, [image])
        ns = seen.log.entries[cut.position].ns
        with mounted(image, family, folder / "mnt") as at:
            before = {name for name, done in seen.done_ns.items() if done < ns}
            said = f"{cut.aim} before request {cut.position}, seed {cut.seed}: "
            try:
                there = {trial.id for trial in results.load_run(at / "results/r").trials}
                found += [f"{said}{name} is lost" for name in sorted(before - there)]
                trials = [at / "results/r/trials" / spec.id for spec in seen.run.order]
                found += [
                    f"{said}{trial.name} is damaged"
                    for trial in trials
                    if trial.is_dir() and damage(trial)
                ]
            except (ResultDamaged, RunMissing) as error:
                found.append(f"{said}{error}")
    return found, Counter(cut.aim for cut in cuts)


def test_what_was_finished_stands_power_cuts(memory: Path) -> None:
    """Twelve cuts on ext4, most of them at a flush that is not carried out."""
    found, made = missed(published(memory, "ext4"), "ext4", memory, 12)
    assert found == []
    assert made["commit"] >= 7


def test_without_fsync_the_cuts_lose_it(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: of results that were not fsynced, the same cuts lose some."""
    monkeypatch.setattr("dbbench.results.trials.sync", lambda path: None)
    found, _ = missed(published(memory, "ext4"), "ext4", memory, 12)
    assert found


@pytest.mark.soak
@pytest.mark.needs("mkfs.xfs", "fs:xfs", "mkfs.btrfs", "fs:btrfs")
@pytest.mark.parametrize("family", MKFS)
def test_what_was_finished_stands_many_power_cuts(family: str, memory: Path) -> None:
    """DBBENCH_SOAK_RESULT_CUTS cuts; three of five are aimed."""
    found, made = missed(published(memory, family), family, memory, CUTS)
    assert found == []
    assert made["commit"] >= CUTS * 3 // 5
