"""A server that is killed while it prepares to work: during its recovery from another kill, or while
its data directory is made. What is left afterwards? How long it takes undisturbed is measured
before on the same disks, which is the control.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dbbench.engines.port import ChecksData
from dbbench.engines.sql import rows
from dbbench.errors import DataCorrupt, DbbenchError, EngineDied, EngineStartFailed
from dbbench.labs.harm.attempts import look_up
from dbbench.labs.harm.rows import RowWriter, create_table
from dbbench.labs.powercut.base_images import BaseImages, Lab, copy_disks
from dbbench.labs.powercut.conclusions import first_line, single
from dbbench.labs.powercut.phases import phase
from dbbench.labs.powercut.recovery import Killed, kill, mounted, serving
from dbbench.model import KILL_COLUMNS, HarmCount, HarmOutcome

RECOVERY: Final = KILL_COLUMNS[1]
INITIALIZATION: Final = KILL_COLUMNS[2]
ROW_BYTES: Final = 600
WORK_S: Final = 2.0  # so that there is something to recover
LEAST: Final = 20  # acknowledged rows
WHEN: Final = (0.1, 0.6)  # of the time that the control took, which began with cold files
_COUNT: Final = "SELECT COUNT(*) FROM information_schema.columns"  # of a server without tables


def kill_twice(lab: Lab, base: BaseImages, seed: str) -> list[HarmCount]:
    """Kill a server, and again during its recovery; return what is left."""
    engine = base.engine
    writer = RowWriter(seed, ROW_BYTES)
    images = base.copy(lab, "killed")
    with (
        mounted(lab, base, images) as datadir,
        serving(lab, base, datadir) as server,
    ):
        create_table(server)
        with writer.writing(server):
            time.sleep(WORK_S)
            kill(server)
    if writer.count < LEAST:
        raise DbbenchError(f"the server acknowledged only {writer.count} rows")
    # The control: the same disks, and nothing but a start.
    undisturbed = copy_disks(images, lab.disks("undisturbed", base.target))
    with mounted(lab, base, undisturbed) as datadir:
        began = time.monotonic()
        with serving(lab, base, datadir):
            takes_s = time.monotonic() - began
    harm, text = look_up(lab, base, undisturbed, writer)
    if harm is not HarmOutcome.UNHARMED:
        raise DbbenchError(f"after one kill: {text}")
    # The second kill, at a random moment of the recovery, which may be faster than the control.
    after_s = takes_s * random.Random(seed).uniform(*WHEN)
    with mounted(lab, base, images) as datadir:

        def start() -> None:
            with (
                contextlib.suppress(Killed),
                engine.serving(datadir, base.target.settings, base.place) as server,
            ):
                kill(server)
                raise Killed

        _kill_during(start, after_s)
    harm, text = look_up(lab, base, images, writer)
    when = f"killed after {after_s:.2f} s of a recovery of {takes_s:.2f} s"
    return [single(RECOVERY, harm, f"{when}: {text}")]


def kill_initializing(lab: Lab, base: BaseImages, seed: str) -> list[HarmCount]:
    """Kill the program that makes a data directory; return whether a server starts on half of it,
    and then lacks something.
    """
    engine = base.engine
    base = replace(base, place=replace(base.place, log_dir=None))
    images = base.copy(lab, "killed")
    with mounted(lab, base, images) as used:
        shutil.rmtree(used)
        datadir = used.with_name("whole")
        # The control: a whole directory.
        began = time.monotonic()
        engine.create(datadir, base.place)
        takes_s = time.monotonic() - began
        whole = _columns_of(lab, base, datadir)
        shutil.rmtree(datadir)
        # The same is killed at a random moment.
        datadir = used.with_name("half")
        after_s = takes_s * random.Random(seed).uniform(*WHEN)
        _kill_during(partial(engine.create, datadir, base.place), after_s)
        when = f"killed after {after_s:.2f} s of {takes_s:.2f} s"
        try:
            half = _columns_of(lab, base, datadir)
        except (EngineStartFailed, EngineDied, DataCorrupt) as error:
            text = f"{when}: {first_line(str(error))}"
            return [single(INITIALIZATION, HarmOutcome.FAILS, text)]
    word = HarmOutcome.UNHARMED if half == whole else HarmOutcome.DAMAGED
    text = f"{when}: it starts with {half} of {whole} columns"
    return [single(INITIALIZATION, word, text)]


def _columns_of(lab: Lab, base: BaseImages, datadir: Path) -> int:
    """Return the columns of all tables of a new server, which is checked. Raises EngineStartFailed,
    EngineDied, DataCorrupt.
    """
    engine = base.engine
    with serving(lab, base, datadir, clean=True) as server:
        ((count,),) = rows(server, _COUNT)
        if isinstance(engine, ChecksData):
            with phase("check"):
                engine.check_running(server)
    return int(count)


def _kill_during(start: Callable[[], None], after_s: float) -> None:
    """Call the function, and kill what it has started with SIGKILL after so long. Raises DbbenchError
    if it has returned before.
    """
    others = set(_descendants("self"))

    def kill_all() -> None:
        for pid in set(_descendants("self")) - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    try:
        with phase("start", kill_all, poll_s=after_s):
            start()
    except (EngineStartFailed, EngineDied):
        return
    raise DbbenchError(f"it ended within {after_s:.2f} s, before the kill")


def _descendants(process: int | str) -> Iterator[int]:
    """Yield the pids of the children of a process, and of their children."""
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for pid in map(int, path.read_text().split()):
            yield pid
            yield from _descendants(pid)
