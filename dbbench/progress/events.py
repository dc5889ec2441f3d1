"""What a run tells while it works: one small kind of event, written and read as a JSON line.

Kinds and their data:
  run_begin    name, trials, done, seed, arms, blocks
  prepare      what, fraction?                      an image is written, a golden copy is built
  trial_begin  id, position, total, arm, block, attempt, engine, workload
  phase_begin  trial, phase, expected_s?
  phase_end    trial, phase, seconds
  second       trial, phase, second, of, tps, p95_ms    second 1 .. of, within the phase; null: not known
  warning      trial, id, text
  trial_end    trial, arm, engine, workload, block, status, metric, value, error?
  run_end      name, ok, suspect, failed, seconds
  note         text
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

KINDS: Final = (
    "run_begin", "prepare", "trial_begin", "phase_begin", "phase_end", "second", "warning", "trial_end", "run_end",
    "note",
)  # fmt: skip


@dataclass(frozen=True)
class Event:
    """Something that happened, with what is worth telling about it."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The event as one line of JSON, without the line's end."""
        return json.dumps({"event": self.kind, **self.data}, ensure_ascii=False, allow_nan=False)


Emit = Callable[[Event], None]


def parsed(line: str) -> Event | None:
    """The event of a line; None for what is not one (another program printed it)."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    kind = data.pop("event", None) if isinstance(data, dict) else None
    return Event(kind, data) if kind in KINDS else None


def ignore(event: Event) -> None:
    """Takes an event and tells nobody."""
