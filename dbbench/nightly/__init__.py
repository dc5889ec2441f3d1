"""Watching one plan every night: what is kept of each night, what it says, and when somebody is told.

`history` keeps a line a night, `analysis` judges the newest, `baselines` what a person has accepted, `retention`
what is thrown away when, `state` tells changes only. Nothing here drives a trial: `commands/nightly.py` does.
"""

from __future__ import annotations

from dbbench.nightly.analysis import Finding, confirmed, judge
from dbbench.nightly.baselines import Accepted, accept, accepted, all_accepted
from dbbench.nightly.courses import courses_of
from dbbench.nightly.guard import GUARD, guarded
from dbbench.nightly.history import ITSELF, Night, append, known, missing_dates, night_of, one_at_a_time
from dbbench.nightly.regressions import Regression, regressions
from dbbench.nightly.retention import prune
from dbbench.nightly.state import changed, overall

__all__ = [
    "GUARD", "ITSELF", "Accepted", "Finding", "Night", "Regression", "accept", "accepted", "all_accepted", "append",
    "changed", "confirmed", "courses_of", "guarded", "judge", "known", "missing_dates", "night_of", "one_at_a_time",
    "overall", "prune", "regressions",
]  # fmt: skip
