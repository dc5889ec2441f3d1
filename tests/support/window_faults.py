"""Faults that are planted in the window of a real trial, and what dbbench says of each."""

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.support.leftovers import below, loops_of

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
    # the helper that asks filesystems is older
    max(server.children(), key=psutil.Process.create_time).kill()


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
