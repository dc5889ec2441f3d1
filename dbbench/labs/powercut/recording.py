"""Record what a server writes to the lab's disks while the witness works. Most of a recording is
without a kill. Then the server is killed during writes, recovers and continues. The kill is a test
of its own, checked at once on the mounted filesystem: the page cache is preserved, the server's
memory is lost. Power cuts are made afterwards from the log, and those after the first kill are
counted separately: they have two causes.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines.port import Server
from dbbench.errors import DbbenchError
from dbbench.labs.powercut import disk, disk_images, witness
from dbbench.labs.powercut.base_images import BaseImages, Lab, attach, files_of, name_files
from dbbench.labs.powercut.disk import Log
from dbbench.labs.powercut.disk_images import DESTAGE_S, Cut, Media, Section, copy
from dbbench.labs.powercut.recovery import (
    Recovery,
    check_server,
    harm_of_start,
    kill,
    mount,
    serving,
)
from dbbench.labs.powercut.witness import Acknowledged

RECORDING: Final = (
    "recording.json"  # of a kept recording: the cut, and when commits were acknowledged
)
CHECKPOINT_S: Final = 8.0  # most seconds until a recording's first checkpoint has ended
WORK_S: Final = 2.4  # seconds that the witness works after that before the first kill
AFTER_KILL_S: Final = 0.6  # seconds that it works after each kill
LEAST: Final = 20  # least number of commits in a recording that can be judged


@dataclass(frozen=True)
class Recording:
    """The result of one recording."""

    base: BaseImages
    log: Log
    # When the first checkpoint ended, and then each round, in ns. Positions in the log follow from
    # times, because a test may remove flushes from it.
    ended: tuple[int, ...]
    acknowledged: Acknowledged
    kills: tuple[Recovery, ...]
    checkpoint: bool | None  # whether one ended before `plain`; None: the server does not say

    @property
    def plain(self) -> tuple[int, int]:
        """Return the positions in the log between which data can be lost before the first kill."""
        return self.log.span(*self.ended[:2])

    @property
    def after_kill(self) -> tuple[int, int]:
        _, begin = self.plain
        _, end = self.log.span(self.ended[0], self.ended[-1])
        return begin, end

    @property
    def changes(self) -> list[int]:
        """Return the positions in the log at which schema changes were acknowledged."""
        return [self.log.at(ns) for _, ns in self.acknowledged.changes]

    @property
    def working_section(self) -> Section:
        """Return where controls are cut: right after commits, as a server that is stalled after a
        flush loses none. It begins DESTAGE_S after the first commit of a round.
        """
        destage_ns = int(DESTAGE_S * 1e9)
        working = []
        for first, last in self.acknowledged.rounds():
            working.append((self.log.at(first + destage_ns), self.log.at(last)))
        commits = []
        for times in self.acknowledged.times.values():
            places = map(self.log.at, times)
            commits += [place for place in places if disk_images.is_within(place, working)]
        return Section(self.log, working, commits=sorted(commits))

    def cuts(
        self,
        plain: int,
        after_kill: int,
        seed: str,
        units: Sequence[int],
    ) -> list[Cut]:
        """Return so many cuts without and after a kill, by their positions; none after a kill if
        nothing was written then. `units`: of the disks. Raises as `choose_cuts`.
        """
        section = Section(self.log, [self.plain], self.changes)
        cuts = disk_images.choose_cuts(section, plain, seed, units=units)
        begin, end = self.after_kill
        if end - begin > 1:
            late = replace(section, spans=[self.after_kill])
            late_seed = f"{seed}-after-kill"
            for cut in disk_images.choose_cuts(late, after_kill, late_seed, units=units):
                cuts.append(replace(cut, after_kill=True))
        return cuts

    def media(self, lab: Lab) -> Media:
        working = files_of(lab.disks("medium", self.base.target))
        return Media(files_of(self.base.images), self.log, working)


def keep_recording(folder: Path, recording: Recording, cut: Cut) -> None:
    """Keep in a new folder what the cut was made from: the disks at the start of the recording,
    the log of their requests, and the cut with the times of acknowledgements.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in (*files_of(recording.base.images), *recording.log.data.parent.iterdir()):
        copy(file, folder / file.name)
    document = {"cut": asdict(cut), "acknowledged_ns": recording.acknowledged.times}
    (folder / RECORDING).write_text(json.dumps(document))


def record(
    lab: Lab,
    base: BaseImages,
    kills: int,
    seed: str,
    changes: bool = False,
) -> Recording:
    """Record `kills` + 1 rounds of the witness, and kill the server between two; with schema
    changes if `changes`. Raises DbbenchError on failure. The lab's directory contains the files
    of the last recording.
    """
    chance = random.Random(seed)
    seen = Acknowledged()
    folder = lab.scratch / "log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lab.server_log.unlink(missing_ok=True)
    works_s = [WORK_S, *[AFTER_KILL_S] * kills]
    waits_s = [work_s * chance.uniform(0.8, 1.2) for work_s in works_s]
    times, recoveries, checkpoint = _run_rounds(lab, base, seen, waits_s, changes)
    if seen.count < LEAST:
        last_lines = "; ".join(lab.server_log.read_text(errors="replace").splitlines()[-3:])
        raise DbbenchError(f"the witness received only {seen.count} commits: {last_lines}")
    log = disk.read_log(folder)
    return Recording(base, log, tuple(times), seen, tuple(recoveries), checkpoint)


def _run_rounds(
    lab: Lab,
    base: BaseImages,
    seen: Acknowledged,
    waits_s: Sequence[float],
    changes: bool,
) -> tuple[list[int], list[Recovery], bool | None]:
    """Work until a checkpoint has ended, then for these times, kill and check after each; return
    when that checkpoint and each round ended, in ns, the results, and whether there was a checkpoint.
    """
    # The disks are files of a process that records each write.
    live = base.copy(lab, "live")
    output = lab.workdir.logs / "disk.log"
    times = list[int]()
    recoveries = list[Recovery]()
    checkpoint = None
    with (
        disk.serve_disks(
            lab.workdir.root,
            files_of(live),
            lab.scratch / "log",
            output,
        ) as files,
        attach(name_files(live, files)) as volumes,
        mount(lab, base.target, volumes) as datadir,
    ):
        # Each round begins where the last one was killed, and checks what it left.
        for number, wait_s in enumerate(waits_s):
            try:
                with serving(lab, base, datadir) as server:
                    if number:
                        recoveries.append(check_server(server, seen.before(time.monotonic_ns())))
                    with witness.banking(server, number, seen, changes) as must_work:
                        if not number:
                            checkpoint = _wait_for_checkpoint(server)
                            times.append(time.monotonic_ns())
                        time.sleep(wait_s)
                        must_work()
                        times.append(time.monotonic_ns())
                        kill(server)
            except DbbenchError as error:
                if not number:
                    raise
                recoveries.append(harm_of_start(error, seen.before(time.monotonic_ns())))
                break
    return times, recoveries, checkpoint


def _wait_for_checkpoint(server: Server) -> bool | None:
    """Wait for the end of a checkpoint; return whether there was one, None if it is not reported."""

    def ends() -> float | None:
        return server.counters().get("checkpoints_ended")

    before = ends()
    if before is None:
        return None
    return not process.wait_while(lambda: ends() == before, CHECKPOINT_S)
