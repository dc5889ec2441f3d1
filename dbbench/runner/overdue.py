"""A trial that does not heed its own deadline, seen from outside.

A phase ends its work by an exception in the trial's process (`record.deadline`). That is never raised while the process
sits in a call that no signal ends: libpq, which waits for a server's answer, or the kernel itself (state D). The
parent hears when each phase begins, and gives up on the process some time after the deadline.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from dbbench.errors import TrialStuck
from dbbench.progress.events import Event

GRACE_S: Final = 300.0  # what a phase that is over its deadline may take to kill its server and to unmount
BETWEEN_S: Final = 1800.0  # from one phase to the next, or to the end: an umount that writes back, layers, the result
_NAMED: Final = 6  # processes that the error names


class Overdue:
    """Until when the next word of a trial must have come. Of a process that tells no deadlines it never is."""

    def __init__(self, grace_s: float = GRACE_S, between_s: float = BETWEEN_S) -> None:
        self._grace_s, self._between_s = grace_s, between_s
        self._until, self._what = math.inf, ""

    def hear(self, event: Event) -> None:
        """A phase that begins tells its deadline."""
        phase, limit_s = event.data.get("phase"), event.data.get("deadline_s")
        if event.kind == "phase_begin" and limit_s is not None:
            self._until = time.monotonic() + limit_s + self._grace_s
            self._what = (
                f"phase {phase} did not end at its deadline of {limit_s:.0f} s, nor {self._grace_s:.0f} s later"
            )
        elif event.kind == "phase_end" and self._until < math.inf:
            self._until = time.monotonic() + self._between_s
            self._what = f"nothing came for {self._between_s:.0f} s after phase {phase}"

    def lines(self, pid: int, fd: int) -> Iterator[bytes]:
        """What the process prints on the pipe, line by line, up to its end; TrialStuck where it is overdue."""
        left = b""
        while True:
            wait_s = None if self._until == math.inf else max(0.0, self._until - time.monotonic())
            if not select.select([fd], [], [], wait_s)[0]:
                raise TrialStuck(f"{self._what}: {waiting(pid)}", effect="It was killed; the trial does not count.")
            part = os.read(fd, 65536)
            if not part:
                break
            *whole, left = (left + part).split(b"\n")
            yield from whole
        if left:
            yield left


def waiting(pid: int) -> str:
    """Where the processes below `pid` wait: those in state D first, with the kernel's function that they wait in."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            asleep = process.status() == psutil.STATUS_DISK_SLEEP
            where = Path(f"/proc/{process.pid}/wchan").read_text()
            name = f"{process.name()} (pid {process.pid}{', state D' if asleep else ''})"
            found.append((not asleep, f"{name} in {where}" if where not in ("", "0") else f"{name} at work"))
        except (psutil.Error, OSError):
            continue
    return "; ".join(text for _awake, text in sorted(found)[:_NAMED]) or "no process of it is left"
