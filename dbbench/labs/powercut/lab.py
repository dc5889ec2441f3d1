"""Run the lab: controls, then every target until it has its cuts or has used its share of the time.
A target's cuts come from several recordings, each from a separate run of the server. A cut with
harm is recovered a second time, on another loop device, before it counts.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dbbench.engines import profile_of
from dbbench.errors import DbbenchError
from dbbench.labs.powercut import available_bytes, targets
from dbbench.labs.powercut.base_images import BaseImages, Lab, disks, files_of, make_base
from dbbench.labs.powercut.conclusions import (
    by_cause,
    conclusion,
    contradiction,
    cut_counts,
    is_blind,
    statement,
)
from dbbench.labs.powercut.disk_images import BLOCK, KILLED, Cut, Media
from dbbench.labs.powercut.phases import STEP_S
from dbbench.labs.powercut.processes import in_processes
from dbbench.labs.powercut.recording import Recording, keep_recording, record
from dbbench.labs.powercut.recovery import Recovery, recover
from dbbench.labs.powercut.targets import LYING, Control, LabTarget
from dbbench.model import TIME_USED_UP, ControlFacts, CutFacts, HarmCount, LabRow, durability_class
from dbbench.plan import catalog
from dbbench.run.record import stopping
from dbbench.storage.devices import loop

BATCH: Final = 10  # cuts of one recording, which are similar; it takes as long as two of them
KEPT: Final = 3  # most images that each process keeps for one target: 100 MB each
LIE_NS: Final = 100_000_000


@dataclass
class Tally:
    """The results of a target so far. Cuts are numbered from `first` in steps of `step`."""

    target: LabTarget
    first: int = 1
    step: int = 1
    base: BaseImages | None = None
    cuts: list[CutFacts] = field(default_factory=list)
    recordings: int = 0
    commits: int = 0
    flushes: int = 0
    seconds: float = 0.0
    failed: str = ""
    counts: list[HarmCount] = field(default_factory=list)
    checkpoints: list[bool] = field(default_factory=list)  # by recording: whether one ended

    @property
    def next_number(self) -> int:
        return self.first + self.step * len(self.cuts)

    def count(self, cut: CutFacts, changes: bool) -> None:
        # Each process numbers its own recordings.
        recording = self.first + self.step * (self.recordings - 1)
        numbered = replace(cut, number=self.next_number, recording=recording)
        self.cuts.append(replace(numbered, changes=changes))

    def add(self, others: Sequence[Tally]) -> None:
        """Add the cuts of other processes, and number all of them anew: one may have made more than
        another.
        """
        for other in others:
            self.cuts += other.cuts
            self.recordings += other.recordings
            self.commits += other.commits
            self.flushes += other.flushes
            self.checkpoints += other.checkpoints
            self.failed = self.failed or other.failed
        self.cuts.sort(key=lambda cut: cut.number)
        self.cuts = [replace(cut, number=number) for number, cut in enumerate(self.cuts, 1)]

    def row(self, blind: bool, cut: bool = True) -> LabRow:
        """Return the results; `cut`: whether the power was to be cut."""
        # Only cuts that were carried out as intended count.
        valid = [cut for cut in self.cuts if not cut.invalid]
        flags = self.base.flags if self.base else ()
        kinds = [set(cut.harms) for cut in valid]
        about = conclusion(self.cuts, blind, bool(self.failed)) if cut else None
        text = "the power was not cut"
        counts = self.counts
        if about is not None:
            text = statement(about, self.cuts, self.failed)
            without = self.checkpoints.count(False)
            if without:
                text += f"; {without} of {len(self.checkpoints)} recordings without a checkpoint"
            counts = [*cut_counts(self.cuts, about, text), *counts]
        return LabRow(
            fs_setup=self.target.arm,
            engine=self.target.engine.name,
            engine_version=self.base.version if self.base else "",
            settings=self.target.deciding,
            durability_flags=flags,
            durability_class=durability_class(flags) if self.base else "unknown",
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
            statement=text,
            contradiction=self._contradiction(),
            cuts=tuple(self.cuts),
            conclusion=about,
            counts=tuple(counts),
            checkpoints=sum(self.checkpoints) if self.checkpoints else None,
        )

    def _contradiction(self) -> str:
        if self.base is None:
            return ""
        profile = profile_of(self.target.engine.name)
        safe = bool(profile.lab_partitions)
        causes = by_cause(self.cuts)
        by_power = contradiction(causes.plain, self.base.flags, safe)
        by_kill = contradiction(causes.kills, self.base.killed_flags, safe)
        by_both = ""
        if profile.syncs_after_crash:
            flags = (*self.base.flags, *self.base.killed_flags)
            by_both = contradiction(causes.after_kill, flags, safe)
        return by_power or by_kill or by_both


def examine(lab: Lab, target: LabTarget, cuts: int | None) -> Tally:
    """Record and cut a target up to `cuts` (None: no limit; 0: only make its disks) or the time's
    end. A long lab does so
    in several processes, which share nothing but the machine: their filesystems have different
    UUIDs. Raises as `in_processes`.
    """
    began = time.monotonic()
    count = 1
    lab.remove_images()
    if targets.is_long(cuts):
        count = lab.process_count(target, len(os.sched_getaffinity(0)), available_bytes())
    labs = [lab, *(lab.of_process(number, target) for number in range(2, count + 1))]

    def work(number: int, tell: Callable[[str], None]) -> Tally:
        share = None if cuts is None else (cuts + count - number) // count
        return _examine(
            replace(labs[number - 1], tell=tell),
            Tally(target, number, count),
            share,
        )

    works = [partial(work, number) for number in range(1, count + 1)]
    tally, *others = in_processes(works, lab.tell, STEP_S) if count > 1 else [work(1, lab.tell)]
    tally.add(others)
    if cuts == 0:
        tally.base = make_base(lab, target)
    tally.seconds = time.monotonic() - began
    return tally


def _examine(lab: Lab, tally: Tally, cuts: int | None) -> Tally:
    """Add batches to the tally. Two failed recordings in a row: end."""
    failures = 0
    while failures < 2 and not lab.over and (cuts is None or len(tally.cuts) < cuts):
        count = BATCH
        if cuts is not None:
            count = min(BATCH, math.ceil(cuts / 2), cuts - len(tally.cuts))
        try:
            _batch(lab, tally, count)
            failures = 0
        except (DbbenchError, OSError, ValueError) as error:
            if stopping(error):
                raise
            failures += 1
            tally.failed = f"{type(error).__name__}: {error}" if failures == 2 else ""
            lab.tell(f"{tally.target.key}: {error}")
    return tally


def _batch(lab: Lab, tally: Tally, count: int) -> None:
    """Make one recording and its cuts; a tenth, of several at least one, are kills, and a tenth
    are power losses after a kill. Every second recording changes the schema.
    """
    if tally.base is None:
        lab.tell(f"{tally.target.key}: making the filesystem")
        tally.base = make_base(lab, tally.target)
    lab.tell(f"{tally.target.key}: recording")
    tally.recordings += 1
    seed = f"{lab.seed}-{tally.target.key}-{tally.recordings}"

    # The recording, and its kills.
    # A single cut is a power loss, on which the conclusion rests.
    kills = max(1, count // 10) if count > 1 else 0
    after_kill = count // 10
    changes = tally.recordings % 2 == 0
    recording = record(lab, tally.base, kills, seed, changes)
    tally.commits += recording.acknowledged.count
    if recording.checkpoint is not None:
        tally.checkpoints.append(recording.checkpoint)
    begin = recording.log.at(recording.acknowledged.rounds()[0][0])
    _, end = recording.after_kill
    tally.flushes += len(recording.log.flushes_between(begin, end))
    for number, recovery in enumerate(recording.kills):
        killed = Cut(KILLED, 0, 0, 0.0, seed, after_kill=number > 0)
        tally.count(_facts(recovery, killed), changes)

    # What the disks acknowledge without doing it, in a test of the lab.
    if lab.lies == "always":
        recording = replace(recording, log=recording.log.without_flushes())
    elif lab.lies == "truncate":
        steps = recording.acknowledged.changes
        spans = [(ns, ns + LIE_NS) for step, ns in steps if step == "truncate"]
        recording = replace(recording, log=recording.log.without_flushes(spans))

    # Its cuts.
    media = recording.media(lab)
    plain = count - kills - after_kill
    # An error keeps those before it.
    for cut in recording.cuts(plain, after_kill, seed, lab.units):
        if lab.over:
            break
        lab.tell(f"{tally.target.key}: cut {tally.next_number}")
        tally.count(_cut(lab, recording, media, cut), changes)


def _cut(lab: Lab, recording: Recording, media: Media, cut: Cut) -> CutFacts:
    """Make a cut from a recording and check what is left."""
    recovery = _recover(lab, recording, media, cut)
    kept = ""
    larger = None
    if recovery.harms:
        kept = _keep(lab, recording, media, cut)
        recovery = _recover_again(lab, recording, media, cut, recovery)
    if recovery.harms and cut.unit < BLOCK:
        again = _recover(lab, recording, media, replace(cut, unit=BLOCK))
        larger = None if again.invalid else again.harms
    count = len(files_of(recording.base.images))
    unflushed = sum(recording.log.unflushed_bytes(cut.position, disk) for disk in range(count))
    facts = _facts(recovery, cut)
    return replace(
        facts,
        unflushed_bytes=unflushed,
        kept=kept,
        harms_at_4096=larger,
    )


def _recover(
    lab: Lab,
    recording: Recording,
    media: Media,
    cut: Cut,
    quick: bool = False,
) -> Recovery:
    disks = lab.disks("cut", recording.base.target)
    media.cut(cut, files_of(disks))
    acknowledged = recording.acknowledged.before(recording.log.entries[cut.position].ns)
    return recover(lab, recording.base, disks, acknowledged, quick)


def _recover_again(
    lab: Lab,
    recording: Recording,
    media: Media,
    cut: Cut,
    first: Recovery,
) -> Recovery:
    """Return the result; harm counts only if a second recovery on another device finds it too."""
    # This image occupies the loop device of the first recovery, so that the second one uses
    # another.
    occupied = lab.scratch / "occupied.img"
    if not occupied.exists():
        occupied.write_bytes(bytes(2**20))
    with loop.attach(occupied):
        second = _recover(lab, recording, media, cut)
    if second.harms:
        return first
    why = second.invalid or "a second recovery found no damage"
    evidence = next(iter(first.harms.values()))
    return replace(first, harms={}, lost=0, invalid=f"{why}; first: {evidence}")


def _keep(lab: Lab, recording: Recording, media: Media, cut: Cut) -> str:
    """Keep images, server log and recording of a harmed cut with the results; return the first
    image's name, "" if enough are kept.
    """
    key = recording.base.target.key
    lab.kept[key] = lab.kept.get(key, 0) + 1
    if lab.kept[key] > KEPT:
        return ""
    folder = lab.folder / "powercut"
    name = cut.seed.replace(" ", "-").replace("/", "_")
    folder.mkdir(exist_ok=True)
    images = files_of(disks(folder, name, recording.base.target))
    for image in images:
        image.unlink(missing_ok=True)  # of another lab with this name; a link is not followed
    media.cut(cut, images)
    with suppress(OSError):
        shutil.copyfile(lab.server_log, folder / f"{name}.log")
    keep_recording(folder / f"{name}-recording", recording, cut)
    return str(images[0].relative_to(lab.folder))


def _facts(recovery: Recovery, cut: Cut) -> CutFacts:
    """Return the facts of a cut, with 0 in place of its number and of what was not flushed."""
    return CutFacts(
        0,
        cut.aim,
        cut.seed,
        cut.position,
        cut.unit,
        0,
        recovery.acknowledged,
        recovery.lost,
        round(recovery.seconds, 3),
        recovery.invalid,
        recovery.harms,
        shift_bytes=cut.shift,
        after_kill=cut.after_kill,
    )


def try_control(
    lab: Lab,
    control: Control,
    engine: LabTarget,
    tries: int,
    needed: int,
) -> ControlFacts:
    """Try a control until it has lost `needed` times, after `tries` attempts, or until the lab's
    time is used up. A lab whose control cannot be recorded, or did not lose in the time, is
    blind too.
    """
    target = targets.control_target(control, engine.engine, catalog.catalog())
    name = f"control {control.name} on {engine.engine.name}"
    harmed = 0
    valid = 0
    facts = ControlFacts(
        control.name,
        engine.engine.name,
        control.what,
        tries,
        needed,
        0,
        0,
        True,
    )
    lab.tell(name)
    try:
        # One recording serves all attempts: each cuts the power at another moment of it.
        base = make_base(lab, target)
        seed = f"{lab.seed}-{target.key}"
        recording = record(lab, base, 0, seed)
        if control.name == LYING:
            recording = replace(recording, log=recording.log.without_flushes())
        media = recording.media(lab)
        for cut in control.cuts(recording.working_section, tries, seed):
            if harmed == needed:
                break
            if lab.over:
                facts = replace(facts, note=TIME_USED_UP)
                break
            lab.tell(f"{name}: cut {valid + 1}")
            recovery = _recover(lab, recording, media, cut, quick=True)
            valid += not recovery.invalid
            harmed += bool(recovery.harms)
    # A control that cannot be tried leaves the lab blind; the lab goes on.
    except (DbbenchError, OSError, ValueError) as error:
        if stopping(error):
            raise
        return replace(facts, note=str(error))
    return replace(
        facts,
        valid=valid,
        harmed=harmed,
        blind=is_blind(tries, needed, harmed, valid),
    )
