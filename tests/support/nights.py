"""Nights with made-up ratios."""

import datetime
import math
import random

from dbbench.nightly.night import Night, Ratio

KEY = "postgres pgbench-tpcb: xfs"
FIRST = datetime.date(2026, 1, 1)


def night(
    number: int,
    ratio: float,
    *,
    state: str = "ok",
    good: bool = True,
    better: str = "higher",
) -> Night:
    """The night of that number, with an interval of ±2 %."""
    date = (FIRST + datetime.timedelta(number)).isoformat()
    ratios = {KEY: Ratio(ratio, ratio * 0.98, ratio * 1.02, 7, better)}
    return Night(
        date,
        f"r{number}",
        f"{date}T01:30:00.000Z",
        good,
        (),
        0,
        ratios,
        states={KEY: state},
    )


def nights(count: int, level: float = 0.9, sd: float = 0.01) -> list[Night]:
    """So many quiet nights."""
    draw = random.Random(5)
    return [night(n, level * math.exp(draw.gauss(0, sd))) for n in range(count)]
