"""Another process tries to use the device at random moments of a trial.

What it mounts, formats or swaps to is never overwritten. What it writes through an ordinary open
may be: then the trial fails.
"""

import contextlib
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbbench import process
from dbbench.errors import DbbenchError, DeviceChanged, DeviceInUse, DeviceNotEmpty
from dbbench.results.journal import Journal
from dbbench.storage import devices, filesystems
from dbbench.storage.devices import block, canary, ceiling, guard, hold, precondition
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import formatted
from dbbench.storage.layers.volume import note_signatures
from tests.support import foreign
from tests.support.foreign import ACTIONS, AT, MARK, PATTERN
from tests.support.permit import Permit
from tests.support.planted import OPEN, Disk, beside, detach, loop_on_top, new_disk
from tests.support.setups import shipped

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")

SIZE = 512 * 2**20  # the least that all families take
PROBE = (
    "import os, select, sys\n"
    "print('ready', flush=True)\n"
    "count = 0\n"
    "while not select.select([sys.stdin], [], [], 0)[0]:\n"
    "    try:\n"
    "        os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL))\n"
    "        count += 1\n"
    "    except OSError:\n"
    "        pass\n"
    "print(count)"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A blank disk of another person."""
    made = new_disk(tmp_path / "disk", SIZE)
    yield made
    detach(made.path)


@contextlib.contextmanager
def attached(disk: Disk) -> Iterator[Device]:
    """The disk as a target, its identity typed."""
    typed = Permit(devices.identity(disk.path))
    with block.attach(disk.path, None, typed, etc=disk.folder) as device:
        yield device


def trial(disk: Disk, seed: int) -> float:
    """The stages of a trial that write to the bare device, and two filesystems; when the last one
    ended.
    """
    with attached(disk) as device:
        hold.erase(device.fd)
        canary.measure(device)
        ceiling.measure(device, ceiling.row_seconds(6.0), seed)
        precondition.discard(device)
        for _ in range(2):
            filesystems.make(shipped("ext4"), device)
            with filesystems.mount(shipped("ext4"), device, disk.folder / "trial"):
                (disk.folder / "trial/table").write_bytes(os.urandom(2**20))
        return time.monotonic()


def raced(
    disk: Disk,
    action: str,
    delay_s: float,
    seed: int,
) -> tuple[str, str]:
    """One trial against one other process: how that ended, and the error that the trial ended
    with.
    """
    process.run(["mkfs.ext4", "-q", "-F", disk.path])
    point = disk.folder / "foreign"
    point.mkdir(exist_ok=True)
    process.run(["mount", disk.path, point])
    (point / MARK).write_bytes(PATTERN)
    process.run(["umount", point])
    argv = [
        sys.executable,
        str(Path(foreign.__file__)),
        action,
        str(disk.path),
        str(point),
        str(delay_s),
    ]
    error = ""
    over = math.inf
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
        try:
            over = trial(disk, seed)
        except DbbenchError as failure:
            error = failure.id
        *succeeded, end = other.communicate()[0].splitlines()
    assert other.returncode == 0
    if action == "dd" and succeeded and float(succeeded[-1].split()[1]) > over:
        end = "never"  # it wrote after the trial's last step: there was nothing to notice any more
    return end, error


def races(disk: Disk, rounds: int) -> Counter[tuple[str, str, str]]:
    """So many rounds, each action as often, at moments of all stages: how often each (action, end,
    error) was.
    """
    dice = random.Random(20260101)
    found = Counter[tuple[str, str, str]]()
    for number in range(rounds):
        action = list(ACTIONS)[number % len(ACTIONS)]
        end, error = raced(disk, action, dice.uniform(0.0, 1.5), number)
        found[action, end, error] += 1
        print(action, end, error)
    return found


@pytest.mark.parametrize(
    "rounds",
    [
        len(ACTIONS),
        pytest.param(20, marks=pytest.mark.long),
        pytest.param(200, marks=pytest.mark.soak),
    ],
)
@pytest.mark.needs("fio", "mkswap", "swapon")
def test_another_process_is_not_overwritten(
    rounds: int,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a trial writes to the bare device or runs mkfs, another process mounts, makes a
    filesystem, swaps or puts a loop device over it: it fails, or its data stays whole and the
    trial is refused. Only what `dd` writes may be lost, and the trial notices it.
    """
    for module, name in ((block, "_FREE_S"), (formatted, "_RELEASE_S")):
        # the other process keeps the disk until the trial has ended
        monkeypatch.setattr(module, name, 2.0)
    found = races(disk, rounds)
    assert not [row for row in found if row[:2] != ("dd", "changed") and row[1] == "changed"], found
    assert not [row for row in found if row[0] == "dd" and row[1] != "never" and not row[2]], found
    # the other process was first
    assert rounds == len(ACTIONS) or any(end == "intact" for _, end, _ in found), found


@pytest.mark.needs("kernel:md", "mdadm")
def test_a_held_device_is_not_a_member_of_an_array(disk: Disk) -> None:
    """mdadm cannot take a device that is held."""
    with attached(disk) as device:
        argv = [
            "mdadm",
            "--create",
            "/dev/md/foreign",
            "--run",
            "--level=1",
            "--force",
            "--raid-devices=1",
            disk.path,
        ]
        done = process.run([*argv], ok=(0, 1, 2), env={"MDADM_NO_UDEV": "1"})
        assert done.returncode, device.path


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "f2fs"])
def test_the_hold_has_no_gap_while_a_filesystem_is_made(disk: Disk, name: str) -> None:
    """From the first check to the end of mkfs no other process gets the device exclusively, and
    afterwards it is held by the mount alone.
    """
    setup = shipped(name)
    with beside_probe(disk) as probe, attached(disk) as device:
        count = stopped(probe)
        assert count >= 0
        with beside_probe(disk) as second:
            hold.erase(device.fd)
            made = filesystems.make(setup, device)
            assert stopped(second) == 0
        with filesystems.mount(setup, device, disk.folder / "trial") as fs:
            assert fs.family == setup.mkfs.family
        assert made.uuid
        with beside_probe(disk) as third:
            filesystems.make(setup, device)
            assert stopped(third) == 0


@contextlib.contextmanager
def beside_probe(disk: Disk) -> Iterator[subprocess.Popen[str]]:
    """A process that tries to open the device exclusively, as often as it can."""
    with beside(sys.executable, "-c", PROBE, disk.path) as probe:
        yield probe


def stopped(probe: subprocess.Popen[str]) -> int:
    """How often it succeeded."""
    return int(probe.communicate("\n")[0])


def test_without_seccomp_the_hold_is_released_for_mkfs(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel or container that refuses the filter: mkfs, mount and unmount work, and the device
    is held between them.
    """
    monkeypatch.setattr(hold, "possible", lambda: False)
    with attached(disk) as device:
        filesystems.make(shipped("ext4"), device)
        assert hold.exclusively(device.fd) is None
        with filesystems.mount(shipped("ext4"), device, disk.folder / "trial"):
            pass
        assert hold.exclusively(device.fd) is None


def test_a_writer_on_a_held_device_is_refused(disk: Disk) -> None:
    """A plain open and a loop device over it are not prevented by the hold: mkfs is not run, and
    the error names it.
    """
    with pytest.raises(DeviceInUse, match="for writing by process"), attached(disk) as device:
        with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDWR)) as writer:
            before = disk.digest()
            with pytest.raises(DeviceInUse, match=f"opened for writing by process {writer.pid} "):
                filesystems.make(shipped("ext4"), device)
            assert disk.digest() == before
        with loop_on_top(disk), pytest.raises(DeviceInUse, match="attached to the same data"):
            filesystems.make(shipped("ext4"), device)
        filesystems.make(shipped("ext4"), device)
        writer = subprocess.Popen(
            [sys.executable, "-c", OPEN, disk.path, str(os.O_RDWR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline()
    writer.communicate()


def test_another_filesystem_after_the_unmount_is_left_alone(disk: Disk) -> None:
    """What another process puts on the device between the unmount and the next step ends the trial
    (E109).
    """
    with attached(disk) as device:
        filesystems.make(shipped("ext4"), device)
        with hold.handed_over(device.fd):
            pass
        assert hold.foreign_write(device.fd) is None
        process.run(["mkswap", "--force", disk.path])
        assert hold.regain(device.fd)
        with pytest.raises(DeviceChanged, match="swap"):
            formatted._must_be_ours(device)


def test_what_another_process_makes_between_two_trials_is_left_alone(
    disk: Disk, tmp_path: Path
) -> None:
    """A typed identity permits to erase what was there when the command was started, and what this
    run has made; a filesystem that came between two trials is refused and untouched, until the
    identity is typed again.
    """
    word = devices.identity(disk.path)
    journal = Journal(tmp_path / "journal.jsonl")
    process.run(["mkfs.ext4", "-q", "-F", disk.path])

    def attached_again() -> contextlib.AbstractContextManager[Device]:
        return block.attach(
            disk.path,
            None,
            guard.Permit((word,), journal),
            etc=disk.folder,
        )

    journal.note("wipe", device=word)
    for _ in range(2):
        with attached_again() as device:
            guard.Permit((word,), journal).note(device.each)
            hold.erase(device.fd)
            filesystems.make(shipped("ext4"), device)
            note_signatures(device, journal)
    process.run(["mkfs.ext4", "-q", "-F", disk.path])
    before = disk.digest()
    with pytest.raises(DeviceNotEmpty), attached_again():
        pass
    assert disk.digest() == before
    journal.note("wipe", device=word)
    with attached_again():
        pass


def test_all_that_could_be_mounted_is_erased(disk: Disk) -> None:
    """Also the copies of a superblock: neither the device nor a loop device over it can be
    mounted.
    """
    process.run(["mkfs.ext4", "-q", "-F", disk.path])
    with attached(disk) as device:
        hold.erase(device.fd)
        content = disk.path.open("rb").read(SIZE)
        assert not content[: 2**20].strip(b"\0")
        assert not guard.signatures_of(device.fd)
        assert process.run(
            ["e2fsck", "-n", "-b", "32768", "-B", "4096", disk.path], ok=range(256)
        ).returncode
    assert AT < SIZE
