"""The clock of a trial: one UTC anchor, all other times are anchor plus monotonic time; and waiting with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Clock:
    """A clock that is started once, at the beginning of a trial."""

    utc: float = field(default_factory=time.time)  # epoch seconds
    monotonic: float = field(default_factory=time.monotonic)

    def now_utc(self) -> float:
        """Return epoch seconds as anchor + monotonic time, so that setting the system clock has no effect."""
        return self.utc + time.monotonic() - self.monotonic

    def slip_s(self) -> float:
        """Return how far the system clock has been set since the anchor was taken, in seconds."""
        return time.time() - self.now_utc()


def iso(utc: float, digits: str = "milliseconds") -> str:
    """Format epoch seconds as UTC in ISO 8601 with milliseconds (or `digits`): 2026-11-21T10:15:30.123Z."""
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec=digits).replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Parse a time written by `iso`; return epoch seconds."""
    return datetime.fromisoformat(text).timestamp()


def wait_while(busy: Callable[[], T], within_s: float, every_s: float = 0.05) -> T:
    """Call `busy` until it returns something false or `within_s` have passed; return its last value."""
    until = time.monotonic() + within_s
    while (value := busy()) and time.monotonic() < until:
        time.sleep(every_s)
    return value
