"""How the guard looks at a machine: what it cannot read counts as use, and it looks from everywhere
at the whole machine.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.errors import DeviceInUse, DeviceNotEmpty, DeviceUnusable
from dbbench.storage import devices
from dbbench.storage.devices import block, guard, naming, sysfs, used
from tests.support.permit import Permit
from tests.support.planted import (
    OPEN,
    Disk,
    attached,
    beside,
    detach,
    mounted,
    new_disk,
    opened,
    uuid_of,
)

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")


def test_the_disk_below_the_root_is_refused() -> None:
    """Of this machine itself, where its root lies on a disk that is to be seen: in use, with the
    mount point.
    """
    name = sysfs.name_of(Path("/").stat().st_dev)
    if name is None:
        pytest.skip("no disk is to be seen below /")
    root = Path("/dev", sysfs.disk_of(name))
    with (
        pytest.raises((DeviceInUse, DeviceUnusable)) as refused,
        block.attach(root, None, Permit()),
    ):
        pass
    # as in a container
    assert "is mounted at /" in str(refused.value) or "not permitted" in str(refused.value)


def test_a_disk_that_cannot_be_read_is_refused(disk: Disk) -> None:
    """The file of the loop device was truncated, so its content is unknown."""
    os.truncate(disk.image, 0)
    word = devices.identity(disk.path)
    with pytest.raises(DeviceInUse, match="cannot be read"), attached(disk, Permit(word)):
        pass


@pytest.mark.parametrize(
    "path", ["/dev/no-such-disk", "/dev/null", "/etc/fstab", "/dev", "/", "..", "."]
)
def test_what_is_not_a_block_device_is_refused(path: str) -> None:
    """A file of that name would be overwritten otherwise."""
    with pytest.raises(DeviceUnusable), block.attach(Path(path), None, Permit()):
        pass


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho '{}'\n", None])
def test_a_tool_that_fails_counts_as_use(
    program: str | None,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
) -> None:
    """Without the output of wipefs the content is unknown."""
    if program is None:
        monkeypatch.setattr(
            process,
            "find",
            lambda name: shutil.which(name) if name != "wipefs" else None,
        )
    else:
        (tmp_path / "wipefs").write_text(program)
        (tmp_path / "wipefs").chmod(0o755)
        environ["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    with pytest.raises(DeviceInUse, match="signatures cannot be read"), attached(disk, Permit("x")):
        pass


@pytest.mark.needs("setpriv")
def test_what_cannot_be_read_counts_as_use(disk: Disk) -> None:
    """Where /proc hides a process's files, as from a root without CAP_SYS_PTRACE, it might have the
    device open.
    """
    script = "import sys; from pathlib import Path; from dbbench.storage.devices import guard\n"
    script += "print(*guard.reasons(Path(sys.argv[1])), sep='\\n')"
    with opened()(disk):
        argv = ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", script, disk.path]
        said = process.run(argv).stdout
    assert f"the open files of process {os.getpid()} " in said
    assert f"the mounts of process {os.getpid()} " in said


def test_an_unseen_process_is_not_a_reason_by_itself(disk: Disk) -> None:
    """As in a container, where process 1 hides its files: a blank disk is free, and so is one with
    what this run made. What another process or person left there is refused, and the hidden
    process is named beside it.
    """
    name = disk.path.name
    word = naming.identity_of(name)
    unseen = guard.Reason("unseen", "the open files of process 1 cannot be read")
    signature = guard.Reason("signature", "ext4", uuid="u")
    guard.refuse(disk.path, name, [unseen], Permit())
    guard.refuse(disk.path, name, [unseen, signature], Permit(made=(word, "u")))
    guard.refuse(disk.path, name, [unseen, signature], Permit(word))
    with pytest.raises(DeviceNotEmpty, match="process 1 cannot be read"):
        guard.refuse(disk.path, name, [unseen, signature], Permit())
    with pytest.raises(DeviceInUse):
        guard.refuse(disk.path, name, [unseen, guard.Reason("in use", "mounted")], Permit(word))


def test_the_whole_machine_is_looked_at_from_within_a_trial(disk: Disk) -> None:
    """A trial has its own processes and mounts: users of the device outside are found all the same,
    itself is not.
    """
    script = "import sys; from pathlib import Path; from dbbench.machine import namespaces\n"
    script += "from dbbench.storage.devices import guard\n"
    script += "def work():\n    print(*guard.reasons(Path(sys.argv[1])), sep='\\n')\n    return 0\n"
    script += "sys.exit(namespaces.isolate(work))\n"
    argv = [sys.executable, "-c", script, disk.path]
    # Another lane may have it open just then.
    assert not process.wait_while(lambda: "opened by" in process.run(argv).stdout, 30)
    with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDONLY)) as user:
        assert f"opened by process {user.pid} (" in process.run(argv).stdout
    with mounted(disk):
        assert (
            f"is mounted at {disk.folder / 'mnt'} in the mount namespace of process"
            in process.run(argv).stdout
        )


MOUNT = """
import os, sys
from pathlib import Path
from dbbench.machine import namespaces
device, point, number, checkout = sys.argv[1:]
sys.path.append(checkout)
from tests.support.private_mounts import apart
os.dup2(os.open(device, os.O_RDWR), int(number))
with apart():
    namespaces.mount(f"/proc/self/fd/{number}", Path(point), "btrfs")
    print("mounted", flush=True)
    sys.stdin.read()
    namespaces.unmount(Path(point))
"""


@pytest.mark.needs("mkfs.btrfs", "fs:btrfs")
def test_a_btrfs_mounted_by_a_descriptor_uses_its_own_device_only(
    disk: Disk, tmp_path: Path
) -> None:
    """The mount table of another dbbench has "/proc/self/fd/7": what has this number here is
    another device.
    """
    other = new_disk(tmp_path / "other", 256 * 2**20)
    process.run(["mkfs.btrfs", "-q", other.path])
    (point := tmp_path / "mnt").mkdir()
    fd = os.open(disk.path, os.O_RDONLY)
    try:
        with beside(
            sys.executable,
            "-c",
            MOUNT,
            other.path,
            point,
            str(fd),
            Path(__file__).parents[3],
        ):
            # as above, another lane
            assert process.wait_while(lambda: guard.found_on(fd, mine={fd}), 10) == []
            texts = [reason.text for reason in guard.reasons(other.path)]
            assert f"it is a device of the mounted btrfs with UUID {uuid_of(other)}" in texts
    finally:
        os.close(fd)
        detach(other.path)


@pytest.mark.usefixtures("impatient")
def test_several_disks_are_examined_with_one_look_at_the_processes(
    disk: Disk,
    victim: Disk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large host has 30,000 processes. The reasons of each disk are its own."""
    looks: list[str] = []
    look_at_each = used._each

    def count(*given: Any) -> list[str]:
        looks.append(given[2])
        return look_at_each(*given)

    monkeypatch.setattr(used, "_each", count)
    with mounted(disk), guard.opened(disk.path) as one, guard.opened(victim.path) as other:
        found = guard.reasons_of([one, other], etc=disk.folder)
    first, second = found
    assert guard.HELD in first
    assert second == []
    # the open files are read again while another program has a disk open for a moment
    assert looks.count("the mounts") == 1
