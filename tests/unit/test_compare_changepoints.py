"""Change points in nightly series, as a job that runs every night gets them."""

import math
import random

import pytest

from dbbench.compare import changepoints


def nights(count: int, sd: float, seed: int, *steps: tuple[int, float]) -> list[float | None]:
    """Ratios around 1 with that scatter; from each step's night on times its factor."""
    draw = random.Random(seed)
    return [math.exp(draw.gauss(0, sd)) * math.prod(f for at, f in steps if i >= at) for i in range(count)]


def test_a_step_is_placed_on_its_first_night() -> None:
    """−10 % at 2 % scatter: that night, or a neighbour."""
    found = [changepoints(nights(60, 0.02, seed, (40, 0.9))) for seed in range(10)]
    assert sum(len(one) == 1 and abs(one[0] - 40) <= 1 for one in found) >= 9


def test_down_and_up_again_are_two_changes() -> None:
    """A regression and its repair."""
    found = changepoints(nights(80, 0.01, 3, (30, 0.85), (55, 1 / 0.85)))
    assert len(found) == 2 and abs(found[0] - 30) <= 1 and abs(found[1] - 55) <= 1


def test_index_counts_missing_nights() -> None:
    """None, NaN, zero and negative numbers are nights without a result; indices are those of the list."""
    series = nights(60, 0.01, 5, (40, 0.8))
    series[10:14] = [None, math.nan, 0.0, -1.0]
    assert changepoints(series) == [40]


def test_two_odd_nights_are_no_level() -> None:
    """Outliers, alone or two in a row, at the end too."""
    series = nights(50, 0.01, 6)
    series[20] = 0.6
    series[30:32] = [0.7, 0.7]
    series[48:50] = [0.7, 0.7]
    assert changepoints(series) == []


def test_three_nights_a_side_and_three_percent() -> None:
    """Fewer nights or a smaller shift are never a change, however quiet the series."""
    assert changepoints(nights(42, 0.001, 7, (40, 0.8))) == []
    assert changepoints(nights(60, 0.001, 7, (40, 0.98))) == []
    assert changepoints(nights(5, 0.0, 7, (3, 0.5))) == []


def test_constant_series_and_exact_steps() -> None:
    """No scatter at all divides nothing by zero."""
    assert changepoints([1.0] * 50) == []
    assert changepoints([1.0] * 30 + [0.9] * 10) == [30]
    assert changepoints([]) == changepoints([None] * 9) == []


def test_a_drift_is_no_step() -> None:
    """8 % in 80 nights without a night on which it happened."""
    series = [value * (1 - 0.001 * i) for i, value in enumerate(nights(80, 0.01, 8)) if value]
    assert changepoints(series) == []


@pytest.mark.parametrize("seed", range(3))
def test_what_was_told_is_told_again(seed: int) -> None:
    """Over all prefixes nothing vanishes and nothing moves by more than two nights."""
    series = nights(60, 0.03, seed, (35, 0.88))
    before: list[int] = []
    for end in range(61):
        found = changepoints(series[:end])
        assert len(found) >= len(before)
        assert all(abs(new - old) <= 2 for new, old in zip(found, before, strict=False))
        before = found
    assert before
