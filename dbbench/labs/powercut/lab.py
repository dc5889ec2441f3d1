"""Run the lab: controls, then every target until it has its cuts or has used its share of the time.

The cuts of a target come from several recordings, each from a separate run of the server. A cut with harm is made and
recovered a second time, on another loop device, before it counts.

In a recording the server works on the lab's disks, is killed during writes, recovers and continues; everything is
logged. The kill is a test of its own, checked at once on the filesystem that is still mounted: the system's page cache
is preserved, the server's memory is lost. The power cuts are made afterwards from the log.

No harm in n cuts is reported as "0 of n cuts (< 3/n at 95 %)", the rule of three (Hanley and Lippman-Hand, JAMA 1983),
and never as "safe". How much a harmed cut lost depends on the disk's cache, not on the filesystem.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError
from dbbench.labs.powercut import disk, disk_images, targets, witness
from dbbench.labs.powercut.disk import Log
from dbbench.labs.powercut.disk_images import DESTAGE_S, KILLED, Cut, Media, copied
from dbbench.labs.powercut.ground import (
    Ground,
    Lab,
    Recovery,
    attached,
    disks,
    examined,
    files_of,
    harm_of_start,
    mounted,
    named,
    prepared,
    recovered,
    serving,
)
from dbbench.labs.powercut.ground import end as end_server
from dbbench.labs.powercut.targets import LYING, Control, LabTarget
from dbbench.labs.powercut.witness import Acknowledged
from dbbench.model import Conclusion, ControlFacts, CutFacts, Durability, LabRow, durability_class
from dbbench.plan import catalog
from dbbench.run.record import stopping
from dbbench.storage.devices import loop
from dbbench.units import percent

BATCH: Final = 25  # cuts of one recording: a minute of work; more cuts would be too similar
KEPT: Final = 3  # most images kept for one target: 100 MB each

Tell = Callable[[str], None]
WORK_S: Final = 2.0  # seconds that the witness works before each kill: three checkpoints
LEAST: Final = 20  # least number of commits in a recording that can be judged
INVALID_SHARE: Final = 0.1  # with a larger share of invalid cuts, the rest is not a sample

_ALL: Final = frozenset({"lost", "torn", "damaged", "unrecovered", "fsck"})
# What each flag permits: commits that were not waited for may be lost, and nothing else.
ALLOWED: Final[dict[Durability, frozenset[str]]] = {
    Durability.NO_BARRIER: _ALL,
    Durability.NO_JOURNAL: _ALL,
    Durability.ASYNC_COMMIT: frozenset({"lost"}),
    Durability.TORN_PAGES: _ALL - {"fsck"},
    Durability.REPORTED_UNSAFE: _ALL - {"fsck"},
}


@dataclass
class Bench:
    """A running lab, and where it stores its results."""

    lab: Lab
    folder: Path  # folder of the run, for images and logs of cuts with damage
    seed: int
    tell: Tell
    until: float | None = None  # end of the lab's time on the monotonic clock
    lying: bool = False  # every disk acknowledges flushes but does nothing; set only to test the lab itself
    kept: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self.until is not None and time.monotonic() > self.until

    def cut(self, ground: Ground, recording: Recording, cuts: Sequence[Cut], number: int) -> list[CutFacts]:
        """Make these cuts from one recording and check each."""
        media = media_of(self.lab, ground, recording.log)
        recoveries = []
        for count, cut in enumerate(cuts):
            if self.over:
                break
            self.tell(f"{ground.target.key}: cut {number + count}")
            recoveries.append(self._one(ground, recording, media, cut, number + count))
        return recoveries

    def _one(self, ground: Ground, recording: Recording, media: Media, cut: Cut, number: int) -> CutFacts:
        log, left = recording.log, self.lab.disks("cut", ground.target)
        seen = recording.acknowledged.before(log.entries[cut.position].ns)
        server_log = self.lab.workdir.logs / "server.log"
        media.cut(cut, files_of(left))
        finding, kept = recovered(self.lab, ground, left, seen), ""
        if finding.harms:
            kept = self._keep(ground, media, cut, number, server_log)
            finding = self._again(ground, media, cut, seen, finding)
        for image in files_of(left):
            image.unlink(missing_ok=True)
        unflushed = sum(log.unflushed_bytes(cut.position, disk) for disk in range(len(files_of(left))))
        return facts(finding, number, cut, unflushed, kept)

    def _again(self, ground: Ground, media: Media, cut: Cut, seen: dict[int, int], first: Recovery) -> Recovery:
        """Return the finding; harm counts only if a second recovery on another device finds it too."""
        left = self.lab.disks("cut", ground.target)
        # This image occupies the loop device of the first recovery, so that the second one uses another.
        occupied = self.lab.scratch / "occupied.img"
        if not occupied.exists():
            occupied.write_bytes(bytes(2**20))
        with loop.attached(occupied):
            media.cut(cut, files_of(left))
            second = recovered(self.lab, ground, left, seen)
        if second.harms:
            return first
        why = second.invalid or "a second recovery found no damage"
        return replace(first, harms={}, lost=0, invalid=f"{why}; first: {next(iter(first.harms.values()))}")

    def _keep(self, ground: Ground, media: Media, cut: Cut, number: int, server_log: Path) -> str:
        """Keep images and log of a harmed cut in the run's directory; return the first image's name, "" if enough are
        kept."""
        key = ground.target.key
        self.kept[key] = self.kept.get(key, 0) + 1
        if self.kept[key] > KEPT:
            return ""
        folder, name = self.folder / "powercut", f"{key.replace(' ', '-').replace('/', '_')}-{number}"
        folder.mkdir(exist_ok=True)
        images = files_of(disks(folder, name, ground.target))
        media.cut(cut, images)
        with suppress(OSError):
            shutil.copyfile(server_log, folder / f"{name}.log")
        return str(images[0].relative_to(self.folder))


def media_of(lab: Lab, ground: Ground, log: Log) -> Media:
    """Return the disks of a recording as they were when it began."""
    return Media(files_of(ground.base), log, files_of(lab.disks("medium", ground.target)))


def facts(finding: Recovery, number: int, cut: Cut, unflushed: int = 0, kept: str = "") -> CutFacts:
    """Return a finding in the form in which it is stored."""
    return CutFacts(number, cut.aim, cut.seed, cut.position, cut.unit, unflushed, finding.acknowledged, finding.lost,
                    round(finding.seconds, 3), finding.invalid, finding.harms, kept)  # fmt: skip


@dataclass
class Tally:
    """The results of a target so far."""

    target: LabTarget
    ground: Ground | None = None
    cuts: list[CutFacts] = field(default_factory=list)
    recordings: int = 0
    commits: int = 0
    flushes: int = 0
    seconds: float = 0.0
    failed: str = ""

    def row(self, blind: bool) -> LabRow:
        """Return the row for the current state."""
        valid = [cut for cut in self.cuts if not cut.invalid]
        flags, kinds = self.ground.flags if self.ground else (), [set(cut.harms) for cut in valid]
        about = conclusion(self.cuts, blind, bool(self.failed))
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
            statement=statement(about, self.cuts, self.failed),
            contradiction=contradiction(self.cuts, flags) if self.ground else "",
            cuts=tuple(self.cuts),
            conclusion=about,
        )


def examine(bench: Bench, target: LabTarget, cuts: int | None) -> Tally:
    """Record and cut a target until it has so many cuts (None: no limit) or the time is used up.

    Two failed recordings in a row end it, and its row says so.
    """
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
    """Make one recording and its cuts; a tenth of them, at least one, are kills."""
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
        tally.cuts.append(facts(finding, len(tally.cuts) + 1, Cut(KILLED, 0, 0, 0.0, seed)))
    if bench.lying:
        recording = replace(recording, log=recording.log.without_flushes())
    chosen = disk_images.chosen_cuts(recording.log, [recording.whole], count - kills, seed)
    tally.cuts += bench.cut(tally.ground, recording, chosen, len(tally.cuts) + 1)


def control(bench: Bench, one: Control, engine: LabTarget, tries: int, needed: int) -> ControlFacts:
    """Try a control until it has lost `needed` times, or after `tries` attempts.

    A lab whose control cannot be recorded is blind too.
    """
    target = targets.control_target(one, engine.engine, catalog.catalog())
    bench.tell(f"control {one.name} on {engine.engine.name}")
    try:
        ground = prepared(bench.lab, target)
        seed = f"{bench.seed}-{target.key}"
        recording = recorded(bench.lab, ground, 0, seed)
        log = recording.log.without_flushes() if one.name == LYING else recording.log
        chosen = disk_images.chosen_cuts(log, recording.working, tries, seed, one.aims)
        harmed = valid = 0
        media, left = media_of(bench.lab, ground, log), bench.lab.disks("cut", target)
        for cut in chosen:
            if harmed == needed:
                break
            bench.tell(f"control {one.name} on {engine.engine.name}: cut {valid + 1}")
            media.cut(cut, files_of(left))
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


@dataclass(frozen=True)
class Recording:
    """The result of one recording."""

    log: Log
    whole: tuple[int, int]  # positions in the log between which data can be lost
    # Positions between which commits were acknowledged, starting DESTAGE_S after the first.
    working: tuple[tuple[int, int], ...]
    acknowledged: Acknowledged
    kills: tuple[Recovery, ...]
    seconds: float

    @property
    def flushes(self) -> int:
        """Return the number of flushes of all disks while there was something to lose."""
        return len(self.log.flushes_between(*self.whole))


def recorded(lab: Lab, ground: Ground, kills: int, seed: str) -> Recording:
    """Record `kills` + 1 rounds of the witness, and kill the server between two. Raises DbbenchError on failure.

    The lab's directory contains the files of the last recording.
    """
    began, chance, seen = time.monotonic(), random.Random(seed), Acknowledged()
    folder, live = lab.scratch / "log", lab.disks("live", ground.target)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (lab.workdir.logs / "server.log").unlink(missing_ok=True)
    for base, image in zip(files_of(ground.base), files_of(live), strict=True):
        copied(base, image)
    waits_s = [WORK_S * chance.uniform(0.7, 1.3) / (kills + 1) + WORK_S / 2 for _ in range(kills + 1)]
    with (
        disk.served(lab.workdir.root, files_of(live), folder, lab.workdir.logs / "disk.log") as files,
        attached(named(live, files)) as volumes,
        mounted(lab, ground.target, volumes) as datadir,
    ):
        end, recoveries = _rounds(lab, ground, datadir, seen, waits_s)
    for image in files_of(live):
        image.unlink()
    if seen.count < LEAST:
        raise DbbenchError(f"the witness received only {seen.count} commits: {_said(lab)}")
    written, rounds = disk.read_log(folder), seen.rounds()
    spans = [(written.at(first + int(DESTAGE_S * 1e9)), written.at(last)) for first, last in rounds]
    return Recording(written, (written.at(rounds[0][0]), written.at(end)), tuple(spans), seen, tuple(recoveries),
                     time.monotonic() - began)  # fmt: skip


def _rounds(
    lab: Lab, ground: Ground, datadir: Path, seen: Acknowledged, waits_s: Sequence[float]
) -> tuple[int, list[Recovery]]:
    """Work for these times, kill and check after each; return when the last round ended, in ns, and what was found."""
    end, recoveries = 0, list[Recovery]()
    for number, wait_s in enumerate(waits_s):
        try:
            with serving(lab, ground, datadir) as server:
                if number:
                    recoveries.append(examined(server, seen.before(time.monotonic_ns())))
                with witness.banking(server, number, seen) as must_work:
                    time.sleep(wait_s)
                    must_work()
                    end = time.monotonic_ns()
                    end_server(server)
        except DbbenchError as error:
            if not number:
                raise
            recoveries.append(harm_of_start(error, seen.before(time.monotonic_ns())))
            break
    return end, recoveries


def _said(lab: Lab) -> str:
    text = (lab.workdir.logs / "server.log").read_text(errors="replace").splitlines()
    return "; ".join(text[-3:])


def conclusion(cuts: Sequence[CutFacts], blind: bool, failed: bool = False) -> Conclusion:
    """Return the conclusion from the cuts of a setup; `failed`: its recordings failed."""
    valid = [cut for cut in cuts if not cut.invalid]
    if blind and not failed:
        return Conclusion.BLIND
    if failed or too_many(cuts) or not valid:
        return Conclusion.NONE
    return Conclusion.HARMED if any(cut.harms for cut in valid) else Conclusion.UNHARMED


def statement(about: Conclusion, cuts: Sequence[CutFacts], failed: str = "") -> str:
    """Describe the conclusion; `failed`: why there are no more recordings."""
    invalid = sum(bool(cut.invalid) for cut in cuts)
    valid = len(cuts) - invalid
    if about is Conclusion.BLIND:
        return "lab blind: no statement"
    if about is Conclusion.NONE:
        many = f"{invalid} of {len(cuts)} cuts are invalid" if too_many(cuts) else "no valid cut"
        return f"no statement: {failed or many}"
    if about is Conclusion.HARMED:
        return f"{sum(bool(cut.harms) for cut in cuts if not cut.invalid)} of {valid} cuts harmed"
    return f"0 of {valid} cuts (< {percent(upper_bound(valid), 1)} at 95 %)"


def upper_bound(valid: int) -> float:
    """Return the upper 95 % bound for the share of harmed cuts if n cuts show no harm: 3/n, at most 1."""
    return min(1.0, 3 / valid)


def too_many(cuts: Sequence[CutFacts]) -> bool:
    """Whether too many of them are invalid."""
    return sum(bool(cut.invalid) for cut in cuts) > INVALID_SHARE * len(cuts)


def contradiction(cuts: Iterable[CutFacts], flags: Iterable[Durability]) -> str:
    """Describe the first harm that the flags of the class do not allow; "" if there is none."""
    allowed = frozenset[str]().union(*(ALLOWED[flag] for flag in flags))
    for cut in cuts:
        beyond = {kind: evidence for kind, evidence in cut.harms.items() if kind not in allowed}
        if beyond and not cut.invalid:
            kind, evidence = next(iter(beyond.items()))
            return f"cut {cut.number} ({cut.aim}, seed {cut.seed}): {kind}: {evidence.strip().splitlines()[0]}"
    return ""


def is_blind(tries: int, needed: int, harmed: int, valid: int) -> bool:
    """Whether a control did not lose often enough: fewer than `needed` of `tries` were harmed.

    A control that was ended as soon as it had lost that often is not blind.
    """
    return harmed < needed or valid < harmed or tries < needed
