"""Faults during a real trial: none of these trials is marked ok (docs/dev/faults.md lists all
faults).
"""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.storage.devices.directory import disk_below
from dbbench.storage.filesystems import common
from tests.conftest import engine_bin
from tests.support.leftovers import GONE_S, left_of
from tests.support.plans import plan
from tests.support.planted_faults import dying_thread, without_column
from tests.support.window_faults import (
    FAULTS,
    QUICK,
    foreign_writer,
    images,
    kill_trial,
    mount_of,
    within,
)

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")

SERVER = {"name": "postgres", "settings": {"shared_buffers": "16MB"}}
SIZE = {"size": "384MiB"}


def rows() -> list[Any]:
    """All names; those that are for the soak alone are marked."""
    return [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in FAULTS
    ]


# What a trial never has whose processes and server belong to it alone, on however busy a machine.
# W018 is not among it: other tests make swap, which every trial of the machine notices.
UNDISTURBED = {"W023", "W128", "W129", "W132", "W133", "W135"}


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Twice as many programs as there are CPUs take all that they get."""
    burners = [
        subprocess.Popen(["sh", "-c", "while :; do :; done"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Cause I/O errors on an unrelated loop device, whose file is truncated."""
    (image := folder / "theirs").touch()
    os.truncate(image, 2**24)
    loop = subprocess.run(
        ["losetup", "-f", "--show", image],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    os.truncate(image, 0)
    try:
        subprocess.run(
            ["dd", f"if={loop}", "of=/dev/null", "bs=4k", "count=64"],
            capture_output=True,
            check=False,
        )
        yield
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)


@pytest.mark.needs("nsenter", "mkfs.xfs", "fs:xfs")
@pytest.mark.parametrize("name", rows())
def test_a_fault_in_mid_window_is_not_a_good_trial(name: str, dbbench: Any) -> None:
    """The trial is marked as the fault's row says, and everything is released."""
    setup, plant, marks, ids = FAULTS[name]
    dbbench.plan(plan(setup, SERVER, measure="6s", device=SIZE))

    def do(pid: int) -> None:
        images[:] = list((dbbench.folder / "results/r").glob(".dbbench-*.img"))
        plant(pid)

    status, said = dbbench.run_and("plan.toml", dbbench.in_window, do)
    (trial,) = dbbench.trials().values()
    told = {warning["id"] for warning in trial["warnings"]} | (
        {trial["error"]["id"]} if trial["error"] else set()
    )
    assert trial["status"] in marks.split(), (trial["status"], told)
    assert told & ids, (told, trial["error"])
    assert status == (1 if trial["status"] == "failed" else 0), said[-2000:]
    assert left_of(dbbench.folder, within_s=GONE_S) == []


@pytest.fixture
def umask_000() -> Iterator[None]:
    """A shell that lets everybody write."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask_000")
@pytest.mark.long
def test_a_killed_trial_is_run_again_by_the_same_command(dbbench: Any) -> None:
    """The first command exits with 1 (E348), the second with 0; neither leaves a file that others
    can write.
    """
    dbbench.plan(plan(engine=SERVER, device=SIZE))
    status, said = dbbench.run_and("plan.toml", dbbench.in_window, kill_trial)
    (trial,) = dbbench.trials().values()
    assert (status, trial["error"]["id"]) == (1, "E348"), said[-2000:]
    dbbench("run", "plan.toml", "--name", "r", "--quiet")
    ((name, trial),) = dbbench.trials().items()
    assert (
        trial["error"] is None
        and (dbbench.folder / "results/r/set-aside/E348" / name / "trial.json").exists()
    )
    everything = [dbbench.folder / "results", *(dbbench.folder / "results").rglob("*")]
    assert [
        path for path in everything if path.lstat().st_mode & 0o022 and not path.is_symlink()
    ] == []


@pytest.mark.parametrize("disappears", ["removed", pytest.param("renamed", marks=pytest.mark.soak)])
def test_a_results_folder_that_disappears_is_an_error(disappears: str, dbbench: Any) -> None:
    """E804 and exit 2; the folder is not made again, half empty."""
    dbbench.plan(plan(engine=SERVER, device=SIZE))
    folder = dbbench.folder / "results/r"

    def do(_pid: int) -> None:
        if disappears == "renamed":
            folder.rename(folder.with_name("elsewhere"))
            return
        # The run may add a file while they are removed.
        process.wait_while(
            lambda: (shutil.rmtree(folder, ignore_errors=True), folder.exists())[1],
            10,
            0.0,
        )

    status, said = dbbench.run_and("plan.toml", dbbench.in_window, do)
    assert status == 2 and "E804" in said, said[-2000:]
    assert not folder.exists()
    assert left_of(dbbench.folder, within_s=GONE_S) == []


@pytest.mark.soak
@pytest.mark.needs("nsenter")
def test_heat_in_the_window_makes_the_trial_suspect(dbbench: Any) -> None:
    """The counters of a processor, as x86 has them, rise from 3 to 7 in the window (W015)."""
    dbbench.plan(plan(engine=SERVER, device=SIZE))
    (folder := dbbench.folder / "cpu0/thermal_throttle").mkdir(parents=True)
    (count := folder / "core_throttle_count").write_text("3\n")
    later = threading.Timer(2.5, lambda: count.write_text("7\n"))

    def do(pid: int) -> None:
        within(pid, "mount", "--bind", str(folder.parent), "/sys/devices/system/cpu/cpu0")
        later.start()

    status, said = dbbench.run_and(
        "plan.toml",
        lambda e: e["kind"] == "phase_begin" and e["phase"] == "warmup",
        do,
    )
    (trial,) = dbbench.trials().values()
    told = {warning["id"]: warning["text"] for warning in trial["warnings"]}
    assert (status, trial["status"]) == (0, "suspect"), said[-2000:]
    assert "4 times" in told["W015"]


def intrude(folder: Path) -> None:
    """Write 128 MiB through the page cache to the device, and remove them, as another program
    would.
    """
    file = folder / "theirs"
    write = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=128", "conv=fsync"]
    subprocess.run(write, check=True, capture_output=True)
    file.unlink()


@pytest.mark.alone  # of what others write, the traffic of all other disks does not count
@pytest.mark.parametrize("kind", ["loop", "dir"])
def test_io_of_others_on_the_filesystem_under_test_is_noticed(
    kind: str,
    dbbench: Any,
    tmp_path: Path,
) -> None:
    """Another process fills and frees space within the filesystem under test: W127, and no write
    amplification.
    """
    device: dict[str, Any] = {"size": "768MiB"}
    family = "ext4"
    # accounts of servers cannot enter pytest's directories
    target = Path(tempfile.mkdtemp(dir="/var/tmp"))
    if kind == "dir":
        if disk_below(dbbench.folder) is None:
            pytest.skip("the kernel does not name a disk below the folder of the tests")
        target.chmod(0o755)
        family = common.mount_of(target).fstype
        device = {"kind": "dir", "paths": {family: str(target)}}
    dbbench.plan(plan(family, engine=SERVER, device=device, measure="4s"))

    def do(pid: int) -> None:
        intrude(mount_of(pid) if kind == "loop" else tmp_path)

    status, printed = dbbench.run_and("plan.toml", dbbench.in_window, do)
    target.rmdir()  # fails if the run left something in it
    (trial,) = dbbench.trials().values()
    assert (status, trial["status"]) == (0, "suspect"), printed[-2000:]
    texts = [warning["text"] for warning in trial["warnings"] if warning["id"] == "W127"]
    assert any("filesystem under test" in text for text in texts), texts
    assert trial["io"]["write_amplification"] is None


@pytest.mark.alone  # what other tests write in the window is W127, too
@pytest.mark.parametrize("in_window", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_io_below_the_image_counts_if_others_write_in_the_window(
    in_window: bool, dbbench: Any
) -> None:
    """Another process writes to the same disk: in the window (W127), or before the trial into the page
    cache, which the kernel would write back in the window.
    """
    if disk_below(dbbench.folder) is None:
        pytest.skip("no disk is to be seen below the folder of the tests")
    dbbench.plan(plan(engine=SERVER, device=SIZE))
    theirs = dbbench.folder / "theirs"

    def write_before(event: dict[str, Any]) -> bool:
        if "bare device" in event.get("what", ""):
            subprocess.run(["dd", "if=/dev/zero", f"of={theirs}", "bs=1M", "count=300"], check=True)
        return dbbench.in_window(event)

    def write_back(_pid: int) -> None:
        subprocess.run(["sync", "-f", theirs], check=True)

    status, said = (
        dbbench.run_and("plan.toml", dbbench.in_window, foreign_writer)
        if in_window
        else dbbench.run_and("plan.toml", write_before, write_back)
    )
    (trial,) = dbbench.trials().values()
    assert status == 0, said[-2000:]
    texts = [warning["text"] for warning in trial["warnings"] if warning["id"] == "W127"]
    assert any("disk below" in text for text in texts) == in_window, texts


def test_a_fault_of_somebody_elses_device_marks_nothing(dbbench: Any, tmp_path: Path) -> None:
    """I/O errors of another device in mid-window, and every CPU taken by others: no kernel message
    is this trial's, it has not failed, and nothing of the trial itself stood still or changed.
    """
    dbbench.plan(plan(engine=SERVER, device=SIZE, measure="6s"))

    def do(_pid: int) -> None:
        with beside(tmp_path), busy():
            time.sleep(2)

    # a virtual machine that its host stops has stood still, or its clock has moved
    for _ in range(3):
        status, _ = dbbench.run_and("plan.toml", dbbench.in_window, do)
        (trial,) = dbbench.trials().values()
        assert (status, trial["error"]) == (0, None)
        told = {"W020", *UNDISTURBED} & {warning["id"] for warning in trial["warnings"]}
        if not told:
            break
        shutil.rmtree(dbbench.folder / "results")
    assert not told, trial["warnings"]


def test_a_helper_thread_that_dies_fails_the_trial(
    dbbench: Any,
    nothing_left: None,
    tmp_path: Path,
) -> None:
    """The thread that reads the server's counters raises an error: no figure of that trial
    counts.
    """
    env = {**dbbench.env, **dying_thread(tmp_path / "plant", "counters.jsonl")}
    dbbench.plan(plan(engine=SERVER, device=SIZE))
    done = dataclasses.replace(dbbench, env=env)(
        "run",
        "plan.toml",
        "--name",
        "r",
        "--progress",
        "none",
        status=1,
    )
    (trial,) = dbbench.trials().values()
    assert trial["status"] == "failed"
    assert trial["error"]["id"] == "E350"
    assert 'the thread "counters" ended: RuntimeError: planted' in trial["error"]["text"], (
        done.stderr
    )


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the server's account can enter."""
    with tempfile.TemporaryDirectory(prefix="dbb", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
def test_a_server_whose_view_lacks_a_column_makes_the_trial_suspect(
    dbbench: Any, open_folder: Path
) -> None:
    """W140 names release, view and column; the bytes that the server wrote are unknown, not too
    few.
    """
    programs = engine_bin("postgres")
    assert programs is not None
    bin_ = without_column(programs.resolve(), open_folder / "bin")
    # its data is no golden copy for other tests
    dbbench.env["DBBENCH_CACHE"] = str(dbbench.folder / "cache")
    text = plan(engine={**SERVER, "bin": str(bin_)}, device=SIZE)
    trial = dbbench.trial(text, "--quiet")
    (told,) = [warning["text"] for warning in trial["warnings"] if warning["id"] == "W140"]
    assert trial["status"] == "suspect"
    assert "pg_stat_wal.wal_bytes" in told and f"postgres {trial['engine_version']}" in told
    assert trial["io"]["engine_write_bytes"] is None
