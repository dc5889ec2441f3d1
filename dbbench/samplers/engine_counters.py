"""counters: the engine's own counters once per second, in `counters.jsonl`. Columns are differences
per second of cumulative counters (`wal_bytes` -> `wal_bytes_per_s`), and gauges. A failed
reading is a gap on both of its sides.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import IO, Final

from dbbench.engines.port import Server, Sessions
from dbbench.machine import threads
from dbbench.metrics.series import Series, on_the_second
from dbbench.model import TrialWarning
from dbbench.samplers.sampler import Sampled, Sampling, gap_warning
from dbbench.units import iso

# Words in the name of a gauge. All other values are counters that only grow, also `wait_free` and
# the like.
_GAUGE: Final = re.compile(
    r"(^|_)(dirty|history|length|age|lag|running|connected|active|backlog|depth|current|size|limit)(_|$)"
    r"|pages_(data|free|misc|total)$"
)
_LONGEST_S: Final = 1.5  # a difference over more seconds is not the value of a single second
_SHOWN: Final = 3  # sessions that a warning lists
PROGRAMS: Final = ()
_JOIN_S: Final = 1.0  # seconds that the end of the block waits for a reading that hangs


@dataclass(frozen=True)
class CountersReading:
    """One second: `due_utc` according to the schedule, the monotonic time of the answer, the
    counters or None.
    """

    due_utc: float
    monotonic: float
    counters: dict[str, float] | None
    sessions: Sessions | None = None


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling | None]:
    """Read `target.server.counters()` once per second."""
    if target.server is None:
        yield None
        return
    recording = Counters(target.server, raw / "counters.jsonl", target.sessions)
    with recording.running():
        yield recording


def is_gauge(name: str) -> bool:
    """Whether the value is a state (dirty pages, history length) and not a cumulative count."""
    return _GAUGE.search(name) is not None


@dataclass
class Counters:
    """A thread that reads counters, and its readings."""

    server: Server
    log: Path
    expected: int | None = None  # sessions that the load generator opens
    readings: list[CountersReading] = field(default_factory=list)
    _fault: str | None = None
    _fatal: bool = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Read within the block, first immediately; at its end, wait one second at most for an
        answer of the server.
        """
        with contextlib.suppress(Exception):  # the thread's first reading reports the error
            # sessions are counted from now on, before the load generator opens any
            self.server.sessions()
        with threads.beside("counters", self._work, limit_s=_JOIN_S) as helper:
            yield
        if helper.alive:
            self._fault = "the server did not answer at the end"
            self._fatal = True

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        # A second is readable if its counters and those before it were.
        points = []
        for before, after in itertools.pairwise(self.readings):
            points.append((after.due_utc, 1.0 if _usable(before, after) else None))
        readable = on_the_second(points, begin_utc, seconds)
        warnings = []
        failed = [reading for reading in self.readings if reading.counters is None]
        if self._fatal or (failed and len(failed) == len(self.readings)):
            warnings.append(TrialWarning("W013", f"counters: {self._fault}"))
        gaps = gap_warning("counters", readable)
        if gaps:
            why = f": {self._fault}" if self._fault else ""
            warnings.append(TrialWarning(gaps.id, gaps.text + why, gaps.second))
        warnings += foreign_sessions(self.readings, self.expected, begin_utc, seconds)
        return to_series(self.readings, begin_utc, seconds), warnings

    def _work(self, ended: Event) -> None:
        began_utc = time.time()
        began = time.monotonic()
        tick = 0
        with self.log.open("w", encoding="utf-8") as log:
            while not ended.wait(max(0.0, began + tick - time.monotonic())):
                if not self._take_reading(log, began_utc + tick, ended):
                    return
                # A reading that took longer than a second skips readings; the schedule stays the
                # same.
                tick = max(tick + 1, math.ceil(time.monotonic() - began))

    def _take_reading(
        self,
        log: IO[str],
        due_utc: float,
        ended: Event,
    ) -> bool:
        """Return False if further readings are pointless."""
        counters: dict[str, float] | None = None
        sessions: Sessions | None = None
        line: dict[str, object] = {"utc": iso(due_utc)}
        try:
            counters = self.server.counters()
            line["counters"] = counters
            sessions = self.server.sessions()
            line["sessions"] = {"present": len(sessions.present), "opened": sessions.opened}
        # each database module has errors of its own; none may end the trial here
        except Exception as error:
            self._fault = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            line["error"] = self._fault
        if ended.is_set() and counters is None:
            return False  # the server was already stopping, which is not a fault
        self.readings.append(CountersReading(due_utc, time.monotonic(), counters, sessions))
        log.write(json.dumps(line) + "\n")
        log.flush()
        if counters is None and not self.server.alive():
            self._fault = f"the server died ({self._fault})"
            self._fatal = True
            return False
        return True


def foreign_sessions(
    readings: Sequence[CountersReading],
    expected: int | None,
    begin_utc: float,
    seconds: int,
) -> Iterator[TrialWarning]:
    """Yield W135 for more sessions than the load generator opens, and W128 for a reload of the
    configuration.
    """
    # Each reading is compared with the one before.
    before = Sessions({})
    foreign = set[int]()
    first_seconds = dict[str, int]()
    for reading in readings:
        now = reading.sessions
        if now is None:
            continue
        second = math.floor(reading.due_utc - begin_utc)
        if 0 <= second <= seconds:  # a session is noticed up to a second later
            second = min(second, seconds - 1)
            if now.configured != before.configured and before.configured:
                yield TrialWarning("W128", "the server read its configuration again", second)
            more = _beyond(now, expected)
            if more > _beyond(before, expected):
                new = now.present.keys() - before.present.keys()
                listed = 0 < len(new) <= more
                foreign |= new if listed else set()
                if not listed:
                    first_seconds.setdefault(f"{more} in total, not listed by the server", second)
            for number in sorted(foreign & now.present.keys()):
                first_seconds.setdefault(now.present[number], second)
        before = now
    # One warning for all sessions, at the second of the first.
    texts = []
    for session, second in first_seconds.items():
        texts.append(f"{' '.join(session.split())} (second {second})")
    if texts:
        yield TrialWarning(
            "W135",
            "; ".join(texts[:_SHOWN]),
            min(first_seconds.values()),
        )


def _beyond(sessions: Sessions, expected: int | None) -> int:
    """Return how many sessions do not belong to the load generator."""
    count = len(sessions.present) if sessions.opened is None else sessions.opened
    if expected is None:
        return 0
    return max(0, count - expected)


def _usable(before: CountersReading, after: CountersReading) -> bool:
    readable = before.counters is not None and after.counters is not None
    return readable and after.due_utc - before.due_utc <= _LONGEST_S


def to_series(
    readings: Sequence[CountersReading],
    begin_utc: float,
    seconds: int,
) -> Series:
    """Return differences per second of counters, and gauges as they are; a counter that decreased
    is a gap.
    """
    names = list(dict.fromkeys(name for reading in readings for name in reading.counters or {}))
    columns = {}
    for name in names:
        if is_gauge(name):
            values = ((reading.due_utc, (reading.counters or {}).get(name)) for reading in readings)
            columns[name] = on_the_second(values, begin_utc, seconds)
        else:
            columns[f"{name}_per_s"] = on_the_second(_rates(readings, name), begin_utc, seconds)
    return Series(seconds, columns)


def _rates(readings: Sequence[CountersReading], name: str) -> Iterator[tuple[float, float | None]]:
    for before, after in itertools.pairwise(readings):
        old = (before.counters or {}).get(name)
        new = (after.counters or {}).get(name)
        if not _usable(before, after) or old is None or new is None or new < old:
            yield after.due_utc, None
        else:
            yield after.due_utc, (new - old) / (after.monotonic - before.monotonic)
