"""Where a run stands, by its events so far: what both renderers draw from."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Final

from dbbench.progress.events import Event

SPARK: Final = 40  # seconds of throughput that are drawn


@dataclass
class State:
    """`take` every event; the rest is read. Times are monotonic seconds."""

    run: dict[str, Any] = field(default_factory=dict)
    preparing: str = ""
    fraction: float | None = None
    trial: dict[str, Any] = field(default_factory=dict)  # of trial_begin; empty between trials
    phases: dict[str, float | None] = field(default_factory=dict)  # seconds, None while it lasts
    second: dict[str, Any] = field(default_factory=dict)  # the last one told
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
        """Move on by one event. What is not known is passed over: a newer program may tell more."""
        handler = getattr(self, f"_{event.kind}", None)
        if handler is not None:
            handler(event.data, time.monotonic() if now is None else now)

    @property
    def total(self) -> int:
        """Trials of the run, repeats included as soon as they are planned."""
        return int(self.trial.get("total") or self.run.get("trials") or 0)

    @property
    def phase(self) -> str:
        """The phase that lasts, or ""."""
        return next((name for name, seconds in reversed(self.phases.items()) if seconds is None), "")

    def phase_s(self, now: float) -> float:
        """Seconds of the phase that lasts; the load's own count where it tells one."""
        if self.second.get("phase") == self.phase and self.phase:
            return float(self.second["second"])
        return now - self.phase_began

    def left_s(self, now: float) -> tuple[float, float] | None:
        """Seconds to the end and their 95 % margin, by what trials took so far; None before the first."""
        if not self.took_s:
            return None
        mean = statistics.fmean(self.took_s)
        remaining = self.total - self.finished
        already = min(now - self.began, mean) if self.trial else 0.0
        sd = statistics.stdev(self.took_s) if len(self.took_s) > 1 else 0.1 * mean
        margin = 2 * sd * math.sqrt(remaining + remaining**2 / len(self.took_s))
        return max(0.0, remaining * mean - already), margin

    def is_new(self, warning: dict[str, Any]) -> bool:
        """Whether a warning says something that no earlier one of the run has said."""
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
