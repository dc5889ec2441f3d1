"""Disks in use, for the tests of the guard: each plant uses the disk while its block runs, beside what must be said."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dbbench import process
from dbbench.machine import namespaces

MIB = 2**20
SIZE = 64 * MIB  # bytes
BLKPG = 0x1269


@dataclass(frozen=True)
class Disk:
    """A loop device as a stand-in for somebody's disk."""

    path: Path
    image: Path
    folder: Path  # for mount points and tables

    def digest(self) -> str:
        """Of every byte on it, past all caches."""
        process.run(["blockdev", "--flushbufs", self.path])
        with self.image.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def new_disk(folder: Path, size: int = SIZE) -> Disk:
    """A blank disk; it stays until losetup -d."""
    folder.mkdir(exist_ok=True)
    image = folder / "disk"
    image.touch(0o600)
    os.truncate(image, size)
    name = process.run(["losetup", "--find", "--show", "--partscan", image]).stdout.strip()
    return Disk(Path(name), image, folder)


def mkfs(disk: Disk, *options: str) -> None:
    """An ext4 that writes nothing in the background."""
    process.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", *options, disk.path])


def uuid_of(disk: Disk) -> str:
    """The filesystem's UUID, asked of another tool than the guard's."""
    return process.run(["blkid", "-p", "-s", "UUID", "-o", "value", disk.path]).stdout.strip()


# --- plants: each uses the disk while its block runs -------------------------------------------------


@contextlib.contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """An ext4, read-only."""
    mkfs(disk)
    (point := disk.folder / "mnt").mkdir()
    namespaces.mount(disk.path, point, "ext4", flags=1)  # MS_RDONLY: the kernel writes nothing either
    yield
    namespaces.unmount(point)


@contextlib.contextmanager
def beside(*argv: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has said a line, and runs until the block ends."""
    words = [str(word) for word in argv]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        yield program
        program.communicate()  # closes its stdin


@contextlib.contextmanager
def mounted_elsewhere(disk: Disk) -> Iterator[None]:
    """An ext4 that only another mount namespace sees."""
    mkfs(disk)
    (point := disk.folder / "mnt").mkdir()
    script = 'mount -o ro "$0" "$1" && echo mounted && cat'
    with beside("unshare", "--mount", "--propagation", "private", "sh", "-c", script, disk.path, point):
        yield


@contextlib.contextmanager
def swap(disk: Disk) -> Iterator[None]:
    """A swap area in use."""
    process.run(["mkswap", "-q", disk.path])
    process.run(["swapon", disk.path])
    yield
    process.run(["swapoff", disk.path])


OPEN = "import os, sys; fd = os.open(sys.argv[1], int(sys.argv[2])); print('open', flush=True); sys.stdin.read()"
LOCK = (
    "import fcntl, sys; f = open(sys.argv[1], 'rb'); fcntl.flock(f, 2); print('locked', flush=True); sys.stdin.read()"
)


@contextlib.contextmanager
def opened(disk: Disk) -> Iterator[None]:
    """A plain open."""
    with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDONLY)):
        yield


@contextlib.contextmanager
def opened_exclusively(disk: Disk) -> Iterator[None]:
    """An open with O_EXCL, as mkfs does."""
    with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDONLY | os.O_EXCL)):
        yield


@contextlib.contextmanager
def opened_by_another_name(disk: Disk) -> Iterator[None]:
    """An open through a device node that is gone since."""
    node = disk.folder / "node"
    os.mknod(node, 0o600 | 0o060000, disk.path.stat().st_rdev)
    with beside(sys.executable, "-c", OPEN, node, str(os.O_RDONLY)):
        node.unlink()
        yield


@contextlib.contextmanager
def file_opened(disk: Disk) -> Iterator[None]:
    """The image file opened, as a virtual machine does."""
    with beside(sys.executable, "-c", OPEN, disk.image, str(os.O_RDONLY)):
        yield


@contextlib.contextmanager
def second_loop(disk: Disk) -> Iterator[None]:
    """The same file, by another name, behind another loop device."""
    (name := disk.folder / "hard-link").hardlink_to(disk.image)
    second = process.run(["losetup", "--find", "--show", name]).stdout.strip()
    yield
    process.run(["losetup", "-d", second])


@contextlib.contextmanager
def loop_on_top(disk: Disk) -> Iterator[None]:
    """A loop device over the device."""
    upper = process.run(["losetup", "--find", "--show", disk.path]).stdout.strip()
    yield
    process.run(["losetup", "-d", upper])


def _partition(disk: Disk, verb: int, start: int = 0, length: int = 0) -> None:
    """Add (1) or remove (2) partition 1 in the kernel's list (linux/blkpg.h), as addpart(8) and delpart(8) do, which
    Debian 13 has in no package that every machine has."""
    entry = ctypes.create_string_buffer(struct.pack("=qqi64s64s4x", start, length, 1, b"", b""))
    with disk.path.open("rb") as device:
        fcntl.ioctl(device, BLKPG, struct.pack("@iiiP", verb, 0, len(entry) - 1, ctypes.addressof(entry)))


@contextlib.contextmanager
def partition(disk: Disk) -> Iterator[None]:
    """A partition that nobody uses."""
    _partition(disk, 1, MIB, SIZE // 2)
    yield
    _partition(disk, 2)


@contextlib.contextmanager
def mounted_partition(disk: Disk) -> Iterator[None]:
    """A partition that is mounted."""
    with partition(disk):
        part = Disk(Path(f"{disk.path}p1"), disk.image, disk.folder)
        with mounted(part):
            yield


def in_fstab(line: str) -> Callable[[Disk], AbstractContextManager[None]]:
    """A plant: a filesystem that is not mounted, and that line in fstab."""

    @contextlib.contextmanager
    def plant(disk: Disk) -> Iterator[None]:
        mkfs(disk, "-L", "my data")
        text = line.format(path=disk.path, uuid=uuid_of(disk))
        (disk.folder / "fstab").write_text(f"# a comment\n\nproc /proc proc defaults 0 0\n{text} ext4 noauto 0 0\n")
        yield

    return plant


@contextlib.contextmanager
def swap_file(disk: Disk) -> Iterator[None]:
    """The file behind the device is swap: the loop device itself is held by nobody."""
    with disk.image.open("r+b") as image:
        image.write(bytes(SIZE))  # swap takes no holes
        os.fsync(image.fileno())
    process.run(["mkswap", "-q", disk.image])
    process.run(["swapon", disk.image])
    yield
    process.run(["swapoff", disk.image])


@contextlib.contextmanager
def member_of_mounted_btrfs(disk: Disk) -> Iterator[None]:
    """The second device of a mounted btrfs: mountinfo names the first alone."""
    other = new_disk(disk.folder / "first")
    # Larger than the least that mkfs.btrfs takes for two devices.
    process.run(["mkfs.btrfs", "-q", "-f", "--mixed", "-d", "single", "-m", "single", other.path, disk.path])
    (point := disk.folder / "mnt").mkdir()
    namespaces.mount(other.path, point, "btrfs", flags=1, data=f"device={disk.path}")
    yield
    namespaces.unmount(point)
    process.run(["btrfs", "device", "scan", "--forget", disk.path])
    process.run(["losetup", "-d", other.path])


@contextlib.contextmanager
def used_in_many_ways(disk: Disk) -> Iterator[None]:
    """Mounted, in fstab, opened, and its file behind a second loop device, all at once."""
    with in_fstab("{path} /srv")(disk), second_loop(disk), opened(disk):
        (point := disk.folder / "mnt").mkdir()
        namespaces.mount(disk.path, point, "ext4", flags=1)
        yield
        namespaces.unmount(point)


HELD = "held exclusively"
SAME = "attached to the same data"
# name: (plant, all that must be said of it)
PLANTS: dict[str, tuple[Callable[[Disk], AbstractContextManager[None]], tuple[str, ...]]] = {
    "mounted": (mounted, ("is mounted at", HELD, "ext4")),
    "mounted-in-another-namespace": (mounted_elsewhere, ("in the mount namespace of process", HELD, "ext4")),
    "swap": (swap, ("is swap", HELD, "\n  swap")),
    "swap-file-behind-it": (swap_file, ("is swap", "\n  swap")),
    "member-of-mounted-btrfs": (member_of_mounted_btrfs, (HELD, "btrfs")),
    "plain-open": (opened, ("opened by process",)),
    "exclusive-open": (opened_exclusively, (HELD, "opened by process")),
    "open-by-another-name": (opened_by_another_name, ("opened by process",)),
    "open-file-behind-it": (file_opened, ("opened by process",)),
    "hard-link-behind-another-loop": (second_loop, (SAME,)),
    "loop-on-top": (loop_on_top, (SAME,)),
    "partition": (partition, ("it has the partition",)),
    "mounted-partition": (mounted_partition, ("p1 is mounted at", "it has the partition", HELD)),
    "fstab-path": (in_fstab("{path} /srv"), ("fstab has: /dev/loop", "ext4 'my data'")),
    "fstab-uuid": (in_fstab("UUID={uuid} /srv"), ("fstab has: UUID=",)),
    "fstab-quoted-uuid": (in_fstab('UUID="{uuid}" /srv'), ("fstab has: UUID=",)),
    "fstab-by-uuid": (in_fstab("/dev/disk/by-uuid/{uuid} /srv"), ("fstab has: /dev/disk",)),
    "fstab-label": (in_fstab(r"LABEL=my\040data /srv"), ("fstab has: LABEL=",)),
    "many-ways": (used_in_many_ways, ("is mounted at", "fstab has", "opened by process", SAME, HELD, "ext4 'my data'")),
}
