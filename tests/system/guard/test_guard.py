"""The guard refuses every kind of used device, names the reason, and changes no byte."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli, process
from dbbench.errors import DeviceInUse, DeviceNotEmpty, DeviceUnusable
from dbbench.model import DeviceSpec, WalDevice
from dbbench.plan import request
from dbbench.run import disk_space
from dbbench.storage import devices
from dbbench.storage.devices import guard, hold
from dbbench.storage.devices.port import DiskSet
from tests.support.permit import Permit
from tests.support.plans import plan
from tests.support.planted import PLANTS, SIZE, Disk, attached, mkfs, uuid_of
from tests.support.signatures import NAMELESS, SIGNATURES

pytestmark = pytest.mark.needs("root", "losetup", "wipefs", "blkid", "mkfs.ext4", "fs:ext4")


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
        with hold.lend():
            process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        with pytest.raises(DeviceInUse, match=rf"locked by process {os.getpid()} "), attached(disk):
            pass
    assert (device.facts.name, device.facts.size_bytes) == (disk.path.name, SIZE)
    assert device.st_rdev == disk.path.stat().st_rdev
    assert device.leaves == (disk.path.name,)
    # another lane may have it open just then
    process.wait_while(lambda: len(guard.reasons(disk.path)) > 1, 10)
    assert [reason.kind for reason in guard.reasons(disk.path)] == ["signature"]


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
    found = list(disk_space.shortages(wanted, tmp_path))
    assert [error.id for error in found] == ["E203"]
    assert "logs" in found[0].evidence
    assert "64 MiB" in found[0].evidence or "67.1 MB" in found[0].evidence


def test_init_proposes_no_plan_for_a_disk_that_is_too_small(
    disk: Disk,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """E203 with the size that is needed, and no file."""
    file = tmp_path / "plan.toml"
    words = ["--device", str(disk.path), "--engine", "postgres", "-o", str(file)]
    assert cli.run(["init", *words]) == 2
    assert "Use a device of at least 1 GiB" in capsys.readouterr().err
    assert not file.exists()


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
