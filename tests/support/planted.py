"""Disks in use, for tests of the guards: each plant uses a disk within its block; PLANTS has the
expected messages.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dbbench import process
from dbbench.machine import namespaces
from dbbench.machine.host.proc import text
from dbbench.results.fileio import try_lock
from dbbench.storage.devices import block
from dbbench.storage.devices.port import Device
from tests.support.permit import Permit

MIB = 2**20
SIZE = 64 * MIB  # bytes
SWAP_KIB = 40  # of the smallest swap area, with its first page
BLKPG = 0x1269


@dataclass(frozen=True)
class Disk:
    """A loop device in place of a user's disk."""

    path: Path
    image: Path
    folder: Path  # for mount points and other files of a plant

    def digest(self) -> str:
        """Return the SHA-256 of all its bytes, after writing all caches; without the pages of a swap
        area, which the kernel writes when memory is short.
        """
        process.run(["blockdev", "--flushbufs", self.path])
        with self.image.open("rb") as file:
            head = file.read(SWAP_KIB << 10)
            if head[4086:4096] == b"SWAPSPACE2":
                head = head[:4096]
            return hashlib.file_digest(file, lambda: hashlib.sha256(head)).hexdigest()


def new_disk(folder: Path, size: int = SIZE) -> Disk:
    """Return a blank disk, which exists until `detach`."""
    folder.mkdir(exist_ok=True)
    image = folder / "disk"
    image.touch(0o600)
    os.truncate(image, size)
    name = process.run(["losetup", "--find", "--show", "--partscan", image]).stdout.strip()
    # dbbench in another lane may lock it until it finds that it is in use
    with Path(name).open("rb") as device:
        assert not process.wait_while(lambda: not try_lock(device.fileno()), 30)
    return Disk(Path(name), image, folder)


def detach(path: Path | str) -> None:
    """Detach a loop device and wait until it is gone: it stays while another process of the machine
    has it open.
    """
    file = Path("/sys/block", Path(path).name, "loop/backing_file")
    backing = text(file)
    process.run(["losetup", "-d", path])
    assert not process.wait_while(lambda: text(file) == backing, 30)


def release_leftovers() -> None:
    """Release swap areas and loop devices on files of pytest runs that were killed."""
    swaps = [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    for loop in Path("/sys/block").glob("loop*"):
        name = f"/dev/{loop.name}"
        file = text(loop / "loop/backing_file") or ""
        if not is_left(file):
            continue
        for area in {name, file} & {*swaps}:
            process.run(["swapoff", area])
        process.run(["losetup", "-d", name])


def is_left(file: str) -> bool:
    """Whether pytest made the directory of that file and has ended: its lock has its pid."""
    folder = re.match(r".*/pytest-of-[^/]+/pytest-\d+(?=/)", file)
    if folder is None:
        return False
    pid = text(Path(folder[0]) / ".lock")
    return pid is None or not Path("/proc", pid).exists()


def mkfs(disk: Disk, *options: str) -> None:
    """Make an ext4 that writes nothing in the background."""
    process.run(
        ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", *options, disk.path]
    )


def uuid_of(disk: Disk) -> str:
    """Return the UUID of the filesystem, from a tool that the guard does not use."""
    return process.run(["blkid", "-p", "-s", "UUID", "-o", "value", disk.path]).stdout.strip()


@contextlib.contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """Mount an ext4 read-only."""
    mkfs(disk)
    (point := disk.folder / "mnt").mkdir()
    # MS_RDONLY: the kernel does not change the disk
    namespaces.mount(disk.path, point, "ext4", flags=1)
    yield
    namespaces.unmount(point)


@contextlib.contextmanager
def beside(*argv: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program, wait for its first line, and run it until the end of the block."""
    words = [str(word) for word in argv]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        yield program
        program.communicate()  # closes its stdin


@contextlib.contextmanager
def mounted_elsewhere(disk: Disk) -> Iterator[None]:
    """Mount an ext4 in another mount namespace only."""
    mkfs(disk)
    (point := disk.folder / "mnt").mkdir()
    script = 'mount -o ro "$0" "$1" && echo mounted && cat'
    with beside(
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        disk.path,
        point,
    ):
        yield


@contextlib.contextmanager
def swap(disk: Disk) -> Iterator[None]:
    """Use the disk as swap."""
    process.run(["mkswap", "-q", disk.path, str(SWAP_KIB)])
    process.run(["swapon", disk.path])
    try:
        yield
    finally:
        process.run(["swapoff", disk.path])


OPEN = (
    "import os, sys; fd = os.open(sys.argv[1], int(sys.argv[2])); print('open', flush=True); "
    "sys.stdin.read()"
)
LOCK = (
    "import fcntl, sys; f = open(sys.argv[1], 'rb'); fcntl.flock(f, 2); print('locked', "
    "flush=True); sys.stdin.read()"
)


def opened(
    name: str = "path", flags: int = os.O_RDONLY
) -> Callable[[Disk], AbstractContextManager[None]]:
    """Return a plant that opens the disk's path or image file; O_EXCL: as mkfs does."""

    @contextlib.contextmanager
    def plant(disk: Disk) -> Iterator[None]:
        with beside(sys.executable, "-c", OPEN, getattr(disk, name), str(flags)):
            yield

    return plant


@contextlib.contextmanager
def opened_by_another_name(disk: Disk) -> Iterator[None]:
    """Open the disk through a device node that is then removed."""
    node = disk.folder / "node"
    os.mknod(node, 0o600 | 0o060000, disk.path.stat().st_rdev)
    with beside(sys.executable, "-c", OPEN, node, str(os.O_RDONLY)):
        node.unlink()
        yield


@contextlib.contextmanager
def second_loop(disk: Disk) -> Iterator[None]:
    """Attach another loop device to the same file under a different name."""
    (name := disk.folder / "hard-link").hardlink_to(disk.image)
    second = process.run(["losetup", "--find", "--show", name]).stdout.strip()
    yield
    detach(second)


@contextlib.contextmanager
def loop_on_top(disk: Disk) -> Iterator[None]:
    """Attach a loop device to the device."""
    upper = process.run(["losetup", "--find", "--show", disk.path]).stdout.strip()
    yield
    detach(upper)


def _partition(disk: Disk, verb: int, start: int = 0, length: int = 0) -> None:
    """Add (1) or remove (2) partition 1 in the kernel (linux/blkpg.h), like addpart(8) and
    delpart(8). Debian 13 has these programs only in an optional package.
    """
    entry = ctypes.create_string_buffer(struct.pack("=qqi64s64s4x", start, length, 1, b"", b""))
    with disk.path.open("rb") as device:
        fcntl.ioctl(
            device,
            BLKPG,
            struct.pack("@iiiP", verb, 0, len(entry) - 1, ctypes.addressof(entry)),
        )


@contextlib.contextmanager
def partition(disk: Disk) -> Iterator[None]:
    """Create a partition that is not in use."""
    _partition(disk, 1, MIB, SIZE // 2)
    yield
    _partition(disk, 2)


@contextlib.contextmanager
def mounted_partition(disk: Disk) -> Iterator[None]:
    """Create and mount a partition."""
    with partition(disk):
        part = Disk(Path(f"{disk.path}p1"), disk.image, disk.folder)
        with mounted(part):
            yield


def in_file(name: str, line: str) -> Callable[[Disk], AbstractContextManager[None]]:
    """Return a plant with a filesystem that is not mounted, and these lines in a file of /etc."""

    @contextlib.contextmanager
    def plant(disk: Disk) -> Iterator[None]:
        mkfs(disk)
        path = disk.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line.format(path=disk.path, uuid=uuid_of(disk)) + "\n")
        yield

    return plant


def in_fstab(line: str) -> Callable[[Disk], AbstractContextManager[None]]:
    """Return a plant with a filesystem that is not mounted, and this line in fstab."""

    @contextlib.contextmanager
    def plant(disk: Disk) -> Iterator[None]:
        mkfs(disk, "-L", "my data")
        text = line.format(path=disk.path, uuid=uuid_of(disk))
        (disk.folder / "fstab").write_text(
            f"# a comment\n\nproc /proc proc defaults 0 0\n{text} ext4 noauto 0 0\n"
        )
        yield

    return plant


@contextlib.contextmanager
def swap_file(disk: Disk) -> Iterator[None]:
    """Use the image file as swap, so that the loop device itself is not held."""
    with disk.image.open("r+b") as image:
        image.write(bytes(SIZE))  # swap files must not have holes
        os.fsync(image.fileno())
    process.run(["mkswap", "-q", disk.image, str(SWAP_KIB)])
    process.run(["swapon", disk.image])
    try:
        yield
    finally:
        process.run(["swapoff", disk.image])


@contextlib.contextmanager
def member_of_mounted_btrfs(disk: Disk) -> Iterator[None]:
    """Use the disk as the second device of a mounted btrfs, of which mountinfo names only the
    first.
    """
    other = new_disk(disk.folder / "first")
    # The two disks are larger than the minimum of mkfs.btrfs for two devices.
    process.run(
        ["mkfs.btrfs", "-q", "-f", "--mixed", "-d", "single", "-m", "single", other.path, disk.path]
    )
    (point := disk.folder / "mnt").mkdir()
    namespaces.mount(other.path, point, "btrfs", flags=1, data=f"device={disk.path}")
    yield
    namespaces.unmount(point)
    process.run(["btrfs", "device", "scan", "--forget", disk.path])
    detach(other.path)


@contextlib.contextmanager
def used_in_many_ways(disk: Disk) -> Iterator[None]:
    """Mount the disk, list it in fstab, open it, and attach a second loop device to its file."""
    with in_fstab("{path} /srv")(disk), second_loop(disk), opened()(disk):
        (point := disk.folder / "mnt").mkdir()
        namespaces.mount(disk.path, point, "ext4", flags=1)
        yield
        namespaces.unmount(point)


HELD = "held exclusively"
SAME = "attached to the same data"
# name -> (plant, texts that the refusal must contain)
PLANTS: dict[str, tuple[Callable[[Disk], AbstractContextManager[None]], tuple[str, ...]]] = {
    "mounted": (mounted, ("is mounted at", HELD, "ext4")),
    "mounted-in-another-namespace": (
        mounted_elsewhere,
        ("in the mount namespace of process", HELD, "ext4"),
    ),
    "swap": (swap, ("is swap", HELD, "\n  swap")),
    "swap-file-behind-it": (swap_file, ("is swap", "\n  swap")),
    "member-of-mounted-btrfs": (member_of_mounted_btrfs, (HELD, "btrfs")),
    "plain-open": (opened(), ("opened by process",)),
    "exclusive-open": (opened(flags=os.O_EXCL), (HELD, "opened by process")),
    "open-by-another-name": (opened_by_another_name, ("opened by process",)),
    "open-file-behind-it": (opened("image"), ("opened by process",)),
    "hard-link-behind-another-loop": (second_loop, (SAME,)),
    "loop-on-top": (loop_on_top, (SAME,)),
    "partition": (partition, ("it has the partition",)),
    "mounted-partition": (mounted_partition, ("p1 is mounted at", "it has the partition", HELD)),
    "fstab-path": (in_fstab("{path} /srv"), ("fstab: /dev/loop", "ext4 'my data'")),
    "fstab-uuid": (in_fstab("UUID={uuid} /srv"), ("fstab: UUID=",)),
    "fstab-quoted-uuid": (in_fstab('UUID="{uuid}" /srv'), ("fstab: UUID=",)),
    "fstab-by-uuid": (in_fstab("/dev/disk/by-uuid/{uuid} /srv"), ("fstab: /dev/disk",)),
    "fstab-label": (in_fstab(r"LABEL=my\040data /srv"), ("fstab: LABEL=",)),
    "crypttab": (in_file("crypttab", "safe UUID={uuid} none luks"), ("crypttab: safe UUID=",)),
    "unit-of-an-automount": (
        in_file("systemd/system/srv-data.mount", "[Mount]\nWhat={path}\nWhere=/srv/data"),
        ("srv-data.mount: What=/dev/loop",),
    ),
    "unit-of-a-swap": (
        in_file("systemd/system/dev-sdx.swap", "[Swap]\nWhat = /dev/disk/by-uuid/{uuid}"),
        ("dev-sdx.swap: What = /dev/disk",),
    ),
    "many-ways": (
        used_in_many_ways,
        ("is mounted at", "it is listed in", "opened by process", SAME, HELD, "ext4 'my data'"),
    ),
}


@contextlib.contextmanager
def attached(disk: Disk, permit: Permit | None = None, **more: str) -> Iterator[Device]:
    """The disk as a target, with a separate fstab."""
    with block.attach(
        disk.path,
        more.get("identity"),
        permit or Permit(),
        etc=disk.folder,
    ) as device:
        yield device
