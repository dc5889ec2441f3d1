"""Events of a running run, written and read as JSON lines.

Kinds and their data:
  run_begin    name, trials, done, seed, arms, blocks, first, budget_s, results
               first: trials that run in any case; budget_s: what is left of the budget, null
               without one; results: the ends of trials that are already done
  prepare      what, fraction?                      an image is written, a golden copy is built
  trial_begin  id, position, total, arm, block, attempt, engine, workload
  phase_begin  trial, phase, deadline_s, expected_s?
  phase_end    trial, phase, seconds
  copied       phase, bytes, of, mb_per_s, left_s    of the restore, once a second
  second       trial, phase, second, of, tps, p95_ms    second 1 .. of, within the phase; null:
               not known
  warning      trial, id, text, suspect             suspect: the trial was disturbed
  trial_end    trial, arm, engine, workload, block, status, metric, unit, value, error?
  run_end      name, ok, suspect, failed, seconds
  note         text, total?                         total: trials of the run, if some were added
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dbbench.units import finite


@dataclass(frozen=True)
class Event:
    """Something that happened, with its data."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the event as one line of JSON without the newline; a number that is not finite is
        null.
        """
        whole = {"kind": self.kind, "data": finite(self.data)}
        return json.dumps(whole, ensure_ascii=False, default=str)


Emit = Callable[[Event], None]


def parse(line: str | bytes) -> Event | None:
    """Return the event of a line; None if the line is not one (another program printed it)."""
    try:
        whole = json.loads(line)
        return Event(str(whole["kind"]), dict(whole["data"]))
    except (ValueError, KeyError, TypeError):
        return None


def ignore(event: Event) -> None:
    """Discard an event."""
