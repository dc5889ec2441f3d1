"""A throttled device is reported as the limit; unequal settings of the block layer are reported."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.machine.host import tunables
from dbbench.model import DeviceSpec
from dbbench.results import load_ceiling, load_run, save_ceiling
from dbbench.results.at_ceiling import limits_of
from dbbench.results.journal import Journal
from dbbench.run.stages import attach
from dbbench.storage.devices import loop
from dbbench.storage.devices.guard import Permit
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import xfs
from tests.support.plans import plan
from tests.support.runs import small_run
from tests.support.setups import ALL

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")

TWO = ["ext4", {"use": "ext4", "label": "ext4-b"}]
TPCB = {"name": "pgbench-tpcb", "scale": 1, "clients": 4}
BLKIO = Path("/sys/fs/cgroup/blkio")


@contextlib.contextmanager
def limited() -> Iterator[Path]:
    """This process, and what it starts, in a control group of its own: its file of the writes a
    second, by device.
    """
    if not (BLKIO / "blkio.throttle.write_iops_device").exists():
        pytest.skip("needs the blkio controller of cgroup v1 with throttling")
    group = BLKIO / f"dbbench-test-throttle-{os.getpid()}"
    group.mkdir(exist_ok=True)
    home = BLKIO / re.findall(r"^\d+:blkio:/(.*)$", Path("/proc/self/cgroup").read_text(), re.M)[0]
    try:
        (group / "cgroup.procs").write_text("0")
        yield group / "blkio.throttle.write_iops_device"
    finally:
        (home / "cgroup.procs").write_text("0")
        assert not process.wait_while(lambda: _left(group), 60)


def _left(group: Path) -> bool:
    """Remove a control group; return whether the kernel has not yet removed a process that has
    ended.
    """
    with contextlib.suppress(OSError):
        group.rmdir()
    return group.is_dir()


@contextlib.contextmanager
def throttled(iops: int) -> Iterator[None]:
    """This process, and what it starts, gets so many writes a second from any loop device."""
    with limited() as limits:
        for disk in Path("/sys/block").glob("loop*/dev"):
            with contextlib.suppress(OSError):  # another test's device, gone in the meantime
                limits.write_text(f"{disk.read_text().strip()} {iops}")
        yield


def disk_below(folder: Path) -> str:
    """The number (major:minor) of the whole disk that a folder lies on."""
    number = folder.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        pytest.skip("needs the test's folder on a filesystem of one disk")
    whole = device.resolve()
    return ((whole.parent if (whole / "partition").exists() else whole) / "dev").read_text().strip()


def w042(dbbench: Any) -> list[str]:
    """What W042 says of the run's one trial when the run is read."""
    (trial,) = load_run(dbbench.folder / "results/r").trials
    return [warning.text for warning in trial.warnings if warning.id == "W042"]


@pytest.mark.alone
@pytest.mark.needs("fio")
def test_throttled_device_is_reported(dbbench: Any) -> None:
    """A trial that is flat at a configured limit carries W042 with both rates. A second in which
    another process had the CPU or the disk is not flat, so one trial of twelve is enough: half
    of them were flat on a machine whose other core was taken and whose disk was being written.
    """
    dbbench.plan(plan(workload=TPCB, seed=1, measure="5s"))
    for _ in range(12):
        with throttled(150):  # less than even a busy machine writes
            trial = dbbench.trial()
        ceilings = {row["name"]: row["iops"] for row in trial["ceiling"]["rows"]}
        # in 0.1 s each, when all may stand still
        told = ceilings["write_8k"] < 200 < ceilings["read_8k"]
        if told and w042(dbbench):
            break
        shutil.rmtree(dbbench.folder / "results")
    assert told, ceilings
    assert re.search(r"writes constant at 1\d\d(\.\d)? IOPS.* delivers 1\d\d", *w042(dbbench))


@pytest.mark.needs("fio")
def test_free_device_is_not_called_limited(dbbench: Any) -> None:
    """The ceiling stands beside the throughput; a loop file's own scatter is no limit that somebody
    set.
    """
    dbbench.plan(plan(workload=TPCB, seed=1))
    # three seconds may be equal by chance, and near a ceiling that was measured on a busy disk
    for _ in range(3):
        trial = dbbench.trial()
        shown = load_run(dbbench.folder / "results/r").trials[0]
        if w042(dbbench) == [] and shown.summary["ceiling_pct"]:
            break
        shutil.rmtree(dbbench.folder / "results")
    ceiling = load_ceiling(dbbench.folder / "results/r")
    assert ceiling is not None
    assert [row.name for row in ceiling.rows[:2]] == ["write_8k_fdatasync", "write_16k_fdatasync"]
    # two if it exceeded one
    highest = max(row.iops for rows in (ceiling.rows, ceiling.again) for row in rows[:1])
    assert shown.summary["ceiling_pct"] == pytest.approx(
        100 * trial["summary"]["tps"] / highest, rel=0.001
    )
    assert w042(dbbench) == []


@pytest.mark.needs("fio")
def test_a_measurement_that_a_trial_exceeds_is_repeated_after_the_run(dbbench: Any) -> None:
    """The bare device is measured again when the last trial has ended, and the higher value
    counts.
    """
    folder = dbbench.folder / "results/r"

    def lower(_pid: int) -> None:
        """As if the device had been blocked before the run."""
        before = load_ceiling(folder)
        assert before is not None
        save_ceiling(
            folder,
            replace(before, rows=tuple(replace(r, iops=0.1, mb_per_s=0.001) for r in before.rows)),
        )

    dbbench.plan(plan(workload=TPCB, seed=1))
    status, said = dbbench.run_and("plan.toml", dbbench.in_window, lower)
    ceiling = load_ceiling(folder)
    run = load_run(folder)
    assert (status, said.count("measuring the bare device again")) == (0, 1)
    assert ceiling is not None and [row.name for row in ceiling.again] == [
        row.name for row in ceiling.rows
    ]
    assert all(row.iops > 0.1 for row in ceiling.again)  # which was planted
    assert all(exceeded.after is not None for exceeded in run.exceeded)
    assert len(run.exceeded) < len(limits_of(ceiling.rows))
    assert dbbench("run", "plan.toml", "--name", "r").stderr.count("measuring the bare device") == 0


@pytest.mark.alone
@pytest.mark.needs("fio")
def test_a_device_that_slows_down_in_the_window_makes_the_trial_suspect(dbbench: Any) -> None:
    """The disk below the image is throttled for five seconds of the window, as a provider does:
    W106 has the rate and the one before the run.
    """
    dbbench.plan(plan(workload=TPCB, seed=1, measure="10s"))
    with limited() as limits:

        def slow_down(_pid: int) -> None:
            disk = disk_below(dbbench.folder)
            # also slow where others use the disk during the measurement before
            limits.write_text(f"{disk} 5")
            time.sleep(6)
            limits.write_text(f"{disk} 0")

        for _ in range(4):  # W106 needs three whole seconds of iostat and an undisturbed ceiling
            dbbench.run_and("plan.toml", dbbench.in_window, slow_down)
            (trial,) = dbbench.trials().values()
            if told := [warning for warning in trial["warnings"] if warning["id"] == "W106"]:
                break
            shutil.rmtree(dbbench.folder / "results")
    assert told and "the slowest rate before the run:" in told[0]["text"], trial["warnings"]
    assert trial["status"] == "suspect"


@pytest.mark.needs("fs:xfs", "mkfs.xfs")
def test_a_disk_is_erased_with_its_identity_typed_and_changes_of_it_are_named(
    dbbench: Any, image: Path
) -> None:
    """A signature refuses (exit 5, the identity in the remedy); typed as printed, two trials run on
    the disk. Read-ahead and queue length are set during the first, which is suspect, and the two
    arms are distinguished by it in the verdict and first in the environment.
    """
    attach = ["losetup", "--find", "--show", "--direct-io=on", image]
    disk = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    queue = Path("/sys/block", Path(disk).name, "queue")
    before = {queue / name: (queue / name).read_text() for name in ("read_ahead_kb", "nr_requests")}
    try:
        subprocess.run(["mkfs.xfs", "-q", disk], check=True)
        dbbench.plan(plan(TWO, workload=TPCB, seed=1, device={"kind": "block", "path": disk}))
        refused = dbbench("run", "plan.toml", "--name", "r", status=5).stderr
        assert "E106" in refused and "xfs" in refused
        identity = refused.split("--wipe ")[1].split()[0]

        def set_both(_pid: int) -> None:
            (queue / "read_ahead_kb").write_text("16")
            (queue / "nr_requests").write_text("64")

        status, said = dbbench.run_and("plan.toml", dbbench.in_window, set_both, "--wipe", identity)
        assert status == 0, said
    finally:
        for path, value in before.items():  # a loop device keeps what was set
            path.write_text(value)
        subprocess.run(["losetup", "--detach", disk], check=True)
    first, second = sorted(dbbench.trials().values(), key=lambda t: t["position"])
    assert [t["filesystem"]["family"] for t in (first, second)] == ["ext4", "ext4"]
    journal = Journal(dbbench.folder / "results/r/journal.jsonl")
    assert journal.had(identity) and not journal.had("another")
    told = {
        t["id"]: " ".join(w["text"] for w in t["warnings"] if w["id"] == "W018")
        for t in (first, second)
    }
    assert re.search(r"nr_requests: \d+ -> 64.*read_ahead_kb: \d+ -> 16", told[first["id"]])
    assert "-> 64; disk: read_ahead_kb" in told[second["id"]]
    assert first["status"] == "suspect"
    notes = " ".join(note for row in dbbench.compared() for note in row["notes"])
    assert "disk: read_ahead_kb differs" in notes
    page = Path(dbbench.folder, "results/r/report.html").read_text()
    assert page.index("disk: read_ahead_kb") < page.index("mount options effective")


def test_queue_of_a_killed_trial_is_restored(tmp_path: Path) -> None:
    """With what another scheduler changes by itself."""
    image = tmp_path / "image"
    image.write_bytes(bytes(2**20))
    journal = Journal(tmp_path / "journal.jsonl")
    wanted = {"scheduler": "mq-deadline", "nr_requests": 16, "read_ahead_kb": 64}
    with loop.attach(image) as device:
        before = tunables.block_layer(device.leaves)
        killed = tunables.on_disks(device.leaves, wanted, journal)
        killed.__enter__()
        during = tunables.block_layer(device.leaves)
        tunables.give_back(journal)
        after = tunables.block_layer(device.leaves)
    assert {name: during[f"disk: {name}"] for name in wanted} == {
        name: str(value) for name, value in wanted.items()
    }
    assert after == before


def test_a_device_that_grow_adds_has_the_queue_of_the_plan(tmp_path: Path) -> None:
    """It is attached with the others, and restored with them."""
    images = tuple(tmp_path / name for name in ("first", "second"))
    for image in images:
        image.write_bytes(bytes(2**20))
    run = small_run()
    device = DeviceSpec(count=2)
    planned = replace(run.plan, device=device, operations=("grow",))
    cell = replace(run.cells[0], setup=ALL.setup("btrfs"), queue={"read_ahead_kb": 64})
    permit = Permit((), Journal(tmp_path / "journal.jsonl"))
    with attach.attach(planned, cell, {"data": images}, permit) as volumes:
        spare = volumes["data"].spare
        assert spare is not None
        during = tunables.block_layer(spare.leaves)
    assert during["disk: read_ahead_kb"] == "64"
    assert permit.journal.outstanding("queue") == []


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"scheduler": ("none", "fastest")}, "has no scheduler fastest (available: "),
        ({"scheduler": ("none",), "nr_requests": (2048,)}, "without a scheduler, not 2048"),
        ({"nr_of_requests": (64,)}, "has no nr_of_requests"),
        ({"scheduler": ("none",), "read_ahead_kb": (64, 128)}, ""),
    ],
)
def test_settings_that_a_queue_cannot_have_are_known_before_the_run(
    loop_device: Device, wanted: dict[str, tuple[str | int, ...]], problem: str
) -> None:
    """By what the kernel offers for this disk; nothing is changed."""
    before = tunables.block_layer(loop_device.leaves)
    problems = [*tunables.queue_obstacles(loop_device.path.name, wanted)]
    assert len(problems) == bool(problem)
    assert all(problem in text for text in problems)
    assert tunables.block_layer(loop_device.leaves) == before


@pytest.mark.needs("fs:xfs", "mkfs.xfs")
def test_large_sectors_and_an_image_on_a_tmpfs_are_no_disturbance(
    dbbench: Any, tmp_path: Path
) -> None:
    """xfs-16k asks for sectors of 16 KiB, and the loop driver cannot write zeros on a tmpfs."""
    if reason := xfs.FAMILY.lacks(ALL.setup("xfs-16k")):
        pytest.skip(reason)
    memory = tmp_path / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "images", str(memory)], check=True)
    try:
        device = {"size": "320MiB", "at": str(memory)}
        small = {"name": "small-files", "files": 50}
        dbbench.plan(
            plan(
                ["xfs-16k", "ext4"],
                "files",
                small,
                blocks=2,
                device=device,
                warmup="0s",
                measure="1s",
            )
        )
        dbbench("run", "plan.toml", "--name", "r")
        trials = sorted(dbbench.trials().values(), key=lambda t: t["position"])
        assert {t["host_state"]["disk: logical_block_size"] for t in trials} == {"512", "16384"}
        warned = [w["text"] for t in trials for w in t["warnings"] if w["id"] in ("W018", "W020")]
        assert not [text for text in warned if "block_size" in text or "not supported" in text], (
            warned
        )
    finally:
        # The kernel detaches a loop device later if another process has it open.
        assert not process.wait_while(
            lambda: subprocess.run(["umount", str(memory)], check=False).returncode, 60
        )
