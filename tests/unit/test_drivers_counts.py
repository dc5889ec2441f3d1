"""Counts per second and latency: zeros, gaps, windows."""

import numpy as np
import pytest

from dbbench.metrics.counts import BUCKETS, Counts, buckets_of
from dbbench.metrics.histogram import Histogram, bucket_of


def filled() -> Counts:
    """Four seconds: 3 transactions, none, 1, 2."""
    counts = Counts(4)
    for second, latency_us in ((0, 100), (0, 200), (0, 300), (2, 1000), (3, 50), (3, 70)):
        counts.latencies[second, bucket_of(latency_us)] += 1
        counts.transactions[second] += 1
        counts.longest_us[second] = max(counts.longest_us[second], latency_us)
    counts.errors[3] = 2
    return counts


def test_buckets_are_those_of_the_histogram() -> None:
    """The fast way over arrays gives the bucket that `histogram.bucket_of` gives."""
    latencies = [0.0, 0.5, 1.0, 1.5, 99.0, 12345.6, 3e9]
    assert [bucket_of(us) for us in latencies] == buckets_of(np.array(latencies)).tolist()
    assert buckets_of(np.array([1e30]))[0] == BUCKETS - 1  # nothing is lost, however long it took


def test_a_second_without_progress_is_a_zero_and_one_after_the_tools_end_a_gap() -> None:
    """The load lived and finished nothing, which has no latencies; what was not measured is not a
    zero.
    """
    series = filled().series(lived_s=4.0)
    assert (series["tps"][1], series["p95_ms"][1]) == (0.0, None)
    series = filled().series(lived_s=2.3)
    assert series["tps"] == [3.0, 0.0, 1.0, None]
    assert series["errors"] == [0.0, 0.0, 0.0, None]


@pytest.mark.parametrize("percent", [50, 95, 99])
def test_percentiles_of_a_second_are_the_histograms(percent: int) -> None:
    """A second's column and its histogram agree."""
    counts = Counts(2)
    rng = np.random.default_rng(1)
    for bucket in buckets_of(rng.lognormal(7, 1, 777)):
        counts.latencies[1, bucket] += 1
    histogram = Histogram(
        {int(b): int(counts.latencies[1, b]) for b in np.flatnonzero(counts.latencies[1])}
    )
    assert histogram.percentile_ms(percent) == pytest.approx(
        counts.series(2.0)[f"p{percent}_ms"][1]
    )


def test_the_window_leaves_out_what_is_before_it() -> None:
    """Warm-up is neither in transactions, errors, the histogram nor the longest latency."""
    window = filled().measure(3, 4)
    assert (window.transactions, window.errors, window.histogram.total, window.longest_ms) == (
        2,
        2,
        2,
        0.07,
    )
    assert filled().measure(1, 2).longest_ms is None
