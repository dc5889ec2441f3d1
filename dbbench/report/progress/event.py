"""Events of a running run, written and read as JSON lines.

Kinds and their data:
  run_begin    name, trials, done, seed, arms, blocks
  prepare      what, fraction?                      an image is written, a golden copy is built
  trial_begin  id, position, total, arm, block, attempt, engine, workload
  phase_begin  trial, phase, deadline_s, expected_s?
  phase_end    trial, phase, seconds
  copied       phase, bytes, of, mb_per_s, left_s    of the restore, once a second
  second       trial, phase, second, of, tps, p95_ms    second 1 .. of, within the phase; null: not known
  warning      trial, id, text
  trial_end    trial, arm, engine, workload, block, status, metric, unit, value, error?
  run_end      name, ok, suspect, failed, seconds
  note         text
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Event:
    """Something that happened, with its data."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the event as one line of JSON without the newline; a number that is not finite is null."""
        return json.dumps({"kind": self.kind, "data": _finite(self.data)}, ensure_ascii=False, default=str)


Emit = Callable[[Event], None]


def parsed(line: str | bytes) -> Event | None:
    """Return the event of a line; None if the line is not one (another program printed it)."""
    try:
        whole = json.loads(line)
        return Event(str(whole["kind"]), dict(whole["data"]))
    except (ValueError, KeyError, TypeError):
        return None


def ignore(event: Event) -> None:
    """Discard an event."""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


SPARK: Final = 40  # seconds of throughput that are drawn


@dataclass
class State:
    """The state of a run: `take` every event, then read the rest. Times are monotonic seconds."""

    run: dict[str, Any] = field(default_factory=dict)
    preparing: str = ""
    fraction: float | None = None
    trial: dict[str, Any] = field(default_factory=dict)  # of trial_begin; empty between trials
    phases: dict[str, float | None] = field(default_factory=dict)  # seconds, None while it lasts
    second: dict[str, Any] = field(default_factory=dict)  # the latest one
    copied: dict[str, Any] = field(default_factory=dict)  # how far the restore is
    tps: list[float | None] = field(default_factory=list)
    expected_s: float | None = None  # of the phase that lasts
    finished: int = 0  # trials with a result, in this and earlier sittings
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)  # (engine, workload, arm)
    took_s: list[float] = field(default_factory=list)
    began: float = 0.0
    phase_began: float = 0.0
    told: set[tuple[str, str]] = field(default_factory=set)  # warnings, by ID and text

    def take(self, event: Event, now: float | None = None) -> None:
        """Apply one event. Unknown events of a newer version are ignored."""
        handler = getattr(self, f"_{event.kind}", None)
        if handler is not None:
            handler(event.data, time.monotonic() if now is None else now)

    @property
    def total(self) -> int:
        """Return the number of trials of the run, with repeats as soon as they are planned."""
        return int(self.trial.get("total") or self.run.get("trials") or 0)

    @property
    def phase(self) -> str:
        """Return the current phase, or ""."""
        return next((name for name, seconds in reversed(self.phases.items()) if seconds is None), "")

    def phase_s(self, now: float) -> float:
        """Return the seconds of the current phase, as counted by the load if it reports them."""
        if self.second.get("phase") == self.phase and self.phase:
            return float(self.second["second"])
        return now - self.phase_began

    def left_s(self, now: float) -> tuple[float, float] | None:
        """Return the seconds to the end and their 95 % margin, from the durations so far; None before the first trial
        ends.
        """
        if not self.took_s:
            return None
        mean = statistics.fmean(self.took_s)
        remaining = self.total - self.finished
        already = min(now - self.began, mean) if self.trial else 0.0
        sd = statistics.stdev(self.took_s) if len(self.took_s) > 1 else 0.1 * mean
        margin = 2 * sd * math.sqrt(remaining + remaining**2 / len(self.took_s))
        return max(0.0, remaining * mean - already), margin

    def is_new(self, warning: dict[str, Any]) -> bool:
        """Return whether no earlier warning of the run has the same ID and text."""
        key = (str(warning.get("id")), str(warning.get("text")))
        new = key not in self.told
        self.told.add(key)
        return new

    def _run_begin(self, data: dict[str, Any], now: float) -> None:
        self.run, self.finished = data, int(data.get("done") or 0)

    def _prepare(self, data: dict[str, Any], now: float) -> None:
        self.preparing, self.fraction = str(data.get("what", "")), data.get("fraction")

    def _trial_begin(self, data: dict[str, Any], now: float) -> None:
        self.trial, self.began, self.preparing = data, now, ""
        self.phases, self.second, self.tps, self.copied = {}, {}, [], {}

    def _phase_begin(self, data: dict[str, Any], now: float) -> None:
        self.phases[str(data["phase"])] = None
        self.expected_s, self.phase_began = data.get("expected_s"), now

    def _phase_end(self, data: dict[str, Any], now: float) -> None:
        phase = str(data["phase"])
        self.phases[phase] = float(data["seconds"])

    def _copied(self, data: dict[str, Any], now: float) -> None:
        self.copied = data

    def _second(self, data: dict[str, Any], now: float) -> None:
        self.second = data
        self.tps = [*self.tps, data.get("tps")][-SPARK:]

    def _trial_end(self, data: dict[str, Any], now: float) -> None:
        self.finished += 1
        if self.trial:
            self.took_s.append(now - self.began)
        if data.get("value") is not None and data.get("status") != "failed":
            key = (str(data["engine"]), str(data["workload"]), str(data["arm"]))
            self.values.setdefault(key, []).append(float(data["value"]))
        self.trial, self.phases, self.second = {}, {}, {}
