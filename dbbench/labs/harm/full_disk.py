"""Fill the disk under a server: does it return errors, die or wait; does it accept writes again
after a file was deleted; are all acknowledged commits there? The file takes most of the
filesystem, and sessions insert rows that cannot be compressed. The server's account cannot use
what the filesystem reserves for root.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dbbench.engines.port import Server
from dbbench.engines.serving import tail
from dbbench.engines.sql import execute
from dbbench.errors import (
    DbbenchError,
    DeadlinePassed,
    EngineDied,
    EngineStartFailed,
    FilesystemFull,
)
from dbbench.labs.harm.attempts import repeat
from dbbench.labs.harm.rows import SESSIONS, RowWriter, create_table
from dbbench.labs.powercut.base_images import BaseImages, Lab, make_base
from dbbench.labs.powercut.conclusions import single
from dbbench.labs.powercut.phases import phase
from dbbench.labs.powercut.recovery import check_server, mounted, serving
from dbbench.model import HarmCount, HarmOutcome
from dbbench.run.record import stopping
from dbbench.units import size_text

# columns of the harm table
FULL = "disk full"
START = "start while full"
AFTER = "after disk full"
# as text just below 16,000 characters: the longest column that PostgreSQL and InnoDB both accept
ROW_BYTES: Final = 11_980
# Free space when the load begins. Half of the least exceeds what a server allocates at once
# (PostgreSQL: 16 MiB).
LEAST_FREE = 48 * 2**20
MOST_FREE = 96 * 2**20
FILLING_S: Final = 120.0  # the load needs 5 to 20 s on a quiet machine
PRESS_S: Final = 5.0  # the load continues after the first error, as an application would
STALL_S: Final = 20.0  # a server that does not answer for so long waits
ACCEPT_S: Final = 90.0  # MySQL and MariaDB look for free space once a minute
_POLL_S: Final = 0.05


def fill_disk(lab: Lab, base: BaseImages, rounds: int) -> list[HarmCount]:
    """Fill copies of the target's disks so many times; return how often each outcome was observed.
    The disks are made anew, because the size of the log's files matters.
    """
    base = make_base(lab, base.target, small=False)
    return repeat(FULL, _fill, lab, base, rounds)


def _fill(lab: Lab, base: BaseImages, seed: str) -> list[HarmCount]:
    """Fill copies of the disks once, delete the file, and look up the rows after another start of
    the server.
    """
    writer = RowWriter(seed, ROW_BYTES)
    left = random.Random(seed)
    lab.server_log.unlink(missing_ok=True)
    # Each volume is filled, except for some bytes that the seed decides.
    with mounted(lab, base, base.copy(lab, "full")) as datadir:
        places = [lab.workdir.mount_point(role) for role in base.target.setups]
        with phase("prepare"):
            ballast = [_take(place, left.randint(LEAST_FREE, MOST_FREE)) for place in places]
        outcomes = list[HarmCount]()
        try:
            # The disk becomes full while rows are written, and gets free again while they are.
            with serving(lab, base, datadir) as server:
                create_table(server)
                with writer.writing(server):
                    outcomes.append(observe(lab, server, writer, places))
                    died = not server.alive()
                    accepts = died
                    if not died:
                        delete(ballast)
                        accepts = writer.accepts(server, ACCEPT_S)
                # commits that the settings do not flush must not be lost by the kill
                if server.alive():
                    with phase("check"):
                        server.checkpoint()
            # A server that ended must start, first while the disk is still full.
            if died:
                outcomes.append(_start_while_full(lab, base, datadir))
                delete(ballast)
            outcomes.append(_look_up(lab, base, datadir, writer, accepts))
        except Exception as error:  # also of psycopg2 or mysql.connector
            if stopping(error):
                raise
            if not outcomes:
                raise DbbenchError(f"the disk was not filled: {error}") from error
            word = HarmOutcome.HANGS if isinstance(error, DeadlinePassed) else HarmOutcome.STUCK
            outcomes.append(single(AFTER, word, error))
    return outcomes


def _take(place: Path, left: int) -> Path:
    """Make a file that leaves so many bytes of the filesystem. Raises OSError."""
    ballast = place / "ballast"
    size = shutil.disk_usage(place).free - left
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        if shutil.disk_usage(place).free > left + size // 2:  # ZFS reserves no space for a file
            for _ in range(size // 2**20):
                file.write(random.randbytes(2**20))
            os.fsync(file.fileno())
    return ballast


def observe(
    lab: Lab,
    server: Server,
    writer: RowWriter,
    places: Sequence[Path],
) -> HarmCount:
    """Wait for the server's answer to a full disk. Raises DbbenchError if it is not full."""
    began = time.monotonic()
    word: HarmOutcome | None = None
    while word is None:
        now = time.monotonic()
        if not server.alive():
            word = HarmOutcome.DIES
        elif writer.failed is not None and now > writer.failed[0] + PRESS_S:
            word = HarmOutcome.REFUSES
        elif now > writer.answered + STALL_S:
            word = HarmOutcome.WAITS
        elif now > began + FILLING_S:
            break
        time.sleep(_POLL_S)
    free = min(shutil.disk_usage(place).free for place in places)
    error = writer.failed[1] if writer.failed else "no error"
    detail = f"{size_text(free)} free after {writer.count} commits: {error}"
    if word is None or free > LEAST_FREE / 2:
        raise DbbenchError(f"the disk did not become full: {detail}")
    if word == HarmOutcome.DIES:
        detail += tail(lab.server_log)
    return single(FULL, word, detail)


def delete(ballast: Sequence[Path]) -> None:
    """Raise FilesystemFull if a file cannot be deleted: copy-on-write filesystems need space for
    that.
    """
    for file in ballast:
        try:
            file.unlink()
        except OSError as error:
            text = f"a file cannot be deleted from the full filesystem: {error}"
            raise FilesystemFull(text) from error


def _start_while_full(lab: Lab, base: BaseImages, datadir: Path) -> HarmCount:
    try:
        with serving(lab, base, datadir):
            return single(START, HarmOutcome.STARTS, "")
    except (EngineStartFailed, EngineDied, FilesystemFull, DeadlinePassed) as error:
        return single(START, HarmOutcome.FAILS, error)


def _look_up(
    lab: Lab,
    base: BaseImages,
    datadir: Path,
    writer: RowWriter,
    accepts: bool,
) -> HarmCount:
    """Start the server again, with space: insert a row, look up every acknowledged one, and check
    every page.
    """
    with serving(lab, base, datadir) as server:
        with phase("look up"):
            execute(server, f"INSERT INTO filling VALUES ({SESSIONS}, 0, 0, '')")
        harms = check_server(server, {}, writer.harms).harms
        if harms:
            word = HarmOutcome.LOST if "lost" in harms else HarmOutcome.DAMAGED
            return single(AFTER, word, "; ".join(harms.values()))
    if not accepts:
        text = f"no commit within {ACCEPT_S:.0f} s after a file was deleted"
        return single(AFTER, HarmOutcome.RESTARTED, text)
    return single(
        AFTER,
        HarmOutcome.RECOVERS,
        f"{writer.count} acknowledged commits are present",
    )
