"""What a run tells while it works: one small kind of event, written and read as a JSON line.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happened, with what is worth telling about it."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The event as one line of JSON, without the line's end; null for what is no finite number."""
        return json.dumps({"kind": self.kind, "data": _finite(self.data)}, ensure_ascii=False, default=str)


Emit = Callable[[Event], None]


def parsed(line: str | bytes) -> Event | None:
    """The event of a line; None for what is not one (another program printed it)."""
    try:
        whole = json.loads(line)
        return Event(str(whole["kind"]), dict(whole["data"]))
    except (ValueError, KeyError, TypeError):
        return None


def ignore(event: Event) -> None:
    """Takes an event and tells nobody."""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
