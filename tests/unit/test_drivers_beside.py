"""An additional statement during a load: metrics from the seconds around it."""

import pytest

from dbbench.drivers import beside
from dbbench.metrics.counts import Counts
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.outcome import Outcome


def outcome(tps: list[int]) -> Outcome:
    """A load with so many transactions a second, each of 10 ms; those of a second below 50 took 800
    ms.
    """
    counts = Counts(len(tps))
    for second, number in enumerate(tps):
        took_us = 800_000 if number < 50 else 10_000
        counts.transactions[second] = number
        counts.latencies[second, 100 * 9 if took_us == 10_000 else 1359] = number
        counts.longest_us[second] = took_us
    return Outcome(
        0.0,
        len(tps),
        sum(tps),
        0,
        counts.series(len(tps)),
        Histogram(),
        between=counts.measure,
    )


def test_a_stall_beside_the_statement_is_reported() -> None:
    """Of the seconds from its begin to 5 s after its end, against the window before; neither the
    warm-up nor seconds after the window count. An even load has a ratio of 1 and no stall;
    without a second before there is no guess.
    """
    load = outcome([900, *[100] * 4, 5, 3, *[100] * 8])
    found = beside.effect(load, warm=1, began=5.2, ended=6.4, whole=15)
    assert found["during_tps_ratio"] == pytest.approx((5 + 3 + 5 * 100) / 7 / 100)
    assert (found["during_stall_s"], found["during_max_ms"]) == (2, 800)
    assert found["during_p999_ms"] == pytest.approx(800, rel=0.01)
    found = beside.effect(outcome([100] * 10), warm=0, began=3.0, ended=3.1, whole=6)
    assert (found["during_tps_ratio"], found["during_stall_s"], found["during_max_ms"]) == (
        1.0,
        0.0,
        10,
    )
    found = beside.effect(outcome([100] * 4), warm=0, began=0.0, ended=0.1, whole=4)
    assert found["during_tps_ratio"] is found["during_stall_s"] is None
