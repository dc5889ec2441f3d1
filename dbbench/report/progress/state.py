"""The state of a run after its events so far, and what people read of it."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from dbbench.metrics.table import METRICS
from dbbench.model.events import Event
from dbbench.units import count, duration_text, number, time_text

DAY_S: Final = 86400.0


@dataclass
class State:
    """The state of a run: `take` every event, then read the rest. Times are monotonic seconds."""

    first: int = 0  # trials that run even if the budget ends before
    preparing: str = ""
    fraction: float | None = None
    trial: dict[str, Any] = field(default_factory=dict)  # data of `trial_begin`; empty between trials
    phase: str = ""  # the current one
    second: dict[str, Any] = field(default_factory=dict)  # data of the last `second`
    copied: dict[str, Any] = field(default_factory=dict)  # data of the last `copied`
    expected_s: float | None = None  # expected duration of the current phase
    total: int = 0  # trials of the run, with those that were added so far
    finished: int = 0  # trials with a result, including those before the run was resumed
    budget_until: float = -math.inf  # end of the budget; -inf without one
    took_s: list[float] = field(default_factory=list)
    began: float = 0.0
    phase_began: float = 0.0
    warned: dict[tuple[str, str], int] = field(default_factory=dict)  # (ID, setup) -> trials that are suspect for it
    causes: dict[str, str] = field(default_factory=dict)  # ID that makes the current trial suspect -> with its counter
    news: str = ""  # line of the last preparation or warning, if it is new; the end of the run lists all warnings

    def take(self, event: Event, now: float | None = None) -> None:
        """Apply one event. Unknown events of a newer version are ignored."""
        handler = getattr(self, f"_{event.kind}", None)
        if handler is not None:
            handler(event.data, time.monotonic() if now is None else now)

    def phase_s(self, now: float) -> float:
        """Return the seconds of the current phase, as counted by the load if it reports them."""
        if self.second.get("phase") == self.phase and self.phase:
            return float(self.second["second"])
        return now - self.phase_began

    def left_s(self, now: float) -> float | None:
        """Return the seconds to the end of the run; None if nothing is left, or not known before the first trial ends.
        With a budget this is its end, unless the trials that run in any case, or the current one, take longer."""
        remaining, budget_s = self.total - self.finished, self.budget_until - now
        if budget_s > -math.inf:
            remaining = max(self.first - self.finished, int(bool(self.trial)))
        elif remaining <= 0:
            return None
        if not self.took_s:
            return budget_s if budget_s > 0 else None
        mean = statistics.fmean(self.took_s)
        already = min(now - self.began, mean) if self.trial else 0.0
        return max(0.0, budget_s, remaining * mean - already)

    def _run_begin(self, data: dict[str, Any], now: float) -> None:
        self.first, self.finished = int(data.get("first") or 0), int(data.get("done") or 0)
        self.budget_until = -math.inf if data.get("budget_s") is None else now + float(data["budget_s"])
        self._note(data, now)

    def _run_end(self, data: dict[str, Any], now: float) -> None:
        self.total, self.budget_until = self.finished, -math.inf

    def _note(self, data: dict[str, Any], now: float) -> None:
        self.total = int(data.get("total") or data.get("trials") or self.total)

    def _prepare(self, data: dict[str, Any], now: float) -> None:
        what = str(data.get("what", ""))
        self.news = f"prepare: {what}" if what != self.preparing else ""
        self.preparing, self.fraction = what, data.get("fraction")

    def _trial_begin(self, data: dict[str, Any], now: float) -> None:
        self._note(data, now)
        self.trial, self.began, self.preparing = data, now, ""
        self.phase, self.second, self.copied, self.causes = "", {}, {}, {}

    def _phase_begin(self, data: dict[str, Any], now: float) -> None:
        self.phase, self.expected_s, self.phase_began = str(data["phase"]), data.get("expected_s"), now

    def _phase_end(self, data: dict[str, Any], now: float) -> None:
        self.phase = ""

    def _copied(self, data: dict[str, Any], now: float) -> None:
        self.copied = data

    def _second(self, data: dict[str, Any], now: float) -> None:
        self.second = data

    def _warning(self, data: dict[str, Any], now: float) -> None:
        ident, setup = str(data.get("id")), str(self.trial.get("arm") or data.get("trial"))
        self.news = ""
        if not data.get("suspect", True) or ident in self.causes:
            return
        n = self.warned[ident, setup] = self.warned.get((ident, setup), 0) + 1
        self.causes[ident] = ident if n == 1 else f"{ident} (trial {n} of {setup})"
        self.news = f"! {ident} {setup}: {data.get('text')}" if n == 1 else ""

    def _trial_end(self, data: dict[str, Any], now: float) -> None:
        self.finished += 1
        if self.trial:
            self.took_s.append(now - self.began)
        self.trial, self.phase, self.second = {}, "", {}


class Lines(Protocol):
    """What people read: the permanent line of each event, "" if it has none, and one with the state after them all."""

    def line(self, event: Event) -> str: ...

    def standing(self) -> str: ...


class RunLines:
    """The lines of a run: each trial that ended, each warning that is new, notes; its state is the current trial's."""

    def __init__(self) -> None:
        self.state = State()

    def line(self, event: Event) -> str:
        data, state = event.data, self.state
        state.take(event)
        match event.kind:
            case "run_begin":
                size = f"{count(len(data.get('arms') or ()), 'setup')} x {count(data.get('blocks') or 0, 'block')}"
                done = f", {data['done']} already done" if data.get("done") else ""
                return f"run {data.get('name')}: {size}, {data.get('trials')} trials{done}, seed {data.get('seed')}"
            case "trial_end":
                now = time.monotonic()
                value = f"{result(data)} {', '.join(state.causes.values())}".rstrip()
                times = f"{time_text(now - state.began)}  {eta(state.left_s(now))}".rstrip()
                return f"{self._count(data)} {trial_name(data)}: {value}  {times}"
            case "prepare" | "warning":
                return state.news
            case "note":
                return str(data.get("text"))
            case "run_end":
                counts = [f"{data.get(word)} {word}" for word in ("ok", "suspect", "failed") if data.get(word)]
                result_of_all = ", ".join(counts) or "no trials left to run"
                return f"run {data.get('name')}: {result_of_all} in {time_text(data.get('seconds') or 0)}"
        return ""

    def standing(self) -> str:
        state, now = self.state, time.monotonic()
        if state.preparing:
            share = f" {100 * state.fraction:.0f} %" if state.fraction is not None else ""
            return f"prepare: {state.preparing}{share}"
        if not state.trial:
            return ""
        of = f"/{time_text(state.expected_s)}" if state.expected_s else ""
        words = [f"{self._count(state.trial)} {trial_name(state.trial)}: "
                 f"{state.phase or 'between phases'} {time_text(state.phase_s(now))}{of}"]  # fmt: skip
        if state.copied.get("phase") == state.phase:
            words.append(copy_text(state.copied))
        if state.second.get("tps") is not None and state.phase == state.second.get("phase"):
            words.append(f"{number(state.second['tps'])} tx/s")
            words.append(f"p95 {number(state.second.get('p95_ms'))} ms")
        return "  ".join([*words, eta(state.left_s(now))]).rstrip()

    def _count(self, data: dict[str, Any]) -> str:
        width = len(str(self.state.total))
        return f"[{data.get('position', self.state.finished):>{width}}/{data.get('total') or self.state.total}]"


def eta(left_s: float | None, wall: float | None = None) -> str:
    """Return "about 7 min left, until 22:00" in local time; "" if nothing is known yet."""
    if left_s is None:
        return ""
    end = time.localtime((time.time() if wall is None else wall) + left_s)
    words = "less than 2 min" if left_s < 90 else f"about {duration_text(60 * round(left_s / 60))}"
    return f"{words} left, until {time.strftime('%H:%M' if left_s < DAY_S else '%a %H:%M', end)}"


def copy_text(data: dict[str, Any]) -> str:
    """Return "45 % at 310 MB/s, 12 s left" for the last `copied` event."""
    share = 100 * data["bytes"] / max(1, data["of"])
    return f"{share:.0f} % at {number(data['mb_per_s'])} MB/s, {math.ceil(data['left_s'])} s left"


def trial_name(data: dict[str, Any]) -> str:
    """Return "xfs postgres pgbench-tpcb #2", with the attempt if it is not the first."""
    again = f" attempt {data['attempt']}" if (data.get("attempt") or 1) > 1 else ""
    return f"{data.get('arm')} {data.get('engine')} {data.get('workload')} #{data.get('block')}{again}"


def result(data: dict[str, Any]) -> str:
    """Return "1 912 tx/s" of a trial_end event, or the error's text if it failed."""
    if data.get("status") == "failed":
        error = data.get("error") or {}
        return f"failed in {error.get('phase') or '?'}: {error.get('id')} {error.get('text')}" if error else "failed"
    metric = METRICS.get(str(data.get("metric")))
    unit = f" {metric.unit}" if metric else ""
    suspect = "  suspect" if data.get("status") == "suspect" else ""
    return f"{number(data.get('value'))}{unit}{suspect}"
