"""A server that is killed again while it recovers from a kill: are all acknowledged rows there after
a third start, with the filesystem mounted again? How long an undisturbed recovery takes is measured
on another copy of the same disks, which is the control.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Final

from dbbench.engines import ENGINES
from dbbench.errors import DbbenchError, EngineDied, EngineStartFailed
from dbbench.labs.harm.rows import RowWriter, create_table
from dbbench.labs.powercut.conclusions import add_up, single, worst
from dbbench.labs.powercut.recovery import (
    BaseImages,
    Killed,
    Lab,
    attach,
    copy_disks,
    files_of,
    kill,
    mount,
    phase,
    recover,
    serving,
)
from dbbench.model import KILL_COLUMNS, HarmCount, HarmOutcome
from dbbench.run.record import stopping

COLUMN: Final = KILL_COLUMNS[1]
ROW_BYTES: Final = 600
WORK_S: Final = 2.0  # so that there is something to recover
LEAST: Final = 20  # acknowledged rows


def kill_twice(lab: Lab, base: BaseImages, rounds: int) -> list[HarmCount]:
    """Kill the server twice, so many times; return the counts of each outcome."""
    outcomes = list[HarmCount]()
    for number in range(rounds):
        if not lab.over:
            lab.tell(f"{base.target.key}: {COLUMN} {number + 1}")
            outcomes.append(_attempt(lab, base, f"{lab.seed}-{base.target.key}-{number}"))
    return add_up(outcomes)


def _attempt(lab: Lab, base: BaseImages, seed: str) -> HarmCount:
    chance = random.Random(seed)
    writer = RowWriter(seed, ROW_BYTES)
    images = lab.disks("killed", base.target)
    undisturbed = lab.disks("undisturbed", base.target)
    try:
        copy_disks(base.images, images)
        with (
            attach(images) as volumes,
            mount(lab, base.target, volumes) as datadir,
            serving(lab, base, datadir) as server,
        ):
            create_table(server)
            with writer.writing(server):
                time.sleep(WORK_S)
                kill(server)
        if writer.count < LEAST:
            raise DbbenchError(f"the server acknowledged only {writer.count} rows")
        # The control: the same disks, and nothing but a start.
        copy_disks(images, undisturbed)
        with attach(undisturbed) as volumes, mount(lab, base.target, volumes) as datadir:
            began = time.monotonic()
            with serving(lab, base, datadir):
                takes_s = time.monotonic() - began
        control = recover(lab, base, undisturbed, {}, also=writer.harms)
        if control.harms or control.invalid:
            raise DbbenchError(f"after one kill: {control.invalid or control.harms}")
        # The second kill, at a random moment of the recovery, which may be faster than the control.
        after_s = takes_s * chance.uniform(0.1, 0.6)
        with attach(images) as volumes, mount(lab, base.target, volumes) as datadir:
            _kill_while_starting(lab, base, datadir, after_s)
        recovery = recover(lab, base, images, {}, also=writer.harms)
    except (DbbenchError, OSError) as error:
        if stopping(error):
            raise
        return HarmCount(COLUMN, HarmOutcome.UNTRIED, 0, 0, str(error))
    finally:
        for image in (*files_of(images), *files_of(undisturbed)):
            image.unlink(missing_ok=True)
    if recovery.invalid:
        return HarmCount(COLUMN, HarmOutcome.UNTRIED, 0, 0, recovery.invalid)
    word = worst(recovery.harms)
    left = recovery.harms.get(word, f"{writer.count} acknowledged commits are present")
    when = f"killed after {after_s:.2f} s of a recovery of {takes_s:.2f} s"
    return single(COLUMN, word, f"{when}: {left}")


def _kill_while_starting(lab: Lab, base: BaseImages, datadir: Path, after_s: float) -> None:
    """Start the server and kill it with SIGKILL after so long. Raises DbbenchError if it has
    answered before.
    """

    def kill_starting() -> None:
        for pid in _children():
            with contextlib.suppress(OSError):  # it has ended
                if Path(f"/proc/{pid}/cwd").readlink() == datadir:
                    os.kill(pid, signal.SIGKILL)

    engine = ENGINES[base.target.engine.name]
    answered = False
    with (
        contextlib.suppress(Killed, EngineStartFailed, EngineDied),
        phase("start", kill_starting, poll_s=after_s),
        engine.serving(datadir, base.target.settings, base.place) as server,
    ):
        kill(server)
        answered = True
        raise Killed
    if answered:
        raise DbbenchError(f"the recovery ended within {after_s:.2f} s, before the second kill")


def _children() -> list[int]:
    """Return the pids of this process's children."""
    pids = list[int]()
    for path in Path("/proc/self/task").glob("*/children"):
        pids += map(int, path.read_text().split())
    return pids
