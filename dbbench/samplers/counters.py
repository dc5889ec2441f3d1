"""counters: the engine's own counters, read once a second by a thread. Raw file: `counters.jsonl`.

The columns are differences a second of what only grows (`wal_bytes` -> `wal_bytes_per_s`) and gauges as
they are (`innodb_history_list_length`). A reading that failed is a gap on both of its sides.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dbbench.clock import iso
from dbbench.engines.port import Server
from dbbench.model import TrialWarning
from dbbench.samplers.gaps import gap_warning
from dbbench.samplers.port import Sampling, Target
from dbbench.series import Series, on_the_second

# Words of a name that say "as it is now", against counters that only grow. `wait_free` and the like grow.
_GAUGE: Final = re.compile(
    r"(^|_)(dirty|history|length|age|lag|running|connected|active|backlog|depth|current|size|limit)(_|$)"
    r"|pages_(data|free|misc|total)$"
)
_LONGEST_S: Final = 1.5  # a difference over more than that is not the value of any one second
_JOIN_S: Final = 1.0  # the block's end waits no longer for a reading that hangs


@dataclass(frozen=True)
class Reading:
    """One second: `due_utc` on the schedule, the monotonic time of the answer, the counters or None."""

    due_utc: float
    monotonic: float
    counters: dict[str, float] | None


def programs() -> tuple[str, ...]:
    """None: the engine's connection is enough."""
    return ()


@contextlib.contextmanager
def beside(target: Target, raw: Path) -> Iterator[Sampling]:
    """Read `target.server.counters()` once a second; nothing where there is no server."""
    recording = Counters(target.server, raw / "counters.jsonl")
    recording.start()
    try:
        yield recording
    finally:
        recording.stop()


def is_gauge(name: str) -> bool:
    """Whether the value is a state (dirty pages, history length) and no count that only grows."""
    return _GAUGE.search(name) is not None


class Counters:
    """A thread that reads, and what it has read."""

    def __init__(self, server: Server | None, log: Path) -> None:
        self.readings: list[Reading] = []
        self._server = server
        self._log = log
        self._ended = threading.Event()
        self._fault: str | None = None
        self._fatal = False
        self._warnings: list[TrialWarning] = []
        self._thread = threading.Thread(target=self._work, name="counters", daemon=True)

    def start(self) -> None:
        """Begin; the first reading is taken at once."""
        if self._server is not None:
            self._thread.start()

    def stop(self) -> None:
        """End within a second, also where the server does not answer any more."""
        self._ended.set()
        if self._server is not None:
            self._thread.join(_JOIN_S)
            if self._thread.is_alive():
                self._fault, self._fatal = "the server did not answer at the end", True

    def first(self) -> dict[str, float] | None:
        """The earliest reading that succeeded."""
        return next((r.counters for r in self.readings if r.counters is not None), None)

    def last(self) -> dict[str, float] | None:
        """The latest reading that succeeded."""
        return next((r.counters for r in reversed(self.readings) if r.counters is not None), None)

    def series(self, begin_utc: float, seconds: int) -> Series:
        """Columns on the trial's clock."""
        if self._server is None:
            return Series(seconds)
        series = to_series(self.readings, begin_utc, seconds)
        pairs = itertools.pairwise(self.readings)
        seen = on_the_second(((b.due_utc, 1.0 if _usable(a, b) else None) for a, b in pairs), begin_utc, seconds)
        self._warnings = []
        if self._fatal:
            self._warnings.append(TrialWarning("W013", f"counters: {self._fault}", suspect=True))
        if gaps := gap_warning("counters", seen):
            why = f": {self._fault}" if self._fault else ""
            self._warnings.append(TrialWarning(gaps.id, gaps.text + why, gaps.second))
        return series

    def warnings(self) -> tuple[TrialWarning, ...]:
        """W013, W014; of the last call of `series`."""
        return tuple(self._warnings)

    def _work(self) -> None:
        began_utc, began = time.time(), time.monotonic()
        tick = 0
        with self._log.open("w", encoding="utf-8") as log:
            while not self._ended.wait(max(0.0, began + tick - time.monotonic())):
                if not self._read(log, began_utc + tick):
                    return
                # A reading that took longer than a second costs its ticks; it does not move the schedule.
                tick = max(tick + 1, math.ceil(time.monotonic() - began))

    def _read(self, log: IO[str], due_utc: float) -> bool:
        """One reading; False where there is no use in another one."""
        assert self._server is not None
        counters: dict[str, float] | None = None
        line: dict[str, object] = {"utc": iso(due_utc)}
        try:
            counters = self._server.counters()
            line["counters"] = counters
        except Exception as error:  # every driver has its own family; none may end the trial from here
            self._fault = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            line["error"] = self._fault
        if self._ended.is_set() and counters is None:
            return False  # the server was asked while it stopped: no fault of this trial
        self.readings.append(Reading(due_utc, time.monotonic(), counters))
        log.write(json.dumps(line) + "\n")
        log.flush()
        if counters is None and not self._server.alive():
            self._fault, self._fatal = f"the server is gone ({self._fault})", True
            return False
        return True


def _usable(before: Reading, after: Reading) -> bool:
    readable = before.counters is not None and after.counters is not None
    return readable and after.due_utc - before.due_utc <= _LONGEST_S


def to_series(readings: Sequence[Reading], begin_utc: float, seconds: int) -> Series:
    """Differences a second of counters, gauges as they are; a counter that went back is a gap."""
    names = list(dict.fromkeys(name for reading in readings for name in reading.counters or {}))
    columns = {}
    for name in names:
        gauge = is_gauge(name)
        points = _gauge(readings, name) if gauge else _rates(readings, name)
        columns[name if gauge else f"{name}_per_s"] = on_the_second(points, begin_utc, seconds)
    return Series(seconds, columns)


def _gauge(readings: Sequence[Reading], name: str) -> Iterator[tuple[float, float | None]]:
    for reading in readings:
        yield reading.due_utc, (reading.counters or {}).get(name)


def _rates(readings: Sequence[Reading], name: str) -> Iterator[tuple[float, float | None]]:
    for before, after in itertools.pairwise(readings):
        old, new = (before.counters or {}).get(name), (after.counters or {}).get(name)
        if not _usable(before, after) or old is None or new is None or new < old:
            yield after.due_utc, None
        else:
            yield after.due_utc, (new - old) / (after.monotonic - before.monotonic)
