"""What snapshots beside the load cost it: its rate in the seconds with one under way beside that of the others."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Final

from dbbench.drivers.port import Outcome
from dbbench.model import SnapshotFacts, Window

LEAST_SECONDS: Final = 3  # of either kind: below, there is no rate to speak of
RATES: Final = ("tps", "apply_kb_per_s")


def beside(facts: SnapshotFacts, outcome: Outcome, window: Window) -> SnapshotFacts:
    """The facts on the load's clock, with both rates. `outcome.series` is that of the load."""
    taken = tuple(
        dataclasses.replace(
            one, at_s=round(one.at_s - outcome.begin_utc, 3), until_s=round(one.until_s - outcome.begin_utc, 3)
        )
        for one in facts.taken
    )
    found = dataclasses.replace(facts, taken=taken)
    series = outcome.series
    rates = next((series[name] for name in RATES if name in series and any(v is not None for v in series[name])), None)
    if rates is None or not taken:
        return found
    if window.kind != "fixed" and None in rates[: int(outcome.window_s)]:
        return found  # log that came in batches: when it came says more than what was beside it
    busy = {second for one in taken for second in range(math.floor(one.at_s), math.ceil(one.until_s))}
    first = round(window.warmup_s) if window.kind == "fixed" else 0
    last = first + round(window.measure_s) if window.kind == "fixed" else len(rates)
    known = [(second, rate) for second, rate in enumerate(rates) if first <= second < last and rate is not None]
    within = [rate for second, rate in known if second in busy]
    others = [rate for second, rate in known if second not in busy]
    if min(len(within), len(others)) < LEAST_SECONDS:
        return found
    inner, outer = statistics.fmean(within), statistics.fmean(others)
    return dataclasses.replace(found, rate_within=inner, rate_beside=outer, cost_ratio=inner / outer if outer else None)
