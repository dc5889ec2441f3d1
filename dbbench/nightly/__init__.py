"""Nightly runs: what is kept of each night, when a change is a regression, and when to notify.

`tonight` runs a night and judges it. `history` keeps a line for each night and the runs that a person has accepted,
adds the guard to a plan, and removes old raw data. `analysis` finds regressions, and says when to notify.
"""

from __future__ import annotations

from dbbench.nightly.analysis import (
    NightFinding,
    Regression,
    changed,
    confirmed,
    courses_of,
    judge,
    overall,
    regressions,
)
from dbbench.nightly.history import (
    GUARD,
    ITSELF,
    Accepted,
    Change,
    Night,
    accept,
    accepted,
    all_accepted,
    append,
    document_of,
    every_plan,
    guarded,
    known,
    missing_dates,
    night_of,
    one_at_a_time,
    prune,
)

__all__ = [
    "GUARD", "ITSELF", "Accepted", "Change", "Night", "NightFinding", "Regression", "accept", "accepted",
    "all_accepted", "append", "changed", "confirmed", "courses_of", "document_of", "every_plan", "guarded", "judge",
    "known", "missing_dates", "night_of", "one_at_a_time", "overall", "prune", "regressions",
]  # fmt: skip
