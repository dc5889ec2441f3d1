"""One clock a trial: one UTC anchor, everything else is the anchor plus monotonic time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True)
class Clock:
    """Taken once, at the start of a trial."""

    utc: float = field(default_factory=time.time)  # epoch seconds
    monotonic: float = field(default_factory=time.monotonic)

    def now_utc(self) -> float:
        """Epoch seconds by anchor + monotonic time: a clock that is set does not move it."""
        return self.utc + time.monotonic() - self.monotonic

    def slip_s(self) -> float:
        """By how much the system clock was set since the anchor was taken, in seconds."""
        return time.time() - self.now_utc()


def iso(utc: float, digits: str = "milliseconds") -> str:
    """Epoch seconds as UTC, ISO 8601 with milliseconds (or `digits`): 2026-11-21T10:15:30.123Z."""
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec=digits).replace("+00:00", "Z")


def epoch(text: str) -> float:
    """The reverse of `iso`."""
    return datetime.fromisoformat(text).timestamp()
