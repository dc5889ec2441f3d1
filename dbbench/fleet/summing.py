"""All hosts of a fleet in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dbbench.units import time_text


def standing(rows: Sequence[dict[str, Any]]) -> str:
    """ "12/40 trials home; 3 measure, 1 restore; about 12:30 left"."""
    done, trials = sum(row["done"] for row in rows), sum(row["trials"] for row in rows)
    phases = Counter(str(row["phase"]) for row in rows)
    words = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    known = [row["eta_s"] for row in rows if row["eta_s"] is not None]
    left = f"; about {time_text(max(known))} left" if known and max(known) else ""
    return f"{done}/{trials} trials home; {words}{left}"
