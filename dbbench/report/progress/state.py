"""The state of a run after its events so far, and its numbers and times as people read them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dbbench.compare import chosen, means
from dbbench.metrics.table import METRICS
from dbbench.model import Figures, Json, Status, Trial
from dbbench.model.events import Event
from dbbench.units import count, duration_text, number

SPARK: Final = 40  # seconds of throughput in the small chart
DAY_S: Final = 86400.0
_BARS: Final = "▁▂▃▄▅▆▇█"


@dataclass
class State:
    """The state of a run: `take` every event, then read the rest. Times are monotonic seconds."""

    run: Json = field(default_factory=dict)
    preparing: str = ""
    fraction: float | None = None
    # data of `trial_begin`; empty between trials
    trial: Json = field(default_factory=dict)
    # phase -> seconds; None for the current phase
    phases: Figures = field(default_factory=dict)
    second: Json = field(default_factory=dict)  # data of the last `second`
    copied: Json = field(default_factory=dict)  # data of the last `copied`
    tps: list[float | None] = field(default_factory=list)
    expected_s: float | None = None  # expected duration of the current phase
    total: int = 0  # trials of the run, with those that were added so far
    finished: int = 0  # trials with a result, including those before the run was resumed
    budget_until: float = -math.inf  # end of the budget; -inf without one
    # those that have ended; of the summary only the value that is compared
    attempts: list[Trial] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    began: float = 0.0
    phase_began: float = 0.0
    # (ID, setup) -> trials that are suspect for it
    warned: dict[tuple[str, str], int] = field(default_factory=dict)
    # ID that makes the current trial suspect -> with its counter
    causes: dict[str, str] = field(default_factory=dict)
    # line of the last warning, if its ID is new for the setup; the end of the run lists all
    # warnings
    news: str = ""

    def take(self, event: Event, now: float | None = None) -> None:
        """Apply one event. Unknown events of a newer version are ignored."""
        handler = getattr(self, f"_{event.kind}", None)
        if handler is not None:
            handler(event.data, time.monotonic() if now is None else now)

    @property
    def values(self) -> dict[tuple[str, str, str], list[float]]:
        """Return by (engine, workload, setup) the values of the trials that count, as in the
        tables.
        """
        values: dict[tuple[str, str, str], list[float]] = {}
        for trial in chosen(self.attempts):
            value = trial.summary["value"]
            if value is not None:
                key = (trial.engine, trial.workload, trial.fs_setup)
                values.setdefault(key, []).append(value)
        return values

    @property
    def phase(self) -> str:
        running = [name for name, seconds in self.phases.items() if seconds is None]
        return running[-1] if running else ""

    @property
    def place(self) -> str:
        """The current phase, or between two of them the one that has ended."""
        ended = next(reversed(self.phases), "")
        return self.phase or (f"after {ended}" if ended else "starting")

    def phase_s(self, now: float) -> float:
        """Return the seconds of the current phase, as counted by the load if it reports them, or
        since the last one ended.
        """
        if self.second.get("phase") == self.phase and self.phase:
            return float(self.second["second"])
        return now - self.phase_began

    def left_s(self, now: float) -> float | None:
        """Return the seconds to the end of the run; None if nothing is left, or not known before
        the first trial ends. With a budget this is its end, unless the trials that run in any
        case, or the current one, take longer.
        """
        remaining = self.total - self.finished
        budget_s = self.budget_until - now
        if budget_s > -math.inf:
            in_any_case = int(self.run.get("first") or 0) - self.finished
            remaining = max(in_any_case, 1 if self.trial else 0)
        elif remaining <= 0:
            return None
        if not self.took_s:
            return budget_s if budget_s > 0 else None
        mean = statistics.fmean(self.took_s)
        already = min(now - self.began, mean) if self.trial else 0.0
        return max(0.0, budget_s, remaining * mean - already)

    def _run_begin(self, data: Json, now: float) -> None:
        self.run = data
        self.finished = int(data.get("done") or 0)
        self.attempts = []
        for earlier in data.get("results") or ():
            self._add(earlier)
        self.budget_until = -math.inf
        if data.get("budget_s") is not None:
            self.budget_until = now + float(data["budget_s"])
        self._note(data, now)

    def _add(self, data: Json) -> None:
        self.attempts.append(
            Trial(
                id=str(data.get("id")),
                run="",
                host="",
                fs_setup=str(data.get("arm")),
                engine=str(data.get("engine")),
                workload=str(data.get("workload")),
                block=int(data.get("block") or 1),
                attempt=int(data.get("attempt") or 1),
                position=int(data.get("position") or len(self.attempts) + 1),
                status=Status(data.get("status") or Status.OK),
                summary={"value": data.get("value")},
            )
        )

    def _run_end(self, data: Json, now: float) -> None:
        self.total = self.finished
        self.budget_until = -math.inf
        self.preparing = ""

    def _note(self, data: Json, now: float) -> None:
        self.total = int(data.get("total") or data.get("trials") or self.total)
        if self.run:  # its first line follows when blocks are added
            blocks = max(self.run.get("blocks") or 0, data.get("block") or 0)
            self.run = {**self.run, "trials": self.total, "blocks": blocks}

    def _prepare(self, data: Json, now: float) -> None:
        self.preparing = str(data.get("what", ""))
        self.fraction = data.get("fraction")

    def _trial_begin(self, data: Json, now: float) -> None:
        self._note(data, now)
        self.trial = data
        self.began = now
        self.phase_began = now
        self.preparing = ""
        self.phases = {}
        self.second = {}
        self.tps = []
        self.copied = {}

    def _phase_begin(self, data: Json, now: float) -> None:
        self.phases[str(data["phase"])] = None
        self.expected_s = data.get("expected_s")
        self.phase_began = now

    def _phase_end(self, data: Json, now: float) -> None:
        self.phases[str(data["phase"])] = float(data["seconds"])
        self.phase_began = now

    def _copied(self, data: Json, now: float) -> None:
        self.copied = data

    def _second(self, data: Json, now: float) -> None:
        self.second = data
        self.tps = [*self.tps, data.get("tps")][-SPARK:]

    def _warning(self, data: Json, now: float) -> None:
        ident = str(data.get("id"))
        setup = str(self.trial.get("arm") or data.get("trial"))
        self.news = ""
        if not data.get("suspect", True) or ident in self.causes:
            return
        trials = self.warned.get((ident, setup), 0) + 1
        self.warned[ident, setup] = trials
        if trials == 1:
            self.causes[ident] = ident
            self.news = f"! {ident} {setup}: {data.get('text')}"
        else:
            self.causes[ident] = f"{ident} (trial {trials} of {setup})"

    def _trial_end(self, data: Json, now: float) -> None:
        self.finished += 1
        if self.trial:
            self.took_s.append(now - self.began)
        self._add(data)
        self.trial = {}
        self.phases = {}
        self.second = {}
        self.causes = {}


def eta(left_s: float | None, wall: float | None = None) -> str:
    """Return "about 7 min left, until 22:00" in local time; "" if nothing is known yet."""
    if left_s is None:
        return ""
    now = time.time() if wall is None else wall
    clock = "%H:%M" if left_s < DAY_S else "%a %H:%M"
    until = time.strftime(clock, time.localtime(now + left_s))
    words = "less than 2 min" if left_s < 90 else f"about {duration_text(60 * round(left_s / 60))}"
    return f"{words} left, until {until}"


def copy_text(data: Json) -> str:
    """Return "45 % at 310 MB/s, 12 s left" for the last `copied` event."""
    share = 100 * data["bytes"] / max(1, data["of"])
    return f"{share:.0f} % at {number(data['mb_per_s'])} MB/s, {math.ceil(data['left_s'])} s left"


def spark(values: Sequence[float | None]) -> str:
    """Return one bar per second, scaled to the largest; a gap is a space."""
    top = max((value for value in values if value is not None), default=0.0)
    bars = ""
    for value in values:
        if value is None:
            bars += " "
        elif top <= 0:
            bars += _BARS[0]
        else:
            bars += _BARS[min(7, int(8 * value / top))]
    return bars


def mean_and_spread(values: Sequence[float]) -> str:
    """Return "2 004 ±0.8 % (2)": mean as in the verdict, standard error in per cent, number of
    trials.
    """
    mean = means({"": values})[""]
    if len(values) < 2 or not mean:
        return f"{number(mean)} ({len(values)})"
    error = statistics.stdev(values) / math.sqrt(len(values)) / abs(mean)
    return f"{number(mean)} ±{100 * error:.1f} % ({len(values)})"


def trial_name(data: Json) -> str:
    """Return "xfs postgres pgbench-tpcb #2", with the attempt if it is not the first."""
    work = f"{data.get('engine')} {data.get('workload')}"
    again = f" attempt {data['attempt']}" if (data.get("attempt") or 1) > 1 else ""
    return f"{data.get('arm')} {work} #{data.get('block')}{again}"


def result(data: Json) -> str:
    """Return "1 912 tx/s" of a trial_end event, or the error's text if it failed."""
    if data.get("status") == "failed":
        error = data.get("error")
        if not error:
            return "failed"
        return f"failed in {error.get('phase') or '?'}: {error.get('id')} {error.get('text')}"
    metric = METRICS.get(str(data.get("metric")))
    unit = f" {metric.unit}" if metric else ""
    suspect = "  suspect" if data.get("status") == "suspect" else ""
    return f"{number(data.get('value'))}{unit}{suspect}"


def opening(run: Json) -> str:
    """Return "3 setups x 5 blocks, 27 trials, seed 42", and how many trials are already done."""
    setups = count(len(run.get("arms") or ()), "setup")
    blocks = count(run.get("blocks") or 0, "block")
    trials = count(run.get("trials") or 0, "trial")
    done = f", {run['done']} already done" if run.get("done") else ""
    return f"{setups} x {blocks}, {trials}{done}, seed {run.get('seed')}"
