"""Every kind of used device is planted, and the guard must refuse it with its evidence and change no byte.

Long because each kind of use is planted in its own way, and all of them are held against one table.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dbbench import devices, namespaces, process
from dbbench.devices import block, guard, naming, used
from dbbench.devices.port import Device
from dbbench.errors import DeviceInUse, DeviceLocked, DeviceNotEmpty, DeviceUnusable, UnmountFailed

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")

SIZE = 64 * 2**20  # bytes


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


class Permit:
    """What was typed, and which filesystem is ours."""

    def __init__(self, *typed: str, made: tuple[str, str] = ("", "")) -> None:
        self.typed, self.made = typed, made

    def wipe(self, identity: str) -> bool:
        return identity in self.typed

    def made_by_us(self, device: str, uuid: str) -> bool:
        return (device, uuid) == self.made


def new_disk(folder: Path) -> Disk:
    """A blank disk; it stays until losetup -d."""
    folder.mkdir(exist_ok=True)
    image = folder / "disk"
    image.touch(0o600)
    os.truncate(image, SIZE)
    name = process.run(["losetup", "--find", "--show", "--partscan", image]).stdout.strip()
    return Disk(Path(name), image, folder)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Somebody's blank disk."""
    made = new_disk(tmp_path / "one")
    yield made
    process.run(["losetup", "-d", made.path])


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Disk]:
    """A second one."""
    made = new_disk(tmp_path / "two")
    yield made
    process.run(["losetup", "-d", made.path])


@pytest.fixture(autouse=True)
def only_readable_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out processes that a container or sandbox hides even from root.

    To the program each of them is a reason to refuse (test_what_cannot_be_read_counts_as_use); the other tests
    would find nothing else on such a machine.
    """
    all_of_them = used._processes

    def readable(proc: Path) -> Iterator[Path]:
        for folder in all_of_them(proc):
            try:
                (folder / "ns/mnt").readlink()
            except PermissionError:
                continue
            except OSError:
                pass
            yield folder

    monkeypatch.setattr(used, "_processes", readable)


def attached(disk: Disk, permit: Permit | None = None, **more: str) -> AbstractContextManager[Device]:
    """The disk as a target, with an fstab of its own."""
    return block.attached(disk.path, more.get("identity"), permit or Permit(), fstab=disk.folder / "fstab")


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


@contextlib.contextmanager
def partition(disk: Disk) -> Iterator[None]:
    """A partition that nobody uses."""
    process.run(["addpart", disk.path, "1", "2048", "65536"])
    yield
    process.run(["delpart", disk.path, "1"])


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


PLANTS = {
    "mounted": (mounted, "is mounted at"),
    "mounted-in-another-namespace": (mounted_elsewhere, "in the mount namespace of process"),
    "swap": (swap, "is swap"),
    "plain-open": (opened, "opened by process"),
    "exclusive-open": (opened_exclusively, "held exclusively"),
    "open-by-another-name": (opened_by_another_name, "opened by process"),
    "open-file-behind-it": (file_opened, "opened by process"),
    "same-file-behind-another-loop": (second_loop, "attached to the same data"),
    "loop-on-top": (loop_on_top, "attached to the same data"),
    "partition": (partition, "it has the partition"),
    "mounted-partition": (mounted_partition, "p1 is mounted at"),
    "fstab-path": (in_fstab("{path} /srv"), "fstab has: /dev/loop"),
    "fstab-uuid": (in_fstab("UUID={uuid} /srv"), "fstab has: UUID="),
    "fstab-quoted-uuid": (in_fstab('UUID="{uuid}" /srv'), "fstab has: UUID="),
    "fstab-by-uuid": (in_fstab("/dev/disk/by-uuid/{uuid} /srv"), "fstab has: /dev/disk"),
    "fstab-label": (in_fstab(r"LABEL=my\040data /srv"), "fstab has: LABEL="),
}


@pytest.mark.needs("mkswap", "swapon", "unshare", "addpart")
@pytest.mark.parametrize("name", PLANTS)
def test_a_used_device_is_refused_and_untouched(name: str, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use never yields, also with the identity typed; the evidence says what was found; no byte is changed."""
    monkeypatch.setattr(block, "_SETTLE_S", 0.1)
    plant, evidence = PLANTS[name]
    with plant(disk):
        before = disk.digest()
        with pytest.raises(DeviceInUse) as refused, attached(disk, Permit(devices.identity(disk.path))):
            pass
        assert disk.digest() == before
    assert evidence in refused.value.evidence
    assert refused.value.effect == "Nothing was changed."


def test_all_reasons_are_told_at_once(disk: Disk) -> None:
    """A person who frees it for one reason must not run into the next."""
    with in_fstab("{path} /srv")(disk), opened(disk), second_loop(disk):
        found = "\n".join(reason.text for reason in guard.reasons(disk.path, fstab=disk.folder / "fstab"))
    for evidence in ("fstab has", "opened by process", "attached to the same data", "ext4 'my data'"):
        assert evidence in found


def gpt_backup_only(disk: Disk) -> None:
    """A disk whose primary partition table was overwritten: the backup in the last sector tells (UEFI 5.3.2)."""
    last, entries = SIZE // 512 - 1, bytes(128 * 128)
    tail = struct.pack("<QQQQ16sQIII", last, 1, 34, last - 33, os.urandom(16), last - 32, 128, 128, zlib.crc32(entries))
    blank = struct.pack("<8sIIII", b"EFI PART", 0x10000, 92, 0, 0) + tail
    header = struct.pack("<8sIIII", b"EFI PART", 0x10000, 92, zlib.crc32(blank), 0) + tail
    with disk.path.open("r+b", buffering=0) as device:
        device.seek((last - 32) * 512)
        device.write(entries + header.ljust(512, b"\0"))


SIGNATURES = {
    "ext4": mkfs,
    "xfs": lambda disk: process.run(["mkfs.xfs", "-q", "--unsupported", disk.path], env=XFS_SMALL),
    "btrfs": lambda disk: process.run(["mkfs.btrfs", "-q", "--mixed", disk.path]),
    "swap": lambda disk: process.run(["mkswap", "-q", disk.path]),
    "gpt": gpt_backup_only,
}
# mkfs.xfs makes filesystems below 300 MiB only for its own tests, which say so in this way
XFS_SMALL = {"TEST_DIR": "1", "TEST_DEV": "1", "QA_CHECK_FS": "1"}


@pytest.mark.needs("mkfs.xfs", "mkfs.btrfs", "mkswap")
@pytest.mark.parametrize("kind", SIGNATURES)
def test_a_signature_yields_to_the_typed_identity_only(kind: str, disk: Disk) -> None:
    """What is on it is named with the command that would erase it; that command's word is this device's."""
    SIGNATURES[kind](disk)
    before, word = disk.digest(), devices.identity(disk.path)
    with pytest.raises(DeviceNotEmpty) as refused, attached(disk, Permit("yes", disk.path.name, word[:-1])):
        pass
    assert f"\n  {kind} " in refused.value.evidence
    assert refused.value.remedy is not None and refused.value.remedy.endswith(f"--wipe {word}")
    with attached(disk, Permit(word)) as device:
        assert device.path == disk.path
    assert disk.digest() == before


def test_our_own_filesystem_yields_by_its_uuid(disk: Disk) -> None:
    """The journal's record counts for exactly the filesystem that it names."""
    mkfs(disk)
    word, uuid = devices.identity(disk.path), uuid_of(disk)
    with attached(disk, Permit(made=(word, uuid))):
        pass
    with pytest.raises(DeviceNotEmpty), attached(disk, Permit(made=(word, "another"))):
        pass


def test_a_blank_device_is_ours_and_locked(disk: Disk) -> None:
    """mkfs gets what was checked; meanwhile another run is refused, and afterwards it is free again."""
    with attached(disk) as device:
        process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        with pytest.raises(DeviceLocked), attached(disk):
            pass
    assert (device.facts.name, device.facts.size_bytes) == (disk.path.name, SIZE)
    assert os.makedev(device.major, device.minor) == disk.path.stat().st_rdev
    assert device.leaves == (disk.path.name,)
    assert [reason.kind for reason in guard.reasons(disk.path)] == ["signature"]


def test_a_locked_device_is_left_alone(disk: Disk) -> None:
    """udev, sfdisk and mkfs lock a disk while they work on it."""
    with disk.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DeviceLocked, match="flock"), attached(disk):
            pass


def test_a_swapped_name_hits_nothing(disk: Disk, victim: Disk, tmp_path: Path) -> None:
    """What was checked is what is formatted, wherever the name leads by then."""
    (link := tmp_path / "link").symlink_to(disk.path)
    before = victim.digest()
    with block.attached(link, None, Permit()) as device:
        link.unlink()
        link.symlink_to(victim.path)
        process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
    assert victim.digest() == before
    assert uuid_of(disk)


def test_the_plan_may_name_another_disk(disk: Disk) -> None:
    """An identity in the plan must fit; that it fits permits nothing."""
    with pytest.raises(DeviceUnusable, match="the plan asks for S5GX"), attached(disk, identity="S5GX"):
        pass
    with attached(disk, identity=devices.identity(disk.path)):
        pass
    mkfs(disk)
    with pytest.raises(DeviceNotEmpty), attached(disk, identity=devices.identity(disk.path)):
        pass


@pytest.mark.parametrize("path", ["/dev/no-such-disk", "/dev/null", "/etc/fstab", "/dev"])
def test_what_is_no_block_device_is_refused(path: str) -> None:
    """A file of that name would be overwritten otherwise."""
    with pytest.raises(DeviceUnusable), block.attached(Path(path), None, Permit()):
        pass


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho '{}'\n", None])
def test_a_tool_that_fails_counts_as_use(
    program: str | None, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without wipefs's answer nobody knows what is there."""
    if program is None:
        monkeypatch.setattr(process, "find", lambda name: shutil.which(name) if name != "wipefs" else None)
    else:
        (tmp_path / "wipefs").write_text(program)
        (tmp_path / "wipefs").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DeviceInUse, match="signatures cannot be read"), attached(disk, Permit("x")):
        pass


@pytest.mark.needs("setpriv")
def test_what_cannot_be_read_counts_as_use(disk: Disk) -> None:
    """Where /proc hides a process's files, as from a root without CAP_SYS_PTRACE, it might have the device open."""
    script = "import sys; from pathlib import Path; from dbbench.devices import guard\n"
    script += "print(*guard.reasons(Path(sys.argv[1])), sep='\\n')"
    with opened(disk):
        argv = ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", script, disk.path]
        said = process.run(argv).stdout
    assert f"the open files of process {os.getpid()} " in said
    assert f"the mounts of process {os.getpid()} " in said


def test_unseen_process_yields_only_to_the_typed_identity(disk: Disk) -> None:
    """A process that hides its files may hold the device open: neither free nor, with its identity typed, a bar.
    Our own record of a filesystem does not stand in for it, and nothing typed outweighs a use that was seen."""
    name = Path(disk.path).name
    unseen = guard.Reason("unseen", "the open files of process 1 cannot be read")
    with pytest.raises(DeviceNotEmpty, match="process 1 cannot be read"):
        guard.refuse(Path(disk.path), name, [unseen], Permit())
    with pytest.raises(DeviceNotEmpty, match="process 1"):
        guard.refuse(
            Path(disk.path),
            name,
            [unseen, guard.Reason("signature", "ext4", uuid="u")],
            Permit(made=(naming.identity_of(name), "u")),
        )
    typed = Permit(naming.identity_of(name))
    guard.refuse(Path(disk.path), name, [unseen], typed)
    with pytest.raises(DeviceInUse):
        guard.refuse(Path(disk.path), name, [unseen, guard.Reason("in use", "mounted")], typed)


def test_the_whole_machine_is_looked_at_from_within_a_trial(disk: Disk) -> None:
    """A trial has its own processes and mounts: users of the device outside are found all the same, itself is not."""
    script = "import sys; from pathlib import Path; from dbbench import namespaces; from dbbench.devices import guard\n"
    script += "def work():\n    print(*guard.reasons(Path(sys.argv[1])), sep='\\n')\n    return 0\n"
    script += "sys.exit(namespaces.isolated(work))\n"
    argv = [sys.executable, "-c", script, disk.path]
    assert "opened by" not in process.run(argv).stdout
    with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDONLY)) as user:
        assert f"opened by process {user.pid} (" in process.run(argv).stdout
    with mounted(disk):
        assert f"is mounted at {disk.folder / 'mnt'} in the mount namespace of process" in process.run(argv).stdout


def test_a_device_that_stays_busy_is_told(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """umount that did not happen is an error of its own, with who holds it; an earlier error stays the first."""
    monkeypatch.setattr(block, "_FREE_S", 0.2)
    (point := disk.folder / "mnt").mkdir()
    with pytest.raises(UnmountFailed, match=f"is mounted at {point}"), attached(disk) as device:
        process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        namespaces.mount(device.path, point, "ext4")
    namespaces.unmount(point)
    word = devices.identity(disk.path)
    with pytest.raises(ZeroDivisionError) as first, attached(disk, Permit(word)) as device:
        namespaces.mount(device.path, point, "ext4")
        _ = 1 / 0
    assert "E307" in first.value.__notes__[0]
    namespaces.unmount(point)
