"""A recording: the server works on the lab's disks, is killed in mid-write, recovers and goes on; all of it is logged.

The killed server is an aim of its own, examined at once on the filesystem that lives on: what was in the system's page
cache is still there, what was in the server's memory is gone. The power cuts are made afterwards, from the log.
"""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import devices
from dbbench.devices.port import Images
from dbbench.errors import DbbenchError
from dbbench.powercut import disk, log, witness
from dbbench.powercut.ground import Ground, Lab, mounted, serving
from dbbench.powercut.ground import end as end_server
from dbbench.powercut.images import DESTAGE_S, copied
from dbbench.powercut.log import Log
from dbbench.powercut.recovery import Finding, examined, harm_of_start
from dbbench.powercut.witness import Acknowledged

WORK_S: Final = 2.0  # of the witness before each kill: three checkpoints
LEAST: Final = 20  # commits, for a recording that says anything


@dataclass(frozen=True)
class Recording:
    """What one recording left."""

    log: Log
    whole: tuple[int, int]  # the positions of the log between which there is something to lose
    working: tuple[tuple[int, int], ...]  # those between which commits were answered, from DESTAGE_S after the first
    acknowledged: Acknowledged
    kills: tuple[Finding, ...]
    seconds: float

    @property
    def flushes(self) -> int:
        """Of all disks, while there was something to lose."""
        return len(self.log.flushes_between(*self.whole))


def recorded(lab: Lab, ground: Ground, kills: int, seed: str) -> Recording:
    """Record `kills` + 1 rounds of the witness; between two the server is killed. DbbenchError where it goes wrong:
    then there is no recording. What lies in the lab's folder is that of the last one."""
    began, chance, seen = time.monotonic(), random.Random(seed), Acknowledged()
    folder, live = lab.scratch / "log", lab.disks("live", ground.target)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (lab.room.logs / "server.log").unlink(missing_ok=True)
    for base, image in zip(ground.base.all, live.all, strict=True):
        copied(base, image)
    found: list[Finding] = []
    with (
        disk.served(lab.room.root, live.all, folder, lab.room.logs / "disk.log") as files,
        devices.over(Images(files[: len(live.data)], files[-1] if live.wal else None)) as device,
        mounted(lab, ground.target, device) as datadir,
    ):
        end = _rounds(lab, ground, datadir, seen, found, kills, chance)
    for image in live.all:
        image.unlink()
    if seen.count < LEAST:
        raise DbbenchError(f"the witness saw only {seen.count} commits: {_said(lab)}")
    written, rounds = log.read(folder), seen.rounds()
    spans = [(written.at(first + int(DESTAGE_S * 1e9)), written.at(last)) for first, last in rounds]
    return Recording(written, (written.at(rounds[0][0]), written.at(end)), tuple(spans), seen, tuple(found),
                     time.monotonic() - began)  # fmt: skip


def _rounds(lab: Lab, ground: Ground, datadir: Path, seen: Acknowledged, found: list[Finding], kills: int,
            chance: random.Random) -> int:  # fmt: skip
    """Work, kill, look; when the last round ended, in ns."""
    end = 0
    for number in range(kills + 1):
        try:
            with serving(lab, ground, datadir) as server:
                if number:
                    found.append(examined(server, seen.before(time.monotonic_ns())))
                with witness.banking(server, number, seen):
                    time.sleep(WORK_S * chance.uniform(0.7, 1.3) / (kills + 1) + WORK_S / 2)
                    end = time.monotonic_ns()
                    end_server(server)
        except DbbenchError as error:
            if not number:
                raise
            found.append(harm_of_start(error, seen.before(time.monotonic_ns())))
            return end
    return end


def _said(lab: Lab) -> str:
    text = (lab.room.logs / "server.log").read_text(errors="replace").splitlines()
    return "; ".join(text[-3:])
