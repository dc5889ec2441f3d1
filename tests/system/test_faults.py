"""Faults during a real trial: none of these trials is marked ok (docs/dev/faults.md lists all
faults).
"""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench import process
from dbbench.storage.devices.directory import disk_below
from dbbench.storage.filesystems import common
from tests.conftest import engine_bin
from tests.support.leftovers import GONE_S, below, left_of, loops_of
from tests.support.plans import plan
from tests.support.planted_faults import dying_thread, without_column

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")

SERVER = {"name": "postgres", "settings": {"shared_buffers": "16MB"}}
SIZE = {"size": "384MiB"}
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN (linux/fs.h); 2: without its log


def mount_of(pid: int) -> Path:
    """The filesystem under test, seen through the server's own namespace."""
    return Path(f"/proc/{below(pid, 'postgres')[0].pid}/root/run/dbbench/mnt")


def within(pid: int, *argv: str) -> None:
    """Run a program in the trial's namespace of mounts, with its root."""
    subprocess.run(
        ["nsenter", "-t", str(below(pid, "postgres")[0].pid), "-m", "-r", *argv], check=True
    )


def shut_down(pid: int) -> None:
    """The filesystem shuts down as after an error; its mount line still says rw."""
    fd = os.open(mount_of(pid), os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("=I", 2))
    finally:
        os.close(fd)


def fill(pid: int) -> None:
    """Not a block is left."""
    with contextlib.suppress(OSError), (mount_of(pid) / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**20))


def truncate(pid: int) -> None:
    """The image below is cut to a quarter: its blocks are gone."""
    assert loops_of(images[0])
    os.truncate(images[0], images[0].stat().st_size // 4)


images: list[Path] = []


def unlink_data(pid: int) -> None:
    """Remove the largest files of the database."""
    files = sorted((mount_of(pid) / "data/base").rglob("*"), key=lambda path: -path.stat().st_size)
    for path in files[:6]:
        os.truncate(path, 0)


def reload_with(line: str) -> Callable[[int], None]:
    """Write a setting into the server's configuration and reload it."""

    def plant(pid: int) -> None:
        server = below(pid, "postgres")[0]
        config = Path(f"/proc/{server.pid}/root/run/dbbench/mnt/data/postgresql.auto.conf")
        with config.open("a") as file:
            file.write(line + "\n")
        server.send_signal(signal.SIGHUP)

    return plant


def killed(name: str, how: signal.Signals = signal.SIGKILL) -> Callable[[int], None]:
    """A process of the trial gets a signal."""
    return lambda pid: below(pid, name)[0].send_signal(how)


def stand_still(victim: psutil.Process, seconds: float) -> None:
    """Stop the process, then continue it."""
    victim.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    victim.send_signal(signal.SIGCONT)


def stopped(name: str) -> Callable[[int], None]:
    """A process of the trial is stopped for three seconds: states are read every second, and may be
    read late.
    """
    return lambda pid: stand_still(below(pid, name)[0], 3)


def stop_trial(pid: int) -> None:
    """The trial's own process, as a virtual machine that is moved."""
    driving = below(pid, "pgbench")[0].parent()
    assert driving is not None
    stand_still(driving, 5)


def drop_cache(_pid: int) -> None:
    """Drop the machine's page cache."""
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def swap(pid: int) -> None:
    """The machine's own count says that 40 MB went to swap since."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    more = {"pswpout": 10_000}
    told = "".join(
        f"{name} {int(count) + more.get(name, 0)}\n"
        for name, count in (line.split() for line in lines)
    )
    (fake := Path(f"/proc/{pid}/cwd").resolve() / "vmstat").write_text(told)
    within(pid, "mount", "--bind", str(fake), "/run/dbbench/host_proc/vmstat")


def kill_trial(pid: int) -> None:
    """The trial's own process, as the kernel does without memory."""
    (server,) = psutil.Process(pid).children()
    server.children()[0].kill()


def kill_fork_server(pid: int) -> None:
    """The process that the run's trials are forked from."""
    psutil.Process(pid).children()[0].kill()


def remounted(*options: str) -> Callable[[int], None]:
    """Remount the filesystem with another option."""
    return lambda pid: within(
        pid,
        "mount",
        "-o",
        ",".join(("remount", *options)),
        "/run/dbbench/mnt",
    )


def hypervisor(pid: int) -> None:
    """The machine's own count says that ten seconds of each processor were stolen since
    (/proc/stat, field 8).
    """
    first, _, rest = Path("/proc/stat").read_text().partition("\n")
    fields = first.split()
    fields[8] = str(int(fields[8]) + 10 * (os.cpu_count() or 1) * os.sysconf("SC_CLK_TCK"))
    (fake := Path(f"/proc/{pid}/cwd").resolve() / "stat").write_text(" ".join(fields) + "\n" + rest)
    within(pid, "mount", "--bind", str(fake), "/run/dbbench/host_proc/stat")


def foreign_writer(pid: int) -> None:
    """Write to the disk below the image, without the page cache, for a second and a half."""
    file = Path(f"/proc/{pid}/cwd").resolve() / "theirs"
    write = [
        "timeout",
        "1.5",
        "dd",
        "if=/dev/zero",
        f"of={file}",
        "bs=1M",
        "count=2048",
        "oflag=direct",
    ]
    subprocess.run(write, check=False, capture_output=True)
    file.unlink()


def dd(of: Callable[[], object]) -> Callable[[int], None]:
    """A program opens that, writes its last 4 KiB, calls fsync and closes it: some milliseconds."""

    def plant(_pid: int) -> None:
        last = images[0].stat().st_size // 4096 - 1
        words = [
            "if=/dev/zero",
            f"of={of()}",
            "bs=4096",
            "count=1",
            f"seek={last}",
            "conv=notrunc,fsync",
        ]
        subprocess.run(["dd", *words], check=True, capture_output=True)

    return plant


Plant = Callable[[int], None]
# name: (fs setup, what is done in mid-window, the mark, IDs of which one is told)
FAULTS: dict[str, tuple[str, Plant, str, set[str]]] = {
    "filesystem-shut-down": ("ext4", shut_down, "failed", {"E402", "E601", "E316", "E403"}),
    "xfs-shut-down": ("xfs", shut_down, "failed", {"E402", "E601", "E316", "E403"}),
    "filesystem-full": ("ext4", fill, "failed", {"E305"}),
    "journal-aborted": ("ext4", remounted("abort"), "failed", {"E316", "E402", "E601"}),
    "remounted-without-barriers": ("ext4", remounted("barrier=0"), "failed", {"E316"}),
    "access-times-changed": ("ext4", remounted("strictatime"), "failed", {"E316"}),
    "image-cut-off": (
        "ext4",
        truncate,
        "failed suspect",
        {"E402", "E601", "E316", "E403", "W017", "W020"},
    ),
    "data-emptied": ("ext4", unlink_data, "failed", {"E402", "E601", "E403", "E305"}),
    "settings-weakened": (
        "ext4",
        reload_with("synchronous_commit = off"),
        "failed suspect",
        {"E405", "W128"},
    ),
    "load-generator-killed": ("ext4", killed("pgbench"), "failed", {"E601"}),
    "trial-killed": ("ext4", kill_trial, "failed", {"E348"}),
    "fork-server-killed": ("ext4", kill_fork_server, "failed", {"E348"}),
    "server-stopped": ("ext4", stopped("postgres"), "suspect", {"W129"}),
    "load-generator-stopped": ("ext4", stopped("pgbench"), "suspect", {"W129"}),
    "trial-stopped": ("ext4", stop_trial, "suspect", {"W129"}),
    "page-cache-dropped": ("ext4", drop_cache, "suspect", {"W130"}),
    "device-written": (
        "ext4",
        dd(lambda: f"/dev/{loops_of(images[0])[0]}"),
        "failed suspect",
        {"W127"},
    ),
    "image-written": ("ext4", dd(lambda: images[0]), "failed suspect", {"W127"}),
    "memory-swapped": ("ext4", swap, "suspect", {"W131"}),
    "time-stolen": ("ext4", hypervisor, "suspect", {"W015"}),
}


# Beside the soak: a filesystem, a disk, a process, a load that stands still.
QUICK = {"device-written", "xfs-shut-down", "image-cut-off", "load-generator-stopped"}


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


@pytest.mark.soak
def test_foreign_io_below_the_image_makes_the_trial_suspect(dbbench: Any) -> None:
    """Another process writes to the same disk in the window (W127)."""
    if disk_below(dbbench.folder) is None:
        pytest.skip("no disk is to be seen below the folder of the tests")
    dbbench.plan(plan(engine=SERVER, device=SIZE))
    status, said = dbbench.run_and("plan.toml", dbbench.in_window, foreign_writer)
    (trial,) = dbbench.trials().values()
    assert (status, trial["status"]) == (0, "suspect"), said[-2000:]
    assert "W127" in {warning["id"] for warning in trial["warnings"]}


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
