"""Make the disks as a power loss would have left them, any number from one recorded log. Each has a
volatile cache that holds writes until a flush. What is older than DESTAGE_S, or exceeds
CACHE_BYTES, is on the medium without one. Of the rest a cut keeps nothing, or each unit at
random; of a unit written several times an earlier version may remain. Cuts are at any moment,
when the cache is mostly nearly empty, or just before the flush of a commit or checkpoint.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from dbbench.labs.powercut.disk import Log
from dbbench.machine import libc
from dbbench.machine.pagecache import data_parts
from dbbench.results.fileio import open_fd

DESTAGE_S: Final = 0.3
CACHE_BYTES: Final = 64 * 2**20  # a usual size for a disk of 2025
# Power-fail units of disks: a command reaches the medium piece by piece, and a piece never crosses
# such a boundary.
UNITS: Final = (512, 4096, 8192, 16384)
BLOCK: Final = 4096
SHIFT: Final = 4096  # of a partition that begins between two of the larger units
_COPY: Final = 8 * 2**20
_IN_PLACE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_PUNCH_HOLE: Final = 0x3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE (linux/falloc.h)
Aim = Literal["drop", "subset", "commit", "checkpoint", "change"]
AIMS: Final[tuple[Aim, ...]] = ("checkpoint", "commit", "change", "drop", "subset")
# What replaces an aim without a position in the log.
_WEAKER: Final[dict[Aim, Aim]] = {
    "checkpoint": "commit",
    "change": "commit",
    "commit": "subset",
}
AFTER_CHANGE_NS: Final = 200_000_000  # a cut for a change comes within this time of its answer
KILLED: Final = "kill"  # kills the processes of the server instead of the power; see `recording`
# Unflushed blocks at a flush: more than commits write, so they belong to a checkpoint. MySQL's redo
# log was flushed in up to 128 blocks, one of its files in the lab, and its pages in 268 and more.
LARGE: Final = 160
HALF: Final = 0.5


@dataclass(frozen=True)
class Cut:
    """A power cut: the log entry before which power is lost, and what remains of the caches."""

    aim: str
    position: int
    unit: int  # power-fail unit: bytes that are written atomically if they are aligned to it
    keep: float  # random share of the cached units that reached the medium
    seed: str
    shift: int = 0  # where the first boundary of a unit lies on the disk
    after_kill: bool = False  # whether the server was killed earlier in the recording


class Media:
    """The safe parts of a recording's disks, which all lose power at the same moment, advanced cut
    by cut in the order of their positions.
    """

    def __init__(
        self,
        bases: Sequence[Path],
        log: Log,
        working: Sequence[Path],
    ) -> None:
        """`bases` are the images at the start of the log, `working` temporary files, in the order
        of the disks.
        """
        self._log = log
        self._files = working
        self._done = [0] * len(working)
        for base, file in zip(bases, working, strict=True):
            copy(base, file)

    def cut(self, cut: Cut, images: Sequence[Path]) -> None:
        """Write the images of that cut, in place of what they have. Raises ValueError for an
        earlier position.
        """
        for disk, (file, image) in enumerate(zip(self._files, images, strict=True)):
            first = cached_from(self._log, cut.position, disk)
            if first < self._done[disk]:
                raise ValueError(f"position {cut.position} is before what is on the medium")
            self._write(disk, file, range(self._done[disk], first))
            self._done[disk] = first
            copy(file, image)
            if cut.keep > 0:
                self._write(disk, image, range(first, cut.position), cut)

    def _write(
        self,
        disk: int,
        image: Path,
        numbers: range,
        cut: Cut | None = None,
    ) -> None:
        """Write these entries of the log, of a cut only the units that its caches have kept."""
        chance = random.Random(f"{cut.seed}/{disk}") if cut else None
        with image.open("r+b", buffering=0) as out, self._log.data.open("rb") as data:
            for number in numbers:
                entry = self._log.entries[number]
                if entry.flush or entry.disk != disk:
                    continue
                data.seek(entry.place)
                content = data.read(entry.length)
                if cut is None or chance is None:
                    os.pwrite(out.fileno(), content, entry.offset)
                    continue
                for begin, end in units(entry.offset, entry.length, cut.unit, cut.shift):
                    if chance.random() < cut.keep:
                        piece = content[begin - entry.offset : end - entry.offset]
                        os.pwrite(out.fileno(), piece, begin)


def cached_from(
    log: Log,
    position: int,
    disk: int = 0,
    cache_bytes: int = CACHE_BYTES,
) -> int:
    """Return the first entry that may be only in that disk's cache if power is lost before
    `position`.
    """
    flushed = log.flushed_up_to(position, disk)
    if position >= len(log.entries):
        return flushed
    first = position
    held = 0
    oldest = log.entries[position].ns - int(DESTAGE_S * 1e9)
    while first > flushed:
        entry = log.entries[first - 1]
        if entry.disk == disk:
            held += entry.length
        if entry.ns < oldest or held > cache_bytes:
            break
        first -= 1
    return first


def units(
    offset: int,
    length: int,
    unit: int,
    shift: int = 0,
) -> list[tuple[int, int]]:
    """Return (begin, end) of pieces of a write that reach the medium separately: at `shift` +
    multiples of `unit`.
    """
    first = ((offset - shift) // unit + 1) * unit + shift
    bounds = [offset, *range(first, offset + length, unit), offset + length]
    return list(itertools.pairwise(bounds))


def copy(source: Path, target: Path) -> None:
    """Copy a file with its holes, in place of what the target has: to allocate new memory would
    take twice the time. A new target may be on a filesystem without fallocate(2). Raises
    OSError.
    """
    with open_fd(source) as old, open_fd(target, _IN_PLACE, 0o666) as new:
        size = os.fstat(old).st_size
        hole = 0
        stale = os.fstat(new).st_size > 0
        os.truncate(new, size)
        for begin, end in (*data_parts(old, 0, size), (size, size)):
            if stale:
                for first, last in data_parts(new, hole, begin):
                    libc.call("fallocate", new, _PUNCH_HOLE, first, last - first)
            os.lseek(new, begin, os.SEEK_SET)
            while begin < end:
                begin += os.sendfile(new, old, begin, min(_COPY, end - begin))
            hole = end


@dataclass(frozen=True)
class Section:
    """The part of a log in which power is lost."""

    log: Log
    spans: Sequence[tuple[int, int]]  # (begin, end), positions in the log
    changes: Sequence[int] = ()  # positions at which schema changes were acknowledged
    # positions at which commits were acknowledged, if all other cuts are to be there
    commits: Sequence[int] = ()

    def moment(self, chance: random.Random) -> int:
        """Return a random moment by the clock, not by the requests, which come in bursts; or that
        of a commit.
        """
        if self.commits:
            return chance.choice(self.commits)
        entries = self.log.entries
        times = []
        for begin, end in self.spans:
            times.append((entries[begin].ns, entries[min(end, len(entries)) - 1].ns))
        weights = [last - first + 1 for first, last in times]
        number = chance.choices(range(len(times)), weights)[0]
        begin, end = self.spans[number]
        position = self.log.at(int(chance.uniform(*times[number])))
        return min(max(begin + 1, position), end - 1)


def _targets(section: Section) -> dict[Aim, list[int]]:
    """Return the positions in the log for each aim that has some."""
    log = section.log
    targets: dict[Aim, list[int]] = {"commit": [], "checkpoint": [], "change": []}
    for begin, end in section.spans:
        for place in log.flushes_between(begin, end):
            unflushed = log.unflushed_bytes(place, log.entries[place].disk)
            if unflushed > 0:
                targets["commit"].append(place)
            if unflushed >= LARGE * BLOCK:
                targets["checkpoint"].append(place)
    for place in section.changes:
        if is_within(place, section.spans):
            targets["change"].append(place)
    return targets


def is_within(place: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a position of the log is inside one of the spans."""
    return any(begin < place < end for begin, end in spans)


def choose_cuts(
    section: Section,
    count: int,
    seed: str,
    aims: Sequence[Aim] = AIMS,
    units: Sequence[int] = UNITS,
) -> list[Cut]:
    """Return `count` cuts of disks with these power-fail units, by their positions; a single unit
    is aligned. Raises ValueError if the spans are empty. An aim that finds no flush of its kind,
    or no change, uses the next weaker one: checkpoint, commit, subset.
    """
    chance = random.Random(seed)
    log = section.log
    spans = [(begin, end) for begin, end in section.spans if end - begin > 1]
    if not spans:
        raise ValueError("nothing was written while data could be lost")
    section = replace(section, spans=spans)
    targets = _targets(section)
    cuts = []
    for number in range(count):
        aim = aims[number % len(aims)]
        for stronger, weaker in _WEAKER.items():
            if aim == stronger and not targets[aim]:
                aim = weaker
        place = chance.choice(targets[aim]) if aim in targets else section.moment(chance)
        if aim == "change":
            end = log.at(log.entries[place].ns + AFTER_CHANGE_NS)
            place = chance.randint(place, max(place, end - 1))
        unit = chance.choice(units)
        shift = chance.choice((0, SHIFT)) if unit > SHIFT and len(units) > 1 else 0
        keep = 0.0 if aim == "drop" else HALF
        cuts.append(Cut(aim, place, unit, keep, f"{seed}-{number}", shift))
    return sorted(cuts, key=lambda cut: cut.position)
