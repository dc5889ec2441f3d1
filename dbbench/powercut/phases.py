"""Phases of the lab's work, each with its deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from dbbench.errors import DeadlinePassed

# An umount that had everything to write took 21 s; a phase that takes longer than these hangs.
DEADLINES_S: Final = {
    "prepare": 300.0, "mount": 60.0, "start": 120.0, "look up": 60.0,
    "check": 120.0, "umount": 90.0, "fsck": 120.0,
}  # fmt: skip


POLL_S: Final = 10.0


@contextmanager
def phase(name: str, hopeless: Callable[[], None] = lambda: None) -> Iterator[None]:
    """DeadlinePassed in the block when it takes longer than its phase may. `hopeless` is called every POLL_S, and may
    raise what ends it before. Main thread only; phases do not nest."""
    until = time.monotonic() + DEADLINES_S[name]

    def passed(_number: int, _frame: FrameType | None) -> None:
        if time.monotonic() >= until:
            raise DeadlinePassed(f"{name} took longer than {DEADLINES_S[name]:.0f} s")
        hopeless()

    before = signal.signal(signal.SIGALRM, passed)
    signal.setitimer(signal.ITIMER_REAL, POLL_S, POLL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
