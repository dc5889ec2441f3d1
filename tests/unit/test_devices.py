"""What /sys, wipefs and a directory say about devices, from trees and output of real machines."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from dbbench import cli
from dbbench.commands.doctor import in_use
from dbbench.commands.options import Options
from dbbench.errors import AnswerUnknown, DeviceInUse, DeviceNotEmpty
from dbbench.machine.host.proc import BOOT_ID
from dbbench.storage import devices
from dbbench.storage.devices import Listed, guard, naming, sysfs, used
from tests.support.files import write_file
from tests.support.permit import Permit
from tests.support.sys_tree import add

FIXTURES = Path(__file__).parent.parent / "fixtures/devices"
# /sys/block/loop0/stat of Linux 6.18: 225 flushes in the 16th field


@pytest.fixture
def sys_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/sys of a machine with sda (sda1, sda2), sdb, an LVM volume dm-0 on sda2 and sdb, and vda,
    vdb.
    """
    monkeypatch.setattr(sysfs, "SYS", tmp_path)
    monkeypatch.setattr(naming, "BY_ID", tmp_path / "by-id")
    disks = {"sda": "8:0", "sdb": "8:16", "dm-0": "253:0", "vda": "254:0", "vdb": "254:16"}
    for name, number in disks.items():
        add(tmp_path, name, number, tmp_path / "devices" / name)
        (tmp_path / "block").mkdir(exist_ok=True)
        (tmp_path / "block" / name).symlink_to(tmp_path / "devices" / name)
    for part, number in {"sda1": "8:1", "sda2": "8:2"}.items():
        add(tmp_path, part, number, tmp_path / "devices/sda" / part)
        write_file(tmp_path / "devices/sda" / part / "partition", part[-1] + "\n")
    for member in ("sda/sda2", "sdb"):
        (tmp_path / "devices" / member / "holders/dm-0").touch()
        (tmp_path / "devices/dm-0/slaves" / member.split("/")[-1]).touch()
    for name in disks:
        write_file(tmp_path / "devices" / name / "queue/write_cache", "write back\n")
    return tmp_path


def test_leaves_are_whole_disks(sys_tree: Path) -> None:
    """The I/O of a partition is counted for its disk, that of an LVM volume for the disks of its
    members, each once. A disk is below a volume that is built on one of its partitions.
    """
    assert sysfs.leaves("sda1") == ("sda",)
    assert sysfs.leaves("dm-0") == ("sda", "sdb")
    assert sysfs.leaves("vda") == ("vda",)
    assert sysfs.queue_attributes("sda1") == {"write_cache": "write back"}
    assert sysfs.above("sda") == ["sda1", "sda2", "dm-0"]
    assert sysfs.above("sda1") == []
    assert sysfs.name_of(os.makedev(8, 2)) == "sda2"
    assert sysfs.name_of(os.makedev(0, 39)) is None


def test_a_directory_that_a_container_hides_has_no_names(sys_tree: Path) -> None:
    """Podman hides /sys/dev/block; any error while reading it means unknown. Root may search what
    others may not.
    """
    shutil.rmtree(sys_tree / "dev/block")
    (sys_tree / "dev/block").symlink_to("block")
    assert sysfs.name_of(os.makedev(8, 2)) is None


def test_flushes_are_summed_over_leaves_and_unknown_is_not_zero(sys_tree: Path) -> None:
    """A disk that is sent no flushes makes the sum unknown, with the reason. Sectors of the other
    counters are of 512 bytes, whatever the disk's own are.
    """
    assert sysfs.io_counters("vda") == {
        "read_bytes": 54721 * 512,
        "write_bytes": 1271928 * 512,
        "read_operations": 1547,
        "write_operations": 1183,
    }
    assert sysfs.io_counters("gone") is None
    assert sysfs.flushes(["sda", "sdb"]) == 450
    assert sysfs.flushes_reason(["sda", "sdb"]) == ""
    (sys_tree / "devices/sdb/queue/write_cache").write_text("write through\n")
    assert sysfs.flushes(["sda", "sdb"]) is None
    assert sysfs.flushes_reason(["sda", "sdb"]) == "sdb has write_cache write through"
    assert sysfs.flushes([]) is None
    assert sysfs.flushes(["gone"]) is None


def test_a_serial_is_an_identity_only_where_it_is_unique(sys_tree: Path) -> None:
    """Virtual disks share a constant serial: then the WWN counts, then a by-id name, then this
    boot's names.
    """
    for name, place, text in (
        ("sda", "vpd_pg80", b"\0\x80\0\x08 S5GX-01"),
        ("sdb", "vpd_pg80", b"\0\x80\0\x04SAME"),
    ):
        write_file(sys_tree / "devices" / name / "device" / place, text)
    (sys_tree / "devices/vda/serial").write_text("SAME")
    (sys_tree / "devices/vdb/serial").write_text("SAME")
    (sys_tree / "devices/vdb/wwid").write_text("eui.0025385b71b0a0aa\n")
    (sys_tree / "devices/vda/diskseq").write_text("17\n")
    assert naming.identity_of("sda") == "S5GX-01"
    assert naming.identity_of("sda2") == "S5GX-01-part2"
    assert naming.identity_of("vdb") == "eui.0025385b71b0a0aa"
    boot = BOOT_ID.read_text()[:8]
    assert naming.identity_of("vda") == f"vda-1073741824-{boot}-17"
    assert naming.names_of("vda") == {"vda", "SAME", f"vda-1073741824-{boot}-17"}


def test_wipefs_output_is_read() -> None:
    """Type, label, UUID and place; a partition table has neither label nor UUID; a blank device has
    nothing.
    """
    found = guard.parse((FIXTURES / "wipefs_ext4.json").read_text())
    assert [(reason.kind, reason.label, len(reason.uuid)) for reason in found] == [
        ("signature", "my data", 36)
    ]
    assert found[0].text.startswith("ext4 'my data' (uuid ") and found[0].text.endswith(
        "at byte 1080"
    )
    assert guard.parse((FIXTURES / "wipefs_dos.json").read_text())[0].text == "dos at byte 510"
    assert guard.parse((FIXTURES / "wipefs_empty.json").read_text()) == []
    with pytest.raises(AnswerUnknown, match="Expecting value"):
        guard.parse("")


def test_the_refusal_in_the_readme_is_the_printed_one(
    sys_tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the names and numbers of the sample, the program prints the sample."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (sample,) = re.findall(r"^```\n(error E106: .*?)^```$", readme, re.MULTILINE | re.DOTALL)
    disk, size, serial, label, uuid, offset = re.findall(
        r"E106: (\S+) \((\d+) bytes, identity (\w+)\).*\n  xfs '(\w+)' \(uuid (\S+)\) at byte (\d+)",
        sample,
    )[0]
    (sys_tree / "devices/sda/serial").write_text(serial)
    (sys_tree / "devices/sda/size").write_text(f"{int(size) // 512}\n")
    mark = {"type": "xfs", "label": label, "uuid": uuid, "offset": hex(int(offset))}
    with pytest.raises(DeviceNotEmpty) as refusal:
        guard.refuse(Path(disk), "sda", guard.parse(json.dumps({"signatures": [mark]})), Permit())
    cli.tell(refusal.value, Options())
    assert capsys.readouterr().err == sample


def test_use_never_yields_and_a_signature_only_to_its_own_permit(sys_tree: Path) -> None:
    """The identity permits erasing content, but not a device in use; dbbench's own filesystem needs
    no identity.
    """
    (sys_tree / "devices/sda/serial").write_text("S5GX")
    signature = guard.Reason("signature", "ext4", "u-1")
    use = guard.Reason("in use", "mounted at /srv")
    where = Path("/dev/sda")
    guard.refuse(where, "sda", [], Permit())
    guard.refuse(where, "sda", [signature], Permit("S5GX"))
    guard.refuse(where, "sda", [signature], Permit(made=("S5GX", "u-1")))
    for permit in (Permit(), Permit("S5GX1"), Permit(made=("S5GX", "u-2"))):
        with pytest.raises(DeviceNotEmpty) as empty:
            guard.refuse(where, "sda", [signature], permit)
        assert empty.value.remedy is not None and "--wipe S5GX" in empty.value.remedy
    with pytest.raises(DeviceNotEmpty):
        guard.refuse(
            where,
            "sda",
            [signature, guard.Reason("signature", "dos")],
            Permit(made=("S5GX", "u-1")),
        )
    data = guard.Reason("data", "data without a signature at byte 0")
    guard.refuse(where, "sda", [data], Permit(had="S5GX"))
    guard.refuse(where, "sda", [data], Permit("S5GX"))
    for found, permit in (([data], Permit(made=("S5GX", ""))), ([signature], Permit(had="S5GX"))):
        with pytest.raises(DeviceNotEmpty):
            guard.refuse(where, "sda", found, permit)
    with pytest.raises(DeviceInUse) as refused:
        guard.refuse(where, "sda", [signature, use], Permit("S5GX"))
    assert "mounted at /srv" in refused.value.evidence and "ext4" in refused.value.evidence


@pytest.mark.parametrize("at", [0, 5, 3 * 2**20 + 100, 7_654_321, 10 * 2**20 + 6])
def test_any_byte_of_a_small_disk_is_seen(at: int, tmp_path: Path) -> None:
    """At the begin, anywhere in the midst and at the end; zeros are none."""
    with (tmp_path / "disk").open("w+b", buffering=0) as disk:
        disk.truncate(10 * 2**20 + 7)
        assert guard.data_without(disk.fileno()) == []
        os.pwrite(disk.fileno(), b"x", at)
        assert guard.data_without(disk.fileno()) == [
            guard.Reason("data", f"data without a signature at byte {at}")
        ]


@pytest.mark.parametrize(
    "at", [2**27 + 1080, 2**26 + 2**16 - 1, 2**38, 2**41 // 4 + 4096, 2**41 - 1, 2**40]
)
def test_of_a_large_disk_the_copies_of_superblocks_are_looked_at_first(
    at: int, tmp_path: Path
) -> None:
    """However slow it is."""
    with (tmp_path / "disk").open("w+b", buffering=0) as disk:
        disk.truncate(2**41)
        assert guard.data_at(disk.fileno(), within_s=0) is None
        os.pwrite(disk.fileno(), b"x", at)
        assert guard.data_at(disk.fileno(), within_s=0) == at


@settings(deadline=None)
@given(size=integers(0, 2**22))
def test_the_places_are_the_whole_disk(size: int) -> None:
    """In windows of 64 KiB."""
    seen = sorted(place for place in guard.places(size) if place < size)
    ends = [0, *(place + 2**16 for place in seen)]
    assert all(place <= end for place, end in zip(seen, ends, strict=False))
    assert size <= max(ends)


ROW = {"kname": "sdb", "pkname": None, "type": "disk", "size": 10, "fstype": None}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param({**ROW, "mountpoints": [None]}, (), id="not mounted, up to 2.40"),
        pytest.param({**ROW, "mountpoints": []}, (), id="not mounted, from 2.41 on"),
        pytest.param({**ROW, "mountpoints": None}, (), id="null"),
        pytest.param(ROW, (), id="no such key"),
        pytest.param({**ROW, "mountpoints": ["/a", "/b"], "new": {}}, ("/a", "/b"), id="two"),
    ],
)
def test_a_disk_of_lsblk_has_its_mount_points(row: Any, expected: tuple[str, ...]) -> None:
    """Whatever the version writes for a disk that is not mounted."""
    (disk,) = naming.parse_lsblk(json.dumps({"blockdevices": [row]}))
    assert disk == naming.Listed("sdb", "disk", (), 10, "", expected)


def test_a_layer_of_two_disks_is_listed_once_with_both() -> None:
    """lsblk 2.38 prints an array for each of its members; and no device at all in a container."""
    rows = [
        {"kname": "sda"},
        {"kname": "md0", "pkname": "sda", "type": "raid1"},
        {"kname": "sdb"},
        {"kname": "md0", "pkname": "sdb", "type": "raid1"},
    ]
    listed = naming.parse_lsblk(json.dumps({"blockdevices": rows}))
    assert [(disk.name, disk.below) for disk in listed] == [
        ("sda", ()),
        ("md0", ("sda", "sdb")),
        ("sdb", ()),
    ]
    assert naming.parse_lsblk('{"blockdevices": []}') == []


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"blockdevices": [{"name": "sda"}]}'])
def test_an_unknown_answer_of_lsblk_is_reported(answer: str) -> None:
    """By the error of all parsers; the list then comes from /sys."""
    with pytest.raises(AnswerUnknown, match="the output of lsblk could not be parsed"):
        naming.parse_lsblk(answer)


def test_what_a_mount_is_made_of_is_in_use() -> None:
    """A mounted volume uses the array below it, and that its disks; a volume that nobody uses is
    free, and its disks are not.
    """
    disks = [
        Listed("sda", "disk", (), 1, "", ()),
        Listed("md0", "raid1", ("sda", "sdb1"), 1, "", ()),
        Listed("dm-0", "lvm", ("md0",), 1, "", ("/srv",)),
        Listed("sdb", "disk", (), 1, "", ()),
        Listed("sdb1", "part", ("sdb",), 1, "", ()),
        Listed("dm-1", "lvm", ("sdc",), 1, "", ()),
        Listed("sdc", "disk", (), 1, "", ()),
        Listed("sdd", "disk", (), 1, "", ()),
    ]
    assert in_use(disks) == {"sda", "md0", "dm-0", "sdb", "sdb1", "sdc"}


def test_the_names_of_all_disks_are_read_once(
    sys_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again for each disk: on a host with 200 disks that is 40,000 times."""
    asked: list[str] = []

    def read(name: str) -> str:
        asked.append(name)
        return f"serial of {name}"

    monkeypatch.setattr(naming, "serial", read)
    names = naming.DiskNames()
    disks = sysfs.disks()
    identities = [naming.identity_of(name, names) for name in disks]
    assert identities == [f"serial of {name}" for name in disks]
    assert len(asked) == 2 * len(disks)


@pytest.mark.usefixtures("programs", "sys_tree")
def test_disks_are_listed_without_lsblk() -> None:
    """From /sys, with partitions and with what a volume is made of."""
    listed = {disk.name: (disk.kind, disk.below) for disk in devices.describe_all()}
    assert listed == {
        "dm-0": ("layer", ("sda2", "sdb")),
        "sda": ("disk", ()),
        "sda1": ("part", ("sda",)),
        "sda2": ("part", ("sda",)),
        "sdb": ("disk", ()),
        "vda": ("disk", ()),
        "vdb": ("disk", ()),
    }


LAYERS = [
    ("dm", "my--vg-data", "LVM-abc", "vgchange -an my-vg"),
    ("dm", "secret", "CRYPT-LUKS2-abc", "cryptsetup close secret"),
    ("dm", "mpatha", "mpath-36001", "multipath -f mpatha"),
    ("dm", "other", "", "dmsetup remove other"),
    ("md", "raid1", "", "mdadm --stop /dev/dm-0"),
]


@pytest.mark.parametrize(("kind", "name", "uuid", "command"), LAYERS)
def test_a_disk_in_use_is_refused_with_the_command_that_releases_it(
    sys_tree: Path,
    kind: str,
    name: str,
    uuid: str,
    command: str,
) -> None:
    """The layer that holds the disk is named as its owner named it, with the command of its kind."""
    folder = sys_tree / "devices/dm-0" / kind
    for place in ("name", "uuid") if kind == "dm" else ("level",):
        write_file(folder / place, {"name": name, "uuid": uuid, "level": name}[place] + "\n")
    device = used.Target("sdb", frozenset(), frozenset())
    reasons = [guard.Reason("in use", text) for text in used.by_layers(device)]
    with pytest.raises(DeviceInUse) as refused:
        guard.refuse(Path("/dev/sdb"), "sdb", reasons, Permit())
    assert name in refused.value.evidence
    assert f"\n  {command}" in str(refused.value.remedy)
    assert "dbbench clean" not in str(refused.value.remedy)


def test_layers_are_released_from_top_to_bottom(sys_tree: Path) -> None:
    """A volume on a disk that another volume is made of: the upper one first."""
    add(sys_tree, "dm-1", "253:1", sys_tree / "devices/dm-1")
    (sys_tree / "devices/dm-0/holders/dm-1").touch()
    for name, volume in (("dm-0", "dbbench-lower"), ("dm-1", "upper")):
        write_file(sys_tree / "devices" / name / "dm/name", volume)
        write_file(sys_tree / "devices" / name / "dm/uuid", "CRYPT-PLAIN-x")
    assert used.releases("sdb") == ["cryptsetup close upper", "cryptsetup close dbbench-lower"]
    assert [used.is_of_dbbench(name) for name in ("dm-0", "dm-1")] == [True, False]
