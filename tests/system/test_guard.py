"""The guard refuses every kind of used device, names the reason, and changes no byte."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.errors import DeviceInUse, DeviceNotEmpty, DeviceUnusable, UnmountFailed
from dbbench.machine import namespaces
from dbbench.model import DeviceSpec, WalDevice
from dbbench.plan import request
from dbbench.run import disk_space
from dbbench.storage import devices
from dbbench.storage.devices import block, guard, hold, loop, naming, sysfs, used
from dbbench.storage.devices.port import Device, DiskSet
from tests.support.permit import Permit
from tests.support.plans import plan
from tests.support.planted import (
    LOCK,
    OPEN,
    PLANTS,
    SIZE,
    Disk,
    beside,
    detach,
    mkfs,
    mounted,
    new_disk,
    opened,
    uuid_of,
)
from tests.support.signatures import NAMELESS, SIGNATURES

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield a user's blank disk."""
    made = new_disk(tmp_path / "one")
    yield made
    detach(made.path)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Disk]:
    """A second one."""
    made = new_disk(tmp_path / "two")
    yield made
    detach(made.path)


@pytest.fixture(autouse=True)
def only_readable_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out processes that a container or sandbox hides even from root.

    To the program each of them is a reason to refuse (test_what_cannot_be_read_counts_as_use);
    the other tests would find nothing else on such a machine.
    """
    look_at_each = used._each

    def look_at_readable(
        proc: Path,
        look: Callable[[str], None],
        what: str,
    ) -> list[str]:
        def look_if_readable(folder: str) -> None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                try:
                    Path(folder, "ns/mnt").readlink()
                except PermissionError:
                    return
            look(folder)

        return look_at_each(proc, look_if_readable, what)

    monkeypatch.setattr(used, "_each", look_at_readable)


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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in use is not waited for."""
    for module, name in (
        (block, "_SETTLE_S"),
        (block, "_FREE_S"),
        (loop, "_SETTLE_S"),
        (guard, "_MOMENT_S"),
    ):
        monkeypatch.setattr(module, name, 0.2)


@pytest.mark.needs("mkswap", "swapon", "unshare", "mkfs.btrfs", "fs:btrfs")
@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.usefixtures("impatient")
def test_a_used_device_is_refused_and_untouched(name: str, disk: Disk) -> None:
    """A device in use is refused even if its identity is given; all reasons are reported, and no
    byte is changed.
    """
    plant, evidence = PLANTS[name]
    with plant(disk):
        before = disk.digest()
        with (
            pytest.raises(DeviceInUse) as refused,
            attached(disk, Permit(devices.identity(disk.path))),
        ):
            pass
        assert disk.digest() == before
    for said in evidence:
        assert said in refused.value.evidence
    assert refused.value.effect == "Nothing was changed."


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_yields_to_the_typed_identity_only(name: str, disk: Disk) -> None:
    """All that is on it is named with the command that would erase it; that command's word is this
    device's.
    """
    plant, kinds, programs = SIGNATURES[name]
    if lacking := [program for program in programs if process.find(program) is None]:
        pytest.skip(f"needs {', '.join(lacking)}")
    plant(disk)
    before = disk.digest()
    word = devices.identity(disk.path)
    with (
        pytest.raises(DeviceNotEmpty) as refused,
        attached(disk, Permit("yes", disk.path.name, word[:-1])),
    ):
        pass
    for kind in kinds:
        assert f"\n  {kind} " in refused.value.evidence
    assert refused.value.remedy is not None and refused.value.remedy.endswith(f"--wipe {word}")
    with attached(disk, Permit(word)) as device:
        assert device.path == disk.path
    assert disk.digest() == before


@pytest.mark.parametrize("name", NAMELESS)
def test_data_without_a_signature_yields_like_one(name: str, disk: Disk) -> None:
    """A raw device of a database or an encrypted volume has no signature, and is still not
    empty.
    """
    NAMELESS[name](disk)
    before = disk.digest()
    word = devices.identity(disk.path)
    with (
        pytest.raises(DeviceNotEmpty, match="data without a signature at byte") as refused,
        attached(disk, Permit()),
    ):
        pass
    assert "signature" not in refused.value.evidence.replace("without a signature", "")
    assert disk.digest() == before
    for permit in (Permit(word), Permit(had=word)):
        with attached(disk, permit):
            pass


def test_our_own_filesystem_yields_by_its_uuid(disk: Disk) -> None:
    """The journal's record counts for exactly the filesystem that it names."""
    mkfs(disk)
    word = devices.identity(disk.path)
    uuid = uuid_of(disk)
    with attached(disk, Permit(made=(word, uuid))):
        pass
    with pytest.raises(DeviceNotEmpty), attached(disk, Permit(made=(word, "another"))):
        pass


def test_a_blank_device_is_ours_and_locked(disk: Disk) -> None:
    """mkfs gets what was checked; meanwhile another run is refused, and afterwards it is free
    again.
    """
    with attached(disk) as device:
        with hold.lent():
            process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        with pytest.raises(DeviceInUse, match=rf"locked by process {os.getpid()} "), attached(disk):
            pass
    assert (device.facts.name, device.facts.size_bytes) == (disk.path.name, SIZE)
    assert device.st_rdev == disk.path.stat().st_rdev
    assert device.leaves == (disk.path.name,)
    # another lane may have it open just then
    process.wait_while(lambda: len(guard.reasons(disk.path)) > 1, 10)
    assert [reason.kind for reason in guard.reasons(disk.path)] == ["signature"]


@pytest.mark.parametrize("doing", ["fcntl.flock(f, fcntl.LOCK_EX)", "None"])
def test_udev_may_take_its_time(disk: Disk, doing: str) -> None:
    """It locks and reads a disk that dbbench itself has closed. On a slow machine that takes longer
    than another program gets.
    """
    script = (
        "import fcntl, sys, time; open('/proc/self/comm', 'w').write('(udev-worker)'); "
        f"f = open(sys.argv[1], 'rb'); {doing}; print(1, flush=True); time.sleep(4)"
    )
    with beside(sys.executable, "-c", script, disk.path):
        began = time.monotonic()
        with attached(disk):
            assert time.monotonic() - began > 2


def test_a_locked_device_is_left_alone(disk: Disk) -> None:
    """udev, sfdisk and mkfs lock a disk while they work on it."""
    with disk.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DeviceInUse, match="flock"), attached(disk):
            pass


def test_a_lock_of_an_instant_is_waited_for(disk: Disk) -> None:
    """udev holds one after each change of a device."""
    other = disk.path.open("rb")
    fcntl.flock(other, fcntl.LOCK_SH)
    timer = threading.Timer(0.3, other.close)
    timer.start()
    with attached(disk):
        timer.join()


def test_an_open_of_a_moment_is_waited_for(disk: Disk) -> None:
    """Programs that list disks open each of them."""
    with beside(sys.executable, "-c", OPEN, disk.path, str(os.O_RDONLY)) as reader:
        timer = threading.Timer(1.0, reader.kill)
        timer.start()
        with attached(disk):
            timer.join()


@pytest.mark.usefixtures("impatient")
def test_who_holds_the_lock_is_named(disk: Disk) -> None:
    """Of a device and of a loop device's image: process, name and command, from within a trial's
    namespaces too.
    """
    with beside(sys.executable, "-c", LOCK, disk.path) as holder:
        with pytest.raises(DeviceInUse) as refused, attached(disk):
            pass
        script = (
            "import os, sys; from dbbench.machine import namespaces; from "
            "dbbench.storage.devices import guard\n"
        )
        script += (
            "def work():\n    print(guard.locked_by(os.open(sys.argv[1], os.O_RDONLY)))\n    "
            "return 0\n"
        )
        script += "sys.exit(namespaces.isolate(work))\n"
        env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        within = process.run([sys.executable, "-c", script, disk.path], env=env).stdout
    named = (
        f"locked by process {holder.pid} ({Path(sys.executable).name[:15]}): {sys.executable} -c "
        "import fcntl"
    )
    assert named in refused.value.evidence
    assert named in within
    (image := disk.folder / "image").write_bytes(bytes(2**20))
    with (
        beside(sys.executable, "-c", LOCK, image) as holder,
        pytest.raises(DeviceInUse) as refused,
        loop.attach(image),
    ):
        pass
    assert f"\n  locked by process {holder.pid} (" in refused.value.evidence


def test_a_swapped_name_hits_nothing(
    disk: Disk,
    victim: Disk,
    tmp_path: Path,
) -> None:
    """What was checked is what is formatted, wherever the name leads by then."""
    (link := tmp_path / "link").symlink_to(disk.path)
    before = victim.digest()
    with block.attach(link, None, Permit()) as device:
        link.unlink()
        link.symlink_to(victim.path)
        with hold.lent():
            process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
    assert victim.digest() == before
    assert uuid_of(disk)


def test_the_plan_may_name_another_disk(disk: Disk) -> None:
    """An identity in the plan must fit; that it fits permits nothing."""
    with (
        pytest.raises(DeviceUnusable, match="the plan requires S5GX"),
        attached(disk, identity="S5GX"),
    ):
        pass
    with attached(disk, identity=devices.identity(disk.path)):
        pass
    mkfs(disk)
    with pytest.raises(DeviceNotEmpty), attached(disk, identity=devices.identity(disk.path)):
        pass


def test_a_name_swapped_at_any_moment_hits_what_was_checked(
    disk: Disk,
    victim: Disk,
    tmp_path: Path,
) -> None:
    """A name that alternates between two disks a thousand times a second: mkfs gets the checked
    descriptor.
    """
    mkfs(victim)
    before = victim.digest()
    link = tmp_path / "link"
    ended = threading.Event()

    def swap() -> None:
        for number in range(10**9):
            if ended.is_set():
                return
            other = tmp_path / "other"
            other.symlink_to(disk.path if number % 2 else victim.path)
            other.rename(link)

    thread = threading.Thread(target=swap)
    thread.start()
    made = 0
    try:
        # 12 times, and until the name has led to the disk at the right moments
        for tried in range(200):
            if tried >= 12 and made:
                break
            try:
                with (
                    block.attach(link, None, Permit(devices.identity(disk.path))) as device,
                    hold.lent(),
                ):
                    process.run(["mkfs.ext4", "-q", "-F", device.argument], pass_fds=(device.fd,))
                    made += 1
            except (DeviceInUse, DeviceNotEmpty, DeviceUnusable):
                pass  # the name led to the other just then, or nowhere
    finally:
        ended.set()
        thread.join()
    assert victim.digest() == before
    assert made


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


def test_a_device_that_is_listed_twice_is_named(disk: Disk, tmp_path: Path) -> None:
    """Under the same name, under another, or as the device of the log: nothing is opened."""
    (link := tmp_path / "link").symlink_to(disk.path)
    twice = DeviceSpec(kind="block", paths=(str(disk.path), str(link)))
    log = DeviceSpec(
        kind="block",
        path=str(link),
        wal=WalDevice(fs_setup="ext4", path=str(disk.path)),
    )
    same = DeviceSpec(kind="block", paths=(str(disk.path), str(disk.path)))
    for spec, said in (
        (twice, f"{link} is listed twice in [device], also as {disk.path}"),
        (log, f"{disk.path} is listed twice in [device], also as {link}"),
        (same, f"{disk.path} is listed twice in [device]"),
    ):
        volumes = {role: DiskSet(of_role, most=2) for role, of_role in spec.volumes.items()}
        with pytest.raises(DeviceUnusable) as refused, devices.attach(volumes, Permit()):
            pass
        assert refused.value.evidence == said
        assert refused.value.id == "E101"


@pytest.mark.parametrize("where", ["data", "log"])
def test_a_disk_too_small_for_the_redo_log_is_reported(
    disk: Disk,
    tmp_path: Path,
    where: str,
) -> None:
    """Before the start (E203): MariaDB would wait for ever for space on 64 MiB."""
    devices = {
        "data": {"path": str(disk.path)},
        "log": {"path": "/dev/none", "wal": {"path": str(disk.path), "fs_setup": "xfs"}},
    }
    (tmp_path / "plan.toml").write_text(
        plan(
            engine="mariadb",
            workload="sysbench-oltp-read-write",
            device={"kind": "block", **devices[where]},
        )
    )
    wanted = request.load_request(str(tmp_path / "plan.toml"), [])
    found = list(disk_space.shortages(wanted.plan, wanted.expanded, tmp_path, None))
    assert [error.id for error in found] == ["E203"]
    assert "logs" in found[0].evidence
    assert "64 MiB" in found[0].evidence or "67.1 MB" in found[0].evidence


def test_a_journal_that_another_user_wrote_permits_nothing(disk: Disk, dbbench: Any) -> None:
    """A run is resumed whose journal claims to have made what lies on the disk: E106, and no byte
    of it changes.
    """
    dbbench.plan(
        'name = "p"\nwarmup = "1s"\nmeasure = "1s"\nfs_setups = ["ext4"]\n[device]\nkind = '
        '"block"\n'
        f'path = "{disk.path}"\n[[engine]]\nname = "files"\n[[workload]]\nname = "copy"\n'
    )
    dbbench.run_and("plan.toml", lambda _event: True, lambda pid: os.kill(pid, signal.SIGKILL))
    # The kernel may still end what a trial had begun.
    process.wait_while(
        lambda: [why for why in guard.reasons(disk.path) if why.kind == "in use"], 30
    )
    mkfs(disk)
    word = devices.identity(disk.path)
    before = disk.digest()
    with (dbbench.folder / "results/r/journal.jsonl").open("a") as journal:
        for event in ("had", "making", "made", "making"):
            journal.write(
                json.dumps({"utc": 1.0, "event": event, "device": word, "uuid": uuid_of(disk)})
                + "\n"
            )
    said = dbbench("run", "plan.toml", "--name", "r", "--progress", "none", status=5).stderr
    assert "E106" in said and disk.digest() == before


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


@pytest.mark.needs("unshare", "lsblk")
@pytest.mark.parametrize("name", ["mounted-in-another-namespace", "plain-open"])
def test_doctor_shows_a_disk_that_lsblk_takes_for_free_as_in_use(
    name: str,
    disk: Disk,
    dbbench: Any,
) -> None:
    """As `run` would refuse it, with the process."""
    plant, evidence = PLANTS[name]
    with plant(disk):
        rows = json.loads(dbbench("doctor", "--json").stdout)["checks"]
    (row,) = [row for row in rows if row["check"] == f"device {disk.path}"]
    assert not row["ok"] and evidence[0] in row["found"]


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
            Path(__file__).parents[2],
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


@pytest.mark.usefixtures("impatient")
def test_a_device_that_stays_busy_is_reported(disk: Disk) -> None:
    """umount that did not happen is an error of its own, with who holds it; an earlier error stays
    the first.
    """
    (point := disk.folder / "mnt").mkdir()
    with pytest.raises(UnmountFailed, match=f"is mounted at {point}"), attached(disk) as device:
        with hold.lent():
            process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        hold.release(device.fd)
        namespaces.mount(device.path, point, "ext4")
    namespaces.unmount(point)
    assert not process.wait_while(
        lambda: [why for why in guard.reasons(disk.path) if why.kind == "in use"], 30
    )
    word = devices.identity(disk.path)
    with pytest.raises(ZeroDivisionError) as first, attached(disk, Permit(word)) as device:
        hold.release(device.fd)
        namespaces.mount(device.path, point, "ext4")
        _ = 1 / 0
    assert "E307" in first.value.__notes__[0]
    namespaces.unmount(point)
