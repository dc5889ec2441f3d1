"""One statement during a load in a fixed window (`during` of a workload), and its effect on the
load: the seconds from its start to `AFTER_S` after its end, compared with the seconds of the
window before it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.sessions import SessionWork, cancel, check, connect
from dbbench.engines.sql import rows_of
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.summary import stalls
from dbbench.model import Figures, TrialWarning
from dbbench.results.fileio import write_json

# An unlink causes work later: ext4 frees the blocks with the next commit of its journal, which runs
# every 5 s.
AFTER_S: Final = 5
# share of the window: enough before the statement for a comparison, and most of the window after it
AT: Final = 0.3


@contextlib.contextmanager
def beside(load: Load, task: LoadTask) -> Iterator[Load]:
    """Yield the load together with the workload's statement."""
    with connect(task.server, 1) as (session,):
        both = _Beside(load, task, session)
        try:
            yield both
        finally:
            both.left.set()
            cancel(task.server, [both.work])


class _Beside:
    def __init__(
        self,
        load: Load,
        task: LoadTask,
        session: Any,
    ) -> None:
        self.load = load
        self.server = task.server
        self.session = session
        self.cell = task.cell
        self.clock = task.clock
        self.raw = task.raw
        self.began_utc: float | None = None
        self.ended_utc: float | None = None
        self.left = threading.Event()
        self.work = SessionWork(
            self.cell.workload.during,
            [session],
            self._carry_out,
        )

    @property
    def pids(self) -> tuple[int, ...]:
        return self.load.pids

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        self.load.wait_until(second, watch)

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Start the statement when it is due; block until load and statement have ended."""
        self.work.start()
        self.load.wait(watch)
        self.work.join()
        check(self.server, [self.work])

    def outcome(self) -> Outcome:
        outcome = self.load.outcome()
        if self.began_utc is None or self.ended_utc is None:
            # the statement never began, because the load failed, which raises another error
            return outcome
        # When it ran, in seconds of the load.
        statement = self.cell.workload.during
        window = self.cell.window
        began = self.began_utc - outcome.begin_utc
        ended = self.ended_utc - outcome.begin_utc
        warm = round(window.warmup_s)
        whole = warm + round(window.measure_s)
        figures = {
            "during_s": ended - began,
            **effect(outcome, warm, began, ended, whole),
        }
        entry = {
            "statement": statement,
            "began_s": began,
            "ended_s": ended,
            **figures,
        }
        # The figures with their times remain in raw; the trial has the figures alone.
        write_json(self.raw / "during.json", entry)
        warnings = list(outcome.warnings)
        if ended > whole:
            late = f"{statement} ended {ended - whole:.1f} s after the window"
            warnings.append(TrialWarning("W108", late))
        return dataclasses.replace(
            outcome,
            figures={**outcome.figures, **figures},
            warnings=tuple(warnings),
        )

    def _carry_out(self) -> None:
        share = float(self.cell.parameters.get("during_at", AT))
        if self.left.wait(share * self.cell.window.measure_s):
            return
        self.began_utc = self.clock.now_utc()
        rows_of(self.session, self.cell.workload.during)
        self.ended_utc = self.clock.now_utc()


def effect(
    outcome: Outcome,
    warm: int,
    began: float,
    ended: float,
    whole: int,
) -> Figures:
    """Return the metrics of the statement's effect. Seconds are of the load's clock; the window:
    `warm` to `whole`.
    """
    first = math.floor(began)
    last = min(whole, math.ceil(ended) + AFTER_S)
    tps = outcome.series["tps"]
    before = [value for value in tps[warm:first] if value is not None]
    around = [value for value in tps[first:last] if value is not None]
    usual = statistics.median(before) if before else 0.0
    figures: Figures = dict.fromkeys(
        ("during_tps_ratio", "during_stall_s", "during_p999_ms", "during_max_ms")
    )
    if usual and around:
        figures["during_tps_ratio"] = statistics.fmean(around) / statistics.fmean(before)
    if usual:
        figures["during_stall_s"] = float(sum(stalls(around, usual)))
    if outcome.between is not None and last > first:
        measured = outcome.between(first, last)
        figures["during_p999_ms"] = measured.histogram.percentile_ms(99.9)
        figures["during_max_ms"] = measured.longest_ms
    return figures
