"""Arrays, volume groups, snapshots and encryption are made, reported by the kernel, and removed
completely.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dbbench import process
from dbbench.errors import FilesystemDamaged, MakeFailed
from dbbench.model import Layer, Scalars
from dbbench.results.journal import Journal
from dbbench.storage import filesystems, layers
from dbbench.storage.devices import guard, identity, loop
from dbbench.storage.devices.port import Device, joint
from dbbench.storage.layers import delay
from tests.support.layers import EXT4, MIB, SIZE, XFS, Disks, facts_of, read, written_and_read
from tests.support.leftovers import layers_of


@pytest.mark.needs(
    "root",
    "mdadm",
    "kernel:raid0",
    "kernel:raid1",
    "kernel:raid10",
    "fs:xfs",
    "mkfs.xfs",
)
@pytest.mark.parametrize(
    ("level", "count", "chunk", "share"),
    [(0, 3, 4096, 3.0), (0, 2, None, 2.0), (1, 2, None, 1.0), (10, 4, 65536, 2.0)],
)
def test_an_array_is_what_was_asked_for(
    level: int,
    count: int,
    chunk: int | None,
    share: float,
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """Level, members, chunk and size are the kernel's own word; nothing is synchronised; nothing of
    it is left.
    """
    layer = Layer("md", level=level, chunk_bytes=chunk)  # type: ignore[arg-type]
    with disks(count) as device:
        with layers.stack_layers([layer], device, journal) as volume:
            facts = facts_of(volume)
            assert (facts["level"], facts["devices"], facts["degraded"], facts["bitmap"]) == (
                level,
                count,
                0,
                "none",
            )
            assert facts["sync"] == ("none" if level == 0 else "idle")
            # not those of others
            own = read("/proc/mdstat").partition(f"{volume.path.name} :")[2].split("\nmd")[0]
            assert own and "resync" not in own and "recovery" not in own
            assert facts.get("chunk_kb") == (
                None if level == 1 else chunk // 1024 if chunk else 512
            )
            assert 0.9 < int(facts["size_bytes"]) / SIZE / share <= 1
            assert volume.leaves == device.leaves and volume.facts == device.facts
            assert volume.path.name.startswith("md")
            written_and_read(volume, XFS, tmp_path / "mnt")
        assert [guard.signatures_of(member.fd) for member in device.each] == [[]] * count
    assert journal.outstanding("layer") == []


@pytest.mark.needs("root", "mdadm", "kernel:raid0", "mkfs.ext4")
def test_an_array_over_old_signatures(disks: Disks, journal: Journal) -> None:
    """Filesystems that were on the members before are erased without a question."""
    with disks(2) as device:
        for member in device.each:
            filesystems.make(EXT4, member)
        with layers.stack_layers([Layer("md", level=0)], device, journal):
            marks = [guard.signatures_of(member.fd) for member in device.each]
            assert [[mark.text.split()[0] for mark in found] for found in marks] == [
                ["linux_raid_member"]
            ] * 2


@pytest.mark.needs("root", "mdadm", "lvcreate", "kernel:raid1", "kernel:dm-mod")
@pytest.mark.parametrize("layer", [Layer("md", level=1), Layer("lvm")], ids=["md", "lvm"])
def test_marks_on_real_disks_are_journalled(
    layer: Layer,
    disks: Disks,
    journal: Journal,
) -> None:
    """After a power loss the next run may erase without a question what this one wrote to a
    disk.
    """
    with disks(2) as device:
        real = tuple(replace(member, identity=identity(member.path)) for member in device.each)
        with layers.stack_layers([layer], replace(device, members=real), journal):
            for member in device.each:
                (mark,) = guard.signatures_of(member.fd)
                assert journal.has_filesystem(identity(member.path), mark.uuid)


@pytest.mark.needs("root", "mdadm", "kernel:raid10")
def test_an_array_that_cannot_be(disks: Disks, journal: Journal) -> None:
    """The message has mdadm's output, and nothing is left of the attempt."""
    with (
        disks(1) as device,
        pytest.raises(MakeFailed, match="unusual number of drives") as caught,
        layers.stack_layers([Layer("md", level=10)], device, journal),
    ):
        pass
    assert caught.value.id == "E301"
    assert journal.outstanding("layer") == []


@pytest.mark.needs("root", "lvcreate", "kernel:dm-mod", "fs:ext4", "mkfs.ext4")
@pytest.mark.parametrize("stripes", [1, 2])
def test_a_volume_is_what_was_asked_for(
    stripes: int,
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """Linear and striped volumes take the whole group, and leave nothing."""
    layer = Layer("lvm", stripes=stripes, chunk_bytes=64 * 1024)
    with disks(2) as device:
        with layers.stack_layers([layer], device, journal) as volume:
            facts = facts_of(volume)
            assert facts["segtype"] == ("striped" if stripes == 2 else "linear")
            assert (facts.get("stripes"), facts.get("stripe_kb")) == (
                (2, 64) if stripes == 2 else (None, None)
            )
            assert 0.95 < int(facts["size_bytes"]) / (2 * SIZE) < 1
            assert layers.take_snapshots(volume) == volume.layers
            written_and_read(volume, EXT4, tmp_path / "mnt")
        assert [guard.signatures_of(member.fd) for member in device.each] == [[], []]


@pytest.mark.needs(
    "root",
    "lvcreate",
    "kernel:dm-snapshot",
    "kernel:dm-thin-pool",
    "fs:xfs",
    "mkfs.xfs",
)
@pytest.mark.parametrize("kind", ["classic", "thin"])
def test_a_snapshot_is_held_from_when_it_is_taken(
    kind: str,
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """What is overwritten afterwards is kept for it: a chunk is copied once, and the snapshot has
    the old content.
    """
    layer = Layer("lvm", snapshot=kind, snapshot_size="20%")  # type: ignore[arg-type]
    with disks(2) as device, layers.stack_layers([layer], device, journal) as volume:
        filesystems.make(XFS, volume)
        with filesystems.mount(XFS, volume, tmp_path / "mnt") as fs:
            (fs.path / "file").write_bytes(b"old" * MIB)
            before = room_taken(volume, kind)
            facts = layers.take_snapshots(volume)[-1]
            assert facts["snapshot_held"] is True and int(facts["snapshot_chunk_kb"]) >= 4
            if kind == "classic":
                assert 0.18 < int(facts["snapshot_bytes"]) / int(facts["size_bytes"]) < 0.21
            with (fs.path / "file").open("r+b") as file:
                file.write(b"new" * MIB)
                file.flush()
                os.fsync(file.fileno())
            assert room_taken(volume, kind) - before >= 2 * MIB  # 3 MiB were overwritten


def room_taken(volume: Device, kind: str) -> int:
    """Bytes that the snapshot, or the thin pool, has taken by the kernel's own count."""
    stem = str(facts_of(volume)["name"]).replace("-", "--")
    name = f"{stem}-{'held' if kind == 'classic' else 'pool-tpool'}"
    if not Path("/dev/mapper", name).exists() and kind == "classic":
        return 0  # not taken yet
    words = process.run(["dmsetup", "status", name]).stdout.split()
    return (
        int(words[3].split("/")[0]) * 512
        if kind == "classic"
        else int(words[5].split("/")[0]) * 64 * 1024
    )


@pytest.mark.needs("root", "lvcreate", "kernel:dm-snapshot", "fs:ext4", "mkfs.ext4")
def test_a_snapshot_without_room_fails(
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """A load that changes more than the snapshot can hold ran without it, so the trial fails."""
    layer = Layer("lvm", snapshot="classic", snapshot_size="5%")
    with (
        disks(1) as device,
        pytest.raises(FilesystemDamaged, match="classic snapshot did not hold") as caught,
        layers.stack_layers([layer], device, journal) as volume,
    ):
        filesystems.make(EXT4, volume)
        with filesystems.mount(EXT4, volume, tmp_path / "mnt") as fs:
            layers.take_snapshots(volume)
            (fs.path / "file").write_bytes(os.urandom(64 * MIB))
    assert caught.value.id == "E316"


@pytest.mark.needs("root", "cryptsetup", "kernel:dm-crypt", "fs:ext4", "mkfs.ext4")
def test_an_encrypted_volume_hides_what_is_written(
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """The cipher is the kernel's own word, the device below does not contain the text, and no key
    is kept.
    """
    with disks(1) as device:
        with layers.stack_layers([Layer("crypt")], device, journal) as volume:
            facts = facts_of(volume)
            assert (facts["cipher"], facts["key_bits"], facts["size_bytes"]) == (
                "aes-xts-plain64",
                512,
                SIZE,
            )
            filesystems.make(EXT4, volume)
            with filesystems.mount(EXT4, volume, tmp_path / "mnt") as fs:
                (fs.path / "file").write_bytes(b"in plain words " * 10000)
            assert b"in plain words " in volume.path.read_bytes()
        assert b"in plain words " not in device.path.read_bytes()
        assert guard.signatures_of(device.fd) == []


DELAYED = pytest.mark.needs("root", "dmsetup", "kernel:dm-delay", "fs:ext4", "mkfs.ext4")
TICK_MS = round(delay.tick_ms())


def measured(
    device: Device,
    journal: Journal,
    asked: dict[str, int],
    is_right: Callable[[Scalars], bool],
) -> Scalars:
    """What the layer measured on the device; repeated twice if another process disturbed it."""
    facts: Scalars = {}
    for _ in range(3):
        with layers.stack_layers([Layer("delay", delays=asked)], device, journal) as volume:
            facts = facts_of(volume)
            assert delay.delayed_by(volume.path.name) == facts["name"]
        if is_right(facts):
            break
    return facts


@DELAYED
@pytest.mark.parametrize("kind", delay.KINDS)
def test_a_delay_adds_to_one_kind_of_io(kind: str, disks: Disks, journal: Journal) -> None:
    """A delay of whole ticks is measured within 20 %; other I/Os take less than half of it longer."""
    asked = dict.fromkeys(delay.KINDS, 0) | {kind: 2 * TICK_MS}
    others = [f"{other}_measured_ms" for other in delay.KINDS if other != kind]

    def is_right(facts: Scalars) -> bool:
        most = max(float(facts[other]) for other in others)
        return not any(delay.deviations(facts, None)) and most < TICK_MS

    with disks(1) as device:
        facts = measured(device, journal, asked, is_right)
    assert is_right(facts), facts
    assert facts[f"{kind}_measured_ms"] == pytest.approx(2 * TICK_MS, rel=0.2)


@DELAYED
@pytest.mark.skipif(TICK_MS == 1, reason="no delay is shorter than a step of 1 ms")
def test_a_delay_of_less_than_a_tick_has_its_reason(disks: Disks, journal: Journal) -> None:
    """The kernel delays a flush by the whole tick."""
    reason = f"steps of {TICK_MS} ms"

    def is_right(facts: Scalars) -> bool:
        return reason in " ".join(delay.deviations(facts, None))

    with disks(1) as device:
        assert is_right(measured(device, journal, {"flush": 1}, is_right))


@DELAYED
def test_a_filesystem_is_made_on_a_delayed_disk(
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """Its files outlive an unmount."""
    layer = Layer("delay", delays={"write": TICK_MS})
    with disks(1) as device, layers.stack_layers([layer], device, journal) as volume:
        written_and_read(volume, EXT4, tmp_path / "mnt")


@pytest.mark.needs(
    "root",
    "lvcreate",
    "mdadm",
    "cryptsetup",
    "kernel:raid1",
    "kernel:dm-crypt",
    "fs:xfs",
    "mkfs.xfs",
)
def test_layers_lie_on_layers(
    disks: Disks,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """LVM striped over two RAID1, encrypted on top: made from below, reported from below, gone from
    above.
    """
    stack = [Layer("md", level=1, groups=2), Layer("lvm", stripes=2), Layer("crypt")]
    with disks(4) as device, layers.stack_layers(stack, device, journal) as volume:
        assert [facts["kind"] for facts in volume.layers] == ["md", "md", "lvm", "crypt"]
        assert volume.leaves == device.leaves
        written_and_read(volume, XFS, tmp_path / "mnt")


HOLD = """
import sys, time
from pathlib import Path
from dbbench.storage import layers
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import joint
from dbbench.results.journal import Journal
from dbbench.model import Layer, Scalars
stack = [Layer("md", level=1, groups=2), Layer("lvm", snapshot=sys.argv[1]), Layer("crypt")]
with joint([loop.attach(Path(image)) for image in sys.argv[3:]]) as device:
    with layers.stack_layers(stack, device, Journal(Path(sys.argv[2]))) as volume:
        layers.take_snapshots(volume)
        print("made", flush=True)
        time.sleep(100)
"""


@pytest.mark.needs(
    "root",
    "lvcreate",
    "mdadm",
    "cryptsetup",
    "kernel:raid1",
    "kernel:dm-crypt",
    "kernel:dm-snapshot",
    "kernel:dm-thin-pool",
)
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("kind", "at"), [("classic", "made"), ("thin", "made"), *(("classic", n) for n in range(1, 5))]
)
def test_what_a_killed_process_leaves_is_given_back(
    kind: str,
    at: int | str,
    journal: Journal,
    tmp_path: Path,
) -> None:
    """Killed with its programs when all is made, or while its first, second ... layer is being
    made: its journal is enough to end it, and the next one begins on what is left.
    """
    images = [tmp_path / f"image{number}" for number in range(4)]
    for image in images:
        image.touch()
        os.truncate(image, SIZE)
    argv = [sys.executable, "-c", HOLD, kind, str(journal.path), *map(str, images)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if at == "made":
        assert child.stdout is not None and child.stdout.readline() == "made\n"
        assert len(layers_of(tmp_path)) >= 8
    while at != "made" and len(journal.outstanding("layer")) < int(at):
        assert child.poll() is None
        time.sleep(0.005)
    os.killpg(child.pid, signal.SIGKILL)  # in a trial the kernel does it: all are of its namespace
    child.communicate()
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(child.pid, 0)
            time.sleep(0.01)
    layers.give_back(journal)
    assert journal.outstanding("layer") == []
    with joint([loop.attach(image) for image in images]) as device:
        assert (
            at != "made" or [guard.signatures_of(member.fd) for member in device.each] == [[]] * 4
        )
        with layers.stack_layers([Layer("md", level=0)], device, journal):
            pass
        assert [guard.signatures_of(member.fd) for member in device.each] == [[]] * 4
