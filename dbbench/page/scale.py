"""Round steps of an axis: 1, 2 or 5 times a power of ten."""

from __future__ import annotations

import math


def step_above(value: float) -> float:
    """The next round step that is at least `value`, which is above 0."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)


def ticks(low: float, high: float, most: int) -> list[float]:
    """The round values between `low` and `high`, at most some `most` of them."""
    step = step_above((high - low) / most)
    return [round(i * step, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
