"""What a machine counts and a quiet one hardly does: heat, a page cache that somebody drops, memory that is swapped."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.host.proc import vmstat
from dbbench.host.sysfs import number
from dbbench.model import TrialWarning

CPUS: Final = Path("/sys/devices/system/cpu")
# A machine with memory to spare puts idle pages away now and then; what the load needs comes and goes all the time.
SWAPPED_BYTES_PER_S: Final = 1e6


@dataclass(frozen=True)
class Events:
    """Counts since boot, or between two moments; None where nobody counts."""

    throttled: int | None = None  # times that a processor was slowed down for its heat
    cache_drops: int | None = None  # writes to /proc/sys/vm/drop_caches that dropped the page cache
    swapped_pages: int | None = None  # in and out

    def since(self, before: Events) -> Events:
        """What came between."""
        return Events(
            _less(self.throttled, before.throttled),
            _less(self.cache_drops, before.cache_drops),
            _less(self.swapped_pages, before.swapped_pages),
        )


NONE: Final = Events()


def events(proc: Path) -> Events:
    """Read them now: the counters of all processors (thermal_throttle of x86), and /proc/vmstat."""
    throttled = [
        found for path in CPUS.glob("cpu*/thermal_throttle/*_throttle_count") if (found := number(path)) is not None
    ]
    counted: dict[str, int] = {}
    with contextlib.suppress(OSError):
        counted = vmstat(proc)
    swapped = [counted[name] for name in ("pswpin", "pswpout") if name in counted]
    return Events(
        sum(throttled) if throttled else None, counted.get("drop_pagecache"), sum(swapped) if swapped else None
    )


def warnings(found: Events, seconds: float) -> Iterator[TrialWarning]:
    """W126, W130 and W131, all suspect, of what came in so many seconds."""
    if found.throttled:
        said = f"processors were slowed down for their heat {found.throttled} times in {seconds:.0f} s"
        yield TrialWarning("W126", said, suspect=True)
    if found.cache_drops:
        said = f"the machine's page cache was dropped {found.cache_drops} times in {seconds:.0f} s"
        yield TrialWarning("W130", said, suspect=True)
    swapped = (found.swapped_pages or 0) * mmap.PAGESIZE
    if seconds > 0 and swapped / seconds >= SWAPPED_BYTES_PER_S:
        yield TrialWarning("W131", f"{swapped / 1e6:.0f} MB in {seconds:.0f} s", suspect=True)


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before
