"""Change points in nightly series, as a job that runs every night gets them."""

import math
import random

import pytest

from dbbench.compare import changepoints


def nights(count: int, sd: float, seed: int, *steps: tuple[int, float]) -> list[float | None]:
    """Ratios around 1 with that scatter; from each step's night on times its factor."""
    draw = random.Random(seed)
    return [
        math.exp(draw.gauss(0, sd)) * math.prod(f for at, f in steps if i >= at)
        for i in range(count)
    ]


def test_a_step_is_placed_on_its_first_night() -> None:
    """−10 % at 2 % scatter: that night, or a neighbour."""
    found = [changepoints(nights(60, 0.02, seed, (40, 0.9))) for seed in range(10)]
    assert sum(len(one) == 1 and abs(one[0] - 40) <= 1 for one in found) >= 9


def test_down_and_up_again_are_two_changes() -> None:
    """A regression and its repair."""
    found = changepoints(nights(80, 0.01, 3, (30, 0.85), (55, 1 / 0.85)))
    assert len(found) == 2 and abs(found[0] - 30) <= 1 and abs(found[1] - 55) <= 1


def edited(
    series: list[float | None], *pieces: tuple[int, list[float | None]]
) -> list[float | None]:
    """The series with other nights from these indices on."""
    for at, piece in pieces:
        series[at : at + len(piece)] = piece
    return series


DRIFT = [value * (1 - 0.001 * i) for i, value in enumerate(nights(80, 0.01, 8)) if value]


@pytest.mark.parametrize(
    ("series", "found"),
    [
        # nights without a result count
        (edited(nights(60, 0.01, 5, (40, 0.8)), (10, [None, math.nan, 0.0, -1.0])), [40]),
        # odd nights are no level
        (edited(nights(50, 0.01, 6), (20, [0.6]), (30, [0.7, 0.7]), (48, [0.7, 0.7])), []),
        (nights(42, 0.001, 7, (40, 0.8)), []),  # two nights a side, however quiet
        (nights(5, 0.0, 7, (3, 0.5)), []),
        (nights(60, 0.001, 7, (40, 0.98)), []),  # two per cent
        (DRIFT, []),  # 8 % in 80 nights without a night on which it happened
        ([1.0] * 50, []),  # no scatter at all divides nothing by zero
        ([1.0] * 30 + [0.9] * 10, [30]),
        ([], []),
        ([None] * 9, []),
    ],
)
def test_changes_of_a_series(series: list[float | None], found: list[int]) -> None:
    """A change has three nights a side and three per cent; its index is that of the list."""
    assert changepoints(series) == found


@pytest.mark.parametrize("seed", range(3))
def test_what_was_reported_is_reported_again(seed: int) -> None:
    """Over all prefixes nothing vanishes and nothing moves by more than two nights."""
    series = nights(60, 0.03, seed, (35, 0.88))
    before: list[int] = []
    for end in range(61):
        found = changepoints(series[:end])
        assert len(found) >= len(before)
        assert all(abs(new - old) <= 2 for new, old in zip(found, before, strict=False))
        before = found
    assert before
