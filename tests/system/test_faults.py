"""Faults that are planted while a real trial runs: none of them ends as a good one (docs/faults.md has all rows)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench.devices.directory import disk_below
from tests.system.leftovers import left_of

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")

PLAN = """
name = "faults"
fs_setups = ["{setup}"]
blocks = 1
warmup = "1s"
measure = "3s"
repeat_suspect = false
[device]
size = "384MiB"
[[engine]]
name = "postgres"
settings = {{ shared_buffers = "16MB" }}
[[workload]]
name = "pgbench-tpcb"
scale = 1
clients = 2
threads = 2
"""
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN (linux/fs.h); 2: without its log


def below(pid: int, name: str) -> psutil.Process:
    """The eldest process of that name below a run."""
    found = [process for process in psutil.Process(pid).children(recursive=True) if process.name() == name]
    return min(found, key=lambda process: process.create_time())


def mount_of(pid: int) -> Path:
    """The filesystem under test, seen through the server's own namespace."""
    return Path(f"/proc/{below(pid, 'postgres').pid}/root/run/dbbench/mnt")


def within(pid: int, *argv: str) -> None:
    """Run a program in the trial's namespace of mounts."""
    subprocess.run(["nsenter", "-t", str(below(pid, "postgres").pid), "-m", *argv], check=True)


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
    loops = [p for p in Path("/sys/block").glob("loop*/loop/backing_file") if p.read_text().strip() == str(images[0])]
    assert loops
    os.truncate(images[0], images[0].stat().st_size // 4)


images: list[Path] = []


def unlink_data(pid: int) -> None:
    """Somebody removes the largest files of the database."""
    files = sorted((mount_of(pid) / "data/base").rglob("*"), key=lambda path: -path.stat().st_size)
    for path in files[:6]:
        os.truncate(path, 0)


def reload_with(line: str) -> Callable[[int], None]:
    """Somebody writes a setting into the server's configuration and has it read."""

    def plant(pid: int) -> None:
        server = below(pid, "postgres")
        config = Path(f"/proc/{server.pid}/root/run/dbbench/mnt/data/postgresql.auto.conf")
        with config.open("a") as file:
            file.write(line + "\n")
        server.send_signal(signal.SIGHUP)

    return plant


def killed(name: str, how: signal.Signals = signal.SIGKILL) -> Callable[[int], None]:
    """A process of the trial gets a signal."""
    return lambda pid: below(pid, name).send_signal(how)


def stand_still(process: psutil.Process, seconds: float) -> None:
    """It is stopped, and goes on."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


def stopped(name: str) -> Callable[[int], None]:
    """A process of the trial is stopped for a second and a half."""
    return lambda pid: stand_still(below(pid, name), 1.5)


def stop_trial(pid: int) -> None:
    """The trial's own process, as a virtual machine that is moved."""
    driving = below(pid, "pgbench").parent()
    assert driving is not None
    stand_still(driving, 5)


def drop_cache(_pid: int) -> None:
    """Somebody drops the machine's page cache."""
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def swap(pid: int) -> None:
    """The machine's own count says that 40 MB went to swap since."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    more = {"pswpout": 10_000}
    told = "".join(f"{name} {int(count) + more.get(name, 0)}\n" for name, count in (line.split() for line in lines))
    (fake := Path(f"/proc/{pid}/cwd").resolve() / "vmstat").write_text(told)
    within(pid, "mount", "--bind", str(fake), "/run/dbbench/host_proc/vmstat")


def kill_trial(pid: int) -> None:
    """The trial's own process, as the kernel does without memory."""
    psutil.Process(pid).children()[0].kill()


def remounted(*options: str) -> Callable[[int], None]:
    """Somebody remounts the filesystem with another option."""
    return lambda pid: within(pid, "mount", "-o", ",".join(("remount", *options)), "/run/dbbench/mnt")


def hypervisor(pid: int) -> None:
    """The machine's own count says that ten seconds of each processor were stolen since (/proc/stat, field 8)."""
    first, _, rest = Path("/proc/stat").read_text().partition("\n")
    fields = first.split()
    fields[8] = str(int(fields[8]) + 10 * (os.cpu_count() or 1) * os.sysconf("SC_CLK_TCK"))
    (fake := Path(f"/proc/{pid}/cwd").resolve() / "stat").write_text(" ".join(fields) + "\n" + rest)
    within(pid, "mount", "--bind", str(fake), "/run/dbbench/host_proc/stat")


def foreign_writer(pid: int) -> None:
    """Somebody writes to the disk below the image, past the page cache, for a second and a half."""
    file = Path(f"/proc/{pid}/cwd").resolve() / "theirs"
    write = ["timeout", "1.5", "dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=2048", "oflag=direct"]
    subprocess.run(write, check=False, capture_output=True)
    file.unlink()


Plant = Callable[[int], None]
# name: (fs setup, what is done in mid-window, the mark, IDs of which one is told)
FAULTS: dict[str, tuple[str, Plant, str, set[str]]] = {
    "filesystem-shut-down": ("ext4", shut_down, "failed", {"E402", "E602", "E304", "E403", "E404", "E347"}),
    "xfs-shut-down": ("xfs", shut_down, "failed", {"E402", "E602", "E304", "E403", "E404", "E347"}),
    "filesystem-full": ("ext4", fill, "failed", {"E305", "E402", "E602", "E403", "E347"}),
    "journal-aborted": ("ext4", remounted("abort"), "failed", {"E304", "E402", "E602", "E404", "E347"}),
    "remounted-without-barriers": ("ext4", remounted("barrier=0"), "failed", {"E304"}),
    "image-cut-off": (
        "ext4",
        truncate,
        "failed suspect",
        {"E402", "E602", "E304", "E403", "E404", "E316", "E347", "W017", "W020"},
    ),
    "data-emptied": ("ext4", unlink_data, "failed", {"E402", "E602", "E403", "E404", "E305", "E347"}),
    "settings-weakened": ("ext4", reload_with("synchronous_commit = off"), "failed suspect", {"E405", "W128"}),
    "load-generator-killed": ("ext4", killed("pgbench"), "failed", {"E601"}),
    "trial-killed": ("ext4", kill_trial, "failed", {"E348"}),
    "server-stopped": ("ext4", stopped("postgres"), "suspect", {"W129"}),
    "load-generator-stopped": ("ext4", stopped("pgbench"), "suspect", {"W129"}),
    "trial-stopped": ("ext4", stop_trial, "suspect", {"W129"}),
    "page-cache-dropped": ("ext4", drop_cache, "suspect", {"W130"}),
    "memory-swapped": ("ext4", swap, "suspect", {"W131"}),
    "time-stolen": ("ext4", hypervisor, "suspect", {"W015"}),
}


# Beside the soak: a filesystem, a disk, a process, a load that stands still.
QUICK = {"xfs-shut-down", "image-cut-off", "trial-killed", "load-generator-stopped"}


def rows() -> list[Any]:
    """All names; those that are for the soak alone are marked."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in FAULTS]


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """A fault of somebody else's device: I/O errors on a loop device whose file was cut."""
    (image := folder / "theirs").touch()
    os.truncate(image, 2**24)
    loop = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True).stdout.strip()
    os.truncate(image, 0)
    try:
        subprocess.run(["dd", f"if={loop}", "of=/dev/null", "bs=4k", "count=64"], capture_output=True, check=False)
        yield
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)


@pytest.mark.needs("nsenter", "mkfs.xfs", "fs:xfs")
@pytest.mark.parametrize("name", rows())
def test_a_fault_in_mid_window_is_no_good_trial(name: str, dbbench: Any) -> None:
    """It is marked as its row says, and all is given back."""
    setup, plant, marks, ids = FAULTS[name]
    dbbench.plan(PLAN.format(setup=setup))

    def do(pid: int) -> None:
        images[:] = list((dbbench.folder / "results/r").glob(".dbbench-*.img"))
        plant(pid)

    status, said = dbbench.run_and("plan.toml", dbbench.in_window, do)
    (trial,) = dbbench.trials().values()
    told = {warning["id"] for warning in trial["warnings"]} | ({trial["error"]["id"]} if trial["error"] else set())
    assert trial["status"] in marks.split(), (trial["status"], told)
    assert told & ids, (told, trial["error"])
    assert status == (1 if trial["status"] == "failed" else 0), said[-2000:]
    assert left_of(dbbench.folder, within_s=2.0) == []


@pytest.mark.soak
@pytest.mark.needs("nsenter")
def test_heat_in_the_window_makes_the_trial_suspect(dbbench: Any) -> None:
    """The counters of a processor, as x86 has them, rise from 3 to 7 in the window (W126)."""
    dbbench.plan(PLAN.format(setup="ext4"))
    (folder := dbbench.folder / "cpu0/thermal_throttle").mkdir(parents=True)
    (count := folder / "core_throttle_count").write_text("3\n")
    later = threading.Timer(2.5, lambda: count.write_text("7\n"))

    def do(pid: int) -> None:
        within(pid, "mount", "--bind", str(folder.parent), "/sys/devices/system/cpu/cpu0")
        later.start()

    status, said = dbbench.run_and("plan.toml", lambda e: e["kind"] == "phase_begin" and e["phase"] == "warmup", do)
    (trial,) = dbbench.trials().values()
    told = {warning["id"]: warning["text"] for warning in trial["warnings"]}
    assert (status, trial["status"]) == (0, "suspect"), said[-2000:]
    assert "4 times" in told["W126"]


@pytest.mark.soak
def test_foreign_io_below_the_image_makes_the_trial_suspect(dbbench: Any) -> None:
    """Somebody writes to the same disk in the window (W127)."""
    if disk_below(dbbench.folder) is None:
        pytest.skip("no disk is to be seen below the folder of the tests")
    dbbench.plan(PLAN.format(setup="ext4"))
    status, said = dbbench.run_and("plan.toml", dbbench.in_window, foreign_writer)
    (trial,) = dbbench.trials().values()
    assert (status, trial["status"]) == (0, "suspect"), said[-2000:]
    assert "W127" in {warning["id"] for warning in trial["warnings"]}


def test_a_fault_of_somebody_elses_device_marks_nothing(dbbench: Any, tmp_path: Path) -> None:
    """I/O errors of another device in mid-window: no kernel message is this trial's, and it has not failed."""
    dbbench.plan(PLAN.format(setup="ext4"))

    def do(_pid: int) -> None:
        with beside(tmp_path):
            pass

    status, _ = dbbench.run_and("plan.toml", dbbench.in_window, do)
    (trial,) = dbbench.trials().values()
    assert (status, trial["error"]) == (0, None)
    assert not {"W020", "W125"} & {warning["id"] for warning in trial["warnings"]}
