"""Loop devices and directories as devices of a plan, with the real driver."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dbbench import process
from dbbench.errors import DeviceInUse, DeviceUnusable, MakeFailed
from dbbench.labs import faults
from dbbench.labs.powercut import disk
from dbbench.machine import namespaces
from dbbench.model import DeviceSpec
from dbbench.storage import devices
from dbbench.storage.devices import canary, directory, loop, loop_driver, sysfs, used
from dbbench.storage.devices.image import allocation, make_image, write_out
from dbbench.storage.devices.port import Device, DiskSet
from tests.support.permit import Permit

pytestmark = pytest.mark.needs("root")


@contextlib.contextmanager
def mounted(
    device: Device,
    point: Path,
    family: str = "ext4",
    options: str = "",
) -> Iterator[Path]:
    """A new filesystem on the device, mounted."""
    process.run([f"mkfs.{family}", "-q", device.argument], pass_fds=(device.fd,))
    point.mkdir(exist_ok=True)
    namespaces.mount(device.path, point, family, data=options)
    try:
        yield point
    finally:
        namespaces.unmount(point)


@contextlib.contextmanager
def attached(image: Path) -> Iterator[Device]:
    """The only device of a plan, over this image."""
    with devices.attach({"data": DiskSet(DeviceSpec(), (image,))}, Permit(), "ext4") as volumes:
        yield volumes["data"]


def is_behind(image: Path, name: str) -> bool:
    """Whether this image is behind the device. Another lane may have the device as soon as it is
    free.
    """
    return sysfs.attribute(name, "loop/backing_file") == str(image)


def test_the_image_is_behind_it_with_direct_io(tmp_path: Path) -> None:
    """The driver's own words are recorded, with what the image takes before; afterwards it is let
    go at once.
    """
    image = tmp_path / "image"
    make_image(image, 32 * 2**20)
    blocks, extents = allocation(image)
    with attached(image) as device:
        name = device.facts.name
        assert Path(f"/sys/block/{name}/loop/dio").read_text() == "1\n"
        assert Path(f"/sys/block/{name}/loop/autoclear").read_text() == "1\n"
        assert Path(f"/sys/block/{name}/loop/backing_file").read_text().strip() == str(image)
        assert (device.path, device.leaves) == (Path(f"/dev/{name}"), (name,))
        assert device.st_rdev == device.path.stat().st_rdev
    facts = device.facts
    assert (facts.kind, facts.size_bytes, facts.direct_io) == ("loop", 32 * 2**20, True)
    assert (facts.image_blocks_before, facts.image_extents_before) == (blocks, extents)
    assert blocks * 512 >= 32 * 2**20 and extents is not None and extents > 0
    assert not is_behind(image, name)


@pytest.mark.needs("mkfs.ext4", "fs:ext4")
@pytest.mark.parametrize("sector_bytes", [0, 4096, 16384])
def test_sectors_are_as_large_as_asked_for(tmp_path: Path, sector_bytes: int) -> None:
    """Or as large as a page, on a kernel that has none above it; the device is written and read in
    any case.
    """
    image = tmp_path / "image"
    image.touch(0o600)
    os.truncate(image, 256 * 2**20)  # large enough for the probe
    with loop.attach(image, sector_bytes) as device:
        found = int(sysfs.queue_attributes(device.facts.name)["logical_block_size"])
        assert found in (
            {512}
            if sector_bytes == 0
            else {sector_bytes, min(sector_bytes, os.sysconf("SC_PAGE_SIZE"))}
        )
        assert os.pwrite(device.fd, b"small", 5) == 5
        os.fsync(device.fd)
        assert os.pread(device.fd, 5, 5) == b"small"
        assert canary.measure(device)["fdatasync_ms"] >= 0


def test_a_discard_shows_in_the_images_blocks(tmp_path: Path) -> None:
    """The blocks before and after tell what mkfs with discard does, and that mkfs without it does
    nothing.
    """
    image = tmp_path / "image"
    size = 32 * 2**20
    make_image(image, size)
    for option, kept in (("nodiscard", True), ("discard", False)):
        with loop.attach(image) as device:
            process.run(
                ["mkfs.ext4", "-q", "-F", "-E", option, device.argument], pass_fds=(device.fd,)
            )
        assert (allocation(image)[0] * 512 >= size) is kept  # the extents of a file need blocks too


def test_where_the_filesystem_has_no_direct_io_it_is_reported(tmp_path: Path) -> None:
    """ramfs cannot: the device works, and the facts say that the page cache is in between."""
    namespaces.mount("ramfs", tmp_path, "ramfs")
    try:
        (tmp_path / "image").touch()
        os.truncate(tmp_path / "image", 2**20)
        with loop.attach(tmp_path / "image") as device:
            assert device.facts.direct_io is False
    finally:
        namespaces.unmount(tmp_path)


def test_one_image_is_behind_one_device(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices over one file would destroy the filesystem in it."""
    with (
        loop.attach(image) as device,
        pytest.raises(DeviceInUse, match=device.facts.name),
        monkeypatch.context() as m,
    ):
        m.setattr(loop, "_SETTLE_S", 0.2)
        with loop.attach(image):
            pass
    with loop.attach(image):
        pass


def test_many_at_once_get_one_each(tmp_path: Path) -> None:
    """The free device may be taken by another before us: then another is asked for."""
    images = [tmp_path / f"image{number}" for number in range(12)]
    for image in images:
        image.touch()
        os.truncate(image, 2**20)

    def attach(image: Path) -> bool:
        with loop.attach(image) as device:
            name = device.facts.name
            return loop_driver.statuses([name])[name] == loop_driver.LoopStatus(
                (image.stat().st_dev, image.stat().st_ino),
                0,
                str(image),
            )

    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):  # one after the other, so that no image is wanted twice at a time
            assert list(pool.map(attach, images)) == [True] * 12


@pytest.mark.needs("mkfs.ext4", "fs:ext4")
def test_a_device_that_is_still_held_is_reported(
    image: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forgotten mount keeps it: the error names the mount point, and it clears itself when that
    goes.
    """
    monkeypatch.setattr(loop, "_CLEARED_S", 0.2)
    point = tmp_path / "mnt"
    point.mkdir()
    with pytest.raises(MakeFailed, match=f"is mounted at {point}"), loop.attach(image) as device:
        process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        namespaces.mount(device.path, point, "ext4")
    namespaces.unmount(point)
    assert not process.wait_while(lambda: is_behind(image, device.facts.name), 60)


def test_a_sigkill_clears_it(image: Path) -> None:
    """The kernel releases the device."""
    script = (
        "import sys, time; from pathlib import Path; from dbbench.storage.devices import loop\n"
        "with loop.attach(Path(sys.argv[1])) as device:\n"
        "    print(device.facts.name, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, image],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        name = program.stdout.readline().strip()
        assert loop_driver.is_bound(name)
        program.kill()
    assert not process.wait_while(lambda: is_behind(image, name), 60)
    with loop.attach(image):
        pass


def test_an_image_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It was removed since the run began: say so."""
    with pytest.raises(DeviceUnusable, match="No such file"), loop.attach(tmp_path / "image"):
        pass


@pytest.mark.needs("mkfs.ext4", "fs:ext4")
@pytest.mark.parametrize(("options", "least", "most"), [("", 50, 10_000), ("nobarrier", 0, 0)])
def test_flushes_are_counted_where_they_happen(
    options: str,
    least: int,
    most: int,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """50 fdatasync calls cause at least 50 flushes of the disk; with nobarrier they cause none."""
    with mounted(loop_device, tmp_path / "mnt", options=options) as point:
        fd = os.open(point / "log", os.O_WRONLY | os.O_CREAT)
        os.fsync(fd)
        before = devices.flushes(loop_device.leaves)
        bytes_before = devices.io_counters(loop_device.leaves[0])
        for _ in range(50):
            os.write(fd, bytes(8192))
            os.fdatasync(fd)
        after = devices.flushes(loop_device.leaves)
        bytes_after = devices.io_counters(loop_device.leaves[0])
        os.close(fd)
    assert before is not None and after is not None and least <= after - before <= most
    assert bytes_before is not None and bytes_after is not None
    assert bytes_after["write_bytes"] - bytes_before["write_bytes"] >= 50 * 8192
    assert devices.queue_attributes(loop_device.leaves[0])["write_cache"] == "write back"


@pytest.mark.needs("mkfs.ext4", "mkfs.btrfs", "fs:ext4", "fs:btrfs")
@pytest.mark.parametrize("family", ["ext4", "btrfs"])
def test_the_disk_below_a_directory_is_found(
    family: str,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """btrfs has no device number of its own: the mount's source tells."""
    spec = DeviceSpec(kind="dir", paths={family: str(tmp_path / "mnt")})
    with (
        mounted(loop_device, tmp_path / "mnt", family),
        devices.attach({"data": DiskSet(spec)}, Permit(), family) as volumes,
    ):
        target = volumes["data"]
        assert target.leaves == loop_device.leaves
        assert target.facts.name == loop_device.facts.name
        assert target.facts.size_bytes > 0
        assert target.path.stat().st_dev == target.st_rdev
    assert directory.disk_below(Path("/proc")) is None


@pytest.mark.needs("lsblk")
def test_all_disks_are_described(loop_device: Device) -> None:
    """doctor's list has the word to type for each of them."""
    shown = {disk.name: disk for disk in devices.describe_all()}
    disk = shown[loop_device.facts.name]
    assert disk.path == str(loop_device.path)
    assert disk.size_bytes == loop_device.facts.size_bytes
    assert devices.identity_of(disk.name) == devices.identity(loop_device.path)


@pytest.mark.needs("fallocate")
def test_holes_that_a_discard_left_are_filled(tmp_path: Path) -> None:
    """The next filesystem on the image finds every block allocated again, and what it reads there
    is zeros.
    """
    image = tmp_path / "image"
    make_image(image, 16 * 2**20)
    for offset in ("0", "4MiB", "15MiB"):
        process.run(["fallocate", "--punch-hole", "--offset", offset, "--length", "1MiB", image])
    assert allocation(image)[0] * 512 == 13 * 2**20
    assert write_out(image) == 3 * 2**20
    assert allocation(image)[0] * 512 == 16 * 2**20
    assert image.read_bytes()[4 * 2**20 : 5 * 2**20] == bytes(2**20)
    assert write_out(image) == 0


@pytest.mark.needs("mkfs.ext4", "mkfs.xfs", "filefrag")
@pytest.mark.parametrize("family", ["ext4", "xfs"])
def test_what_mkfs_zeroed_in_the_image_is_written_out(tmp_path: Path, family: str) -> None:
    """The loop driver zeroes by fallocate: such blocks are unwritten in the image, and written
    again afterwards.
    """
    image = tmp_path / "image"
    make_image(image, 512 * 2**20)
    assert "unwritten" not in process.run(["filefrag", "-v", image]).stdout
    with loop.attach(image) as device:
        process.run([f"mkfs.{family}", "-q", device.argument], pass_fds=(device.fd,))
        process.run(
            ["fallocate", "--zero-range", "--offset", "64MiB", "--length", "8MiB", device.path]
        )
        was = "unwritten" in process.run(["filefrag", "-v", image]).stdout
        written = write_out(image)
        assert (written > 0) == was
        assert "unwritten" not in process.run(["filefrag", "-v", image]).stdout
        assert write_out(image) == 0
        process.run([f"fsck.{family}", "-n", str(device.path)])
        point = tmp_path / "mnt"
        point.mkdir()
        namespaces.mount(device.path, point, family)
        namespaces.unmount(point)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[str]:
    """Return the name of somebody's loop device on a FUSE filesystem whose server has died."""
    if disk.library() is None:
        pytest.skip("needs libfuse 3")
    (at := tmp_path / "fuse").mkdir()
    make_image(tmp_path / "theirs", 32 * 2**20)
    argv = [
        sys.executable,
        *faults.PROGRAM,
        str(at),
        str(tmp_path / "orders"),
        str(tmp_path / "theirs"),
    ]
    env = {
        **os.environ,
        "FUSE_LIBRARY_PATH": str(disk.library()),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen(argv, env=env) as server:
        try:
            assert process.wait_while(lambda: not (at / "0").exists(), 60.0) is False
            attach = ["losetup", "--find", "--show", str(at / "0")]
            name = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
            server.kill()
            server.wait()
            yield Path(name).name
            subprocess.run(["losetup", "--detach", name], check=True)
        finally:
            server.kill()
            namespaces.unmount(at, lazy=True)


@pytest.mark.needs("losetup", "mkfs.ext4", "fs:ext4")
def test_a_device_whose_file_cannot_be_examined_holds_no_image_of_ours(
    dead: str, tmp_path: Path
) -> None:
    """A new image is attached, formatted and mounted beside it; only what is behind a block device
    stays unknown.
    """
    make_image(image := tmp_path / "image", 32 * 2**20)
    # The kernel remembers for a second what the server said about the file.
    assert (
        process.wait_while(
            lambda: loop_driver.statuses([dead])[dead].file != (0, 0),
            60.0,
        )
        is False
    )
    with attached(image) as device, mounted(device, tmp_path / "mnt"):
        assert used.by_loops(used.target(device.facts.name)) == []
    block = used.by_loops(used.Target("sda", frozenset({1}), frozenset()))
    assert [text for text in block if f"the backing file of {dead} cannot be examined" in text]
