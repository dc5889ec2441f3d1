"""apply: a primary's archived log is applied to its base copy, as fast as it goes or in batches.

PostgreSQL is a standby that fetches segments by its restore_command; MariaDB and MySQL are servers that the binary
logs are replayed into (`appliers.py`). kB/s is the log applied (10^3 bytes) ÷ the seconds in which some was waiting;
with all of it handed over at once those are all seconds. There are no transactions a second: those columns are gaps.
At the end every table must have the checksum that it has on the primary.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench import steadiness
from dbbench.clock import Clock
from dbbench.drivers import appliers
from dbbench.drivers.appliers import Applier
from dbbench.drivers.archive import ARCHIVE, Archive, load
from dbbench.drivers.port import Live, Load, Outcome
from dbbench.engines import checksums
from dbbench.engines.port import Server
from dbbench.errors import ApplyStuck, ApplyUnequal, DriverFailed, EngineDied
from dbbench.model import Cell, TrialWarning
from dbbench.series import FIRST, Column, Series

RATE: Final = "apply_kb_per_s"  # the column of the series
STUCK_S: Final = 300.0  # a slow disk that writes out all dirty pages at a restartpoint stops for less
FALLEN: Final = 0.05  # of the mean rate, from one end to the other: a smaller decay moves no verdict
_POLL_S: Final = 0.1
_DEATH_S: Final = 1.0  # a server that was killed is seen dead this much later than its clients notice it, at most


def programs() -> tuple[str, ...]:
    """What `doctor` must find: nothing for all engines; who replays binary logs is looked for with the server."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Apply the archive that lies in `scratch`; when the block ends well, compare every table. See the port.

    ApplyUnequal where one differs from the primary's.
    """
    del seed  # a log has one order
    try:
        archive = load(scratch / ARCHIVE)
    except (OSError, ValueError) as error:
        raise DriverFailed(f"there is no archive to apply: {error}") from error
    interval_s, batch = float(cell.parameters.get("interval", 0)), int(cell.parameters.get("batch", 1))
    bin_ = Path(cell.engine.bin) if cell.engine.bin else None
    with appliers.applying(server, archive, scratch, raw, bin_) as applier:
        apply = ApplyLoad(server, clock, archive, applier, interval_s, batch)
        yield apply
        verify(server, archive, raw)


def verify(server: Server, archive: Archive, raw: Path) -> None:
    """ApplyUnequal; what was compared goes to raw/checksums.json."""
    found = checksums.of_tables(server)
    (raw / "checksums.json").write_text(json.dumps({"primary": archive.checksums, "standby": found}, indent=1) + "\n")
    if wrong := differences(archive.checksums, found):
        raise ApplyUnequal("; ".join(wrong[:5]), effect="The trial is marked failed.",
                           remedy="See raw/checksums.json and the server's log of the trial.")  # fmt: skip


def differences(primary: dict[str, str], standby: dict[str, str]) -> list[str]:
    """Each table that is not the same on both, and how."""
    names = sorted({*primary, *standby})
    return [f"{name}: {standby.get(name, 'missing')}; on the primary {primary.get(name, 'missing')}"
            for name in names if primary.get(name) != standby.get(name)]  # fmt: skip


class ApplyLoad:
    """The hand-over and its watch. The first batch is handed over when this is made."""

    def __init__(self, server: Server, clock: Clock, archive: Archive, applier: Applier, interval_s: float,
                 batch: int) -> None:  # fmt: skip
        self.server, self.archive, self.applier = server, archive, applier
        self._interval_s = interval_s
        self._batch = batch if interval_s else len(archive.logs)
        self._handed = 0
        self.begin_utc, self._began = clock.now_utc(), time.monotonic()
        self._points: list[tuple[float, int]] = [(0.0, 0)]  # second, bytes applied
        self._busy_s = 0.0
        self._busy: set[int] = set()  # seconds in which some log was waiting
        self._grown_at = 0.0
        self._told = -1
        self._hand_over()

    @property
    def pids(self) -> tuple[int, ...]:
        return self.applier.pids

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Block until `second`, or until all is applied: there is no time to be filled."""
        while self._now_s() < second and self._goes_on(watch):
            time.sleep(_POLL_S)

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Block until all is applied. EngineDied, DriverFailed, ApplyStuck."""
        while self._goes_on(watch):
            time.sleep(_POLL_S)

    def outcome(self) -> Outcome:
        """Rate, duration, and how the rate changed over the time."""
        duration_s, done = self._points[-1]
        rates = [rate if second in self._busy else None for second, rate in enumerate(by_second(self._points))]
        figures: dict[str, float | None] = {"duration_s": duration_s, "applied_bytes": float(done)}
        figures["kb_per_s"] = done / 1e3 / self._busy_s if self._busy_s else None
        warnings = []
        if self._busy_s > 0.9 * duration_s and (decay := steadiness.slope(rates)) is not None:
            figures |= {"decay_kb_per_s_min": decay.per_min, "decay_low": decay.low, "decay_high": decay.high}
            fallen = -decay.per_min * duration_s / 60 / (done / 1e3 / duration_s)
            if decay.high < 0 and fallen > FALLEN:
                text = f"by {-decay.per_min:.0f} kB/s a minute (95 %: {-decay.high:.0f} to {-decay.low:.0f})"
                warnings.append(TrialWarning("W111", f"the apply rate fell {text} over {duration_s:.0f} s"))
        series = Series(math.ceil(duration_s), {name: [] for name in FIRST})
        series.set(RATE, rates)
        return Outcome(self.begin_utc, duration_s, 0, 0, series, None, figures, tuple(warnings))

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _hand_over(self) -> None:
        logs = self.archive.logs[self._handed : self._handed + self._batch]
        self._handed += len(logs)
        self._waiting = True
        self.applier.offer(logs, last=self._handed == len(self.archive.logs))

    def _goes_on(self, watch: Callable[[Live], None]) -> bool:
        """Look once. False when all is applied."""
        self._alive()
        waiting = not self.applier.caught_up()
        now, applied = self._now_s(), self.applier.applied()
        before_s, before = self._points[-1]
        if self._waiting:
            self._busy_s += now - before_s
            self._busy.update(range(int(before_s), int(now) + 1))
        self._waiting = waiting
        if applied > before or not waiting:
            self._grown_at = now
        elif now - self._grown_at > STUCK_S:
            raise ApplyStuck(
                f"{applied} bytes are applied, and none more for {STUCK_S:.0f} s; {self.applier.left()}",
                effect="The trial is marked failed.",
                remedy="See the server's log of the trial.",
            )
        self._points.append((now, applied))
        if int(now) > self._told:
            self._told = int(now)
            watch(Live(self._told, None, None))
        if self._handed < len(self.archive.logs):
            if now >= self._interval_s * math.ceil(self._handed / self._batch):
                self._hand_over()
            return True
        return waiting

    def _alive(self) -> None:
        said = self.applier.fault()
        until = time.monotonic() + (_DEATH_S if said else 0.0)
        while self.server.alive() and time.monotonic() < until:
            time.sleep(0.02)
        if not self.server.alive():
            raise EngineDied(f"the server (pid {self.server.pid}) is gone; {said or 'while it applied the log'}")
        if said:
            raise DriverFailed(said)


def by_second(points: list[tuple[float, int]]) -> Column:
    """kB applied in each whole second, from (second, bytes so far) in order; between two points evenly."""
    at: list[float] = []
    left = 0
    for second in range(int(points[-1][0]) + 1):
        while left + 1 < len(points) and points[left + 1][0] <= second:
            left += 1
        (begin, low), (end, high) = points[left], points[min(left + 1, len(points) - 1)]
        share = (second - begin) / (end - begin) if end > begin else 0.0
        at.append(low + (high - low) * share)
    return [(late - early) / 1e3 for early, late in itertools.pairwise(at)]
