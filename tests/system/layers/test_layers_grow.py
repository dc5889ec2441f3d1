"""Arrays and volume groups grow; snapshots are copied, merged and dropped."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dbbench import process
from dbbench.model import Layer
from dbbench.results.journal import Journal
from dbbench.storage import filesystems, layers
from dbbench.storage.devices import guard
from dbbench.storage.devices.port import as_one
from dbbench.storage.filesystems.volumes import layers_to_add
from dbbench.storage.layers import lvm, md
from dbbench.storage.layers.volume import let_go
from tests.support.layers import EXT4, MIB, SIZE, Disks, facts_of, read
from tests.support.leftovers import layers_of
from tests.support.setups import ALL


@pytest.mark.needs(
    "root",
    "mdadm",
    "kernel:raid0",
    "kernel:raid1",
    "kernel:raid10",
    "kernel:raid456",
    "fs:ext4",
    "mkfs.ext4",
)
@pytest.mark.parametrize(("level", "larger"), [(0, True), (1, False), (10, True)])
def test_an_array_grows_by_a_device(
    level: int,
    larger: bool,
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """A third device belongs to it, its data is there, and the mounted filesystem is as it was."""
    with disks(3) as device:
        *first, spare = device.each
        layer = Layer("md", level=level)  # type: ignore[arg-type]
        with md.make(layer, first, journal) as (array,):
            filesystems.make(EXT4, array)
            with filesystems.mount(EXT4, array, tmp_path / "mnt") as fs:
                (fs.path / "file").write_bytes(b"content" * MIB)
                facts = facts_of(array)
                md.add(facts, spare)
                found = md.until_idle(facts)
                assert (found["devices"], found["level"], found["degraded"]) == (3, level, 0)
                assert (int(found["size_bytes"]) > 1.4 * int(facts["size_bytes"])) is larger
                assert (fs.path / "file").read_bytes() == b"content" * MIB
        assert guard.signatures_of(spare.fd) == []


@pytest.mark.needs("root", "lvcreate", "kernel:dm-mod", "fs:ext4", "mkfs.ext4")
def test_a_volume_grows_by_a_device(disks: Disks, journal: Journal) -> None:
    """The volume is larger by the device, and all is gone afterwards."""
    with disks(2) as device:
        first, spare = device.each
        with lvm.make(Layer("lvm"), [first], journal) as (volume,):
            lvm.extend(facts_of(volume), spare)
            assert int(read(f"/sys/block/{volume.path.name}/size")) * 512 > 1.9 * SIZE
        assert guard.signatures_of(spare.fd) == []


@pytest.mark.needs(
    "root",
    "mdadm",
    "lvcreate",
    "kernel:raid1",
    "kernel:dm-mod",
    "fs:ext4",
    "mkfs.ext4",
)
def test_a_volume_on_mirrors_grows_by_a_mirror(
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """The striped volume continues on a third mirror, its filesystem is larger, and all of it is
    gone afterwards.
    """
    setup = ALL.setup("ext4-lvm-striped-md1")
    with disks(6) as device:
        whole = replace(as_one(device.each[:4]), spare=as_one(device.each[4:]))
        with layers.stack_layers(setup.layers, whole, journal, layers_to_add(setup)) as volume:
            assert volume.spare is not None and volume.spare.layers[-1]["level"] == 1
            filesystems.make(setup, volume)
            with filesystems.mount(setup, volume, tmp_path / "mnt") as fs:
                (fs.path / "file").write_bytes(b"content" * MIB)
                before = os.statvfs(fs.path).f_blocks
                lvm.extend(facts_of(volume), volume.spare)
                process.run(["resize2fs", volume.path])
                assert os.statvfs(fs.path).f_blocks > 1.4 * before
                assert (fs.path / "file").read_bytes() == b"content" * MIB
        assert [guard.signatures_of(disk.fd) for disk in device.each] == [[]] * 6
    assert journal.outstanding("layer") == []


@pytest.mark.needs(
    "root",
    "lvcreate",
    "kernel:dm-snapshot",
    "kernel:dm-thin-pool",
    "fs:ext4",
    "mkfs.ext4",
)
@pytest.mark.parametrize("kind", ["classic", "thin"])
def test_a_snapshot_is_copied_merged_and_dropped(
    kind: str,
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """What is written to a copy of a snapshot does not reach it: the volume is as it was then once
    it is merged.
    """
    layer = Layer("lvm", snapshot=kind, snapshot_size="50%")  # type: ignore[arg-type]
    at = tmp_path / "copy"
    at.mkdir()
    with disks(1) as device, layers.stack_layers([layer], device, journal) as volume:
        facts = facts_of(volume)
        filesystems.make(EXT4, volume)
        with filesystems.mount(EXT4, volume, tmp_path / "mnt") as fs:
            (fs.path / "file").write_bytes(b"old content")
            lvm.snapshot(facts, "taken", share=0.5)
            (fs.path / "file").write_bytes(b"new content")
            filesystems.sync(fs.path)
            assert 4096 <= lvm.used_bytes(facts, "taken") < 8 * MIB
            process.run(["mount", f"/dev/{lvm.clone(facts, 'copy', 'taken')}", at])
            assert (at / "file").read_bytes() == b"old content"
            (at / "file").write_bytes(b"content of the copy")
            process.run(["umount", at])
            lvm.drop(facts, "copyroom", "copy")
        with let_go(volume):
            lvm.merge(facts, "taken")
        with filesystems.mount(EXT4, volume, tmp_path / "mnt") as fs:
            assert (fs.path / "file").read_bytes() == b"old content"
        lvm.drop(facts, "taken", "copyroom", "copy")
        lvm.snapshot(facts, "taken", share=0.5)
        lvm.drop(facts, "taken")
        assert not any("taken" in name for name in layers_of(tmp_path))
