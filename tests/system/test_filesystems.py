"""Filesystems on loop devices: the options that the kernel reports, and failures."""

import dataclasses
import fcntl
import os
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dbbench import process
from dbbench.errors import MakeFailed, MountFailed, SetupNotInForce, UnmountFailed
from dbbench.machine.host.proc import number
from dbbench.machine.kernel_log import Watch
from dbbench.model import Durability, FsSetup, Mkfs
from dbbench.storage import filesystems
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common, ext, formatted, shape
from dbbench.storage.filesystems.families import Directory
from dbbench.storage.filesystems.family import Mounted, MountPoint
from tests.support.setups import fill, shipped

MIB = 2**20
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
NO_LOG_FLUSH = 2


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_ext4_has_no_lazy_initialisation_left(loop_device: Device) -> None:
    """All inode tables are written by mkfs, so the kernel has nothing to write beside the load; the
    same mkfs with lazy initialisation left on is distinguished.
    """
    made = filesystems.make(shipped("ext4"), loop_device)
    assert made.geometry["uninitialised_groups"] == 0
    assert made.geometry["has_journal"] is True
    lazy = dataclasses.replace(shipped("ext4"), mkfs=Mkfs("ext4", ("-E", "lazy_itable_init=1")))
    assert filesystems.make(lazy, loop_device).geometry["uninitialised_groups"]


@pytest.mark.needs("root", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs")
def test_geometry_is_read_back_from_the_device(loop_device: Device) -> None:
    """Another mkfs option is another geometry, over an old signature of another family."""
    assert filesystems.make(shipped("xfs"), loop_device).geometry["reflink"] is True
    assert filesystems.make(shipped("xfs-noreflink"), loop_device).geometry["reflink"] is False
    found = filesystems.make(shipped("btrfs"), loop_device).geometry
    assert (found["data_profile"], found["metadata_profile"], found["nodesize"]) == (
        "single",
        "DUP",
        16384,
    )


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs")
def test_read_ahead_is_the_mounted_filesystems_own(loop_device: Device, tmp_path: Path) -> None:
    """btrfs has a bdi of its own beside the disk's; a change there shows, a change at the disk does
    not.
    """
    setup = shipped("btrfs")
    filesystems.make(setup, loop_device)
    with filesystems.mount(setup, loop_device, tmp_path / "mnt") as fs:
        own = filesystems.FAMILIES["btrfs"].bdi(fs.path) / "read_ahead_kb"
        own.write_text("1024")
        assert number(own.parent / "read_ahead_kb") == 1024 != fs.read_ahead_kb
        assert (
            Path(f"/sys/block/{loop_device.path.name}/queue/read_ahead_kb").read_text().strip()
            != "1024"
        )


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_a_promise_that_the_kernel_does_not_keep_is_found(
    loop_device: Device, tmp_path: Path
) -> None:
    """A setup whose options promise all, on a filesystem that is mounted without barriers, is
    refused.
    """
    without = shipped("ext4-nobarrier")
    filesystems.make(without, loop_device)
    with (
        filesystems.mount(without, loop_device, tmp_path / "mnt") as fs,
        pytest.raises(SetupNotInForce, match="promises the durability class 'full'") as caught,
    ):
        filesystems.check_promise(without, fs)
        filesystems.check_promise(shipped("ext4"), fs)
    assert (caught.value.id, fs.flags) == ("E308", (Durability.NO_BARRIER,))


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs")
@pytest.mark.parametrize("name", ["btrfs-nodatacow", "btrfs-nocow-attr", "btrfs-zstd", "btrfs-lzo"])
def test_an_option_that_came_after_the_files_is_found(
    name: str,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """nodatacow, +C and compression do nothing to files that exist: files restored without them are
    refused.
    """
    setup = shipped(name)
    plain = shipped("btrfs")
    filesystems.make(plain, loop_device)
    with filesystems.mount(plain, loop_device, tmp_path / "mnt") as fs:
        files = fill(fs.path)
        filesystems.apply_attributes(setup, fs.path)
        filesystems.sync(fs.path)
    with (
        filesystems.mount(setup, loop_device, tmp_path / "mnt") as fs,
        pytest.raises(SetupNotInForce, match=r"of 3 files"),
    ):
        filesystems.verify_files(setup, files)


@pytest.mark.needs("root", "mkfs.xfs", "fs:xfs")
def test_a_mount_that_is_refused_has_the_kernels_words(loop_device: Device, tmp_path: Path) -> None:
    """mount(8) says "wrong fs type, bad option"; the kernel's own line says which."""
    setup = dataclasses.replace(shipped("xfs"), mount=("noatime", "nobarrier"))
    filesystems.make(setup, loop_device)
    with (
        pytest.raises(MountFailed, match="nobarrier"),
        filesystems.mount(setup, loop_device, tmp_path / "mnt"),
    ):
        pytest.fail("xfs took nobarrier")


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_an_option_that_mkfs_does_not_know_is_an_error(loop_device: Device) -> None:
    """mkfs's own words are the evidence."""
    setup = dataclasses.replace(shipped("ext4"), mkfs=Mkfs("ext4", ("-O", "no_such_feature")))
    with pytest.raises(MakeFailed, match="no_such_feature"):
        filesystems.make(setup, loop_device)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in use is not waited for."""
    for module, name in ((common, "BUSY_S"), (formatted, "_RELEASE_S")):
        monkeypatch.setattr(module, name, 0.3)


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
@pytest.mark.usefixtures("impatient")
def test_who_holds_the_filesystem_is_reported(loop_device: Device, tmp_path: Path) -> None:
    """An unmount that fails names the process; when it has let go, the unmount succeeds."""
    setup = shipped("ext4")
    at = tmp_path / "mnt"
    filesystems.make(setup, loop_device)
    with filesystems.mount(setup, loop_device, at) as fs:
        held = os.open(fs.path / "held", os.O_CREAT | os.O_RDWR)
        with pytest.raises(UnmountFailed, match=rf"process {os.getpid()} .*held"):
            ext.FAMILIES[-1].unmount(at, loop_device)
        os.close(held)


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
@pytest.mark.usefixtures("impatient")
def test_the_first_error_is_not_hidden_by_the_unmount(loop_device: Device, tmp_path: Path) -> None:
    """What went wrong first is raised; that the unmount failed too is a note on it."""
    setup = shipped("ext4")
    at = tmp_path / "mnt"
    filesystems.make(setup, loop_device)
    with (
        pytest.raises(ZeroDivisionError) as caught,
        filesystems.mount(setup, loop_device, at) as fs,
    ):
        held = os.open(fs.path / "held", os.O_CREAT | os.O_RDWR)
        raise ZeroDivisionError
    assert "still busy" in str(caught.value.__notes__)
    os.close(held)
    ext.FAMILIES[-1].unmount(at, loop_device)


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "unshare")
@pytest.mark.usefixtures("impatient")
def test_a_copy_of_the_mount_elsewhere_is_waited_for_and_named(
    loop_device: Device, tmp_path: Path
) -> None:
    """umount returning 0 is not the end while another namespace holds a copy of the mount."""
    setup = shipped("ext4")
    at = tmp_path / "mnt"
    filesystems.make(setup, loop_device)
    mount = filesystems.mount(setup, loop_device, at)
    mount.__enter__()
    holder = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        f"touch {tmp_path}/copied; exec sleep 60",
    ]
    with process.running(holder, grace_s=1) as copy:
        process.wait_while(lambda: not (tmp_path / "copied").exists() and copy.poll() is None, 60)
        assert (tmp_path / "copied").exists()
        with pytest.raises(UnmountFailed, match=rf"is mounted at {at}"):
            mount.__exit__(None, None, None)
    # the namespace ends after its process
    assert not process.wait_while(lambda: not hold.regain(loop_device.fd), 60)


def shut_down(fs: filesystems.Mounted) -> None:
    """Plant a forced shutdown."""
    fd = os.open(fs.path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(fd)


def make_read_only(fs: filesystems.Mounted) -> None:
    """Plant what a filesystem does to itself after an error."""
    process.run(["mount", "-o", "remount,ro", fs.path])


@pytest.mark.needs("root", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
@pytest.mark.parametrize(
    ("name", "plant"),
    [("ext4", shut_down), ("xfs", shut_down), ("ext4", make_read_only), ("btrfs", make_read_only)],
)
def test_a_filesystem_that_went_bad_is_found(
    name: str,
    plant: Callable[[filesystems.Mounted], None],
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """Whether the options show it (ext4, btrfs) or only a write (xfs); a shutdown is in the
    kernel's log too, with the device's name, and nothing of it under another name.
    """
    setup = shipped(name)
    filesystems.make(setup, loop_device)
    with Watch(loop_device.path.name) as watch:
        with filesystems.mount(setup, loop_device, tmp_path / "mnt") as fs:
            assert shape.healthy(fs) is None
            assert watch.lines_about() == ()
            plant(fs)
            assert shape.healthy(fs) is not None
        if plant is shut_down:
            assert "shut" in str(watch.lines_about()).lower()
        assert watch.lines_about("loop99") == ()
        assert watch.lost() is False


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_a_full_filesystem_is_not_a_bad_one(loop_device: Device, tmp_path: Path) -> None:
    """Full has an error of its own."""
    setup = shipped("ext4")
    filesystems.make(setup, loop_device)
    with filesystems.mount(setup, loop_device, tmp_path / "mnt") as fs:
        file = os.open(fs.path / "fill", os.O_CREAT | os.O_WRONLY)
        free = os.statvfs(fs.path).f_bfree * os.statvfs(fs.path).f_frsize
        while free > 0:
            try:
                os.posix_fallocate(file, os.fstat(file).st_size, free)
            except OSError:
                free //= 2
        os.close(file)
        with pytest.raises(OSError, match="No space left"):
            (fs.path / "more").write_bytes(bytes(MIB))
        assert shape.healthy(fs) is None


def existing(path: Path) -> AbstractContextManager[Mounted]:
    """A directory as a trial of kind `dir` has it."""
    setup = FsSetup("x", Mkfs("ext4"))
    at = MountPoint(path)
    return Directory().open(setup, SimpleNamespace(path=path), at)  # type: ignore[arg-type]


def test_an_existing_directory_is_read_without_root(tmp_path: Path) -> None:
    """Kind `dir`: options and class of the filesystem that it lies on, space of what lies below it
    alone.
    """
    with existing(tmp_path) as fs:
        (tmp_path / "data").write_bytes(os.urandom(MIB))
        space = shape.space(fs, MIB)
        assert shape.healthy(fs) is None
    assert "rw" in fs.options_effective
    assert fs.options_asked == ()
    assert MIB / 16 <= (space.disk_bytes or 0) < 2 * MIB


def test_a_directory_on_a_filesystem_of_no_family_has_a_class_of_its_own() -> None:
    """dbbench does not know which data it preserves after a power loss; in memory, none."""
    with existing(Path("/proc")) as fs:
        assert (fs.family, fs.flags) == ("proc", (Durability.UNKNOWN,))
