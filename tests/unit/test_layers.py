"""Layers without support in the kernel: commands, recorded tool output, modules, the order of
removal.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbbench.errors import PlanInvalid
from dbbench.model import DeviceLimit, FsSetup, Layer, Mkfs
from dbbench.plan import catalog
from dbbench.results.journal import Journal
from dbbench.storage import layers
from dbbench.storage.devices import sysfs
from dbbench.storage.layers import crypt, lvm, md, volume
from tests.support.files import write_file
from tests.support.runs import small_run

FIXTURES = Path(__file__).parent.parent / "fixtures/layers"
FOUR = ("/dev/a", "/dev/b", "/dev/c", "/dev/d")


def words(layer: Layer, targets: tuple[str, ...] = FOUR) -> str:
    """The commands of one layer as one text."""
    return "\n".join(" ".join(argv) for argv in layers.commands([layer], targets)[0])


@pytest.mark.parametrize(
    ("items", "groups", "dealt"),
    [
        ("abcd", 1, ["abcd"]),
        ("abcd", 2, ["ab", "cd"]),
        ("abcde", 2, ["ab", "cde"]),
        ("ab", 2, ["a", "b"]),
    ],
)
def test_devices_are_dealt_in_their_order(
    items: str,
    groups: int,
    dealt: list[str],
) -> None:
    """Neighbours stay together, and none is left out."""
    assert ["".join(group) for group in layers.deal(items, groups)] == dealt


def test_an_array_is_made_in_sync_and_without_a_bitmap() -> None:
    """RAID1 and RAID10 are assumed clean; RAID0 has nothing to be clean; a chunk is of striped
    levels alone.
    """
    mirror = words(Layer("md", level=1, chunk_bytes=4096), FOUR[:2])
    assert mirror.endswith("--level=1 --raid-devices=2 --assume-clean --bitmap=none /dev/a /dev/b")
    assert words(Layer("md", level=0, chunk_bytes=4096)).endswith(
        "--raid-devices=4 --chunk=4K " + " ".join(FOUR)
    )
    assert "--assume-clean --bitmap=none" in words(Layer("md", level=10))
    assert "--chunk" not in words(Layer("md", level=10))


def test_a_volume_leaves_room_for_its_snapshot() -> None:
    """100 % of the group without one; with one of 20 % the volume has 83 %, and the rest is enough
    for it.
    """
    assert "-l 100%FREE" in words(Layer("lvm"))
    assert "--stripes 2 --stripesize 64k" in words(Layer("lvm", stripes=2, chunk_bytes=65536))
    classic = Layer("lvm", snapshot="classic", snapshot_size="20%")
    assert "-l 83%VG" in words(classic) and 83 * 1.2 <= 100
    assert layers.holding([classic]) == [
        ("lvcreate", "--yes", "--snapshot", "-l", "20%ORIGIN", "-n", "held", "dbbench/data")
    ]
    thin = Layer("lvm", snapshot="thin", snapshot_size="100%")
    assert "-V 50%POOL" in words(thin) and "--errorwhenfull y" in words(thin)
    assert "-l" not in layers.holding([thin])[0]
    assert layers.holding([Layer("lvm"), Layer("md", level=0)]) == []


def test_a_key_is_read_from_the_kernel_alone() -> None:
    """No file, no argument and no terminal has it; its length follows the cipher's mode."""
    assert "--key-file /dev/urandom" in words(Layer("crypt")) and "--key-size 512" in words(
        Layer("crypt")
    )
    assert "--key-size 256" in words(Layer("crypt", cipher="aes-cbc-essiv:sha256"))
    assert layers.commands([Layer("crypt")], FOUR[:2])[1] == (
        "/dev/mapper/dbbench-1",
        "/dev/mapper/dbbench-2",
    )


def test_commands_of_layers_on_layers_name_what_lies_below() -> None:
    """Two arrays of two have names of their own, and the group is made of these."""
    said, volumes = layers.commands([Layer("md", level=1, groups=2), Layer("lvm", stripes=2)], FOUR)
    assert [argv[2] for argv in said[:2]] == ["/dev/md/dbbench1", "/dev/md/dbbench2"]
    assert [argv[-2:] for argv in said[:2]] == [FOUR[:2], FOUR[2:]]
    assert said[2][-2:] == ("/dev/md/dbbench1", "/dev/md/dbbench2")
    assert volumes == ("/dev/dbbench/data",)


def test_a_striped_volume_continues_without_stripes() -> None:
    """The mirror that `grow` adds is one device: as many stripes as before would not fit on it."""
    argv = lvm.extension({"name": "g", "segtype": "striped"})
    assert argv == ("lvextend", "--stripes", "1", "-l", "+100%FREE", "g/data")
    assert lvm.extension({"name": "g", "segtype": "linear"}) == (
        "lvextend",
        "-l",
        "+100%FREE",
        "g/data",
    )


@pytest.mark.parametrize(
    ("status", "taken"),
    [
        ("snapshot 16/139264 16", 0),
        ("snapshot 2064/139264 16", 2**20),
        ("thin-pool 2 112/1024 16/6208 - rw no_discard_passdown error_if_no_space - 256", 2**20),
        ("thin 2048 638975", 2**20),
        ("thin 0 -", 0),
    ],
)
def test_what_is_kept_for_a_snapshot(status: str, taken: int) -> None:
    """As device-mapper counts it: sectors, without a snapshot's own tables, and chunks of 64 KiB in
    a pool.
    """
    assert lvm.parse_bytes(status, 65536) == taken


def test_what_lvm_and_cryptsetup_say_of_a_volume() -> None:
    """Sizes in bytes, the pool's chunk in kB, and that a full pool is an error; cryptsetup counts
    sectors of 512 bytes.
    """
    assert lvm.volume_facts(lvm.parse_lvs((FIXTURES / "lvs-thin.json").read_text())) == {
        "segtype": "thin",
        "size_bytes": 327155712,
        "pool_bytes": 406847488,
        "pool_chunk_kb": 64,
        "when_full": "error",
    }
    assert crypt.parse_status((FIXTURES / "cryptsetup-status.txt").read_text()) == {
        "cipher": "aes-xts-plain64",
        "key_bits": 512,
        "sector_bytes": 512,
        "size_bytes": 819200 * 512,
    }


def planted(folder: Path, **files: str) -> Path:
    """Files below a folder; __ in a name is a slash."""
    for name, content in files.items():
        write_file(folder / name.replace("__", "/"), content + "\n")
    return folder


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of block devices in an empty /sys."""
    monkeypatch.setattr(sysfs, "SYS", tmp_path)
    (tmp_path / "block").mkdir()
    (tmp_path / "class").mkdir()
    (tmp_path / "class/block").symlink_to(tmp_path / "block")
    return tmp_path / "block"


def test_what_the_kernel_says_of_an_array(block: Path) -> None:
    """As it was read of running arrays: RAID0 has no sync_action, RAID1 no chunk."""
    planted(
        block / "md127/md",
        level="raid10",
        chunk_size="65536",
        raid_disks="4",
        sync_action="idle",
        degraded="0",
        metadata_version="1.2",
        bitmap__location="none",
    )
    planted(block / "md127", size="1634304")
    assert md.read_back("md127", "dbbench-1a2b") == {
        "kind": "md",
        "name": "dbbench-1a2b",
        "level": 10,
        "devices": 4,
        "metadata": "1.2",
        "sync": "idle",
        "degraded": 0,
        "bitmap": "none",
        "size_bytes": 1634304 * 512,
        "chunk_kb": 64,
    }
    planted(
        block / "md126/md",
        level="raid0",
        chunk_size="4096",
        raid_disks="3",
        metadata_version="1.2",
    )
    assert md.read_back("md126", "")["sync"] == "none"
    planted(
        block / "md125/md",
        level="raid1",
        chunk_size="0",
        raid_disks="2",
        sync_action="resync",
        degraded="1",
    )
    found = md.read_back("md125", "")
    assert (found["sync"], found["degraded"], "chunk_kb" in found) == ("resync", 1, False)


def test_volumes_of_ours_are_known_by_their_names(block: Path) -> None:
    """Those of a group and of a mapping, and no others whose names begin alike."""
    names = [
        "dbbench--1a-data",
        "dbbench--1a-pool_tmeta",
        "dbbench--1ab-data",
        "dbbench-1a-1",
        "vg-data",
    ]
    for number, name in enumerate(names):
        planted(block / f"dm-{number}/dm", name=name)
    of_group = {"dbbench--1a-data": "dm-0", "dbbench--1a-pool_tmeta": "dm-1"}
    assert volume.mapped_names("dbbench--1a") == of_group
    assert volume.mapped_names("dbbench-1a") == {"dbbench-1a-1": "dm-3"}


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("module", "files"),
    [
        ("raid0", {"proc__mdstat": "Personalities : [raid0] [raid1] \nunused devices: <none>"}),
        ("raid10", {"sys__module__raid10__refcnt": "0"}),
        ("dm-thin-pool", {"sys__module__dm_thin_pool__refcnt": "0"}),
        ("dm-mod", {"proc__misc": "236 device-mapper\n237 loop-control"}),
        ("f2fs", {"proc__filesystems": "nodev\tproc\n\tf2fs"}),
    ],
)
def test_a_kernel_reports_its_modules_in_several_places(
    module: str,
    files: dict[str, str],
    tmp_path: Path,
) -> None:
    """Loaded, built in, a RAID level, device-mapper itself, a filesystem: each is enough, and
    nothing is not.
    """
    assert volume.kernel_lacks(module, tmp_path) is not None
    assert volume.kernel_lacks(module, planted(tmp_path, **files)) is None


@pytest.mark.needs("root")  # others are not told
@pytest.mark.starts_processes
def test_targets_of_device_mapper_are_asked_for(programs: Path, tmp_path: Path) -> None:
    """A target that is built in shows nowhere else; it is not asked where there is no
    device-mapper.
    """
    said = "snapshot-origin  v1.9.0\nsnapshot         v1.16.0\nlinear           v1.5.0"
    (programs / "dmsetup").write_text(f"#!/bin/sh\necho '{said}'\n")
    (programs / "dmsetup").chmod(0o755)
    assert volume.kernel_lacks("dm-snapshot", tmp_path) is not None
    planted(tmp_path, proc__misc="236 device-mapper")
    assert volume.kernel_lacks("dm-snapshot", tmp_path) is None
    assert volume.kernel_lacks("dm-crypt", tmp_path) is not None


def test_the_reason_says_what_the_kernel_was_built_without(programs: Path, tmp_path: Path) -> None:
    """The name of the module and of the kernel's own option; ZFS has a package instead."""
    (programs / "apt-get").touch(0o755)
    assert volume.kernel_lacks("raid1", tmp_path) == (
        "this kernel has no raid1: it was built without CONFIG_MD_RAID1, or its package of "
        "modules is not installed"
    )
    assert (
        volume.kernel_lacks("zfs", tmp_path) == "this kernel has no zfs: apt-get install zfs-dkms"
    )


def test_what_was_made_last_is_taken_apart_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the order of the journal, whatever the kinds; layers that were already released are
    skipped.
    """
    ended: list[str] = []
    kinds: dict[str, Any] = {
        kind: SimpleNamespace(end=lambda name, kind=kind: not ended.append(f"{kind}:{name}"))
        for kind in ("md", "lvm", "crypt")
    }
    monkeypatch.setattr(layers, "KINDS", kinds)
    journal = Journal(tmp_path / "journal.jsonl")
    one, two, three, four, five = (
        f"{kind}:dbbench-{journal.tag}{number}"
        for number, kind in enumerate(("md", "md", "lvm", "crypt", "md"))
    )
    for path in (one, two, three, four, five):
        journal.note("take", what="layer", path=path)
    journal.note("give_back", what="layer", path=four)
    assert layers.give_back(journal) == ended == [five, three, two, one]
    assert journal.outstanding("layer") == []


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ('{ kind = "md" }', "an md layer requires level = 0, 1 or 10"),
        ('{ kind = "lvm", snapshot = "thin", snapshot_size = "2GiB" }', "snapshot_size"),
        ('{ kind = "md", level = 5 }', "level"),
        ('{ kind = "lvm", stripes = 0 }', "stripes"),
    ],
)
def test_a_layer_that_cannot_be_is_refused_when_its_file_is_read(
    layer: str,
    said: str,
    tmp_path: Path,
) -> None:
    """Before anything is made, with the place in the file."""
    (tmp_path / "fs_setups").mkdir()
    text = f'title = "t"\nlayers = [{layer}]\nmkfs = {{ family = "xfs" }}\n'
    (tmp_path / "fs_setups/own.toml").write_text(text)
    with pytest.raises(PlanInvalid, match=said):
        catalog.catalog([tmp_path]).setup("own")


def test_an_fs_setup_cannot_delay_its_device(tmp_path: Path) -> None:
    """Only `limit` of a plan does, whose titles say that the disk is a model."""
    text = 'title = "t"\nmkfs = { family = "ext4" }\nlayers = [{ kind = "delay" }]\n'
    write_file(tmp_path / "fs_setups/slow.toml", text)
    with pytest.raises(PlanInvalid, match="use `limit` in"):
        catalog.catalog([tmp_path]).setup("slow")


def test_the_delays_of_a_limit_are_below_every_other_layer() -> None:
    """A mirror of slow disks, not a slow mirror."""
    setup = FsSetup("t", Mkfs("ext4"), layers=(Layer("md", level=1),))
    cell = replace(small_run().cells[0], setup=setup, limit=DeviceLimit(iops=500, flush_ms=4))
    (below, mirror) = cell.layered_setups["data"].layers
    assert (below.kind, below.delays, mirror.kind) == ("delay", {"flush": 4}, "md")
