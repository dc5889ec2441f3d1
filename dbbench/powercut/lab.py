"""The work of the lab: controls, then every target until it has its cuts or its share of the time.

A target's cuts come out of several recordings, each of its own run of the server. A harmed cut is made and recovered a
second time, on another loop device, before it is believed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dbbench import catalog
from dbbench.devices import loop
from dbbench.devices.port import Images
from dbbench.errors import DbbenchError
from dbbench.model import ControlFacts, CutFacts, LabRow, durability_class
from dbbench.powercut import aims, controls
from dbbench.powercut.aims import KILLED
from dbbench.powercut.controls import LYING, Control
from dbbench.powercut.ground import Ground, Lab, disks, prepared
from dbbench.powercut.images import Cut, Media
from dbbench.powercut.log import Log
from dbbench.powercut.recording import Recording, recorded
from dbbench.powercut.recovery import Finding, recovered
from dbbench.powercut.statement import contradiction, is_blind, statement
from dbbench.powercut.targets import Target
from dbbench.record import stopping

BATCH: Final = 25  # cuts of one recording: a minute of work, and further ones would be too much alike
KEPT: Final = 3  # images of one target at most: 100 MB each

Tell = Callable[[str], None]


@dataclass
class Bench:
    """A lab at work, and where it keeps what it finds."""

    lab: Lab
    folder: Path  # of the run: images and logs of harmed cuts
    seed: int
    tell: Tell
    until: float | None = None  # of the monotonic clock: when the lab's time is over
    lying: bool = False  # every disk acknowledges flushes and does nothing: planted by who tests the lab itself
    kept: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.until is not None and time.monotonic() > self.until

    def cut(self, ground: Ground, recording: Recording, log: Log, cuts: Sequence[Cut], number: int) -> list[CutFacts]:
        """Make these cuts out of one recording and look at each."""
        media = media_of(self.lab, ground, log)
        found = []
        for count, cut in enumerate(cuts):
            if self.over:
                break
            self.tell(f"{ground.target.key}: cut {number + count}")
            found.append(self._one(ground, recording, log, media, cut, number + count))
        return found

    def _one(self, ground: Ground, recording: Recording, log: Log, media: Media, cut: Cut, number: int) -> CutFacts:
        left, seen = self.lab.disks("cut", ground.target), recording.acknowledged.before(log.entries[cut.position].ns)
        server_log = self.lab.room.logs / "server.log"
        media.cut(cut, left.all)
        finding, kept = recovered(self.lab, ground, left, seen), ""
        if finding.harms:
            kept = self._keep(ground, media, cut, number, server_log)
            finding = self._again(ground, media, cut, left, seen, finding)
        for image in left.all:
            image.unlink(missing_ok=True)
        unflushed = sum(log.unflushed_bytes(cut.position, disk) for disk in range(len(left.all)))
        return facts(finding, number, cut.aim, cut.seed, cut.position, cut.unit, unflushed, kept)

    def _again(self, ground: Ground, media: Media, cut: Cut, left: Images, seen: dict[int, int], first: Finding
               ) -> Finding:  # fmt: skip
        """The finding, believed where a second recovery on another device finds harm too."""
        occupied = self.lab.scratch / "occupied.img"  # takes the number of the device that was used
        if not occupied.exists():
            occupied.write_bytes(bytes(2**20))
        with loop.attached(occupied):
            media.cut(cut, left.all)
            second = recovered(self.lab, ground, left, seen)
        if second.harms:
            return first
        why = second.invalid or "no harm was found when it was recovered a second time"
        return replace(first, harms={}, lost=0, invalid=f"{why}; first: {next(iter(first.harms.values()))}")

    def _keep(self, ground: Ground, media: Media, cut: Cut, number: int, server_log: Path) -> str:
        """Images and log of a harmed cut in the run's folder, the first image's name; "" where enough are there."""
        key = ground.target.key
        self.kept[key] = self.kept.get(key, 0) + 1
        if self.kept[key] > KEPT:
            return ""
        folder, name = self.folder / "powercut", f"{key.replace(' ', '-').replace('/', '_')}-{number}"
        folder.mkdir(exist_ok=True)
        images = disks(folder, name, ground.target).all
        media.cut(cut, images)
        with suppress(OSError):
            shutil.copyfile(server_log, folder / f"{name}.log")
        return str(images[0].relative_to(self.folder))


def media_of(lab: Lab, ground: Ground, log: Log) -> Media:
    """The disks of a recording as they were when it began."""
    return Media(ground.base.all, log, lab.disks("medium", ground.target).all)


def facts(finding: Finding, number: int, aim: str, seed: str, position: int = 0, unit: int = 0, unflushed: int = 0,
          kept: str = "") -> CutFacts:  # fmt: skip
    """A finding as it is written down."""
    return CutFacts(number, aim, seed, position, unit, unflushed, finding.acknowledged, finding.lost,
                    round(finding.seconds, 3), finding.invalid, finding.harms, kept)  # fmt: skip


@dataclass
class Tally:
    """What is known of a target so far."""

    target: Target
    ground: Ground | None = None
    cuts: list[CutFacts] = field(default_factory=list)
    recordings: int = 0
    commits: int = 0
    flushes: int = 0
    seconds: float = 0.0
    failed: str = ""

    def row(self, blind: bool) -> LabRow:
        """As it stands."""
        valid = [cut for cut in self.cuts if not cut.invalid]
        flags, kinds = self.ground.flags if self.ground else (), [set(cut.harms) for cut in valid]
        return LabRow(
            fs_setup=self.target.arm,
            engine=self.target.engine.name,
            engine_version=self.ground.version if self.ground else "",
            settings=self.target.deciding,
            durability_flags=flags,
            durability_class=durability_class(flags) if self.ground else "unknown",
            valid=len(valid),
            invalid=len(self.cuts) - len(valid),
            harmed=sum(map(bool, kinds)),
            acknowledged=sum(cut.acknowledged for cut in valid),
            lost=sum(cut.lost for cut in valid),
            torn=sum("torn" in harm for harm in kinds),
            failed_recoveries=sum("unrecovered" in harm for harm in kinds),
            recordings=self.recordings,
            commits=self.commits,
            flushes=self.flushes,
            flushes_per_commit=round(self.flushes / self.commits, 4) if self.commits else None,
            seconds=round(self.seconds, 1),
            statement=f"no statement: {self.failed}" if self.failed else statement(self.cuts, blind),
            contradiction=contradiction(self.cuts, flags) if self.ground else "",
            cuts=tuple(self.cuts),
        )


def examine(bench: Bench, target: Target, cuts: int | None) -> Tally:
    """Recordings and cuts of a target, until it has so many (None: no end) or the bench's time is over. Two recordings
    that fail, one after the other, end it, and its row says so."""
    tally, began, failures = Tally(target), time.monotonic(), 0
    while failures < 2 and not bench.over and (cuts is None or len(tally.cuts) < cuts):
        try:
            _batch(bench, tally, BATCH if cuts is None else min(BATCH, cuts - len(tally.cuts)))
            failures = 0
        except (DbbenchError, OSError, ValueError) as error:
            if stopping(error):
                raise
            failures += 1
            tally.failed = f"{type(error).__name__}: {error}" if failures == 2 else ""
            bench.tell(f"{target.key}: {error}")
    tally.seconds = time.monotonic() - began
    return tally


def _batch(bench: Bench, tally: Tally, count: int) -> None:
    """One recording and its cuts; a tenth of them are kills, one at least."""
    if tally.ground is None:
        bench.tell(f"{tally.target.key}: making the filesystem")
        tally.ground = prepared(bench.lab, tally.target)
    bench.tell(f"{tally.target.key}: recording")
    tally.recordings += 1
    seed = f"{bench.seed}-{tally.target.key}-{tally.recordings}"
    kills = max(1, count // 10)
    recording = recorded(bench.lab, tally.ground, kills, seed)
    tally.commits += recording.acknowledged.count
    tally.flushes += recording.flushes
    for finding in recording.kills:
        tally.cuts.append(facts(finding, len(tally.cuts) + 1, KILLED, seed))
    log = recording.log.without_flushes() if bench.lying else recording.log
    chosen = aims.chosen(log, [recording.whole], count - kills, seed)
    tally.cuts += bench.cut(tally.ground, recording, log, chosen, len(tally.cuts) + 1)


def control(bench: Bench, one: Control, engine: Target, tries: int, needed: int) -> ControlFacts:
    """Try a control until it has lost `needed` times, or `tries` are over. A lab whose control cannot be recorded is
    blind too."""
    target = controls.target(one, engine.engine, catalog.catalog())
    bench.tell(f"control {one.name} on {engine.engine.name}")
    try:
        ground = prepared(bench.lab, target)
        seed = f"{bench.seed}-{target.key}"
        recording = recorded(bench.lab, ground, 0, seed)
        log = recording.log.without_flushes() if one.name == LYING else recording.log
        chosen = aims.chosen(log, recording.working, tries, seed, one.aims)
        harmed = valid = 0
        media, left = media_of(bench.lab, ground, log), bench.lab.disks("cut", target)
        for cut in chosen:
            if harmed == needed:
                break
            media.cut(cut, left.all)
            seen = recording.acknowledged.before(log.entries[cut.position].ns)
            finding = recovered(bench.lab, ground, left, seen, quick=True)
            valid += not finding.invalid
            harmed += bool(finding.harms)
    except (DbbenchError, OSError, ValueError) as error:
        if stopping(error):
            raise
        return ControlFacts(one.name, engine.engine.name, one.what, tries, needed, 0, 0, True, str(error))
    return ControlFacts(one.name, engine.engine.name, one.what, tries, needed, valid, harmed,
                        is_blind(tries, needed, harmed, valid))  # fmt: skip
