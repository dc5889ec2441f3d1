"""Phases of the lab: each has a deadline, and ends early if the server's log says that it cannot
succeed.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from dbbench import errors, process

# An umount that had to write everything took 21 s; a phase that takes longer than these limits
# hangs.
DEADLINES_S: Final = {
    "prepare": 300.0,
    "mount": 60.0,
    "start": 120.0,
    "look up": 60.0,
    "check": 120.0,
    "stop": 60.0,
    "umount": 90.0,
    "fsck": 120.0,
}
# Between two reports there are at most two recoveries, or one recording with its kills. What hangs
# where no signal ends it, in the kernel or in a client library, is killed then.
STEP_S: Final = 2 * sum(DEADLINES_S.values())
POLL_S: Final = 10.0
# MySQL retries without end if recovery needs a page that cannot be read. It logs lines of this
# kind.
_UNREADABLE: Final = re.compile(
    r"\[ERROR\].*(page corruption|[Uu]nable to apply log to corrupted page)"
)


@contextlib.contextmanager
def phase(
    name: str,
    look: Callable[[], None] = lambda: None,
    deadline_s: float | None = None,
    poll_s: float = POLL_S,
) -> Iterator[None]:
    """Raise DeadlinePassed in the block if it exceeds the deadline, by default that of its phase.
    Main thread only; phases do not nest. `look` is called every `poll_s`, and may raise an error
    that ends the phase early.
    """
    limit_s = DEADLINES_S[name] if deadline_s is None else deadline_s
    began = time.monotonic()

    def poll(_number: int, _frame: FrameType | None) -> None:
        if process.overdue(began, limit_s):
            raise errors.DeadlinePassed(f"{name} took longer than {limit_s:.0f} s")
        look()

    before = signal.signal(signal.SIGALRM, poll)
    signal.setitimer(signal.ITIMER_REAL, poll_s, poll_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def starting(
    log: Path,
    deadline_s: float = DEADLINES_S["start"],
    poll_s: float = POLL_S,
) -> Iterator[None]:
    """Run the phase in which a server starts; end it early if the log says that a page cannot be
    read.
    """

    def look_for_unreadable_pages() -> None:
        with contextlib.suppress(OSError):
            unreadable = _UNREADABLE.search(log.read_text(errors="replace"))
            if unreadable:
                text = f"it does not answer, and its log contains: {unreadable[0]}"
                raise errors.EngineStartFailed(text)

    with phase("start", look_for_unreadable_pages, deadline_s, poll_s):
        yield
