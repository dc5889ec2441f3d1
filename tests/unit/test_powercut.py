"""The power-loss lab without a disk: the log, the images made from it, the aims, and the
conclusions.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Final

import pytest

from dbbench.engines import profile_of
from dbbench.labs.powercut import disk_images, targets, witness
from dbbench.labs.powercut.disk import RECORD, Log, LogEntry, LogWriter, read_log
from dbbench.labs.powercut.disk_images import BLOCK, DESTAGE_S, UNITS, Cut, Media, Section
from dbbench.labs.powercut.recording import Recording
from dbbench.model import CutFacts

MS: Final = 1_000_000
SIZE: Final = 64 * BLOCK


@dataclasses.dataclass
class Disk:
    """A log under construction: one entry each millisecond."""

    folder: Path
    entries: list[LogEntry] = dataclasses.field(default_factory=list)
    place: int = 0

    def write(
        self,
        block: int,
        value: bytes,
        blocks: int = 1,
        at_ms: int | None = None,
        disk: int = 0,
    ) -> Disk:
        with (self.folder / "data").open("ab") as data:
            data.write(value * BLOCK * blocks)
        ns = (len(self.entries) if at_ms is None else at_ms) * MS
        self.entries.append(LogEntry(ns, False, block * BLOCK, BLOCK * blocks, self.place, disk))
        self.place += BLOCK * blocks
        return self

    def flush(self, at_ms: int | None = None, disk: int = 0) -> Disk:
        self.entries.append(
            LogEntry((len(self.entries) if at_ms is None else at_ms) * MS, True, disk=disk)
        )
        return self

    def log(self) -> Log:
        return Log(tuple(self.entries), self.folder / "data")

    def cut(
        self,
        position: int,
        keep: float = 0.0,
        unit: int = BLOCK,
        seed: str = "s",
    ) -> bytes:
        """The disk after a cut, from an empty one."""
        return self.cuts(1, position, keep, unit, seed)[0]

    def cuts(
        self,
        disks: int,
        position: int,
        keep: float = 0.0,
        unit: int = BLOCK,
        seed: str = "s",
    ) -> list[bytes]:
        """So many disks after a cut, each from an empty one."""
        base = self.folder / "base"
        each = range(disks)
        base.touch()
        with base.open("r+b") as file:
            file.truncate(SIZE)
        media = Media([base] * disks, self.log(), [self.folder / f"working{disk}" for disk in each])
        images = [self.folder / f"image{disk}" for disk in each]
        media.cut(Cut("test", position, unit, keep, seed), images)
        return [image.read_bytes() for image in images]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """An empty disk."""
    return Disk(tmp_path)


def test_power_is_lost_at_the_next_write_if_nothing_was_written(disk: Disk) -> None:
    """ZFS without synchronous writes keeps everything in memory for seconds, also all of a short
    recording.
    """
    log = disk.write(0, b"a", at_ms=1).write(1, b"b", at_ms=9).write(2, b"c", at_ms=10).log()
    assert log.span(2 * MS, 4 * MS) == (1, 3)
    assert [
        cut.position
        for cut in disk_images.choose_cuts(Section(log, [log.span(2 * MS, 4 * MS)]), 2, "s")
    ] == [2, 2]
    assert log.span(0, 10 * MS) == (0, 2)
    assert log.span(11 * MS, 12 * MS) == (3, 3)


def test_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every request in its order, with the place of its bytes. A log whose process was killed is
    read up to its last whole record.
    """
    writer = LogWriter(tmp_path)
    writer.write(8192, b"a" * 512)
    writer.flush(disk=3)
    writer.write(0, b"b" * 4096, disk=1)
    writer.close()
    found = read_log(tmp_path)
    assert [(e.flush, e.offset, e.length, e.place, e.disk) for e in found.entries] == [
        (False, 8192, 512, 0, 0),
        (True, 0, 0, 512, 3),
        (False, 0, 4096, 512, 1),
    ]
    assert found.data.read_bytes() == b"a" * 512 + b"b" * 4096
    with (tmp_path / "index").open("r+b") as index:
        index.truncate(RECORD.size * 3 - 1)
    assert read_log(tmp_path).entries == found.entries[:2]


def test_unflushed_is_what_came_after_the_last_flush(disk: Disk) -> None:
    """A flush before which the power goes is not carried out. A disk that lies for a time keeps its
    other flushes.
    """
    found = disk.write(0, b"a").flush().write(1, b"b").write(2, b"c").flush().log()
    assert [*found.volatile(4)] == [2, 3]
    assert found.unflushed_bytes(4) == 2 * BLOCK
    assert [*found.volatile(5)] == []
    assert [*found.volatile(1)] == [0]
    (first, second) = (entry.ns for entry in found.entries if entry.flush)
    assert [
        entry.ns for entry in found.without_flushes([(first, second)]).entries if entry.flush
    ] == [second]


@pytest.mark.parametrize(
    ("requests", "position", "kept"),
    [
        ("a0 flush b0 c1 flush", 4, "a."),  # nothing of the cache, where nothing is kept
        ("a0 b0 flush c1", 3, "b."),  # what was flushed, in the order in which it was written
        ("a0 flush b1 flush b2", 5, "ab"),
    ],
)
def test_what_was_flushed_is_on_the_medium_and_the_rest_is_dropped(
    disk: Disk,
    requests: str,
    position: int,
    kept: str,
) -> None:
    """`a0` writes the byte a to block 0; of a disk that lies about its flushes nothing is there."""
    for request in requests.split():
        disk.flush() if request == "flush" else disk.write(int(request[1]), request[0].encode())
    expected = b"".join(bytes(BLOCK) if value == "." else value.encode() * BLOCK for value in kept)
    assert disk.cut(position)[: 2 * BLOCK] == expected
    disk.entries = list(disk.log().without_flushes().entries)
    assert disk.cut(2)[:BLOCK] == bytes(BLOCK)


def test_the_cache_writes_back_what_is_old_or_too_much(disk: Disk) -> None:
    """What is older than DESTAGE_S, or does not fit any more, is on the medium without a flush."""
    late = int(DESTAGE_S * 1000) + 10
    found = disk.write(0, b"a", at_ms=0).write(1, b"b", at_ms=late).flush(at_ms=late + 1).cut(2)
    assert found[: 2 * BLOCK] == b"a" * BLOCK + bytes(BLOCK)
    disk.entries.clear()
    found = disk.write(0, b"a").write(1, b"b").write(2, b"c").flush().log()
    assert [
        disk_images.cached_from(found, 3, cache_bytes=count * BLOCK) for count in (1, 2, 3)
    ] == [2, 1, 0]


def test_units_are_kept_by_chance_and_whole(disk: Disk) -> None:
    """A subset tears a write at its units and nowhere else; the same seed gives the same disk."""
    disk.write(0, b"a", blocks=32).flush()
    found = disk.cut(1, keep=0.5, unit=512, seed="one")
    pieces = [found[at : at + 512] for at in range(0, 32 * BLOCK, 512)]
    kept = sum(piece == b"a" * 512 for piece in pieces)
    assert kept + sum(piece == bytes(512) for piece in pieces) == len(pieces)
    assert 80 < kept < 176  # of 256, by chance 128: six deviations
    assert found == disk.cut(1, keep=0.5, unit=512, seed="one")
    assert found != disk.cut(1, keep=0.5, unit=512, seed="two")


@pytest.mark.parametrize(
    ("write", "pieces"),
    [
        ((1024, 5120, 4096), [(1024, 4096), (4096, 6144)]),
        ((0, 1024, 512), [(0, 512), (512, 1024)]),
        ((512, 512, 4096), [(512, 1024)]),
        ((0, 16384, 16384), [(0, 16384)]),
        ((0, 16384, 16384, 4096), [(0, 4096), (4096, 16384)]),
        ((4096, 8192, 8192, 4096), [(4096, 12288)]),
    ],
)
def test_units_of_a_write_begin_at_their_multiples(
    write: tuple[int, ...], pieces: list[tuple[int, int]]
) -> None:
    """A write (offset, length, unit, shift) that lies across a unit is torn there."""
    assert disk_images.units(*write) == pieces


def test_an_earlier_cut_cannot_follow_a_later_one(disk: Disk, tmp_path: Path) -> None:
    """The medium goes forward only."""
    disk.write(0, b"a").flush().write(1, b"b").flush().cut(4)
    media = Media([tmp_path / "base"], disk.log(), [tmp_path / "w"])
    media.cut(Cut("test", 4, BLOCK, 0.0, "s"), [tmp_path / "i"])
    with pytest.raises(ValueError, match="before"):
        media.cut(Cut("test", 1, BLOCK, 0.0, "s"), [tmp_path / "i"])


def test_flush_is_of_one_disk(disk: Disk) -> None:
    """What it makes safe lies on that disk; the power of all goes at the same moment."""
    disk.write(0, b"a").write(0, b"b", disk=1).flush(disk=1).write(1, b"c").write(
        1,
        b"d",
        disk=1,
    ).flush()
    one, two = disk.cuts(2, 5)
    assert (one[: 2 * BLOCK], two[: 2 * BLOCK]) == (bytes(2 * BLOCK), b"b" * BLOCK + bytes(BLOCK))
    one, two = disk.cuts(2, 6)
    assert (one[: 2 * BLOCK], two[: 2 * BLOCK]) == (
        b"a" * BLOCK + b"c" * BLOCK,
        b"b" * BLOCK + bytes(BLOCK),
    )
    found = disk.log()
    assert [(found.volatile(5, number), found.unflushed_bytes(5, number)) for number in (0, 1)] == [
        ([0, 3], 2 * BLOCK),
        ([4], BLOCK),
    ]


def test_disks_keep_their_units_each_by_its_own_chance(disk: Disk) -> None:
    """The same writes to two disks are not torn at the same places."""
    one, two = (
        disk.write(0, b"a", blocks=32)
        .write(0, b"a", blocks=32, disk=1)
        .flush()
        .cuts(2, 2, keep=0.5)
    )
    assert one != two
    assert one.count(b"a" * BLOCK) and two.count(b"a" * BLOCK)


def busy(disk: Disk) -> Log:
    """Commits of one block, of which each fifth is as long as a file of MySQL's redo log, and a
    checkpoint of 200 after each tenth.
    """
    chance = random.Random(1)
    for number in range(200):
        disk.write(chance.randrange(60), b"c", blocks=128 if number % 5 == 4 else 1).flush()
        if number % 10 == 9:
            disk.write(0, b"p", blocks=100).write(10, b"p", blocks=100).flush()
    return disk.log()


def test_aims_hit_what_they_are_for(disk: Disk) -> None:
    """A commit's flush with something unflushed, a checkpoint's with 160 blocks; all in the order of
    the log, and in their spans: no cut lies before there was something to lose.
    """
    found = busy(disk)
    section = Section(found, [(0, len(found.entries))], [77, 190])
    cuts = disk_images.choose_cuts(section, 40, "seed")
    assert {cut.aim for cut in cuts} == set(disk_images.AIMS)
    assert {cut.unit for cut in cuts} == set(disk_images.UNITS)
    assert [cut.position for cut in cuts] == sorted(cut.position for cut in cuts)
    for cut in cuts:
        if cut.aim in ("commit", "checkpoint"):
            assert found.entries[cut.position].flush
            assert found.unflushed_bytes(cut.position) >= (
                160 * BLOCK if cut.aim == "checkpoint" else 1
            )
        if cut.aim == "change":
            since = min(
                found.entries[cut.position].ns - found.entries[at].ns
                for at in (77, 190)
                if at <= cut.position
            )
            assert 0 <= since < disk_images.AFTER_CHANGE_NS
        assert (cut.keep == 0) == (cut.aim == "drop")
    assert cuts == disk_images.choose_cuts(section, 40, "seed")
    assert cuts != disk_images.choose_cuts(section, 40, "other")
    cuts = disk_images.choose_cuts(Section(found, [(20, 60), (200, 240)]), 60, "seed")
    assert all(20 <= cut.position < 60 or 200 <= cut.position < 240 for cut in cuts)
    assert {cut.position < 100 for cut in cuts} == {True, False}


def test_aims_look_at_the_disk_that_is_flushed(disk: Disk) -> None:
    """A flush of a disk with nothing unflushed is no commit's, however much another disk holds."""
    found = disk.write(0, b"p", blocks=160).flush(disk=1).write(1, b"c", disk=1).flush(disk=1).log()
    cuts = disk_images.choose_cuts(Section(found, [(0, 4)]), 8, "seed", ("checkpoint", "commit"))
    assert {(cut.aim, cut.position) for cut in cuts} == {("commit", 3)}


def test_aim_without_its_flush_takes_a_weaker_one(disk: Disk) -> None:
    """A log without checkpoints is cut at commits, one without flushes anywhere; the facts say
    which it was. Where nothing was written there is nothing to cut.
    """
    small = disk.write(0, b"a").flush().write(1, b"b").flush().write(2, b"c").log()
    assert {
        cut.aim
        for cut in disk_images.choose_cuts(Section(small, [(0, 5)]), 8, "s", ("checkpoint",))
    } == {"commit"}
    bare = small.without_flushes()
    assert {
        cut.aim for cut in disk_images.choose_cuts(Section(bare, [(0, 3)]), 8, "s", ("checkpoint",))
    } == {"subset"}
    with pytest.raises(ValueError, match="nothing was written"):
        disk_images.choose_cuts(Section(small, [(0, 1)]), 3, "s")


def cut(number: int = 1, invalid: str = "", **harms: str) -> CutFacts:
    """A cut, recovered."""
    return CutFacts(number, "commit", "seed", 9, BLOCK, BLOCK, 100, 0, 1.0, invalid, harms)


@pytest.mark.parametrize("engine", ["postgres", "mariadb", "mysql"])
def test_every_engine_has_its_controls(engine: str, disk: Disk) -> None:
    """A disk that lies, a filesystem that asks for nothing, a server that does not wait, torn
    pages. A disk that writes a page as a whole does not tear it, so the units of a control are
    smaller.
    """
    found = targets.controls_of(engine)
    assert [one.name for one in found[:2]] == ["lying disk", "nobarrier"]
    assert ("checkpoint",) in [one.aims for one in found]
    assert len(found) == 4
    log = busy(disk)
    page = profile_of(engine).page_bytes
    for control in found:
        cuts = control.cuts(Section(log, [(0, len(log.entries))]), 60, "seed")
        assert {cut.aim for cut in cuts} == set(control.aims)
        assert (
            {cut.unit for cut in cuts}
            == {unit for unit in disk_images.UNITS if unit < page}
            >= {512}
        )


def test_controls_are_cut_right_after_commits(disk: Disk) -> None:
    """A server that stands still after a flush has nothing to lose, however long this takes."""
    log = (
        disk.write(0, b"a", at_ms=400)
        .write(1, b"b", at_ms=401)
        .flush(at_ms=402)
        .write(2, b"c", at_ms=1000)
        .write(3, b"d", at_ms=9000)
        .log()
    )
    times = {0: [101 * MS, 950 * MS, 999 * MS], 1: [9000 * MS, 9001 * MS]}
    recording = Recording.__new__(Recording)
    vars(recording).update(log=log, acknowledged=witness.Acknowledged(times))
    section = recording.working_section
    assert section.commits == [3, 3, 4]
    assert {
        cut.position for cut in disk_images.choose_cuts(section, 20, "s", ("drop", "subset"))
    } == {3, 4}


def test_cuts_before_and_after_the_first_kill_are_apart(disk: Disk) -> None:
    """In the order of their positions, so that images are made from one log in one pass."""
    for number in range(40):
        disk.write(number, b"a")
    recording = Recording.__new__(Recording)
    empty = witness.Acknowledged()
    ended = (0, 20 * MS, 40 * MS)
    vars(recording).update(log=disk.log(), ended=ended, acknowledged=empty)
    cuts = recording.cuts(9, 3, "seed", [512])
    assert {cut.unit for cut in cuts} == {512}
    assert [cut.after_kill for cut in cuts] == [False] * 9 + [True] * 3
    positions = [cut.position for cut in cuts]
    assert positions == sorted(positions)
    assert max(positions[:9]) < 20 < min(positions[9:])


def test_nothing_written_after_a_kill_is_not_cut(disk: Disk) -> None:
    """A filesystem that keeps everything in memory for seconds."""
    log = disk.write(0, b"a").write(1, b"b").write(2, b"c").log()
    recording = Recording.__new__(Recording)
    empty = witness.Acknowledged()
    vars(recording).update(log=log, ended=(0, 3 * MS, 3 * MS), acknowledged=empty)
    assert len(recording.cuts(2, 1, "seed", UNITS)) == 2


def test_cuts_of_disks_that_lie_are_at_the_same_times(disk: Disk) -> None:
    """Their log has fewer requests, so that its positions are others."""
    for number in range(20):
        disk.write(number, b"a").flush()
    log = disk.log().without_flushes()
    recording = Recording.__new__(Recording)
    ended = (10 * MS, 34 * MS, 40 * MS)
    vars(recording).update(log=log, ended=ended, acknowledged=witness.Acknowledged())
    cuts = recording.cuts(8, 2, "seed", [BLOCK])
    times = [log.entries[cut.position].ns // MS for cut in cuts]
    assert all(10 < time < 34 for time in times[:8])
    assert all(34 < time < 40 for time in times[8:])
